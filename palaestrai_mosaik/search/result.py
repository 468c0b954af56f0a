"""What a search has found: the best settings and their spread, the front of several objectives, the history, importances."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from palaestrai_mosaik.design.folder import DesignFolder
from palaestrai_mosaik.design.model import INACTIVE, DesignSpec
from palaestrai_mosaik.design.search import sought
from palaestrai_mosaik.design.settings_table import SettingRecord, read_settings, retries_text
from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.execution.journal import FOLDER, JOURNAL, Journal, open_journal, optuna, quiet
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.text import count

from .confirm import confirmed_rows
from .ranking import direction, is_better, ranked

#: settings below which importances mean nothing
_LEAST_FOR_IMPORTANCES = 10


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The outcome of a setting over seeds that the search has not used: how many, their mean, standard deviation, range.

    Of one seed, the standard deviation is NaN.
    """

    seeds: int
    mean: float
    std: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class BestSetting:
    """One of the best settings: its number, its factors, its outcomes in the search, and over fresh seeds if confirmed."""

    number: int
    factors: dict[str, Any]
    values: dict[str, float]
    confirmed: dict[str, Confirmed]


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """The best outcome so far, once a setting was told, and how many runs and steps all settings until then took."""

    number: int
    runs: int
    steps: int
    value: float
    best: float


@dataclass(frozen=True)
class SearchResult:
    """What a search has found: see :func:`search_result`."""

    summary: str
    best: list[BestSetting]
    history: list[HistoryPoint]
    importances: dict[str, dict[str, float]]

    def data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "best": [asdict(one) for one in self.best],
            "history": [asdict(one) for one in self.history],
            "importances": self.importances,
        }


def search_result(spec: DesignSpec, path: Path, store: str | None = None) -> SearchResult:
    """Return what the search in ``path`` has found until now; importances only where Optuna is installed.

    ``store``: where its runs are recorded; ``None``: ``results`` in the folder.
    """
    records = read_settings(path)
    states = Counter(one.state for one in records)
    runs, steps = sum(one.runs for one in records), sum(one.steps for one in records)
    words = ", ".join(f"{n:,} {state}" for state, n in sorted(states.items()))
    summary = f"{count(len(records), 'setting')} ({words}), {count(runs, 'run')} of {steps:,} steps."
    again = retries_text(records)
    if again:
        summary += f" {again[0].upper()}{again[1:]}."
    shares: dict[str, dict[str, float]] = {}
    if find_spec("optuna") is not None and (path / FOLDER / JOURNAL).is_file():
        shares = importances(spec, _journal(spec, path))
    return SearchResult(summary, best_settings(spec, path, records, store), history(spec, records), shares)


def best_settings(
    spec: DesignSpec,
    path: Path,
    records: Sequence[SettingRecord],
    store: str | Store | None,
    folder: DesignFolder | None = None,
) -> list[BestSetting]:
    """Return the best settings of the search in ``path``; those that were confirmed come first, by that figure.

    ``folder`` is that at ``path``, if it is open, with all rows of ``records``.
    """
    chosen = ranked(spec, records)
    if not chosen:
        return []
    folder = folder or DesignFolder.open(path)
    values, outcomes = folder.values(), sought(spec)
    confirmed = _confirmed(spec, path, store)
    found = [
        BestSetting(
            one.number,
            {name: None if value is INACTIVE else value for name, value in values[one.number].items()},
            dict(zip((outcome.name for outcome in outcomes), one.values, strict=True)),
            confirmed.get(one.number, {}),
        )
        for one in chosen
    ]
    if len(outcomes) > 1:
        return found
    sign, name = 1.0 if outcomes[0].better == "lower" else -1.0, outcomes[0].name

    def rank(one: BestSetting) -> tuple[bool, float, int]:
        fresh = one.confirmed.get(name)
        return fresh is None, sign * (one.values[name] if fresh is None else fresh.mean), one.number

    return sorted(found, key=rank)


def _confirmed(spec: DesignSpec, path: Path, store: str | Store | None) -> dict[int, dict[str, Confirmed]]:
    """Return the outcomes over fresh seeds, by setting and name; nothing where none was confirmed (yet)."""
    from palaestrai_mosaik.analysis.results import Results

    rows = confirmed_rows(path)
    if rows is None:
        return {}
    folder, numbers = rows
    try:
        frame = Results(folder, store).outcomes()
    except StoreError:
        return {}
    found: dict[int, dict[str, Confirmed]] = {}
    for row, number in enumerate(numbers):
        for outcome in sought(spec):
            values = frame.loc[frame["row"] == row, outcome.name].dropna().tolist()
            if values:
                std = statistics.stdev(values) if len(values) > 1 else math.nan
                found.setdefault(number, {})[outcome.name] = Confirmed(
                    len(values), statistics.fmean(values), std, min(values), max(values)
                )
    return found


def history(spec: DesignSpec, records: Sequence[SettingRecord]) -> list[HistoryPoint]:
    """Return the best so far of the first objective, in the order in which settings were told."""
    outcome = sought(spec)[0]
    points: list[HistoryPoint] = []
    runs = steps = 0
    best: float | None = None
    for one in sorted(
        (one for one in records if one.state != "running"), key=lambda one: (one.told, one.number)
    ):
        runs, steps = runs + one.runs, steps + one.steps
        if one.state == "complete":
            value = one.values[0]
            best = value if best is None or is_better(value, best, outcome) else best
            points.append(HistoryPoint(one.number, runs, steps, value, best))
    return points


def _journal(spec: DesignSpec, path: Path) -> Journal:
    return open_journal(path, spec.uid, tuple(direction(one) for one in sought(spec)))


def importances(spec: DesignSpec, journal: Journal) -> dict[str, dict[str, float]]:
    """Return for each objective how much each factor decides whether a setting is among the best, the largest first.

    These are shares, which sum to 1, of Optuna's PED-ANOVA (Watanabe et al. 2023): how much the density of a factor in
    the best tenth of the settings differs from that in all of them. So they say what mattered where the search has
    looked, which is mostly near the best. Nothing where there are too few settings; factors that not all settings have
    are left out.
    """
    found: dict[str, dict[str, float]] = {}
    names = [axis.name for axis in spec.axes if all(factor.when is None for factor in axis.factors)]
    complete = [trial for trial in journal.trials() if trial.state.name == "COMPLETE"]
    if len(complete) < _LEAST_FOR_IMPORTANCES or not names:
        return found
    importance = optuna().importance
    for index, outcome in enumerate(sought(spec)):
        # (the evaluator looks for low values)
        sign = 1.0 if outcome.better == "lower" else -1.0

        def target(trial: Any, index: int = index, sign: float = sign) -> float:
            return sign * float(trial.values[index])

        try:
            with quiet():
                evaluator = importance.PedAnovaImportanceEvaluator()
                shares = importance.get_param_importances(
                    journal.study, evaluator=evaluator, params=names, target=target
                )
        except (ImportError, RuntimeError, ValueError):
            continue
        found[outcome.name] = dict(shares)
    return found
