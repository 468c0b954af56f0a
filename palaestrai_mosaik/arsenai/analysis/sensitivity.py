"""Sensitivity indices: the factors that an outcome depends on, and how much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.arsenai.design.methods import METHODS, Index, Method, Refused, Repetitions, Study
from palaestrai_mosaik.arsenai.design.rules import check_sampler, default_methods, rows_used
from palaestrai_mosaik.core.errors import DocumentError, StoreError, did_you_mean
from palaestrai_mosaik.core.progress import PartsProgress, ProgressCallback
from palaestrai_mosaik.core.seeding import integer_seed
from palaestrai_mosaik.types.arrays import BoolVector, FloatArray, FloatVector, IndexVector, IntArray

from .lost_runs import UsedRuns, keep
from .results import Results, labels

if TYPE_CHECKING:
    import pandas as pd

#: the columns of frames of indices
COLUMNS = (
    *("outcome", "method", "index", "factor", "factor2", "value", "low", "high"),
    *("used", "lost", "executed"),
)
# Variation below this, relative to the size of an outcome, is due to rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class SensitivityResult:
    """The indices of one outcome by one method.

    Attributes:
        outcome: name of the outcome.
        method: name of the method.
        frame: one row per index, with the columns ``outcome``, ``method``, ``index`` (``S1``, ``ST``, ``S2``,
            ``mu``, ``mu_star``, ``sigma``, ...), ``factor`` (axis or group), ``factor2`` (the other one of a
            pair, else empty), ``value``, ``low``, ``high`` (NaN without an interval), ``used``, ``lost`` and
            ``executed``.
        used: number of used runs of the design (rows times repetitions), or of executed runs if these are the
            observations.
        lost: number of lost ones.
        executed: number of executed runs behind the used ones.
        notes: notes on the indices.
        refused: the reason if there are no indices, and all values are NaN; else empty.
    """

    outcome: str
    method: str
    frame: pd.DataFrame = field(repr=False)
    used: int
    lost: int
    executed: int
    notes: tuple[str, ...] = ()
    refused: str = ""


def sensitivity(
    results: Results,
    methods: Sequence[str] | None = None,
    outcomes: Sequence[str] | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[SensitivityResult, ...]:
    """Compute the indices of each outcome by each method.

    Equal results give equal indices, in whatever order the runs finished.

    Args:
        results: the results of the design.
        methods: names of methods; ``None``: those of the design, or else those that fit its sampler.
        outcomes: names of outcomes; ``None``: all.
        progress: called with the number of resamples drawn and the total; ``None``: no reports.

    Returns:
        One result per outcome and method, grouped by outcome.

    Raises:
        DocumentError: a method does not exist or does not fit the design.
        StoreError: an outcome does not exist.
    """
    names = choose_outcomes(results, outcomes)
    chosen = choose_methods(results, methods)
    prepared = [_prepare_study(results, outcome, METHODS[name]) for outcome in names for name in chosen]
    counted = PartsProgress(progress, sum(study.resamples for study in prepared))
    indices = []
    for study in prepared:
        indices.append(_analyse(study, counted))
        counted.end(study.resamples)
    return tuple(indices)


def choose_methods(results: Results, methods: Sequence[str] | None) -> tuple[str, ...]:
    """Return the methods to use (see :func:`sensitivity`)."""
    spec = results.spec
    if not methods:
        return spec.analysis.methods or default_methods(spec)
    requested = replace(spec, analysis=replace(spec.analysis, methods=tuple(methods)))
    problems = [
        spec.problem(message, "analysis")
        for path, message in check_sampler(requested)
        if tuple(path[:2]) == ("analysis", "methods")
    ]
    if problems:
        raise DocumentError(problems)
    return tuple(dict.fromkeys(methods))


def choose_outcomes(results: Results, outcomes: Sequence[str] | None) -> tuple[str, ...]:
    """Check the names of outcomes; without any, return all outcomes of the design."""
    names = [outcome.name for outcome in results.outcome_specs]
    for name in outcomes or ():
        if name not in names:
            hint = did_you_mean(name, names)
            raise StoreError(f"the design has no outcome {name!r}{hint}; it has: {', '.join(names)}")
    return tuple(dict.fromkeys(outcomes or names))


def tidy(results: Sequence[SensitivityResult]) -> pd.DataFrame:
    """Concatenate the indices of several results."""
    import pandas as pd

    frames = [result.frame for result in results]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(COLUMNS))


def _analyse(prepared: _PreparedStudy, progress: ProgressCallback) -> SensitivityResult:
    outcome, method, kept = prepared.outcome, prepared.method, prepared.kept
    study = replace(prepared.study, progress=progress)
    notes = list(kept.notes)
    refused = kept.refused
    rows: Sequence[Index] = ()
    if not refused and is_constant(study.y):
        refused = f"constant outcome: it is {study.y[0]:.6g} in all {_constant(study)}, so that there is nothing to explain"
    if not refused:
        try:
            result = method.analyse(study)
            rows = result.rows
            notes += result.notes
        except Refused as reason:
            refused = str(reason)
    if refused:
        players = study.players if method.groups else study.names
        rows = [Index(index, player, float("nan")) for index in method.indices for player in players]
    counts = (kept.used, kept.lost, prepared.executed)
    frame = _frame(outcome, method.name, rows, counts)
    return SensitivityResult(outcome, method.name, frame, *counts, tuple(notes), refused)


def is_constant(y: FloatVector) -> bool:
    """Whether an outcome is the same everywhere except for rounding."""
    return bool(np.ptp(y) <= _ROUNDING * np.abs(y).max())


def _constant(study: Study) -> str:
    """Return the noun for the constant values: repetitions may differ even if their means do not."""
    runs = study.repetitions
    if runs is None or is_constant(runs.y):
        return "runs"
    return "rows (mean of the repetitions)"


def _frame(outcome: str, method: str, rows: Sequence[Index], counts: tuple[int, int, int]) -> pd.DataFrame:
    import pandas as pd

    table = [
        (outcome, method, row.index, row.factor, row.factor2, row.value, row.low, row.high, *counts)
        for row in rows
    ]
    return pd.DataFrame.from_records(table, columns=list(COLUMNS)).astype(
        {"value": float, "low": float, "high": float}
    )


@dataclass(frozen=True)
class _PreparedStudy:
    """The study of an outcome by a method, with its rows and runs, and the number of executed runs among these."""

    outcome: str
    method: Method
    study: Study
    kept: UsedRuns
    executed: int

    @property
    def resamples(self) -> int:
        """The number of resamples to draw."""
        return 0 if self.kept.refused else self.method.resamples(self.study)


def _prepare_study(results: Results, outcome: str, method: Method) -> _PreparedStudy:
    spec, sample = results.spec, results.folder.sample
    notes: list[str] = []
    if spec.sampler.name == "sobol" and method.drops == "row":
        notes.append(
            f"of each Saltelli block, {method.name} uses the two rows that are independent of each other"
        )
    every, run = _by_repetition(results, outcome)
    needed = rows_used(spec, method, sample.block, run[:, 0])
    levels = None
    if method.shared_runs == "observations":
        levels = _levels(results, run[:, 0])
        if not needed.all():
            notes.append(_identical(int((~needed).sum()) * run.shape[1], run.size))
    y = every[needed]
    common = spec.seed_policy == "common"
    kept = keep(y, sample.block[needed], method.drops, common)
    mask = np.flatnonzero(needed)[kept.rows]
    notes += kept.notes
    if not kept.refused:
        notes += _missing_levels(results, method, needed, mask)
    if method.shared_runs == "points":
        notes += _shared(run[mask, 0], sample.block[mask])
    elif method.shared_runs == "observations" and common and spec.repetitions == 1:
        notes.append("all runs have one seed: what is said holds for this seed, and may not hold for others")
    analysis = spec.analysis
    row, repetition = np.nonzero(kept.runs[kept.rows])
    study = Study(
        sample.unit[mask],
        kept.y[kept.rows],
        sample.block[mask],
        tuple(axis.name for axis in spec.axes),
        tuple(axis.group or axis.name for axis in spec.axes),
        spec.sampler.name,
        sample.arguments,
        analysis.confidence,
        analysis.resamples,
        integer_seed(spec.seed, "analysis", outcome, method.name) or 1,
        Repetitions(row, repetition, y[kept.runs], common) if spec.repetitions > 1 else None,
        _numbered(run[mask, 0]),
        None if levels is None else levels[mask],
    )
    executed = len(np.unique(run[needed][kept.runs]))
    return _PreparedStudy(outcome, method, study, replace(kept, notes=tuple(notes)), executed)


def _by_repetition(results: Results, outcome: str) -> tuple[FloatArray, IntArray]:
    """Return the outcomes, (rows, repetitions), not finite if lost, and the numbers of the executed runs."""
    import pandas as pd

    frame = results.outcomes()
    position = frame["row"].to_numpy(), frame["repetition"].to_numpy()
    shape = len(results.folder.sample.unit), results.spec.repetitions
    y, run = np.full(shape, np.nan), np.zeros(shape, dtype=np.int64)
    y[position] = frame[outcome].to_numpy(dtype=np.float64)
    run[position] = pd.factorize(frame["run"])[0]
    return y, run


def _numbered(run: IntArray) -> IntArray | None:
    """Number the runs in order of their first occurrence; None if all differ."""
    import pandas as pd

    numbers, runs = pd.factorize(run)
    return None if len(runs) == len(run) else numbers.astype(np.int64)


def _identical(runs: int, size: int) -> str:
    verb = "is" if runs == 1 else "are"
    return (
        f"{runs:,} of {size:,} runs {verb} identical to another, executed with it, and counted once with it"
    )


def _shared(run: IntArray, block: IntArray) -> Iterator[str]:
    """Yield a note if rows of several blocks share a run, so that its chance affects all of them."""
    pairs = np.unique(np.column_stack([run, block]), axis=0)[:, 0]
    if len(np.unique(pairs)) < len(pairs):
        yield (
            f"rows of several blocks share an executed run ({len(np.unique(run)):,} for {len(run):,} rows): indices and "
            "intervals take its outcome as exact, and do not tell what other seeds would change"
        )


def _levels(results: Results, run: IntArray) -> IntArray:
    """Return the index of each row's level on each axis, (rows, axes), or -1 if inactive.

    An axis is inactive by its ``when``, or because rows that differ in it have identical documents. ``run``: (rows,)
    the number of the executed run.
    """
    import pandas as pd

    values = results.folder.values()
    columns = [
        pd.factorize(np.array(labels(axis.factors, values), dtype=object))[0] for axis in results.spec.axes
    ]
    levels = np.column_stack(columns).astype(np.int64)
    frame = pd.DataFrame(levels)
    varies = frame.groupby(run).transform("nunique").to_numpy() > 1
    levels[varies] = -1
    return levels


def _missing_levels(results: Results, method: Method, needed: BoolVector, left: IndexVector) -> Iterator[str]:
    """Yield a note on levels without a row left; for tests of single runs (ANOVA), every value is a level."""
    values = results.folder.values()
    for axis in results.spec.axes:
        if axis.levels is None and method.shared_runs != "observations":
            continue
        # Not by coordinates, as these differ between rows of one level.
        names = labels(axis.factors, values)
        remaining = {names[row] for row in left}
        missing = dict.fromkeys(
            name
            for row in np.flatnonzero(needed)
            if (name := names[row]) is not None and name not in remaining
        )
        if missing:
            levels = ", ".join(f"{axis.name}={name}" for name in missing)
            yield f"no run of {levels} is left: nothing is said of it"
