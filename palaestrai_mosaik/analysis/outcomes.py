"""Outcomes: one number per run, taken from its results as the design says.

Two folds make a number of many: ``step`` takes the steps of an episode together, ``episode``
the episodes of all workers. A step without a value (an objective that gave ``None``, a set-point
before the first one) is NaN and no part of its episode, as in the store's own aggregates; an
episode without any value makes the outcome NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.design.folds import fold
from palaestrai_mosaik.design.model import OutcomeSpec
from palaestrai_mosaik.errors import StoreError, did_you_mean
from palaestrai_mosaik.progress import PartsProgress, ProgressCallback
from palaestrai_mosaik.store.parts import columns_of, read_parts, whole_parts
from palaestrai_mosaik.store.query.trajectories import NUMBERS, RowRange
from palaestrai_mosaik.text import listed
from palaestrai_mosaik.types.arrays import Array, FloatArray, FloatVector

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store import Store
    from palaestrai_mosaik.store.query.many_runs import StreamFolder


#: what ``of`` may begin with, and what stands behind the dot
SOURCES = {"reward": "NAME", "reading": "ID", "setpoint": "ID", "statistic": "NAME"}
#: folds that the store keeps of every episode
_KEPT = ("sum", "mean", "min", "max")
_MOST_NAMES = 20
_KEYS = ("worker", "episode", "step")

# (episode, worker) -> values, shape (steps, channels)
_Episodes = dict[tuple[int, int], FloatArray]


@dataclass(frozen=True, slots=True)
class PerBody(OutcomeSpec):
    """An outcome of an agent's episodes that is divided by the number of the agent's bodies."""


def outside(values: FloatVector, band: tuple[float, float] | None) -> FloatVector:
    """Return how far each value lies outside of the band, 0 inside; the values if there is none."""
    if band is None:
        return values
    low, high = band
    return np.maximum(np.maximum(low - values, values - high), 0.0)


def default_outcomes(store: Store, runs: Sequence[str]) -> tuple[OutcomeSpec, ...]:
    """Return the outcomes of a design that names none: objectives of the last phase, summed.

    They are called ``objective``, or ``objective.AGENT`` where several agents have one. Where an
    agent has several bodies in any of the runs, it is the mean over its bodies.
    Raises :class:`~palaestrai_mosaik.errors.StoreError` where none has.
    """
    agents = store.agents_across(runs)
    names = list(dict.fromkeys(agents.loc[agents["objective"].notna(), "agent"]))
    if not names:
        raise StoreError(
            "no agent of the last phase has an objective: say under `outcomes` of the design what to take "
            f"from the results ({_sources()})"
        )
    bodies = store.bodies_across(runs)
    many = set(bodies.loc[bodies["bodies"] > 1, "agent"])
    kinds = [PerBody if name in many else OutcomeSpec for name in names]
    if len(names) == 1:
        return (kinds[0]("objective", "objective", better="higher"),)
    return tuple(
        kind(f"objective.{name}", "objective", agent=name, better="higher")
        for name, kind in zip(names, kinds, strict=True)
    )


def take(
    store: Store, runs: Sequence[str], outcome: OutcomeSpec, progress: ProgressCallback | None = None
) -> dict[str, float]:
    """Return the outcome of each of the ``runs`` (uids of instances); those that have none are left out.

    ``progress`` is called with how many runs were read, and of how many, where their steps are.
    Raises :class:`~palaestrai_mosaik.errors.StoreError` where no run has what the outcome names.
    """
    source, _, name = outcome.of.partition(".")
    if not (outcome.of in ("objective", "steps") or (source in SOURCES and name)):
        known = ["objective", "steps", *SOURCES]
        raise _wrong(outcome, f"unknown source {outcome.of!r}{did_you_mean(source, known)}; {_sources()}")
    if not runs:
        return {}
    _check_phase(store, runs, outcome)
    _check_agent(store, runs, outcome)
    if source == "objective":
        _check_objective(store, runs, outcome)
    if source == "reward":
        name = _reward_name(store, runs, outcome, name)
        outcome = replace(outcome, of=f"reward.{name}")
    if outcome.of == "steps":
        frame = store.episodes_across(runs, outcome.phase, evaluation=outcome.evaluation)
        if frame.empty:
            raise _no_episodes(outcome)
        return _folded(frame, "steps", outcome)
    if source in ("objective", "reward") and outcome.step in _KEPT and outcome.outside is None:
        return _aggregates(store, runs, outcome, name)
    return _Steps(store, runs, outcome).values(progress)


def _sources() -> str:
    named = ", ".join(f"{source}.{what}" for source, what in SOURCES.items())
    return f"allowed: objective, steps, {named}"


def _wrong(outcome: OutcomeSpec, message: str) -> StoreError:
    return StoreError(f"outcome {outcome.name!r}: {message}")


def _unknown(outcome: OutcomeSpec, what: str, name: str, known: Sequence[str]) -> StoreError:
    return _wrong(
        outcome, f"no run has the {what} {name!r}{did_you_mean(name, known)}; there are: {_listed(known)}"
    )


def _listed(known: Iterable[str]) -> str:
    names = list(dict.fromkeys(known))
    return listed(names, _MOST_NAMES) or "none"


def _check_phase(store: Store, runs: Sequence[str], outcome: OutcomeSpec) -> None:
    if outcome.phase is None:
        return
    phases = store.phases_across(runs)
    column = "phase" if isinstance(outcome.phase, int) else "name"
    if outcome.phase not in set(phases[column]):
        raise _unknown(outcome, "phase", str(outcome.phase), [str(known) for known in phases[column]])


def _check_agent(store: Store, runs: Sequence[str], outcome: OutcomeSpec) -> None:
    if outcome.agent is None:
        return
    agents = list(store.agents_across(runs, outcome.phase)["agent"])
    if outcome.agent not in agents:
        raise _unknown(outcome, "agent", outcome.agent, sorted(set(agents)))


def _check_objective(store: Store, runs: Sequence[str], outcome: OutcomeSpec) -> None:
    agents = store.agents_across(runs, outcome.phase)
    able = list(dict.fromkeys(agents.loc[agents["objective"].notna(), "agent"]))
    if outcome.agent in able or (able and outcome.agent is None):
        return
    if able:
        raise _wrong(outcome, f"the agent {outcome.agent!r} has no objective; these have: {', '.join(able)}")
    rewards = store.reward_names_across(runs, outcome.phase)
    raise _wrong(
        outcome,
        f"no agent of this phase has an objective (agents: {_listed(agents['agent'])}); take something else, "
        f"such as a reward (reward.NAME; there are: {_listed(rewards)})",
    )


def _no_episodes(outcome: OutcomeSpec) -> StoreError:
    episodes = "evaluation episodes" if outcome.evaluation else "training episodes"
    return _wrong(outcome, f"no run has {outcome.of} in {episodes} of this phase")


def _reward_name(store: Store, runs: Sequence[str], outcome: OutcomeSpec, name: str) -> str:
    """Return the whole name of a reward; the environment's uid in front of it may be left out."""
    known = store.reward_names_across(runs, outcome.phase)
    if name in known:
        return name
    ends = [one for one in known if one.endswith(f".{name}")]
    if len(ends) > 1:
        raise _wrong(outcome, f"several rewards are called {name!r}: {', '.join(ends)}; say which")
    if not ends:
        raise _unknown(outcome, "reward", name, known)
    return ends[0]


def _aggregates(store: Store, runs: Sequence[str], outcome: OutcomeSpec, name: str) -> dict[str, float]:
    """Take an objective or a reward from the aggregates of the episodes."""
    kind = "reward" if name else "objective"
    frame = store.outcomes_across(runs, kind, name, outcome.phase, evaluation=outcome.evaluation)
    if outcome.agent is not None:
        frame = frame[frame["agent"] == outcome.agent]
    else:
        frame = _one_agent(store, runs, outcome, frame)
    if frame.empty:
        raise _no_episodes(outcome)
    if isinstance(outcome, PerBody):
        counts = store.bodies_across(runs, outcome.phase).set_index(["run", "agent"])["bodies"].to_dict()
        keys = zip(frame["run"], frame["agent"], strict=True)
        frame = frame.assign(**{outcome.step: frame[outcome.step] / [int(counts[key]) for key in keys]})
    return _folded(frame, outcome.step, outcome)


def _one_agent(store: Store, runs: Sequence[str], outcome: OutcomeSpec, frame: pd.DataFrame) -> pd.DataFrame:
    """Keep one agent of each run, where it makes no difference which."""
    if outcome.of == "objective":
        return frame[frame["agent"] == frame["run"].map(_owners(store, runs, outcome))]
    key = ["run", "episode", "worker"]
    first = frame.drop_duplicates(key)
    others = frame.merge(first[[*key, outcome.step]], on=key, suffixes=("", "_first"))
    ours, theirs = others[outcome.step].to_numpy(), others[f"{outcome.step}_first"].to_numpy()
    if not np.array_equal(ours, theirs, equal_nan=True):
        raise _several(outcome, list(frame["agent"]))
    return first


def _owners(store: Store, runs: Sequence[str], outcome: OutcomeSpec) -> dict[str, str]:
    """Return the one agent of each run that has an objective."""
    agents = store.agents_across(runs, outcome.phase)
    agents = agents[agents["objective"].notna()]
    several = agents[agents.duplicated("run", keep=False)]
    if len(several):
        raise _several(outcome, list(several["agent"]))
    return dict(zip(agents["run"], agents["agent"], strict=True))


def _several(outcome: OutcomeSpec, agents: Sequence[str]) -> StoreError:
    names = ", ".join(dict.fromkeys(agents))
    return _wrong(outcome, f"several agents have {outcome.of}: name one under `agent` ({names})")


def _folded(frame: pd.DataFrame, column: str, outcome: OutcomeSpec) -> dict[str, float]:
    """Fold the episodes of each run, at least one in all; the rows of a run stand together."""
    runs = frame["run"].to_numpy()
    values = frame[column].to_numpy(dtype=np.float64)
    starts = np.flatnonzero(np.append(True, runs[1:] != runs[:-1]))
    ends = np.append(starts[1:], len(runs))
    return {
        str(runs[start]): fold(values[start:end], outcome.episode)
        for start, end in zip(starts, ends, strict=True)
    }


class _Steps:
    """Takes an outcome from the recorded steps: one folder of Parquet files after the other."""

    def __init__(self, store: Store, runs: Sequence[str], outcome: OutcomeSpec):
        self._outcome = outcome
        self._source, _, self._name = outcome.of.partition(".")
        # what no agent is named for is taken from the environments, where every reading is once
        of_environments = self._source == "reading" and outcome.agent is None
        kind = "environment" if of_environments else "statistics" if self._source == "statistic" else "agent"
        folders = store.streams_across(runs, kind, outcome.phase, evaluation=outcome.evaluation)
        if kind == "agent" and outcome.agent is not None:
            folders = [folder for folder in folders if folder.name == outcome.agent]
        elif self._source == "objective":
            owners = _owners(store, runs, outcome)
            folders = [folder for folder in folders if folder.name == owners.get(folder.run)]
        self._folders: dict[str, list[StreamFolder]] = {}
        for folder in folders:
            self._folders.setdefault(folder.run, []).append(folder)
        self._known: set[str] = set()

    def values(self, progress: ProgressCallback | None) -> dict[str, float]:
        """Return the outcome of each run that has it."""
        if not self._folders:
            raise _no_episodes(self._outcome)
        result = {}
        counted = PartsProgress(progress, len(self._folders))
        for run, folders in self._folders.items():
            found: dict[str, list[_Episodes]] = {}
            for folder in folders:
                for rows in self._read(folder):
                    found.setdefault(folder.name, []).append(rows)
            if found:
                result[run] = self._value(list(found.values()))
            counted.end()
        if not result:
            raise _unknown(self._outcome, self._source, self._name or self._source, sorted(self._known))
        return result

    def _value(self, owners: Sequence[Sequence[_Episodes]]) -> float:
        """Fold what each of the owners has: a body or an incarnation after the other."""
        if self._source == "reward":
            if not all(_equal(owners[0], other) for other in owners[1:]):
                raise _several(self._outcome, sorted({f.name for fs in self._folders.values() for f in fs}))
            owners = owners[:1]
        found = [rows for bodies in owners for rows in bodies]
        episodes = sorted({episode for rows in found for episode in rows})
        values = [
            self._step_fold([rows[episode] for rows in found if episode in rows]) for episode in episodes
        ]
        return fold(np.array(values), self._outcome.episode)

    def _step_fold(self, blocks: Sequence[FloatArray]) -> float:
        """Fold all values of an episode. The first and the last are those of all channels and bodies, on average."""
        kept = [outside(block, self._outcome.outside) for block in blocks]
        if self._outcome.step in ("first", "last"):
            kept = [block[~np.isnan(block).all(axis=1)] for block in kept]
            at = 0 if self._outcome.step == "first" else -1
            return fold(
                _reported(np.concatenate([block[at] for block in kept if len(block)] or [[]])), "mean"
            )
        return fold(_reported(np.concatenate([block.ravel() for block in kept])), self._outcome.step)

    def _read(self, folder: StreamFolder) -> Iterator[_Episodes]:
        """Yield the values of a folder, body after body; nothing where it has none that are meant."""
        paths = whole_parts(folder.folder, folder.parts)
        columns = columns_of(paths)
        if self._source == "statistic":
            wanted = ["value"] if columns else []
        else:
            named = [name for name in columns if name.partition(".")[0] == self._source]
            self._known.update(name.partition(".")[2] for name in named)
            wanted = [name for name in named if self._means(name.partition(".")[2])]
        if not wanted:
            return
        texts = ["agent", "key"] if self._source == "statistic" else []
        place = [name for name in columns if name in NUMBERS]
        table = read_parts(paths, RowRange().expression, [*_KEYS, *place, *texts, *wanted])
        if texts:
            agents, keys = (table.column(name).to_pylist() for name in texts)
            self._known.update(keys)
            table = table.filter(
                [
                    self._outcome.agent in (None, agent) and self._means(key)
                    for agent, key in zip(agents, keys, strict=True)
                ]
            )
        if table.num_rows:
            keys, block = (np.column_stack([table[n].to_numpy() for n in names]) for names in (_KEYS, wanted))
            numbers = table[place[0]].to_numpy() if place else np.zeros(len(keys), dtype=np.int32)
            for number in np.unique(numbers):
                mask = numbers == number
                yield _by_episode(keys[mask], block[mask])

    def _means(self, name: str) -> bool:
        """Whether ``name`` is what the outcome names: it, one of its floats, or a match of the pattern."""
        return name == self._name or name.startswith(f"{self._name}[") or fnmatchcase(name, self._name)


def _reported(values: FloatArray) -> FloatVector:
    return values[~np.isnan(values)]


def _by_episode(keys: Array, block: FloatArray) -> _Episodes:
    """Return the rows of ``block`` by episode; ``keys``: (rows, 3), worker, episode and step of each."""
    worker, episode, step = keys.T
    order = np.lexsort((step, worker, episode))  # stable: what is told twice in a step keeps its order
    keys, block = keys[order], block[order].astype(np.float64)
    starts = np.flatnonzero(np.append(True, (keys[1:, :2] != keys[:-1, :2]).any(axis=1)))
    return {
        (int(keys[start, 1]), int(keys[start, 0])): block[start:end]
        for start, end in zip(starts, np.append(starts[1:], len(keys)), strict=True)
    }


def _equal(one: Sequence[_Episodes], other: Sequence[_Episodes]) -> bool:
    return len(one) == len(other) and all(
        mine.keys() == theirs.keys()
        and all(np.array_equal(mine[episode], theirs[episode], equal_nan=True) for episode in mine)
        for mine, theirs in zip(one, other, strict=True)
    )
