"""Conditions on outcomes, and the runs in which they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.arsenai.design.expressions import Expression
from palaestrai_mosaik.arsenai.design.few import FEWEST_SETTINGS
from palaestrai_mosaik.arsenai.design.outcomes import STATUS, read_condition
from palaestrai_mosaik.core.errors import DocumentError, PalaestraiMosaikError
from palaestrai_mosaik.core.printing import count
from palaestrai_mosaik.types.arrays import BoolVector, IntArray

from ..results import Results

if TYPE_CHECKING:
    import pandas as pd

#: the smallest number of settings in which the condition must hold, and must not hold
FEWEST_OF_EACH = 5


@dataclass(frozen=True)
class LabelledRuns:
    """The runs of a design, labelled by a condition.

    Attributes:
        condition: the condition as written.
        row: (runs,) the row of the design of each run that has a value.
        holds: (runs,) whether the condition holds in it.
        executed: (runs,) the number of its execution, which runs of several rows can share.
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
        """The number of settings with a run that has a value."""
        return len(np.unique(self.setting[self.row]))


def parse_condition(results: Results, text: str) -> Expression:
    """Parse the condition. Raises :class:`PalaestraiMosaikError` if it is invalid."""
    try:
        return read_condition(text, [outcome.name for outcome in results.outcome_specs])
    except DocumentError as error:
        raise PalaestraiMosaikError(error.problems[0].message) from None


def label_runs(results: Results, condition: Expression) -> LabelledRuns:
    """Evaluate the condition for each run.

    A run is lost if an outcome in the condition has no finite value. If the condition names only the status, failed
    runs are not lost, but missing ones are.

    Raises:
        PalaestraiMosaikError: the condition cannot be computed.
    """
    import pandas as pd

    frame = results.outcomes()
    has_value = (frame["status"] != "missing").to_numpy()
    for name in condition.names:
        if name != STATUS:
            has_value &= np.isfinite(frame[name].to_numpy(dtype=float))
    columns = {name: frame[name].tolist() for name in condition.names}
    try:
        holds = [
            condition.evaluate({name: values[i] for name, values in columns.items()})
            for i in np.flatnonzero(has_value)
        ]
    except DocumentError as error:
        raise PalaestraiMosaikError(error.problems[0].message) from None
    row = frame["row"].to_numpy(dtype=np.int64)
    executed = pd.factorize(frame["run"])[0].astype(np.int64)
    setting = np.zeros(len(results.folder.sample.unit), dtype=np.int64)
    # Reversed, so that the first repetition of a row counts.
    setting[row[::-1]] = executed[::-1]
    return LabelledRuns(
        condition.text,
        row[has_value],
        np.array(holds, dtype=bool),
        executed[has_value],
        pd.factorize(setting)[0].astype(np.int64),
        row[~has_value],
    )


def refusal(runs: LabelledRuns, frame: pd.DataFrame, names: Sequence[str]) -> str:
    """Return the reason why no box can be searched for, or an empty string.

    Args:
        runs: the labelled runs.
        frame: the outcomes of all runs.
        names: the outcomes in the condition.
    """
    total, holds = len(runs.holds), int(runs.holds.sum())
    if not total:
        return "no run has a value of what the condition names"
    if holds in (0, total):
        text = "in no run" if not holds else "in every run"
        return f"the condition holds {text} of {total:,}{_ranges(frame, names)}"
    if runs.settings < FEWEST_SETTINGS:
        return (
            f"{count(runs.settings, 'setting')} with a value are too few to tell a box from chance; "
            f"at least {FEWEST_SETTINGS} are needed"
        )
    for label, text in ((True, "holds"), (False, "does not hold")):
        settings = len(np.unique(runs.setting[runs.row[runs.holds == label]]))
        if settings < FEWEST_OF_EACH:
            return (
                f"the condition {text} in {count(settings, 'setting')} of {runs.settings:,} only; "
                f"at least {FEWEST_OF_EACH} are needed{_ranges(frame, names)}"
            )
    return ""


def _ranges(frame: pd.DataFrame, names: Sequence[str]) -> str:
    """Format the ranges of the outcomes."""
    texts = []
    for name in names:
        if name == STATUS:
            continue
        values = frame[name].to_numpy(dtype=float)
        values = values[np.isfinite(values)]
        if len(values):
            texts.append(f"{name} goes from {values.min():.5g} to {values.max():.5g}")
    return f" ({'; '.join(texts)})" if texts else ""
