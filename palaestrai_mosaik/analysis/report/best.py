"""The best setting that was executed, with the command that executes it again."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from palaestrai_mosaik.analysis.comparison.resampling import distinct
from palaestrai_mosaik.analysis.results import labels

from .data import ReportData
from .factors import value_of, zipped_levels
from .numbers import Mark, cell, typeset


@dataclass(frozen=True)
class Best:
    """The setting with the best mean of ``outcome`` over its repetitions.

    ``row`` is the first row of the design that has it. ``runs`` and ``planned`` count the finished and all
    repetitions; ``settings`` from how many settings it was chosen: rows whose runs are all the same are one. ``fresh``: the
    mean over so many (``fresh_runs``) runs with seeds that a search has not used; ``None``: there are none.
    ``ties``: how many others have the same mean. ``values``: what each factor is, by its name. ``documents``: those
    of the finished repetitions, in the folder.
    """

    outcome: str
    better: Literal["higher", "lower"]
    row: int
    mark: Mark
    runs: int
    planned: int
    settings: int
    ties: int
    values: Mapping[str, str]
    documents: tuple[str, ...]
    fresh: Mark | None = None
    fresh_runs: int = 0

    @property
    def command(self) -> str | None:
        """The command that executes its finished repetitions again, from the folder of the design."""
        return shlex.join(["palaestrai-mosaik", "start", *self.documents]) if self.documents else None


def best_of(data: ReportData, outcome: str) -> Best | None:
    """Return the best setting; ``None`` where all runs have one value or none, or nobody has said which direction is better.

    The interval is Student's, over the repetitions, at the confidence of the design. Of settings with the same mean,
    the first one of the design is taken. Of a search with one objective whose best settings were confirmed, it is the
    best over fresh seeds.
    """
    better = better_of(data, outcome)
    finite = data.finite(outcome)
    if better is None or finite.empty:
        return None
    if len(finite) > 1 and distinct(finite[outcome].to_numpy(float)) == 1:
        return None
    sign = 1 if better == "higher" else -1
    means = finite.groupby("row")[outcome].mean()
    # rows that share all of their runs (factors that are inactive, blocks that repeat a point) are one setting
    runs = data.runs.groupby("row")["run"].agg(frozenset)
    means = means[~runs.loc[means.index].duplicated()]
    row = int((sign * means).sort_values(ascending=False, kind="stable").index[0])
    confirmed = _confirmed(data, outcome)
    if confirmed and data.search is not None and not data.search.several:
        # (they are sorted by what they gave with fresh seeds)
        row = next(iter(confirmed))
    fresh, fresh_runs = confirmed.get(row, (None, 0))
    own = finite[finite["row"] == row].sort_values("repetition").drop_duplicates("run")
    values = own[outcome].to_numpy(float)
    return Best(
        outcome=outcome,
        better=better,
        row=row,
        mark=interval(values, data.spec.analysis.confidence),
        runs=len(values),
        planned=int(data.runs.loc[data.runs["row"] == row, "run"].nunique()),
        settings=len(means),
        ties=sum(distinct(np.array([means[row], mean])) == 1 for mean in means) - 1,
        values=_setting(data, row),
        documents=tuple(data.documents[run] for run in own["run"] if run in data.documents),
        fresh=fresh,
        fresh_runs=fresh_runs,
    )


def _confirmed(data: ReportData, outcome: str) -> dict[int, tuple[Mark, int]]:
    """Return the mean of an outcome over fresh seeds, and of how many, of each setting of a search that has one."""
    column = f"{outcome}, fresh seeds"
    if data.search is None or column not in data.search.best:
        return {}
    known = data.search.best[data.search.best[column].notna()]
    columns = ("setting", column, f"{outcome}, std", f"{outcome}, n")
    return {
        int(setting): (_student(mean, std, int(n), data.spec.analysis.confidence), int(n))
        for setting, mean, std, n in zip(*(known[name] for name in columns), strict=True)
    }


def _setting(data: ReportData, row: int) -> dict[str, str]:
    """Return what the factors are in a row; levels that are zipped stand once, under the name of their axis."""
    found: dict[str, str] = {}
    for axis in data.spec.axes:
        if zipped_levels(axis):
            (label,) = labels(axis.factors, [data.values[row]])
            if label is not None:
                found[axis.name] = label
            continue
        for factor in axis.factors:
            value = value_of(factor, data.values[row])
            if value is not None:
                found[factor.name] = typeset(value) if isinstance(value, float) else cell(value)
    return found


def better_of(data: ReportData, outcome: str) -> Literal["higher", "lower"] | None:
    """Return which direction of an outcome is better, where the design says so."""
    return next((one.better for one in data.spec.outcomes if one.name == outcome), None)


def interval(values: np.ndarray[Any, np.dtype[np.float64]], confidence: float) -> Mark:
    """Return the mean of ``values`` with Student's interval; none where there is one value, or they are all equal."""
    if len(values) < 2 or distinct(values) == 1:
        return Mark(float(values.mean()))
    return _student(float(values.mean()), float(values.std(ddof=1)), len(values), confidence)


def _student(mean: float, std: float, n: int, confidence: float) -> Mark:
    """Return a mean of ``n`` values with their standard deviation as an interval; none where there is no spread."""
    from scipy import stats

    if n < 2 or not std > 0:
        return Mark(mean)
    half = float(stats.t.ppf((1 + confidence) / 2, n - 1)) * std / math.sqrt(n)
    return Mark(mean, mean - half, mean + half)
