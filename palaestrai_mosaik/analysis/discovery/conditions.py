"""Conditions on outcomes, and the runs in which they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.design.expressions import Expression
from palaestrai_mosaik.design.outcomes import STATUS, read_condition
from palaestrai_mosaik.errors import DocumentError, PalaestraiMosaikError
from palaestrai_mosaik.text import count
from palaestrai_mosaik.types.arrays import BoolVector, IntArray

from ..results import Results

if TYPE_CHECKING:
    import pandas as pd

#: with fewer settings, no box can be told from chance
FEWEST_SETTINGS = 20
#: in so many settings at least the condition must hold, and in so many it must not
FEWEST_OF_EACH = 5


@dataclass(frozen=True)
class LabelledRuns:
    """In which runs a condition holds.

    Attributes:
        condition: the condition as written.
        row: (runs,) the row of the design of each run that has a value.
        holds: (runs,) whether the condition holds in it.
        executed: (runs,) the number of the run that was executed for it.
        setting: (rows,) the number of each row's setting; rows with identical documents share one.
        lost: (lost runs,) the row of each run without a value.
    """

    condition: str
    row: IntArray
    holds: BoolVector
    executed: IntArray
    setting: IntArray
    lost: IntArray

    @property
    def settings(self) -> int:
        """How many settings have a run with a value."""
        return len(np.unique(self.setting[self.row]))


def parse_condition(results: Results, text: str) -> Expression:
    """Return the condition. Raises :class:`PalaestraiMosaikError` where it is not understood."""
    try:
        return read_condition(text, [outcome.name for outcome in results.outcome_specs])
    except DocumentError as error:
        raise PalaestraiMosaikError(error.problems[0].message) from None


def label_runs(results: Results, condition: Expression) -> LabelledRuns:
    """Return in which runs the condition holds.

    A run is lost where an outcome that the condition names has no finite value. Where it names the status alone,
    runs that failed are not lost; runs that are missing are.

    Raises:
        PalaestraiMosaikError: the condition cannot be computed.
    """
    import pandas as pd

    frame = results.outcomes()
    known = (frame["status"] != "missing").to_numpy()
    for name in condition.names:
        if name != STATUS:
            known &= np.isfinite(frame[name].to_numpy(dtype=float))
    columns = {name: frame[name].tolist() for name in condition.names}
    try:
        holds = [
            condition.evaluate({name: values[i] for name, values in columns.items()})
            for i in np.flatnonzero(known)
        ]
    except DocumentError as error:
        raise PalaestraiMosaikError(error.problems[0].message) from None
    row = frame["row"].to_numpy(dtype=np.int64)
    executed = pd.factorize(frame["run"])[0].astype(np.int64)
    setting = np.zeros(len(results.folder.sample.unit), dtype=np.int64)
    # (in reverse, so that the first repetition of a row counts)
    setting[row[::-1]] = executed[::-1]
    return LabelledRuns(
        condition.text,
        row[known],
        np.array(holds, dtype=bool),
        executed[known],
        pd.factorize(setting)[0].astype(np.int64),
        row[~known],
    )


def refusal(runs: LabelledRuns, frame: pd.DataFrame, names: Sequence[str]) -> str:
    """Return why no box can be looked for; empty where one can.

    Args:
        runs: where the condition holds.
        frame: the outcomes of all runs.
        names: the outcomes that the condition names.
    """
    total, holds = len(runs.holds), int(runs.holds.sum())
    if not total:
        return "no run has a value of what the condition names"
    if holds in (0, total):
        told = "in no run" if not holds else "in every run"
        return f"the condition holds {told} of {total:,}{_ranges(frame, names)}"
    if runs.settings < FEWEST_SETTINGS:
        return (
            f"{count(runs.settings, 'setting')} with a value are too few to tell a box from chance; "
            f"at least {FEWEST_SETTINGS} are needed"
        )
    for wanted, told in ((True, "holds"), (False, "does not hold")):
        found = len(np.unique(runs.setting[runs.row[runs.holds == wanted]]))
        if found < FEWEST_OF_EACH:
            return (
                f"the condition {told} in {count(found, 'setting')} of {runs.settings:,} only; "
                f"at least {FEWEST_OF_EACH} are needed{_ranges(frame, names)}"
            )
    return ""


def _ranges(frame: pd.DataFrame, names: Sequence[str]) -> str:
    """Return from where to where the outcomes go."""
    told = []
    for name in names:
        if name == STATUS:
            continue
        values = frame[name].to_numpy(dtype=float)
        values = values[np.isfinite(values)]
        if len(values):
            told.append(f"{name} goes from {values.min():.5g} to {values.max():.5g}")
    return f" ({'; '.join(told)})" if told else ""
