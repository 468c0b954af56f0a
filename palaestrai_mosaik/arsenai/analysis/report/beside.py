"""The section on the importance of factors among the best settings of a search, and everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ..beside import Beside
from .numbers import Mark, slug
from .pictures.canvas import wide
from .pictures.rows import Block, Row, rows_picture
from .tables import Table

if TYPE_CHECKING:
    from .wording import Cautions

#: limit on drawn factors, the most important first; the table has all
MOST_DRAWN = 30
#: the two bars of a factor
_SERIES = ("among the best", "everywhere (ST)")


def beside(importances: Beside, cautions: Cautions) -> dict[str, Any]:
    """Return the content of the section: a picture and a table of each outcome."""
    return {
        "search": importances.search,
        "other": importances.other,
        "confidence": f"{100 * importances.confidence:g}",
        "refs": cautions.refer(importances.notes),
        "outcomes": [
            {
                "name": name,
                "picture": _picture(importances, name),
                "left_out": max(0, len(frame) - MOST_DRAWN),
                "table": Table(f"beside-{slug(name)}", f"{name}: among the best and everywhere", frame),
            }
            for name, frame in importances.tables.items()
        ],
    }


def _picture(importances: Beside, name: str) -> Markup:
    rows = tuple(
        Row(row["factor"], (Mark(row["importance"]), Mark(row["ST"], row["ST_low"], row["ST_high"])))
        for row in importances.tables[name].head(MOST_DRAWN).to_dict("records")
    )
    title = f"{name}: what matters among the best, and everywhere"
    block = Block(title, "share", rows, _SERIES, origin=0.0, ends=(0.0, 1.0), stems=True)
    return wide(
        f"beside-{slug(name)}", lambda picture_id, width: rows_picture(picture_id, title, [block], width)
    )
