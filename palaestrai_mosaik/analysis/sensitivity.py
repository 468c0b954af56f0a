"""Sensitivity indices: which factors an outcome depends on, and how much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.design.rules import check_sampler, default_methods
from palaestrai_mosaik.errors import DocumentError, StoreError, did_you_mean
from palaestrai_mosaik.seeding import integer_seed

from .loss import Kept, keep
from .methods import ANALYSERS, Index, Method, Refused, Repetitions, Study
from .results import Results, labels

if TYPE_CHECKING:
    import pandas as pd

#: the columns of every frame of indices
COLUMNS = ("outcome", "method", "index", "factor", "factor2", "value", "low", "high", "used", "lost")
# An outcome that varies by less than this, relative to its size, is constant but for rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class SensitivityResult:
    """The indices of one outcome by one method.

    ``frame``: one row per index, with the columns ``outcome``, ``method``, ``index`` (``S1``,
    ``ST``, ``S2``, ``mu``, ``mu_star``, ``sigma``, ...), ``factor`` (axis or group), ``factor2``
    (the other one of a pair, else empty), ``value``, ``low``, ``high`` (NaN where there is no
    interval), ``used`` and ``lost`` (runs of the design: rows times repetitions). ``notes`` say what has to be
    known about them; ``refused`` is why there are none (all values are NaN then), empty where there are.
    """

    outcome: str
    method: str
    frame: pd.DataFrame = field(repr=False)
    used: int
    lost: int
    notes: tuple[str, ...] = ()
    refused: str = ""


def sensitivity(
    results: Results, methods: Sequence[str] | None = None, outcomes: Sequence[str] | None = None
) -> tuple[SensitivityResult, ...]:
    """Return the indices of each outcome by each method, outcomes one after the other.

    ``methods``: default those of the design, or else those that fit its sampler. ``outcomes``:
    their names, default all. Same results, same indices, in whatever order the runs finished.

    Raises :class:`~palaestrai_mosaik.errors.DocumentError` for methods that do not exist or do not
    fit the design, :class:`~palaestrai_mosaik.errors.StoreError` for outcomes that do not exist.
    """
    names = choose_outcomes(results, outcomes)
    chosen = choose_methods(results, methods)
    return tuple(_analyse(results, outcome, name, ANALYSERS[name]) for outcome in names for name in chosen)


def choose_methods(results: Results, methods: Sequence[str] | None) -> tuple[str, ...]:
    """Return the methods that are meant (see :func:`sensitivity`)."""
    spec = results.spec
    if not methods:
        return spec.analysis.methods or default_methods(spec)
    asked = replace(spec, analysis=replace(spec.analysis, methods=tuple(methods)))
    problems = [
        spec.problem(message, "analysis")
        for place, message in check_sampler(asked)
        if tuple(place[:2]) == ("analysis", "methods")
    ]
    if problems:
        raise DocumentError(problems)
    return tuple(dict.fromkeys(methods))


def choose_outcomes(results: Results, outcomes: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the outcomes that are meant, default all."""
    known = [outcome.name for outcome in results.outcome_specs]
    for name in outcomes or ():
        if name not in known:
            hint = did_you_mean(name, known)
            raise StoreError(f"the design has no outcome {name!r}{hint}; it has: {', '.join(known)}")
    return tuple(dict.fromkeys(outcomes or known))


def tidy(results: Sequence[SensitivityResult]) -> pd.DataFrame:
    """Return the indices of several results as one frame."""
    import pandas as pd

    frames = [result.frame for result in results]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(COLUMNS))


def _analyse(results: Results, outcome: str, name: str, method: Method) -> SensitivityResult:
    study, kept = _study(results, outcome, name, method)
    notes = list(kept.notes)
    refused = kept.refused
    rows: Sequence[Index] = ()
    if not refused and np.ptp(study.y) <= _ROUNDING * np.abs(study.y).max():
        refused = f"constant outcome: it is {study.y[0]:.6g} in all runs, so that there is nothing to explain"
    if not refused:
        try:
            found = method.analyse(study)
            rows = found.rows
            notes += found.notes
        except Refused as reason:
            refused = str(reason)
    if refused:
        players = study.players if method.groups else study.names
        rows = [Index(index, player, float("nan")) for index in method.indices for player in players]
    return SensitivityResult(
        outcome, name, _frame(outcome, name, rows, kept), kept.used, kept.lost, tuple(notes), refused
    )


def _frame(outcome: str, method: str, rows: Sequence[Index], kept: Kept) -> pd.DataFrame:
    import pandas as pd

    table = [
        (
            outcome,
            method,
            row.index,
            row.factor,
            row.factor2,
            row.value,
            row.low,
            row.high,
            kept.used,
            kept.lost,
        )
        for row in rows
    ]
    return pd.DataFrame.from_records(table, columns=list(COLUMNS)).astype(
        {"value": float, "low": float, "high": float}
    )


def _study(results: Results, outcome: str, name: str, method: Method) -> tuple[Study, Kept]:
    """Return what the method is shown, and what it is not shown."""
    spec, sample = results.spec, results.folder.sample
    wanted = np.ones(len(sample.unit), dtype=bool)
    notes: tuple[str, ...] = ()
    if spec.sampler.name == "sobol" and method.loses == "row":
        # between the first and the last row of a block are those that repeat their coordinates
        block = sample.block
        wanted = np.append(True, block[1:] != block[:-1]) | np.append(block[1:] != block[:-1], True)
        notes = (f"of each Saltelli block, {name} uses the two rows that are independent of each other",)
    y = _by_repetition(results, outcome, len(wanted))[wanted]
    common = spec.seed_policy == "common"
    kept = keep(y, sample.block[wanted], method.loses, common)
    mask = np.flatnonzero(wanted)[kept.rows]
    notes += kept.notes if kept.refused else (*kept.notes, *_lost_levels(results, name, wanted, mask))
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
        integer_seed(spec.seed, "analysis", outcome, name) or 1,
        Repetitions(row, repetition, y[kept.runs], common) if spec.repetitions > 1 else None,
    )
    return study, replace(kept, notes=notes)


def _by_repetition(results: Results, outcome: str, rows: int) -> npt.NDArray[np.float64]:
    """Return the outcome by row and repetition; not finite where there is none."""
    frame = results.outcomes()
    y = np.full((rows, results.spec.repetitions), np.nan)
    y[frame["row"].to_numpy(), frame["repetition"].to_numpy()] = frame[outcome].to_numpy(dtype=np.float64)
    return y


def _lost_levels(
    results: Results, method: str, wanted: npt.NDArray[np.bool_], left: npt.NDArray[np.intp]
) -> Iterator[str]:
    """Tell which levels no row is left of; for ANOVA, all that a factor takes are its levels."""
    unit = results.folder.sample.unit
    for number, axis in enumerate(results.spec.axes):
        column = unit[:, number]
        lost = wanted & ~np.isin(column, column[left])
        if lost.any() and (axis.levels is not None or method == "anova"):
            told = labels(axis.factors, [results.folder.values()[row] for row in np.flatnonzero(lost)])
            levels = ", ".join(dict.fromkeys(f"{axis.name}={label}" for label in told if label is not None))
            yield f"no run of {levels or axis.name} is left: nothing is said of it"
