"""Text, tables and data of the boxes of ``arsenai analyse --discover``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.arsenai.analysis.discovery.discover import (
    box_table,
    limit_table,
    setting_table,
    trajectory_table,
)
from palaestrai_mosaik.arsenai.analysis.discovery.figure import plot_discovery
from palaestrai_mosaik.arsenai.analysis.missing_runs import executed_text
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.text import count

from .tables import interval, number, table

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.arsenai.analysis.discovery import Discovery, FoundBox

#: by file name, the function that creates its table
TABLES = {
    "discovery-boxes.csv": box_table,
    "discovery-limits.csv": limit_table,
    "discovery-trajectory.csv": trajectory_table,
    "discovery-settings.csv": setting_table,
}


def write_discoveries(
    discoveries: Sequence[Discovery], directory: Path, write: Callable[[pd.DataFrame, Path], Path]
) -> list[Path]:
    """Write the tables of all discoveries, and a picture of each; return the files.

    Outdated pictures of an earlier analysis are removed.
    """
    written = [write(make(discoveries), directory / name) for name, make in TABLES.items()]
    for position, discovery in enumerate(discoveries, start=1):
        file = directory / f"discovery-{position}.png"
        if discovery.boxes:
            written.append(plot_discovery(discovery, file))
        else:
            files.remove(file, missing_ok=True)
    position = len(discoveries) + 1
    while (file := directory / f"discovery-{position}.png").exists():
        files.remove(file, missing_ok=True)
        position += 1
    return written


def discovery_lines(discovery: Discovery) -> Iterator[str]:
    """Yield the printed lines of a discovery."""
    yield discovery.title
    if discovery.refused:
        yield f"  no box: {discovery.refused}"
    if discovery.nothing_found:
        yield f"  {discovery.nothing_found}"
    for box in discovery.boxes:
        yield ""
        yield f"  {box.method} box {box.number}: {box.rule}"
        yield f"    {_figures(box)}"
        yield f"    {_sizes(box)}"
        yield table(
            ("factor", "limit", "value", "quasi-p", "in resamples", "interval"),
            [_limit(row) for row in box.limits.to_dict("records")],
            indent="    ",
        )
    yield from (f"  {note}" for note in discovery.notes)


def _figures(box: FoundBox) -> str:
    parts = []
    for name in ("coverage", "density"):
        limits = interval(box.figures[f"{name}_low"], box.figures[f"{name}_high"])
        parts.append(f"{name} {number(box.figures[name])}{'' if limits is None else f' {limits}'}")
    parts.append(f"mass {number(box.figures['mass'])}")
    parts.append(f"overlap with resamples {number(box.figures['overlap'])}")
    return ", ".join(parts)


def _sizes(box: FoundBox) -> str:
    figures = {name: int(value) for name, value in box.figures.items() if name in _COUNTS}
    executed = executed_text(figures["runs"], figures["executed"])
    parts = [
        f"{count(figures['runs'], 'run')}{f' ({executed})' * bool(executed)}, the condition holds in {figures['holds']:,}"
    ]
    if figures["settings"] < figures["executed"]:
        partly = figures["settings_some"]
        parts.append(
            f"{count(figures['settings'], 'setting')}: in {figures['settings_all']:,} with all seeds, "
            f"in {partly:,} with some"
        )
    if figures["lost"]:
        parts.append(f"{figures['lost']:,} lost")
    return "; ".join(parts)


_COUNTS = ("runs", "executed", "holds", "settings", "settings_all", "settings_some", "lost")


def _limit(row: dict[Any, Any]) -> tuple[Any, ...]:
    value = row["quasi_p"]
    quasi_p = "<0.001" if value < 0.001 else f"{value:.3f}"
    present = f"{100 * row['present']:.0f} %"
    return row["factor"], row["limit"], row["value"], quasi_p, present, interval(row["low"], row["high"])


def discovery_data(discovery: Discovery) -> dict[str, Any]:
    """Return the data of a discovery for ``--json``."""
    return {
        "condition": discovery.condition,
        "holds": discovery.holds,
        "runs": len(discovery.runs.holds),
        "lost": len(discovery.runs.lost),
        "refused": discovery.refused or None,
        "nothing_found": discovery.nothing_found or None,
        "notes": discovery.notes,
        "boxes": [
            {
                **{"method": box.method, "box": box.number, "rule": box.rule, **box.figures},
                "limits": box.limits,
                "trajectory": box.trajectory,
            }
            for box in discovery.boxes
        ],
    }
