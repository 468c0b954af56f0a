"""The result of a search: best settings and their spread, Pareto front, history with its picture, and importances."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.arsenai.analysis.beside import Importance, Importances, explained_by_chance
from palaestrai_mosaik.arsenai.analysis.lost_runs import rank
from palaestrai_mosaik.arsenai.analysis.moments import Moments
from palaestrai_mosaik.arsenai.analysis.sensitivity import is_constant
from palaestrai_mosaik.arsenai.design.folder import RESULTS, DesignFolder
from palaestrai_mosaik.arsenai.design.methods.significance import maxt_adjusted
from palaestrai_mosaik.arsenai.design.model import INACTIVE, DesignSpec
from palaestrai_mosaik.arsenai.design.search import sought
from palaestrai_mosaik.arsenai.design.settings import (
    FOLDER,
    JOURNAL,
    SearchJournal,
    SettingRecord,
    retries_text,
)
from palaestrai_mosaik.arsenai.execution.journal import Journal, optuna, quiet
from palaestrai_mosaik.arsenai.execution.status import load_run_states
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import ExecutionError, StoreError
from palaestrai_mosaik.core.printing import count
from palaestrai_mosaik.plot.figures import draw_panels
from palaestrai_mosaik.plot.series import Curve, Panel
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.types.arrays import FloatArray

from .ranking import best_pruned, confirmed_rows, cost, is_better, ranked
from .search import open_search

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: the fewest complete settings for importances
_LEAST_FOR_IMPORTANCES = 10
# Number of permutations of the outcomes for p values of importances.
_PERMUTATIONS = 99


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The outcome of a setting over fresh seeds, which the search has not used: mean, standard deviation, range.

    ``seeds`` of the ``planned`` runs finished. The statistics are NaN if none did; the standard deviation needs two.
    """

    seeds: int
    planned: int
    mean: float
    std: float
    low: float
    high: float

    @classmethod
    def of(cls, values: FloatArray) -> Confirmed:
        """Summarise the outcomes of all planned runs; lost runs are not finite."""
        fresh = Moments.of(values)
        return cls(fresh.count, len(values), fresh.mean, fresh.std, fresh.min, fresh.max)

    @property
    def lost(self) -> int:
        """The number of runs that have not finished."""
        return self.planned - self.seeds


@dataclass(frozen=True, slots=True)
class BestSetting:
    """One of the best settings of a search.

    Attributes:
        number: its number.
        factors: the values of its factors.
        values: its outcomes in the search; if it was stopped early, the last ones that it reported.
        confirmed: its outcomes over fresh seeds, by name.
        recommended: whether it is the winner so far.
        pruned: whether it was stopped early.
    """

    number: int
    factors: dict[str, Any]
    values: dict[str, float]
    confirmed: dict[str, Confirmed]
    recommended: bool = False
    pruned: bool = False

    @property
    def has_lost(self) -> bool:
        """Whether runs with fresh seeds have not finished."""
        return any(outcome.lost for outcome in self.confirmed.values())


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """The best outcome once a setting ended, and the runs and steps of all settings up to it."""

    number: int
    runs: int
    steps: int
    value: float
    best: float


@dataclass(frozen=True)
class SearchResult:
    """The results of a search, see :func:`search_result`."""

    summary: str
    best: list[BestSetting]
    history: list[HistoryPoint]
    importances: Importances
    #: number of settings in each state
    states: Mapping[str, int] = field(default_factory=dict)
    #: number of runs of these settings
    runs: int = 0

    def data(self) -> dict[str, Any]:
        """Return the results as plain data."""
        return {
            "best": [asdict(item) for item in self.best],
            "history": [asdict(item) for item in self.history],
            "importances": {
                outcome: {factor: asdict(item) for factor, item in of_outcome.items()}
                for outcome, of_outcome in self.importances.items()
            },
        }


def search_result(
    spec: DesignSpec, path: Path, store: str | Store | None = None, *, journal: SearchJournal | None = None
) -> SearchResult:
    """Summarise the search in ``path``; importances need Optuna.

    Args:
        spec: the design of the search.
        path: its folder.
        store: the store of its runs, or its URL; ``None``: ``results`` in the folder.
        journal: its journal, if it has been read already, before the store.

    Returns:
        The summary. Settings that have lost results count as not executed.

    Raises:
        DocumentError: ``path`` is not the folder of a design.
        ExecutionError: the journal is damaged.
        StoreError: the store cannot be read.
    """
    folder = DesignFolder.open(path)
    location = store if isinstance(store, Store) else StoreLocation.of(path / RESULTS, store)
    states = load_run_states(folder, location, ask=False, journal=journal)
    records, lost = states.settings, sum(state.lost for state in states.runs)
    sentences = list(_summary(spec, path, records, lost))
    shares: Importances = {}
    # Optuna opens its journal for appending
    is_writable = os.access(path / FOLDER / JOURNAL, os.W_OK)
    if states.journal.trials and not is_writable:
        sentences.append("There are no importances: the journal of the search cannot be opened for writing.")
    if find_spec("optuna") is not None and states.journal.trials and is_writable:
        lost_settings = {record.number for record in records if record.state == "lost"}
        shares = importances(spec, open_search(spec, path), lost_settings)
        sentences += map(_sentence, explained_by_chance(shares, spec.analysis.confidence))
    best = best_settings(spec, path, records, store, folder)
    counts = Counter[str](record.state for record in records)
    runs = sum(record.runs for record in records)
    return SearchResult(" ".join(sentences), best, history(spec, records), shares, dict(counts), runs)


def _summary(spec: DesignSpec, path: Path, records: Sequence[SettingRecord], lost: int) -> Iterator[str]:
    """Yield sentences on the settings of a search; ``lost``: the number of runs with lost results."""
    counts = Counter(record.state for record in records)
    runs, steps = sum(record.runs for record in records), sum(record.steps for record in records)
    words = ", ".join(f"{n:,} {state}" for state, n in sorted(counts.items()))
    yield f"{count(len(records), 'setting')} ({words}), {count(runs, 'run')}, {count(steps, 'environment step')}."
    again = retries_text(records)
    if again:
        yield _sentence(again)
    if lost:
        yield (
            f"Results of {count(lost, 'run')} are gone: their settings count as not executed (arsenai resume {path} "
            "executes these runs again)."
        )
    yield from _ties(spec, records)
    yield from _constant(spec, records)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def best_settings(
    spec: DesignSpec,
    path: Path,
    records: Sequence[SettingRecord],
    store: str | Store | None,
    folder: DesignFolder | None = None,
) -> list[BestSetting]:
    """Return the best settings of the search in ``path``; once some were confirmed, ordered by these figures.

    A setting that lost runs with fresh seeds comes after all that lost none, and is recommended only if these runs
    could not change the order (:func:`~palaestrai_mosaik.arsenai.analysis.lost_runs.rank`).

    Args:
        spec: the design of the search.
        path: its folder.
        records: its settings so far.
        store: the store of its runs, or its URL; ``None``: ``results`` in the folder.
        folder: the folder at ``path``, if it is open already.
    """
    folder = folder or DesignFolder.open(path)
    fresh = _fresh_outcomes(spec, path, store)
    # The folder follows the journal with a delay.
    records = [record for record in records if record.number < folder.manifest["counts"]["rows"]]
    chosen = ranked(spec, records)
    chosen += [
        record
        for record in best_pruned(spec, records)
        if any(record.number in of_all for of_all in fresh.values())
    ]
    if not chosen:
        return []
    values = folder.values()
    settings = [_best_setting(spec, record, values[record.number], fresh) for record in chosen]
    order, winner = _ranked_again(spec, settings, fresh)
    return [replace(settings[index], recommended=index == winner) for index in order]


def _best_setting(
    spec: DesignSpec,
    record: SettingRecord,
    values: Mapping[str, Any],
    fresh: Mapping[str, Mapping[int, FloatArray]],
) -> BestSetting:
    """Describe a setting by its factors, its outcomes in the search, and those over fresh seeds."""
    return BestSetting(
        record.number,
        {name: None if value is INACTIVE else value for name, value in values.items()},
        {outcome.name: value for outcome, value in zip(sought(spec), record.values, strict=True)},
        {name: Confirmed.of(runs[record.number]) for name, runs in fresh.items() if record.number in runs},
        pruned=record.state == "pruned",
    )


def _ranked_again(
    spec: DesignSpec, settings: Sequence[BestSetting], fresh: Mapping[str, Mapping[int, FloatArray]]
) -> tuple[Sequence[int], int | None]:
    """Order the best settings by their outcomes with fresh seeds, and choose the recommended one."""
    indices = range(len(settings))
    first = sought(spec)[0]
    of_first = fresh.get(first.name, {})
    confirmed = [index for index in indices if settings[index].number in of_first]
    if not confirmed:
        return indices, 0
    if len(sought(spec)) > 1:
        return indices, next((index for index in confirmed if not settings[index].has_lost), None)
    table = np.array([of_first[settings[index].number] for index in confirmed])
    if not np.isfinite(table).any():
        return indices, None
    ranking = rank(table, first.better == "higher", spec.seed_policy == "common")
    order = [confirmed[index] for index in ranking.order]
    winner = None if ranking.winner is None else confirmed[ranking.winner]
    return [*order, *(index for index in indices if index not in confirmed)], winner


def _fresh_outcomes(
    spec: DesignSpec, path: Path, store: str | Store | None
) -> dict[str, dict[int, FloatArray]]:
    """Return the outcomes of all runs with fresh seeds by outcome and setting, NaN for lost runs.

    Empty if no such run has ended yet.
    """
    from palaestrai_mosaik.arsenai.analysis.results import Results

    rows = confirmed_rows(path)
    if rows is None:
        return {}
    folder, numbers = rows
    try:
        frame = Results(folder, store).outcomes()
    except StoreError:
        return {}
    if (frame["status"] == "missing").all():
        return {}
    return {
        outcome.name: {
            number: frame.loc[frame["row"] == row, outcome.name].to_numpy(float)
            for row, number in enumerate(numbers)
        }
        for outcome in sought(spec)
    }


def history(spec: DesignSpec, records: Sequence[SettingRecord]) -> list[HistoryPoint]:
    """Return the best value so far of the first objective, in the order in which settings ended."""
    outcome = sought(spec)[0]
    points: list[HistoryPoint] = []
    runs = steps = 0
    best: float | None = None
    for record in sorted(
        (record for record in records if record.state != "running"),
        key=lambda record: (record.told, record.number),
    ):
        runs, steps = runs + record.runs, steps + record.steps
        if record.state == "complete":
            value = record.values[0]
            best = value if best is None or is_better(value, best, outcome) else best
            points.append(HistoryPoint(record.number, runs, steps, value, best))
    return points


def _ties(spec: DesignSpec, records: Sequence[SettingRecord]) -> Iterator[str]:
    """Yield a sentence if more settings share the best value of a single objective than are shown."""
    outcome, *more = sought(spec)
    best = ranked(spec, records)
    if more or not best:
        return
    value = best[0].values[0]
    ties = sum(
        record.state == "complete" and record.first is None and record.values[0] == value
        for record in records
    )
    if ties > len(best):
        yield (
            f"{ties:,} settings share the best {outcome.name}, {value:.6g}; the first {len(best)} of them are shown, "
            "and more seeds_per_setting may tell them apart."
        )


def _constant(spec: DesignSpec, records: Sequence[SettingRecord]) -> Iterator[str]:
    """Yield a sentence for each objective without importances because all settings gave the same value."""
    complete = [record.values for record in records if record.state == "complete"]
    if len(complete) < _LEAST_FOR_IMPORTANCES:
        return
    for outcome, values in zip(sought(spec), zip(*complete, strict=True), strict=True):
        if is_constant(np.array(values)):
            yield (
                f"There are no importances for {outcome.name}: it is {values[0]:.6g} in all {len(values):,} complete "
                "settings, so there is nothing to explain."
            )


def importances(spec: DesignSpec, journal: Journal, lost: Collection[int] = ()) -> Importances:
    """Compute how much each factor decides whether a setting is among the best tenth of those tried.

    The shares are those of Optuna's PED-ANOVA (Watanabe et al. 2023): how much the density of a factor among the best
    tenth differs from its density in all settings. They describe the region that the search visited, which is mostly
    near the best. The p values compare them with permutations of the outcomes.

    Factors with ``when`` are left out. There are no importances with fewer than ten complete settings, fewer than two
    factors, or the same value in all settings.

    Args:
        spec: the design of the search.
        journal: its open journal.
        lost: numbers of settings that count as not executed.
    """
    names = [axis.name for axis in spec.axes if all(factor.when is None for factor in axis.factors)]
    complete = [
        trial for trial in journal.trials() if trial.state.name == "COMPLETE" and trial.number not in lost
    ]
    if len(complete) < _LEAST_FOR_IMPORTANCES or len(names) < 2:
        return {}
    by_outcome: dict[str, dict[str, Importance]] = {}
    for index, outcome in enumerate(sought(spec)):
        # the evaluator looks for low values
        values = np.array([cost(trial.values[index], outcome) for trial in complete])
        if is_constant(values):
            continue
        generator = seeding.generator(spec.seed, "importances", outcome.name)
        samples = (values, *(generator.permutation(values) for _ in range(_PERMUTATIONS)))
        with suppress(ImportError, RuntimeError, ValueError):
            divergences = [_divergences(journal, complete, names, sample) for sample in samples]
            by_outcome[outcome.name] = _importances(names, *divergences)
    return by_outcome


def _importances(names: list[str], divergence: FloatArray, *permuted: FloatArray) -> dict[str, Importance]:
    """Return the importances of the factors ``names``, the largest first, from those of permuted outcomes."""
    total = float(divergence.sum())
    shares = divergence / total if total > 0 else np.full(len(names), 1 / len(names))
    p_adjusted = maxt_adjusted(divergence, np.array(permuted))
    return {
        names[i]: Importance(float(shares[i]), float(p_adjusted[i]))
        for i in np.argsort(-shares, kind="stable")
    }


def _divergences(journal: Journal, trials: Sequence[Any], names: list[str], values: FloatArray) -> FloatArray:
    """Return PED-ANOVA's divergence of each of the factors ``names``, with these values of the trials."""
    importance = optuna().importance
    value_of = dict(zip((trial.number for trial in trials), values.tolist(), strict=True))
    with quiet():
        divergence_of = importance.get_param_importances(
            journal.study,
            evaluator=importance.PedAnovaImportanceEvaluator(),
            params=names,
            # The evaluator leaves out trials without a finite value.
            target=lambda trial: value_of.get(trial.number, math.nan),
            normalize=False,
        )
    return np.array([divergence_of[name] for name in names])


def history_figure(folder: str | Path, store: str | None = None) -> Figure:
    """Draw the outcomes of a search's settings over the steps of environments until then.

    A line shows the best outcome so far, points show each setting that was executed in full; the outcomes of pruned
    settings are unknown. Both are from the search itself. Confirmed settings have another point, the mean over fresh
    seeds, with a standard deviation to both sides. Notebooks show the picture. Of several objectives it shows the
    first.

    Args:
        folder: the folder of the search.
        store: the store of its runs; ``None``: ``results`` in the folder.

    Returns:
        The figure.

    Raises:
        DocumentError: ``folder`` is not the folder of a design.
        ExecutionError: the design has no search, no setting is complete yet, or the journal is damaged.
        StoreError: the store cannot be read.
    """
    opened = DesignFolder.open(folder)
    spec, path = opened.spec, opened.path
    if spec.search is None:
        raise ExecutionError(f"{path} is the folder of a design without a search")
    states = load_run_states(opened, StoreLocation.of(path / RESULTS, store), ask=False)
    records, outcome = states.settings, sought(spec)[0]
    points = history(spec, records)
    if not points:
        raise ExecutionError(f"{path}: no setting of the search is complete yet")
    steps = np.array([item.steps for item in points], dtype=float)
    values, best = (np.array([getattr(item, name) for item in points]) for name in ("value", "best"))
    curves = [
        Curve("best so far", steps, best, steps=True),
        Curve("each setting", steps, values, points=True),
        *_fresh_curve(points, best_settings(spec, path, records, store), outcome.name),
    ]
    title = f"{outcome.name}: {outcome.better} is better"
    return draw_panels([Panel(title, "steps of environments", outcome.name, tuple(curves))], spec.uid)


def _fresh_curve(
    points: Sequence[HistoryPoint], best: Sequence[BestSetting], outcome: str
) -> Iterator[Curve]:
    """Yield the curve of the confirmed settings, if there are any."""
    steps_at = {point.number: float(point.steps) for point in points}
    # Pruned settings have no point.
    confirmed = [
        (steps_at[setting.number], setting.confirmed[outcome])
        for setting in sorted(best, key=lambda setting: steps_at.get(setting.number, 0.0))
        if setting.number in steps_at and outcome in setting.confirmed and setting.confirmed[outcome].seeds
    ]
    if confirmed:
        at = np.array([steps for steps, _ in confirmed])
        mean, std = (np.array([getattr(fresh, name) for _, fresh in confirmed]) for name in ("mean", "std"))
        yield Curve("the best over fresh seeds", at, mean, mean - std, mean + std, points=True)
