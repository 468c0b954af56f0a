"""``arsenai compare``: levels of factors compared, by means and tests, or by robustness over scenarios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.arsenai.design.folder import ANALYSIS
from palaestrai_mosaik.core.errors import FINISHED

from .analyse import (
    design_data,
    next_step,
    outcome_progress,
    resample_progress,
    robustness_data,
    robustness_lines,
    runs_line,
    write_robustness,
    write_table,
)
from .common import find_folder
from .output import answer, interval, number, say, say_unless_quiet, select, table, warn, wrapped

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.arsenai.analysis.comparison import Comparison
    from palaestrai_mosaik.arsenai.analysis.comparison.robustness import Robustness
    from palaestrai_mosaik.arsenai.analysis.results import Results

# the columns of the table of pairs
_PAIR = (
    *("pair", "n", "lost", "difference", "interval", "p", "p (Holm)", "better"),
    *("improvement", "interval", "p (improvement)"),
)
# printed instead of an interval if all values are equal
_EQUAL = "all equal"
# the frames of a comparison, with one file each
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
    """Compare levels of factors of a design; print tables and write them as CSV."""
    from palaestrai_mosaik.arsenai.analysis.comparison import compare_design
    from palaestrai_mosaik.arsenai.analysis.results import Results

    with outcome_progress() as progress, resample_progress("compare") as drawing:
        results = Results(find_folder(folder), store, progress)
        comparisons = compare_design(results, by, baseline, outcomes, progress=drawing)
    directory = Path(output) if output is not None else results.folder.path / ANALYSIS
    names = [outcome.name for outcome in results.outcome_specs]
    blocks = ("\n".join(_comparison_lines(comparison)) for comparison in comparisons)
    say(runs_line(results, names), *blocks, end="\n\n")
    written = list(_write_comparisons(comparisons, directory))
    _print_compared(results, comparisons, written, store)
    compared = [_comparison_data(comparison) for comparison in comparisons]
    answer({**design_data(results, names), "comparisons": compared, "files": written})
    return FINISHED


def compare_robustness(
    folder: str | None,
    *,
    store: str | None,
    by: Sequence[str],
    over: Sequence[str],
    satisfice: Sequence[str],
    outcomes: Sequence[str],
    output: str | None,
) -> int:
    """Print how robust the levels of the factors ``by`` are over scenarios; write tables as CSV.

    Missing arguments are taken from the design (``analysis.robustness``).
    """
    from palaestrai_mosaik.arsenai.analysis.comparison.robustness import robustness
    from palaestrai_mosaik.arsenai.analysis.results import Results
    from palaestrai_mosaik.arsenai.design.model import RobustnessSpec

    with outcome_progress() as progress, resample_progress("compare") as drawing:
        results = Results(find_folder(folder), store, progress)
        planned = results.spec.analysis.robustness
        if planned is not None and not outcomes:
            outcomes = [item.name for item in results.outcome_specs if item.better is not None]
        planned = planned or RobustnessSpec()
        factors = _split(by) or planned.by, _split(over) or planned.over
        entries = robustness(results, *factors, outcomes, satisfice or planned.satisfice, drawing)
    directory = Path(output) if output is not None else results.folder.path / ANALYSIS
    names = [outcome.name for outcome in results.outcome_specs]
    blocks = ("\n".join(robustness_lines(item)) for item in entries)
    say(runs_line(results, names), *blocks, end="\n\n")
    written = write_robustness(entries, directory)
    _print_compared(results, entries, written, store)
    compared = [robustness_data(item) for item in entries]
    answer({**design_data(results, names), "robustness": compared, "files": written})
    return FINISHED


def _split(texts: Sequence[str]) -> list[str]:
    """Split names at commas (``load,delay``)."""
    return [name for text in texts for name in text.split(",") if name]


def _print_compared(
    results: Results,
    comparisons: Sequence[Comparison | Robustness],
    written: Sequence[Path],
    store: str | None,
) -> None:
    """Print the written files, the warnings about comparisons, and the next command."""
    say_unless_quiet(*written)
    if results.not_collected:
        warn(results.not_collected)
    for comparison in comparisons:
        warn(*(f"{comparison.title}: {warning}" for warning in comparison.warnings))
    say_unless_quiet(next_step(results.folder.path, store))


def _comparison_data(comparison: Comparison) -> dict[str, Any]:
    return {
        "outcome": comparison.outcome,
        "by": comparison.by,
        "better": comparison.options.better,
        "confidence": comparison.options.confidence,
        **select(comparison, "constant", "levels", "pairs", "warnings", "notes"),
    }


def _comparison_lines(comparison: Comparison) -> Iterator[str]:
    better = f" ({comparison.options.better} is better)" if comparison.options.better is not None else ""
    share = f"{comparison.options.confidence:.4g}"
    yield f"{comparison.title}{better}, intervals with confidence {share}"
    if comparison.constant is not None:
        runs = int(comparison.levels["n"].sum())
        yield f"  all {runs:,} runs gave {number(comparison.constant)}: there is nothing to compare"
        return
    aggregates = ("mean", "interval", "IQM", "interval", "median", "interval")
    unequal = () if comparison.equal_settings else ("settings",)
    yield table(
        ("level", "runs", "lost", *unequal, *aggregates, "std"),
        [_level(row, unequal) for row in comparison.levels.to_dict("records")],
        indent="  ",
    )
    yield ""
    yield table(
        _PAIR,
        [_pair(row) for row in comparison.pairs.to_dict("records")],
        indent="  ",
    )
    yield from (wrapped(f"  {note}", 4) for note in comparison.notes)


def _level(row: dict[Any, Any], columns: Sequence[str]) -> tuple[Any, ...]:
    aggregates = (
        part for name in ("mean", "iqm", "median") for part in (row[name], _between_columns(row, name))
    )
    more = (row[name] for name in columns)
    return (row["level"], row["n"], row["lost"] or None, *more, *aggregates, row["std"])


def _pair(row: dict[Any, Any]) -> tuple[Any, ...]:
    n = row["n"] if row["n"] == row["n_b"] else f"{row['n']} and {row['n_b']}"
    return (
        *(f"{row['a']} - {row['b']}", n, row["lost"] or None),
        *(row["difference"], _between_columns(row, "difference")),
        *(row["p"], row["p_holm"], row["favours"] or None),
        *(row["improvement"], _between_columns(row, "improvement"), row["improvement_p"]),
    )


def _between_columns(row: dict[Any, Any], name: str) -> str | None:
    limits = interval(row[f"{name}_low"], row[f"{name}_high"])
    if limits is not None:
        return limits
    return _EQUAL if row["n"] > 1 and row["distinct"] == 1 and name != "improvement" else None


def _write_comparisons(comparisons: Sequence[Comparison], directory: Path) -> Iterator[Path]:
    """Write each kind of frame of all comparisons to one file; yield the files."""
    import pandas as pd

    for name in _FRAMES:
        frames = [_labelled(comparison, getattr(comparison, name)) for comparison in comparisons]
        whole = pd.concat([frame for frame in frames if len(frame)] or frames)
        yield write_table(whole, directory / f"comparison-{name}.csv", digits=None)


def _labelled(comparison: Comparison, frame: pd.DataFrame) -> pd.DataFrame:
    labelled = frame.copy()
    labelled.insert(0, "outcome", comparison.outcome)
    labelled.insert(1, "by", " and ".join(comparison.by))
    return labelled
