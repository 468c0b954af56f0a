"""The results of a race as files: Markdown, CSV, JSON, and a picture."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from .figures import METRICS, Figure, Row, table

#: metrics of a design, which has no steps
_OF_DESIGNS = ("seconds", "cpu_s", "peak_mb", "processes")
#: metrics of runs that the picture shows, and the bars' colours
_PICTURED = ("steps_per_s", "start_s", "stop_s", "cpu_s", "peak_mb", "bytes_per_step")
_COLOURS = ("#b35806", "#2166ac")


def write(found: dict[str, Any], folder: Path, theirs: str, ours: str) -> list[Path]:
    """Write race.md, race.csv, race.json and, where anything was measured, race.png; return the files."""
    rows, designs = rows_of(found, theirs, ours)
    files = [folder / "race.md", folder / "race.json"]
    files[0].write_text(markdown(found, rows, designs, theirs, ours), encoding="utf-8")
    files[1].write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    measured = [*found["runs"], *found["designs"]]
    if measured:
        files.append(folder / "race.csv")
        _write_csv(files[-1], measured)
    if rows or designs:
        files.append(folder / "race.png")
        picture(rows, designs, files[-1], (theirs, ours))
    return files


def rows_of(found: dict[str, Any], theirs: str, ours: str) -> tuple[list[Row], list[Row]]:
    """Return the rows of runs and of designs."""
    designs = [row for row in table(found["designs"], theirs, ours) if row.metric in _OF_DESIGNS]
    return table(found["runs"], theirs, ours), designs


def markdown(found: dict[str, Any], rows: list[Row], designs: list[Row], theirs: str, ours: str) -> str:
    """Return the report."""
    lines = ["# A race", "", *_circumstances(found, theirs, ours), ""]
    for heading, some in (("Runs", rows), ("Designs", designs)):
        if some:
            lines += [f"## {heading}", "", *_figures(some, theirs, ours), ""]
    if found["failures"]:
        lines += ["## Errors that were planted", "", *_failures(found["failures"]), ""]
    if found["limits"]:
        lines += ["## Our own limits", "", *_limits(found["limits"]), ""]
    lines += ["## Notes", "", *(f"- {note}" for note in found["notes"] or ["none"]), ""]
    return "\n".join(lines)


def _circumstances(found: dict[str, Any], theirs: str, ours: str) -> list[str]:
    machine, before, after = found["machine"], found["load_before"], found["load_after"]
    rounds = "1 round" if found["repeats"] == 1 else f"{found['repeats']} rounds"
    versions = {
        side: ", ".join(f"{name} {version}" for name, version in packages.items())
        for side, packages in found["versions"].items()
    }
    governor = machine["governor"] or "not told"
    return [
        f"{found['begun']}, {found['seconds'] / 60:.1f} minutes, {rounds}, documents of"
        f" {found['steps']} steps. Median (smallest to largest); the ratio says how many times better {ours}"
        " is, as the median over the rounds.",
        "",
        f"- machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB; governor: {governor};"
        f" {machine['system']}",
        f"- load average before {before['minute']:.2f}, after {after['minute']:.2f}; in use by others before"
        f" {before['in_use']:.0%}, after {after['in_use']:.0%}",
        *(f"- {side}: {versions[side]}" for side in (theirs, ours)),
    ]


def _figures(rows: list[Row], theirs: str, ours: str) -> list[str]:
    lines = [f"| | {theirs} | {ours} | ratio |", "|---|---:|---:|---:|"]
    case = ""
    for row in rows:
        if row.case != case:
            case = row.case
            lines.append(f"| **{case}** | | | |")
        better = "" if row.ratio is None else f"{number(row.ratio)} x"
        lines.append(f"| {METRICS[row.metric][0]} | {_cell(row.theirs)} | {_cell(row.ours)} | {better} |")
    return lines


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return "not measured"
    if len(figure.values) == 1:
        return number(figure.median)
    return f"{number(figure.median)} ({number(figure.low)} to {number(figure.high)})"


def number(value: float) -> str:
    """Return a number with three significant digits, without an exponent."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 or size == 0 else f"{value:.3g}"


def _failures(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    lines = [
        "| | | exit code | seconds | the store says | rows | left behind | last words |",
        "|---|---|---:|---:|---|---:|---|---|",
    ]
    for one in found["planted"]:
        message = one["message"].replace("|", "\\|")
        count = len(one["left"])
        left = f"{count} process{'es' if count > 1 else ''}" if count else "nothing"
        lines.append(
            f"| {one['case']} | {one['side']} | {one['exit_code']} | {one['seconds']:.1f} |"
            f" {one['status']} | {one['rows']} | {left} | {message} |"
        )
    lines.append("")
    for one in found["same_seed"]:
        lines.append(
            f"- trajectories of {one['runs']} runs with the same seed: {one['side']}: {one['trajectories']}"
        )
    return lines


def _limits(found: list[dict[str, Any]]) -> list[str]:
    lines = ["| | median | smallest | largest | |", "|---|---:|---:|---:|---|"]
    for one in found:
        values = " | ".join(number(one[key]) for key in ("median", "min", "max"))
        lines.append(f"| {one['name']} | {values} | {one['unit']} |")
    return lines


def _write_csv(file: Path, measured: Sequence[dict[str, Any]]) -> None:
    columns = list(dict.fromkeys(key for one in measured for key in one))
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, columns)
        writer.writeheader()
        writer.writerows(measured)


def picture(rows: Iterable[Row], designs: Iterable[Row], file: Path, sides: tuple[str, str]) -> None:
    """Draw bars of both sides, a panel for each metric, on logarithmic axes; whiskers are the spread."""
    panels: list[tuple[str, list[Row]]] = []
    listed = list(rows)
    for metric in _PICTURED:
        mine = [row for row in listed if row.metric == metric]
        if mine:
            panels.append((METRICS[metric][0], mine))
    seconds = [row for row in designs if row.metric == "seconds"]
    if seconds:
        panels.append(("seconds to generate a design", seconds))
    heights = [1.0 + 0.5 * len(some) for _, some in panels]
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(9.0, sum(heights) + 0.4), height_ratios=heights, squeeze=False
    )
    for (heading, some), axis in zip(panels, axes[:, 0], strict=True):
        _panel(axis, heading, some)
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in _COLOURS]
    figure.legend(handles, sides, loc="upper right", ncols=2, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.35 / figure.get_figheight()))
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _panel(axis: Axes, heading: str, rows: list[Row]) -> None:
    smallest = min(f.low for row in rows for f in (row.theirs, row.ours) if f is not None)
    largest = max(f.high for row in rows for f in (row.theirs, row.ours) if f is not None)
    begin = max(smallest, 1e-3) / 3
    axis.set_xscale("log")
    for place, row in enumerate(rows):
        for offset, found, colour in ((-0.2, row.theirs, _COLOURS[0]), (0.2, row.ours, _COLOURS[1])):
            if found is None:
                continue
            spread = [[found.median - found.low], [found.high - found.median]]
            axis.barh(place + offset, found.median - begin, 0.38, begin, color=colour)
            axis.errorbar(found.median, place + offset, xerr=spread, color="black", capsize=2, linewidth=0.8)
            axis.annotate(
                f" {number(found.median)}", (found.high, place + offset), va="center", fontsize=7, xytext=(3, 0),
                textcoords="offset points",
            )  # fmt: skip
    axis.set_xlim(begin, max(largest, begin * 2) * 3)
    axis.set_yticks(range(len(rows)), [row.case for row in rows], fontsize=8)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_title(f"{heading} (logarithmic)", fontsize=9, loc="left")
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(axis="x", labelsize=7)
