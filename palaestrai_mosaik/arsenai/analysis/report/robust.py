"""The section on robustness: the quality of each level over all scenarios, as a picture and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ..comparison.robustness import DRAWN, SATISFICING, Robustness, metric_table
from .numbers import Mark
from .pictures.canvas import wide
from .pictures.rows import Block, Row, rows_picture
from .tables import Table

if TYPE_CHECKING:
    from .wording import Cautions

#: limit on drawn levels; the table has all
MOST_DRAWN = 30
#: columns of the table on the page; the file has all
_COLUMNS = ("level", "scenarios", "lost", "mean", "worst", "percentile", *DRAWN["regret"], SATISFICING)


def robustness(result: Robustness, number: int, cautions: Cautions) -> dict[str, Any]:
    """Return the content of the section on one outcome, or on one condition."""
    identity = f"robustness-{number}"
    metrics = metric_table(result)
    part = f"robustness by {' and '.join(result.by)}"
    return {
        "title": result.title,
        "better": result.better,
        "kind": result.drawn,
        "over": " and ".join(result.over),
        "confidence": f"{100 * result.confidence:g}",
        "refs": cautions.refer(result.warnings, part),
        "picture": _picture(result, identity),
        "left_out": max(0, len(metrics) - MOST_DRAWN),
        "tables": [
            Table(f"{identity}-levels", f"Robustness of {result.title}", metrics, columns=_COLUMNS),
            Table(f"{identity}-scenarios", f"Each scenario, {result.title}", result.scenarios, most=0),
        ],
    }


def _picture(result: Robustness, identity: str) -> Markup:
    table, kind = result.table, result.drawn
    names = DRAWN[kind]
    marks = {
        (str(row["level"]), str(row["metric"])): Mark(row["value"], row["low"], row["high"])
        for row in table.to_dict("records")
    }
    scenarios = result.scenarios.assign(level=result.scenarios["level"].astype(str))
    rows = []
    for level in list(dict.fromkeys(map(str, table["level"])))[:MOST_DRAWN]:
        level_marks = tuple(marks[level, metric] for metric in names)
        if kind == SATISFICING:
            rows.append(Row(level, level_marks))
        else:
            rows.append(
                Row(level, level_marks, scenarios.loc[scenarios["level"] == level, kind].to_numpy(float))
            )
    if kind == SATISFICING:
        title, axis = f"In how many scenarios {result.what}", "share of the scenarios"
    elif kind == "regret":
        title, axis = f"Regret in {result.what}", f"distance of {result.what} to the best level in a scenario"
    else:
        title, axis = f"{result.what} over the scenarios", result.what
    series = tuple(names.values()) if len(names) > 1 else ()
    ends = (0.0, 1.0) if kind == SATISFICING else ()
    origin = None if kind == "value" else 0.0
    block = Block(title, axis, tuple(rows), series, origin=origin, ends=ends, stems=kind == SATISFICING)
    return wide(identity, lambda picture_id, width: rows_picture(picture_id, title, [block], width))
