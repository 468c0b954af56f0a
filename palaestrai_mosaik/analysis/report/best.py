"""The best setting that was executed, with the command that executes it again."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from palaestrai_mosaik.analysis.comparison.resampling import distinct
from palaestrai_mosaik.design.model import INACTIVE

from .data import ReportData
from .numbers import Mark, readable


@dataclass(frozen=True)
class Best:
    """The row with the best mean of ``outcome`` over its repetitions.

    ``runs`` and ``planned`` count the finished and all repetitions; ``rows`` from how many rows it was chosen;
    ``ties`` how many others have the same mean; ``document`` the document of its first repetition, in the folder.
    """

    outcome: str
    better: Literal["higher", "lower"]
    row: int
    mark: Mark
    runs: int
    planned: int
    rows: int
    ties: int
    values: Mapping[str, str]
    document: str | None

    @property
    def command(self) -> str | None:
        """The command that executes the row, from the folder of the design."""
        return None if self.document is None else shlex.join(["palaestrai-mosaik", "start", self.document])


def best_of(data: ReportData, outcome: str) -> Best | None:
    """Return the best row; ``None`` where all runs have one value or none, or nobody has said which direction is better.

    The interval is Student's, over the repetitions, at the confidence of the design.
    """
    better = better_of(data, outcome)
    finite = data.finite(outcome)
    if better is None or finite.empty:
        return None
    if len(finite) > 1 and distinct(finite[outcome].to_numpy(float)) == 1:
        return None
    sign = 1 if better == "higher" else -1
    means = finite.groupby("row")[outcome].mean()
    order = (sign * means).sort_values(ascending=False, kind="stable")
    row = int(order.index[0])
    own = finite[finite["row"] == row].sort_values("repetition")
    # rows that share a run have its value once
    own = own.drop_duplicates("run")
    values = own[outcome].to_numpy(float)
    shown: dict[str, Any] = dict(data.values[row])
    return Best(
        outcome=outcome,
        better=better,
        row=row,
        mark=interval(values, data.spec.analysis.confidence),
        runs=len(values),
        planned=data.spec.repetitions,
        rows=len(means),
        ties=sum(distinct(np.array([means[row], mean])) == 1 for mean in means) - 1,
        values={name: readable(value) for name, value in shown.items() if value is not INACTIVE},
        document=next((data.documents[run] for run in own["run"] if run in data.documents), None),
    )


def better_of(data: ReportData, outcome: str) -> Literal["higher", "lower"] | None:
    """Return which direction of an outcome is better, where the design says so."""
    return next((one.better for one in data.spec.outcomes if one.name == outcome), None)


def interval(values: np.ndarray[Any, np.dtype[np.float64]], confidence: float) -> Mark:
    """Return the mean of ``values`` with Student's interval; none where there is one value, or they are all equal."""
    from scipy import stats

    mean = float(values.mean())
    if len(values) < 2 or distinct(values) == 1:
        return Mark(mean)
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    half = float(stats.t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return Mark(mean, mean - half, mean + half)
