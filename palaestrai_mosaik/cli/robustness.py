"""Text and data of ``arsenai compare --robustness``: levels that are good in all scenarios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.analysis.comparison.robustness import METRIC_TITLES
from palaestrai_mosaik.text import count

from .tables import NOTHING, number, table

if TYPE_CHECKING:
    from palaestrai_mosaik.analysis.comparison import Robustness

#: marks the best level of each metric
_BEST = "*"


def names_of(given: Sequence[str]) -> list[str]:
    """Split names at commas (``load,delay``)."""
    return [name for text in given for name in text.split(",") if name]


def lines_of(one: Robustness) -> Iterator[str]:
    """Yield a table with a row per level and a column per metric with its interval; a star marks the best."""
    better = f" ({one.better} is better)" if one.better else ""
    yield f"{one.title}{better}, intervals with confidence {one.confidence:.4g}"
    metrics = list(dict.fromkeys(one.table["metric"]))
    headers = ["level", "scenarios"]
    for metric in metrics:
        headers += [METRIC_TITLES.get(metric, metric), "", ""]
    cells: dict[str, list[Any]] = {}
    for row in one.table.to_dict("records"):
        cell = cells.setdefault(row["level"], [row["level"], row["scenarios"]])
        low, high = number(row["low"]), number(row["high"])
        between = None if NOTHING in (low, high) else f"[{low}, {high}]"
        cell += [row["value"], _BEST if row["best"] else "", between]
    yield table(headers, list(cells.values()), indent="  ")
    lost = int(one.table["lost"].max())
    if lost:
        yield f"  {count(lost, 'scenario')} left out"


def data_of(one: Robustness) -> dict[str, Any]:
    """Return the data of an entry for ``--json``."""
    return {
        **{"what": one.what, "by": one.by, "over": one.over, "better": one.better},
        **{"confidence": one.confidence, "metrics": one.table, "scenarios": one.scenarios},
        "warnings": one.warnings,
    }
