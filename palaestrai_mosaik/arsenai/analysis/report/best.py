"""The best setting of an outcome, and the best and worst runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.arsenai.analysis.comparison.aggregates import distinct
from palaestrai_mosaik.arsenai.analysis.lost_runs import rank
from palaestrai_mosaik.arsenai.analysis.results import labels
from palaestrai_mosaik.arsenai.design.model import DesignSpec
from palaestrai_mosaik.core.errors import StoreError, did_you_mean
from palaestrai_mosaik.types.arrays import FloatVector, IntArray

from ..moments import Better, Moments, best_first, student_interval, worst_first
from .data import ReportData
from .factors import value_of, zipped_levels
from .numbers import Mark, cell, typeset

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Best:
    """The setting with the best mean of ``outcome`` over its repetitions, among those that lost no run.

    Attributes:
        outcome: name of the outcome.
        better: the better direction of the outcome.
        row: the first row of the design with the setting.
        mark: the mean with its interval.
        runs: number of finished repetitions.
        planned: number of all repetitions.
        settings: number of settings that it was chosen from; rows that share all their runs count as one.
        ties: number of other settings with the same mean.
        values: the text of each factor, by name.
        documents: documents of the finished repetitions, in the folder.
        fresh: mean over runs with seeds that the search has not used; ``None``: there are no such runs.
        fresh_runs: number of these runs.
        certain: whether it is recommended. It is not if all settings lost runs that could change the order.
        passed_over: the number of settings with a better mean that lost runs, and of the best of them, the number of
            lost and of planned runs; ``None``: there are no such settings.
        over: the uncertain factors whose values the mean is over.
    """

    outcome: str
    better: Better
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
    certain: bool = True
    passed_over: tuple[int, int, int] | None = None
    over: tuple[str, ...] = ()

    @property
    def command(self) -> str | None:
        """The command that executes its finished repetitions again, from the folder of the design."""
        return shlex.join(["palaestrai-mosaik", "start", *self.documents]) if self.documents else None


def best_of(data: ReportData, outcome: str) -> Best | None:
    """Return the best setting, or None if all runs have the same or no value, or no better direction is declared.

    There is none if all factors are uncertain.

    A setting that lost runs ranks behind all that lost none (:func:`~palaestrai_mosaik.arsenai.analysis.lost_runs.rank`). The
    interval is Student's, over the repetitions, at the confidence of the design. Of settings with the same mean, the
    first one in the design wins. If the best settings of a search with one objective were confirmed, the best mean over
    fresh seeds decides.
    """
    better, over, confirmed = better_of(data, outcome), uncertain(data.spec), _confirmed(data, outcome)
    if (
        better is None
        or (over and (len(over) == len(data.spec.axes) or not is_crossed(data)))
        or not (confirmed or _varies(data, outcome))
    ):
        return None
    finite, table = data.finite(outcome), _table(data, outcome)
    if finite.empty:
        return None
    table = table.reindex(table.index.union(list(confirmed)))
    ranking = rank(table.to_numpy(float), better == "higher", data.spec.seed_policy == "common")
    certain, index = ranking.certain, int(ranking.order[0])
    if confirmed and data.search is not None and not data.search.several:
        # The confirmed settings are sorted by their means over fresh seeds.
        index = list(table.index).index(next(iter(confirmed)))
        certain = data.search.winner is not None
    row, lost, means = int(table.index[index]), ranking.lost, table.mean(axis=1)
    fresh, fresh_runs = confirmed.get(row, (None, 0))
    first_rows = _first_rows(data)
    runs = finite[finite["row"].map(first_rows) == row].sort_values(["repetition", "row"])
    runs = runs.drop_duplicates("run")
    # A seed is one observation, whatever the values of the uncertain factors.
    of_one = runs.groupby("repetition")[outcome].mean() if over else runs[outcome]
    return Best(
        outcome=outcome,
        better=better,
        row=row,
        # The best of the confirmed settings may have been stopped early, and have no values.
        mark=_mean_mark(of_one.to_numpy(float), data.spec.analysis.confidence),
        runs=len(runs),
        planned=int(data.runs.loc[data.runs["row"].map(first_rows) == row, "run"].nunique()),
        settings=int(means.notna().sum()),
        ties=sum(distinct(np.array([means[row], mean])) == 1 for mean in means[lost == lost[index]]) - 1,
        values=_setting(data, row),
        documents=tuple(data.documents[run] for run in runs["run"] if run in data.documents),
        fresh=fresh,
        fresh_runs=fresh_runs,
        certain=certain,
        passed_over=None if confirmed else _passed_over(table, lost, index, better),
        over=over,
    )


def _varies(data: ReportData, outcome: str) -> bool:
    """Whether an outcome has a value, and not the same one in all of several runs."""
    values = data.finite(outcome)[outcome].to_numpy(float)
    return len(values) == 1 or distinct(values) > 1


def _passed_over(table: pd.DataFrame, lost: IntArray, index: int, better: str) -> tuple[int, int, int] | None:
    """Return :attr:`Best.passed_over` of the setting at ``index``, whose runs ``table`` has.

    These settings have a better mean, but lost more runs; ``None`` without any.
    """
    means = table.mean(axis=1).to_numpy() * (1 if better == "higher" else -1)
    ahead = (lost > lost[index]) & (means > means[index])
    if not ahead.any():
        return None
    first = int(np.argmax(np.where(ahead, means, -np.inf)))
    return int(ahead.sum()), int(lost[first]), table.shape[1]


def is_choice(spec: DesignSpec) -> bool:
    """Whether the settings of a design are choices, one of which can be the best.

    They are in a search. Otherwise, not all factors may be uncertain, and a setting drawn from ranges must have several
    runs: the best of many single runs is an extreme. A design that asks where a condition holds chooses nothing.
    """
    if spec.search is not None:
        return True
    chosen = [axis for axis in spec.axes if axis.name not in uncertain(spec)]
    if spec.analysis.discover or (spec.axes and not chosen):
        return False
    levels = all(factor.kind == "levels" for axis in chosen for factor in axis.factors)
    return levels or spec.repetitions > 1


def uncertain(spec: DesignSpec) -> tuple[str, ...]:
    """Return the names of a design's axes with an uncertain factor."""
    return tuple(axis.name for axis in spec.axes if any(factor.uncertain for factor in axis.factors))


def is_crossed(data: ReportData) -> bool:
    """Whether each combination of the other factors was planned with the same values of the uncertain ones."""
    states: dict[str, set[str]] = {}
    for row in range(len(data.values)):
        setting, state = _split(data, row)
        states.setdefault(setting, set()).add(state)
    return len({frozenset(combinations) for combinations in states.values()}) == 1


def _split(data: ReportData, row: int) -> tuple[str, str]:
    """Return texts that identify the setting of a row, and the values of its uncertain factors."""
    names = uncertain(data.spec)
    parts: tuple[list[Any], list[Any]] = ([], [])
    for axis in data.spec.axes:
        parts[axis.name in names].extend(data.values[row].get(factor.name) for factor in axis.factors)
    return repr(parts[0]), repr(parts[1])


def _first_rows(data: ReportData) -> dict[int, int]:
    """Map each row to the first row of its setting: itself, unless rows differ only in uncertain factors."""
    if not uncertain(data.spec):
        return {row: row for row in data.runs["row"].unique()}
    first: dict[str, int] = {}
    return {row: first.setdefault(_split(data, row)[0], row) for row in range(len(data.values))}


def _table(data: ReportData, outcome: str) -> pd.DataFrame:
    """Return the outcome of each setting (by its first row) and repetition, NaN if the run has none.

    Each combination of uncertain factors has its own columns.
    """
    # Rows that share all their runs are one setting: inactive factors, or blocks that repeat a point.
    runs = data.runs.groupby("row")["run"].agg(frozenset)
    rows = runs.index[~runs.duplicated()]
    values = data.runs.assign(value=data.runs[outcome].where(np.isfinite(data.runs[outcome].to_numpy(float))))
    if uncertain(data.spec):
        setting, state = (
            values["row"].map(_first_rows(data)),
            values["row"].map(lambda row: _split(data, row)[1]),
        )
        values = values.assign(row=setting, state=state).drop_duplicates(["row", "state", "repetition"])
        return values.pivot(index="row", columns=["state", "repetition"], values="value")
    table = values[values["row"].isin(rows)].pivot(index="row", columns="repetition", values="value")
    # A search does not start every repetition.
    return table if data.spec.search is None else table.reindex(columns=range(data.spec.search.seeds))


def _confirmed(data: ReportData, outcome: str) -> dict[int, tuple[Mark, int]]:
    """Return the mean over fresh seeds and the number of these, by setting of a search."""
    column = f"{outcome}, fresh seeds"
    if data.search is None or column not in data.search.best:
        return {}
    rows = data.search.best[data.search.best[column].notna()]
    columns = ("setting", column, f"{outcome}, std", f"{outcome}, n")
    return {
        int(setting): (
            Mark(mean, *student_interval(mean, std, int(n), data.spec.analysis.confidence)),
            int(n),
        )
        for setting, mean, std, n in zip(*(rows[name] for name in columns), strict=True)
    }


def _setting(data: ReportData, row: int) -> dict[str, str]:
    """Return the values of a row's factors as text, without the uncertain ones.

    Zipped levels appear once, under the name of their axis.
    """
    texts: dict[str, str] = {}
    names = uncertain(data.spec)
    for axis in data.spec.axes:
        if axis.name in names:
            continue
        if zipped_levels(axis):
            (label,) = labels(axis.factors, [data.values[row]])
            if label is not None:
                texts[axis.name] = label
            continue
        for factor in axis.factors:
            value = value_of(factor, data.values[row])
            if value is not None:
                texts[factor.name] = typeset(value) if isinstance(value, float) else cell(value)
    return texts


def better_of(data: ReportData, outcome: str) -> Better | None:
    """Return the better direction of an outcome, or None if the design does not declare it."""
    return next((spec.better for spec in data.spec.outcomes if spec.name == outcome), None)


def _mean_mark(values: FloatVector, confidence: float) -> Mark:
    """Return the mean of ``values`` with Student's interval, if at least two values differ."""
    moments = Moments.of(values)
    if distinct(values) < 2:
        return Mark(moments.mean)
    return Mark(moments.mean, *student_interval(moments.mean, moments.std, moments.count, confidence))


BEST, WORST = "best", "worst"


def chosen_runs(data: ReportData, wanted: Sequence[str]) -> list[str]:
    """Return the uids of the executed runs for a selection, without duplicates.

    Args:
        data: the data of the report.
        wanted: ``"best"`` or ``"worst"``, by the first outcome with a better direction, or the uid of a run.

    Raises:
        StoreError: there is no such run, it has not finished, or no outcome has a better direction.
    """
    return list(dict.fromkeys(_runs(data, wanted)))


def _runs(data: ReportData, selection: Sequence[str]) -> Iterator[str]:
    columns = (map(str, data.runs[name]) for name in ("uid", "run", "status"))
    executed = {uid: (run, status) for uid, run, status in zip(*columns, strict=True)}
    for choice in selection:
        if choice in (BEST, WORST):
            yield _extreme(data, choice)
            continue
        if choice not in executed:
            near = did_you_mean(choice, [BEST, WORST, *executed])
            raise StoreError(
                f"the design has no run {choice!r}{near}; expected best, worst, or the uid of a run"
            )
        run, status = executed[choice]
        if status != "finished":
            raise StoreError(f"the run {choice!r} has not finished: it is {status}")
        yield run


def first_with_direction(data: ReportData) -> tuple[str, Better | None]:
    """Return the first outcome with a better direction, and that direction; an empty name and None without any."""
    return next(
        ((spec.name, spec.better) for spec in data.spec.outcomes if spec.better is not None), ("", None)
    )


def _extreme(data: ReportData, which: str) -> str:
    outcome, better = first_with_direction(data)
    if better is None:
        raise StoreError(
            f"which run is {which}? No outcome of the design {data.spec.uid!r} says which direction is better: add "
            "'better: higher' or 'better: lower' to one"
        )
    finite = data.finite(outcome)
    if finite.empty:
        raise StoreError(f"no run of the design {data.spec.uid!r} has a finite {outcome!r} yet")
    order = best_first if which == BEST else worst_first
    return str(finite["run"].iloc[order(finite[outcome].to_numpy(float), better)[0]])
