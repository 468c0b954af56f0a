"""``arsenai analyse``: outcomes and sensitivity indices of a design, as tables and files."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik import files
from palaestrai_mosaik.design.folder import ANALYSIS
from palaestrai_mosaik.errors import PalaestraiMosaikError

from .common import FAILED, FINISHED, say, store_option
from .tables import NOTHING, count, number, table

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.analysis.results import Results
    from palaestrai_mosaik.analysis.sensitivity import SensitivityResult

# Of many pairs, the strongest are printed; the file holds all.
_MOST_PAIRS = 10
_DIGITS = "%.10g"


def analyse(
    folder: str | None,
    *,
    store: str | None,
    methods: Sequence[str],
    outcomes: Sequence[str],
    output: str | None,
) -> int:
    """Print the outcomes of the design in ``folder`` and what they depend on; write both as CSV.

    Returns 1 where a method that was asked for (by ``methods`` or the design) could not be used on
    an outcome, or no method could.
    """
    from palaestrai_mosaik.analysis.results import Results
    from palaestrai_mosaik.analysis.sensitivity import choose_outcomes, sensitivity, tidy

    from .folders import find_folder

    results = Results(find_folder(folder), store)
    names = choose_outcomes(results, outcomes)
    found = sensitivity(results, methods, names)
    directory = Path(output) if output is not None else results.folder.path / ANALYSIS
    say(runs_line(results, names))
    say(_outcome_table(results, names), end="\n\n")
    for one in found:
        say("\n".join(_lines(one)), end="\n\n")
    if not found:
        say(
            f"no method of sensitivity analysis is named, and none fits {results.spec.sampler.name} by default"
        )
    say(_write(results.table(), directory / "outcomes.csv", None))
    if found:
        say(_write(tidy(found), directory / "sensitivity.csv", _DIGITS))
    # what is on standard output comes first where both streams are one
    sys.stdout.flush()
    if results.not_collected:
        say(f"warning: {results.not_collected}", error=True)
    refused = [one for one in found if one.refused]
    for one in refused:
        say(f"warning: {one.outcome} by {one.method}: {one.refused}", error=True)
    say(next_step(results.folder.path, store))
    asked = methods or results.spec.analysis.methods
    return FAILED if refused and (asked or len(refused) == len(found)) else FINISHED


def next_step(folder: Path, store: str | None) -> str:
    """Return the line that says what to do after an analysis."""
    return f"next: {shlex.join(['arsenai', 'report', str(folder)])}{store_option(store)}"


def runs_line(results: Results, names: Sequence[str]) -> str:
    """Return how many runs the design has, how many of them were executed, and what became of them."""
    from palaestrai_mosaik.analysis.loss import lost_runs, told_executed

    lost = lost_runs(results.outcomes(), names)
    told = [told_executed(lost["runs"] - lost["missing"], lost["executed"])]
    told += [f"{lost[status]:,} {status}" for status in ("failed", "missing") if lost[status]]
    said = ", ".join(filter(None, told))
    return count(lost["runs"], "run") + (f" ({said})" if said else "")


def _outcome_table(results: Results, names: Sequence[str]) -> str:
    from palaestrai_mosaik.analysis.loss import lost_runs

    frame = results.outcomes()
    lost = lost_runs(frame, names)
    rows = []
    for name in names:
        values = frame[name].to_numpy(dtype=float)
        values = values[np.isfinite(values)]
        moments: Sequence[float | None] = [None] * 5
        if len(values):
            # of a sample, as the report has it
            spread = values.std(ddof=1) if len(values) > 1 else None
            moments = [values.mean(), spread, values.min(), float(np.median(values)), values.max()]
        rows.append((name, *moments, lost[name] or None))
    headers = ("outcome", "mean", "std", "min", "median", "max", "not finite")
    return table(headers, rows, indent="  ")


def _lines(one: SensitivityResult) -> Iterator[str]:
    from palaestrai_mosaik.analysis.loss import told_executed

    told = [f"{count(one.used, 'run')} used", told_executed(one.used, one.executed)]
    told.append(f"{one.lost:,} lost" if one.lost else "")
    yield f"{one.outcome} by {one.method} ({', '.join(filter(None, told))})"
    if one.refused:
        yield f"  not computed: {one.refused}"
        return
    singles = one.frame[one.frame["factor2"] == ""]
    yield _wide(singles, ["factor"])
    pairs = one.frame[one.frame["factor2"] != ""]
    if len(pairs):
        first = pairs["index"].iloc[0]
        order = pairs[pairs["index"] == first].sort_values("value", ascending=False, kind="stable")
        strongest = order.head(_MOST_PAIRS)[["factor", "factor2"]]
        yield _wide(strongest.merge(pairs, on=["factor", "factor2"], sort=False), ["factor", "factor2"])
        if len(order) > len(strongest):
            yield f"  and {count(len(order) - len(strongest), 'weaker pair')}"
    yield from (f"  {note}" for note in one.notes)


def _wide(frame: pd.DataFrame, keys: list[str]) -> str:
    """Return the indices of each factor or pair side by side, with their intervals."""
    indices = list(dict.fromkeys(frame["index"]))
    cells: dict[tuple[Any, ...], dict[str, list[Any]]] = {}
    for row in frame.to_dict("records"):
        where = tuple(row[key] for key in keys)
        cells.setdefault(where, {})[str(row["index"])] = [row["value"], _between(row)]
    headers = [*(" x " if key == "factor2" else key for key in keys)]
    headers += [title for index in indices for title in (index, "")]
    rows = [
        [*where, *(cell for index in indices for cell in values.get(index, [None, None]))]
        for where, values in cells.items()
    ]
    return table(headers, rows, indent="  ")


def _between(row: dict[Any, Any]) -> str | None:
    low, high = number(row["low"]), number(row["high"])
    return None if NOTHING in (low, high) else f"[{low}, {high}]"


def _write(frame: pd.DataFrame, file: Path, digits: str | None) -> Path:
    try:
        files.make_folder(file.parent, parents=True)
        with files.writing_text(file) as stream:
            frame.to_csv(stream, index=False, lineterminator="\n", float_format=digits)
    except OSError as error:
        raise PalaestraiMosaikError(f"cannot write {file}: {error.strerror}") from error
    return file
