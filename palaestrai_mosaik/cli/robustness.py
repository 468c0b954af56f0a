"""Text and data of ``arsenai compare --robustness``: levels that are good in all scenarios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.text import count

from .tables import NOTHING, number, table

if TYPE_CHECKING:
    from palaestrai_mosaik.analysis.comparison import Robustness

#: titles of the metrics
_TITLES = {
    "percentile": "90 % at least",
    "mean_variance": "mean-variance",
    "regret_max": "max regret",
    "regret_percentile": "90 % regret",
    "regret_mean": "mean regret",
}
#: marks the best level of each metric
_BEST = "*"


def names_of(texts: Sequence[str]) -> list[str]:
    """Split names at commas (``load,delay``)."""
    return [name for text in texts for name in text.split(",") if name]


def lines_of(robustness: Robustness) -> Iterator[str]:
    """Yield a table with a row per level and a column per metric with its interval; a star marks the best."""
    better = f" ({robustness.better} is better)" if robustness.better else ""
    yield f"{robustness.title}{better}, intervals with confidence {robustness.confidence:.4g}"
    metrics = list(dict.fromkeys(robustness.table["metric"]))
    headers = ["level", "scenarios"]
    for metric in metrics:
        headers += [_TITLES.get(metric, metric), "", ""]
    cells: dict[str, list[Any]] = {}
    for row in robustness.table.to_dict("records"):
        cell = cells.setdefault(row["level"], [row["level"], row["scenarios"]])
        low, high = number(row["low"]), number(row["high"])
        between = None if NOTHING in (low, high) else f"[{low}, {high}]"
        cell += [row["value"], _BEST if row["best"] else "", between]
    yield table(headers, list(cells.values()), indent="  ")
    lost = int(robustness.table["lost"].max())
    if lost:
        yield f"  {count(lost, 'scenario')} left out"


def data_of(robustness: Robustness) -> dict[str, Any]:
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
