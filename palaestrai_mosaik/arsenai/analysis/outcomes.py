"""Outcomes: one number per run, derived from its results as the design declares.

Two folds reduce many numbers to one: ``step`` the steps of an episode, ``episode`` the episodes of all workers.
A step without a value (an objective of ``None``, a set-point before the first one) is NaN and ignored in its
episode, as in the store's own aggregates. An episode without any value makes the outcome NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.arsenai.design.model import OutcomeSpec
from palaestrai_mosaik.arsenai.design.outcomes import fold, is_meant, rewards_meant
from palaestrai_mosaik.core.errors import StoreError, did_you_mean
from palaestrai_mosaik.core.printing import listed
from palaestrai_mosaik.core.progress import PartsProgress, ProgressCallback
from palaestrai_mosaik.store.parts import columns_of, read_parts, whole_parts
from palaestrai_mosaik.store.query.trajectories import NUMBERS
from palaestrai_mosaik.types.arrays import Array, FloatArray, FloatVector

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from palaestrai_mosaik.store import Store
    from palaestrai_mosaik.store.query.many_runs import StreamFolder


#: prefixes of ``of``, with a placeholder for the part after the dot
SOURCES = {"reward": "NAME", "reading": "ID", "setpoint": "ID", "statistic": "NAME"}
#: folds that the store keeps for every episode
_KEPT = ("sum", "mean", "min", "max")
_MOST_NAMES = 20
_KEYS = ("worker", "episode", "step")
#: columns of texts in the rows of statistics
_STATISTIC = ("agent", "key")

# Maps (episode, worker) to values of shape (steps, channels).
_Episodes = dict[tuple[int, int], FloatArray]


@dataclass(frozen=True, slots=True)
class PerBody(OutcomeSpec):
    """An outcome of an agent's episodes that is divided by the number of the agent's bodies."""


def outside(values: FloatVector, band: tuple[float, float] | None) -> FloatVector:
    """Return the distance of each value from the band, 0 inside; without a band, the values."""
    if band is None:
        return values
    low, high = band
    return np.maximum(np.maximum(low - values, values - high), 0.0)


def default_outcomes(store: Store, runs: Sequence[str]) -> tuple[OutcomeSpec, ...]:
    """Return the outcomes of a design that declares none: the summed objectives of the last phase.

    They are called ``objective``, or ``objective.AGENT`` if several agents have one. If no agent has an objective, each
    agent's is the sum of its rewards. If an agent has several bodies in any of the runs, it is the mean over these.

    Raises:
        StoreError: there is no reward either.
    """
    agents = store.agents_across(runs)
    if not agents["objective"].notna().any() and not store.reward_names_across(runs):
        raise StoreError(
            "no agent of the last phase has an objective or a reward: say under `outcomes` of the design what to "
            f"take from the results ({_sources()})"
        )
    names = list(dict.fromkeys(_objectives(agents)["agent"]))
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
    """Return the outcome of each of the ``runs`` that has it.

    Args:
        store: the open store.
        runs: uids of instances.
        outcome: the outcome.
        progress: called with the number of runs read and the total, if steps are read; ``None``: no reports.

    Returns:
        The outcome by run; runs without it are left out.

    Raises:
        StoreError: no run has the data that the outcome names.
    """
    source, _, name = outcome.of.partition(".")
    if not (outcome.of in ("objective", "steps") or (source in SOURCES and name)):
        sources = ["objective", "steps", *SOURCES]
        raise _wrong(outcome, f"unknown source {outcome.of!r}{did_you_mean(source, sources)}; {_sources()}")
    if not runs:
        return {}
    _check_names(store, runs, outcome)
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


def _unknown(outcome: OutcomeSpec, what: str, name: str, names: Sequence[str]) -> StoreError:
    there_are = listed(list(dict.fromkeys(names)), _MOST_NAMES) or "none"
    return _wrong(
        outcome, f"no run has the {what} {name!r}{did_you_mean(name, names)}; there are: {there_are}"
    )


def _check_names(store: Store, runs: Sequence[str], outcome: OutcomeSpec) -> None:
    """Raise :class:`StoreError` if no run has the phase or the agent of an outcome."""
    if outcome.phase is not None:
        phases = list(store.phases_across(runs)["phase" if isinstance(outcome.phase, int) else "name"])
        if outcome.phase not in phases:
            raise _unknown(outcome, "phase", str(outcome.phase), list(map(str, phases)))
    if outcome.agent is not None:
        agents = set(store.agents_across(runs, outcome.phase)["agent"])
        if outcome.agent not in agents:
            raise _unknown(outcome, "agent", outcome.agent, sorted(agents))


def _no_episodes(outcome: OutcomeSpec) -> StoreError:
    episodes = "evaluation episodes" if outcome.evaluation else "training episodes"
    return _wrong(outcome, f"no run has {outcome.of} in {episodes} of this phase")


def _reward_name(store: Store, runs: Sequence[str], outcome: OutcomeSpec, name: str) -> str:
    """Complete the name of a reward, which may lack the environment's uid."""
    rewards = store.reward_names_across(runs, outcome.phase)
    ends = rewards_meant(name, rewards)
    if len(ends) > 1:
        raise _wrong(outcome, f"several rewards are called {name!r}: {', '.join(ends)}; say which")
    if not ends:
        raise _unknown(outcome, "reward", name, rewards)
    return ends[0]


def _aggregates(store: Store, runs: Sequence[str], outcome: OutcomeSpec, name: str) -> dict[str, float]:
    """Read an objective or a reward from the aggregates of the episodes."""
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
    """Keep one agent of each run, if all agents have the same values."""
    if outcome.of == "objective":
        return frame[frame["agent"] == frame["run"].map(_owners(store, runs, outcome))]
    key = ["run", "episode", "worker"]
    first = frame.drop_duplicates(key)
    merged = frame.merge(first[[*key, outcome.step]], on=key, suffixes=("", "_first"))
    ours, theirs = merged[outcome.step].to_numpy(), merged[f"{outcome.step}_first"].to_numpy()
    if not np.array_equal(ours, theirs, equal_nan=True):
        raise _several(outcome, list(frame["agent"]))
    return first


def _objectives(agents: pd.DataFrame) -> pd.DataFrame:
    """Return the agents whose objectives count if the outcome names no agent.

    In each run these are the agents with an objective, or all if none has one, each with the sum of its rewards.
    """
    has = agents["objective"].notna()
    return agents[has | ~has.groupby(agents["run"]).transform("any")]


def _owners(store: Store, runs: Sequence[str], outcome: OutcomeSpec) -> dict[str, str]:
    """Return the only agent of each run with an objective."""
    agents = _objectives(store.agents_across(runs, outcome.phase))
    several = agents[agents.duplicated("run", keep=False)]
    if len(several):
        raise _several(outcome, list(several["agent"]))
    return dict(zip(agents["run"], agents["agent"], strict=True))


def _several(outcome: OutcomeSpec, agents: Sequence[str]) -> StoreError:
    names = ", ".join(dict.fromkeys(agents))
    return _wrong(outcome, f"several agents have {outcome.of}: name one under `agent` ({names})")


def _folded(frame: pd.DataFrame, column: str, outcome: OutcomeSpec) -> dict[str, float]:
    """Fold the episodes of each run (at least one); the rows of a run must be adjacent."""
    runs = frame["run"].to_numpy()
    values = frame[column].to_numpy(dtype=np.float64)
    starts = np.flatnonzero(np.append(True, runs[1:] != runs[:-1]))
    ends = np.append(starts[1:], len(runs))
    return {
        str(runs[start]): fold(values[start:end], outcome.episode)
        for start, end in zip(starts, ends, strict=True)
    }


class _Steps:
    """Reads an outcome from the recorded steps, one folder of Parquet files at a time."""

    def __init__(self, store: Store, runs: Sequence[str], outcome: OutcomeSpec):
        self._outcome = outcome
        self._source, _, self._name = outcome.of.partition(".")
        # Without an agent, readings come from the environments, which have each of them once.
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
        self._names: set[str] = set()

    def values(self, progress: ProgressCallback | None) -> dict[str, float]:
        """Return the outcome of each run that has it."""
        if not self._folders:
            raise _no_episodes(self._outcome)
        result = {}
        counted = PartsProgress(progress, len(self._folders))
        for run, folders in self._folders.items():
            by_owner: dict[str, list[_Episodes]] = {}
            for folder in folders:
                for rows in self._read(folder):
                    by_owner.setdefault(folder.name, []).append(rows)
            if by_owner:
                result[run] = self._value(list(by_owner.values()))
            counted.end()
        if not result:
            raise _unknown(self._outcome, self._source, self._name or self._source, sorted(self._names))
        return result

    def _value(self, owners: Sequence[Sequence[_Episodes]]) -> float:
        """Fold the values of all owners, each with a list of bodies or incarnations."""
        if self._source == "reward":
            if not all(_equal(owners[0], other) for other in owners[1:]):
                raise _several(self._outcome, sorted({f.name for fs in self._folders.values() for f in fs}))
            owners = owners[:1]
        blocks = [rows for bodies in owners for rows in bodies]
        episodes = sorted({episode for rows in blocks for episode in rows})
        values = [
            self._step_fold([rows[episode] for rows in blocks if episode in rows]) for episode in episodes
        ]
        return fold(np.array(values), self._outcome.episode)

    def _step_fold(self, blocks: Sequence[FloatArray]) -> float:
        """Fold all values of an episode; ``first`` and ``last`` are means over channels and bodies."""
        kept, how = [outside(block, self._outcome.outside) for block in blocks], self._outcome.step
        if how in ("first", "last"):
            at, how = 0 if how == "first" else -1, "mean"
            kept = [block[~np.isnan(block).all(axis=1)] for block in kept]
            kept = [block[at] for block in kept if len(block)]
        values = np.concatenate([np.empty(0), *(block.ravel() for block in kept)])
        return fold(values[~np.isnan(values)], how)

    def _read(self, folder: StreamFolder) -> Iterator[_Episodes]:
        """Yield the matching values of a folder, body by body."""
        paths = whole_parts(folder.folder, folder.parts)
        columns = columns_of(paths)
        selected = self._selected(columns)
        if not selected:
            return
        texts = _STATISTIC if self._source == "statistic" else ()
        number_columns = [name for name in columns if name in NUMBERS]
        table = read_parts(paths, columns=[*_KEYS, *number_columns, *texts, *selected])
        if texts:
            table = self._matching_rows(table)
        if not table.num_rows:
            return
        keys, block = (np.column_stack([table[n].to_numpy() for n in names]) for names in (_KEYS, selected))
        numbers = table[number_columns[0]].to_numpy() if number_columns else np.zeros(len(keys), np.int32)
        for number in np.unique(numbers):
            mask = numbers == number
            yield _by_episode(keys[mask], block[mask])

    def _selected(self, columns: Sequence[str]) -> list[str]:
        """Return the columns with the outcome's values."""
        if self._source == "statistic":
            return ["value"] if columns else []
        named = {name: name.partition(".")[2] for name in columns if name.partition(".")[0] == self._source}
        self._names.update(named.values())
        return [name for name, bare in named.items() if self._means(bare)]

    def _matching_rows(self, table: pa.Table) -> pa.Table:
        """Return the rows of a table of statistics that the outcome takes."""
        agents, keys = (table.column(name).to_pylist() for name in _STATISTIC)
        self._names.update(keys)
        agent = self._outcome.agent
        return table.filter(
            [agent in (None, owner) and self._means(key) for owner, key in zip(agents, keys, strict=True)]
        )

    def _means(self, name: str) -> bool:
        """Whether the outcome takes ``name``: it is the outcome's name, one of its floats, or matches its pattern."""
        return is_meant(name, self._name)


def _by_episode(keys: Array, block: FloatArray) -> _Episodes:
    """Split the rows of ``block`` by episode; ``keys``: (rows, 3), worker, episode and step of each."""
    worker, episode, step = keys.T
    order = np.lexsort((step, worker, episode))  # stable, so that several values of a step keep their order
    keys, block = keys[order], block[order].astype(np.float64)
    starts = np.flatnonzero(np.append(True, (keys[1:, :2] != keys[:-1, :2]).any(axis=1)))
    return {
        (int(keys[start, 1]), int(keys[start, 0])): block[start:end]
        for start, end in zip(starts, np.append(starts[1:], len(keys)), strict=True)
    }


def _equal(bodies: Sequence[_Episodes], other: Sequence[_Episodes]) -> bool:
    return len(bodies) == len(other) and all(
        mine.keys() == theirs.keys()
        and all(np.array_equal(mine[episode], theirs[episode], equal_nan=True) for episode in mine)
        for mine, theirs in zip(bodies, other, strict=True)
    )
