"""The boxes of ``arsenai analyse --discover``: as text, as tables and as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik import files
from palaestrai_mosaik.analysis.discovery.discover import (
    box_table,
    limit_table,
    setting_table,
    trajectory_table,
)
from palaestrai_mosaik.analysis.discovery.figure import plot_discovery
from palaestrai_mosaik.text import count

from .tables import NOTHING, number, table

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.analysis.discovery import Discovery, FoundBox

#: name of a file -> what makes its table
TABLES = {
    "discovery-boxes.csv": box_table,
    "discovery-limits.csv": limit_table,
    "discovery-trajectory.csv": trajectory_table,
    "discovery-settings.csv": setting_table,
}


def write_discoveries(
    found: Sequence[Discovery], directory: Path, write: Callable[[pd.DataFrame, Path], Path]
) -> list[Path]:
    """Write the tables of all discoveries and a picture of each; return the files.

    A picture of an earlier analysis that has no box any more, or no condition, is removed.
    """
    written = [write(made(found), directory / name) for name, made in TABLES.items()]
    for place, one in enumerate(found, start=1):
        file = directory / f"discovery-{place}.png"
        if one.boxes:
            written.append(plot_discovery(one, file))
        else:
            files.remove(file, missing_ok=True)
    place = len(found) + 1
    while (file := directory / f"discovery-{place}.png").exists():
        files.remove(file, missing_ok=True)
        place += 1
    return written


def lines_of(one: Discovery) -> Iterator[str]:
    """Yield what is printed of a discovery."""
    yield one.title
    if one.refused:
        yield f"  no box: {one.refused}"
    for box in one.boxes:
        yield ""
        yield f"  {box.method} box {box.number}: {box.rule}"
        yield f"    {_figures(box)}"
        yield f"    {_sizes(box)}"
        yield table(
            ("factor", "limit", "value", "quasi-p", "in resamples", "interval"),
            [_limit(row) for row in box.limits.to_dict("records")],
            indent="    ",
        )
    yield from (f"  {note}" for note in one.notes)


def _figures(box: FoundBox) -> str:
    told = []
    for name in ("coverage", "density"):
        low, high = (number(box.figures[f"{name}_{end}"]) for end in ("low", "high"))
        interval = "" if NOTHING in (low, high) else f" [{low}, {high}]"
        told.append(f"{name} {number(box.figures[name])}{interval}")
    told.append(f"mass {number(box.figures['mass'])}")
    told.append(f"overlap with resamples {number(box.figures['overlap'])}")
    return ", ".join(told)


def _sizes(box: FoundBox) -> str:
    figures = {name: int(value) for name, value in box.figures.items() if name in _COUNTS}
    executed = f" ({figures['executed']:,} executed)" if figures["executed"] < figures["runs"] else ""
    told = [f"{count(figures['runs'], 'run')}{executed}, the condition holds in {figures['holds']:,}"]
    if figures["settings"] < figures["executed"]:
        some = figures["settings_some"]
        told.append(
            f"{count(figures['settings'], 'setting')}: in {figures['settings_all']:,} with all seeds, "
            f"in {some:,} with some"
        )
    if figures["lost"]:
        told.append(f"{figures['lost']:,} lost")
    return "; ".join(told)


_COUNTS = ("runs", "executed", "holds", "settings", "settings_all", "settings_some", "lost")


def _limit(row: dict[Any, Any]) -> tuple[Any, ...]:
    low, high = number(row["low"]), number(row["high"])
    between = None if NOTHING in (low, high) else f"[{low}, {high}]"
    value = row["quasi_p"]
    shown = "<0.001" if value < 0.001 else f"{value:.3f}"
    return row["factor"], row["limit"], row["value"], shown, f"{100 * row['present']:.0f} %", between


def data_of(one: Discovery) -> dict[str, Any]:
    """Return a discovery as the answer of ``--json`` has it."""
    return {
        "condition": one.condition,
        "holds": one.holds,
        "runs": len(one.runs.holds),
        "lost": len(one.runs.lost),
        "refused": one.refused or None,
        "notes": one.notes,
        "boxes": [
            {
                **{"method": box.method, "box": box.number, "rule": box.rule, **box.figures},
                "limits": box.limits,
                "trajectory": box.trajectory,
            }
            for box in one.boxes
        ],
    }
