"""Text, tables and data of robustness: levels that are good in all scenarios."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.arsenai.analysis.comparison.robustness import METRIC_TITLES
from palaestrai_mosaik.core.text import count

from .tables import interval, table

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.arsenai.analysis.comparison.robustness import Robustness

#: marks the best level of each metric
_BEST = "*"


def names_of(texts: Sequence[str]) -> list[str]:
    """Split names at commas (``load,delay``)."""
    return [name for text in texts for name in text.split(",") if name]


def robustness_lines(robustness: Robustness) -> Iterator[str]:
    """Yield a table with a row per level and a column per metric with its interval; a star marks the best."""
    better = f" ({robustness.better} is better)" if robustness.better else ""
    yield f"{robustness.title}{better}, intervals with confidence {robustness.confidence:.4g}"
    metrics = list(dict.fromkeys(robustness.table["metric"]))
    headers = ["level", "scenarios"]
    for metric in metrics:
        headers += [METRIC_TITLES.get(metric, metric), "", ""]
    cells: dict[str, list[Any]] = {}
    for row in robustness.table.to_dict("records"):
        cell = cells.setdefault(row["level"], [row["level"], row["scenarios"]])
        cell += [row["value"], _BEST if row["best"] else "", interval(row["low"], row["high"])]
    yield table(headers, list(cells.values()), indent="  ")
    lost = int(robustness.table["lost"].max())
    if lost:
        yield f"  {count(lost, 'scenario')} left out"


def write_robustness(
    entries: Sequence[Robustness], directory: Path, write: Callable[[pd.DataFrame, Path], Path]
) -> list[Path]:
    """Write metrics and scenarios of all entries as tables; return the files."""
    from palaestrai_mosaik.arsenai.analysis.comparison.robustness import robustness_table

    return [
        write(robustness_table(entries, name), directory / file)
        for name, file in (("table", "robustness.csv"), ("scenarios", "robustness-scenarios.csv"))
    ]


def robustness_data(robustness: Robustness) -> dict[str, Any]:
    """Return the data of an entry for ``--json``."""
    return {
        **{
            "what": robustness.what,
            "by": robustness.by,
            "over": robustness.over,
            "better": robustness.better,
        },
        **{
            "confidence": robustness.confidence,
            "metrics": robustness.table,
            "scenarios": robustness.scenarios,
        },
        "warnings": robustness.warnings,
    }
