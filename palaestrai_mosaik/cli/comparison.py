"""``arsenai compare``: agents and settings against each other, as tables and files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik import files
from palaestrai_mosaik.design.folder import ANALYSIS
from palaestrai_mosaik.errors import PalaestraiMosaikError

from .common import FINISHED, say
from .results import next_step, runs_line
from .tables import NOTHING, number, table

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.analysis.comparison import Comparison

# what is said in place of an interval where all that it would come from is equal
_EQUAL = "all equal"
# the frames of a comparison, each a file
_FRAMES = ("levels", "pairs", "cells", "profiles")


def compare(
    folder: str | None,
    *,
    store: str | None,
    by: Sequence[str],
    baseline: str | None,
    outcomes: Sequence[str],
    output: str | None,
) -> int:
    """Compare levels of factors of the design in ``folder`` (default: the only one here); print tables, write them as CSV."""
    from palaestrai_mosaik.analysis.comparison import compare_design
    from palaestrai_mosaik.analysis.results import Results

    from .folders import find_folder

    results = Results(find_folder(folder), store)
    found = compare_design(results, by, baseline, outcomes)
    directory = Path(output) if output is not None else results.folder.path / ANALYSIS
    say(runs_line(results, [outcome.name for outcome in results.outcome_specs]), end="\n\n")
    for one in found:
        say("\n".join(_lines(one)), end="\n\n")
    for file in _write(found, directory):
        say(file)
    # what is on standard output comes first where both streams are one
    sys.stdout.flush()
    if results.not_collected:
        say(f"warning: {results.not_collected}", error=True)
    for one in found:
        for warning in one.warnings:
            say(f"warning: {one.title}: {warning}", error=True)
    say(next_step(results.folder.path, store))
    return FINISHED


def _lines(one: Comparison) -> Iterator[str]:
    better = f" ({one.options.better} is better)" if one.options.better is not None else ""
    share = f"{one.options.confidence:.4g}"
    yield f"{one.title}{better}, intervals with confidence {share}"
    if one.constant is not None:
        runs = int(one.levels["n"].sum())
        yield f"  all {runs:,} runs gave {number(one.constant)}: there is nothing to compare"
        return
    aggregates = ("mean", "", "IQM", "", "median", "")
    unequal = () if one.equal_settings else ("settings",)
    yield table(
        ("level", "runs", "lost", *unequal, *aggregates, "std"),
        [_level(row, unequal) for row in one.levels.to_dict("records")],
        indent="  ",
    )
    yield ""
    effect = next(iter(one.pairs["rank_effect_name"].dropna()), "effect")
    estimates = ("difference", "", "improvement", "", effect)
    yield table(
        ("pair", "n", "lost", *estimates, "p", "p (Holm)", "better"),
        [_pair(row) for row in one.pairs.to_dict("records")],
        indent="  ",
    )
    yield from (f"  {note}" for note in one.notes)


def _level(row: dict[Any, Any], columns: Sequence[str]) -> tuple[Any, ...]:
    aggregates = (part for name in ("mean", "iqm", "median") for part in (row[name], _between(row, name)))
    more = (row[name] for name in columns)
    return (row["level"], row["n"], row["lost"] or None, *more, *aggregates, row["std"])


def _pair(row: dict[Any, Any]) -> tuple[Any, ...]:
    n = row["n"] if row["n"] == row["n_b"] else f"{row['n']} and {row['n_b']}"
    return (
        *(f"{row['a']} - {row['b']}", n, row["lost"] or None),
        *(row["difference"], _between(row, "difference")),
        *(row["improvement"], _between(row, "improvement")),
        *(row["rank_effect"], row["p"], row["p_holm"], row["favours"] or None),
    )


def _between(row: dict[Any, Any], name: str) -> str | None:
    low, high = number(row[f"{name}_low"]), number(row[f"{name}_high"])
    if NOTHING not in (low, high):
        return f"[{low}, {high}]"
    return _EQUAL if row["n"] > 1 and row["distinct"] == 1 and name != "improvement" else None


def _write(found: Sequence[Comparison], directory: Path) -> Iterator[Path]:
    """Write each kind of frame of all comparisons into one file; yield its name."""
    import pandas as pd

    for name in _FRAMES:
        frames = [_labelled(one, getattr(one, name)) for one in found]
        file = directory / f"comparison-{name}.csv"
        try:
            files.make_folder(directory, parents=True)
            with files.writing_text(file) as stream:
                pd.concat([frame for frame in frames if len(frame)] or frames).to_csv(
                    stream, index=False, lineterminator="\n"
                )
        except OSError as error:
            raise PalaestraiMosaikError(f"cannot write {file}: {error.strerror}") from error
        yield file


def _labelled(one: Comparison, frame: pd.DataFrame) -> pd.DataFrame:
    shown = frame.copy()
    shown.insert(0, "outcome", one.outcome)
    shown.insert(1, "by", " and ".join(one.by))
    return shown
