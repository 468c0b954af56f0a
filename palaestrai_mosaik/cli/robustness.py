"""``arsenai compare --robustness``: which levels are good in all scenarios, as text, tables and data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.text import count

from .tables import NOTHING, number, table

if TYPE_CHECKING:
    from palaestrai_mosaik.analysis.comparison import Robustness

#: what the metrics are called
_TITLES = {
    "percentile": "90 % at least",
    "mean_variance": "mean-variance",
    "regret_max": "max regret",
    "regret_percentile": "90 % regret",
    "regret_mean": "mean regret",
}
#: the best level of each metric
_BEST = "*"


def names_of(given: Sequence[str]) -> list[str]:
    """Return names that are separated by spaces, or by commas: ``load,delay``."""
    return [name for one in given for name in one.split(",") if name]


def lines_of(one: Robustness) -> Iterator[str]:
    """Yield what is printed: a row per level, a column per metric with its interval; the best have a star."""
    better = f" ({one.better} is better)" if one.better else ""
    yield f"{one.title}{better}, intervals with confidence {one.confidence:.4g}"
    metrics = list(dict.fromkeys(one.table["metric"]))
    headers = ["level", "scenarios"]
    for metric in metrics:
        headers += [_TITLES.get(metric, metric), "", ""]
    cells: dict[str, list[Any]] = {}
    for row in one.table.to_dict("records"):
        own = cells.setdefault(row["level"], [row["level"], row["scenarios"]])
        low, high = number(row["low"]), number(row["high"])
        between = None if NOTHING in (low, high) else f"[{low}, {high}]"
        own += [row["value"], _BEST if row["best"] else "", between]
    yield table(headers, list(cells.values()), indent="  ")
    lost = int(one.table["lost"].max())
    if lost:
        yield f"  {count(lost, 'scenario')} left out"


def data_of(one: Robustness) -> dict[str, Any]:
    """Return an entry as the answer of ``--json`` has it."""
    return {
        **{"what": one.what, "by": one.by, "over": one.over, "better": one.better},
        **{"confidence": one.confidence, "metrics": one.table, "scenarios": one.scenarios},
        "warnings": one.warnings,
    }
