"""The section on discoveries: pictures and tables of each condition's boxes."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from palaestrai_mosaik.arsenai.design.remark import NO_BOX, kind_of

from ..discovery import Discovery
from ..discovery.discover import box_table, limit_table, setting_table, trajectory_table
from ..discovery.figure import plane_of
from .pictures.boxes import box_picture, trade_off
from .tables import Table
from .wording import Cautions

#: limit on drawn boxes of a condition; the table has all
MOST_DRAWN = 4
_BOXES = ("method", "box", "rule", "coverage", "density", "mass", "runs", "holds", "lost", "overlap")
_LIMITS = ("method", "box", "factor", "limit", "value", "quasi_p", "present", "low", "high")


def discovery(result: Discovery, position: int, cautions: Cautions) -> dict[str, Any]:
    """Return the content of the section on one condition."""
    identity = f"discovery-{position}"
    boxes = result.boxes
    panels: list[Markup] = []
    left_out = 0
    for number, box in enumerate(boxes[:MOST_DRAWN]):
        plane = plane_of(result, box)
        if plane is not None:
            panels.append(
                box_picture(f"{identity}-{number}", f"{box.method} {box.number}: {box.rule}", plane).svg()
            )
            left_out = max(left_out, plane.left_out)
    if boxes:
        panels.append(trade_off(f"{identity}-curve", "Coverage and density", boxes).svg())
    tables = []
    if boxes:
        tables = [
            Table(
                f"{identity}-boxes", f"Boxes in which {result.condition}", box_table([result]), columns=_BOXES
            ),
            Table(
                f"{identity}-limits",
                f"Limits of these boxes, {result.condition}",
                limit_table([result]),
                columns=_LIMITS,
            ),
            Table(
                f"{identity}-trajectory",
                f"Peeling trajectories, {result.condition}",
                trajectory_table([result]),
                most=0,
            ),
            Table(
                f"{identity}-settings",
                f"Rows and their boxes, {result.condition}",
                setting_table([result]),
                most=0,
            ),
        ]
    refused = [f"{result.condition}: {result.refused}"] if result.refused else []
    without = [text for text in result.notes if result.boxes and kind_of(text) == NO_BOX]
    return {
        "condition": result.condition,
        "title": result.title,
        "nothing_found": result.nothing_found,
        "rules": [{"name": f"{box.method} {box.number}", "rule": box.rule, **box.figures} for box in boxes],
        "without": without,
        "refs": cautions.refer([*refused, *(text for text in result.notes if text not in without)]),
        "panels": panels,
        "left_out": left_out,
        "boxes": len(boxes),
        "drawn": min(len(boxes), MOST_DRAWN),
        "tables": tables,
    }
