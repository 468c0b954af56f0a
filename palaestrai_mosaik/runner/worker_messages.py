"""Messages between the main process and its worker processes, including the workers' rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from palaestrai_mosaik.agent import Experience
from palaestrai_mosaik.agent.filter import FilterChain
from palaestrai_mosaik.types.arrays import AgentRows, EnvironmentRows, FloatVector

from .factory import WorkerPlan
from .worker import EpisodeReport, EpisodeTask

#: the receivers of an update: ``("muscle", uid)``, or ``("agent", name)`` for all muscles of an agent
UpdateKey = tuple[str, str]


@dataclass(frozen=True)
class Start:
    """The first message of a phase.

    ``modules`` is the argument of :func:`~palaestrai_mosaik.core.importing.only_modules`. ``log`` has the directory of the
    run's log, and the modules for :class:`~palaestrai_mosaik.runner.run_log.RunLog`.
    """

    plan: WorkerPlan
    learning: tuple[str, ...]
    recorded: bool
    modules: tuple[str, ...] | None = None
    log: tuple[Path, tuple[str, ...]] | None = None


@dataclass(frozen=True)
class Continue:
    """Continue, with a new ``task`` if there is one. ``updates`` are pickled, ``filters`` are by agent."""

    task: EpisodeTask | None = None
    updates: dict[UpdateKey, bytes] = field(default_factory=dict)
    filters: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Rebuild:
    """Create new environments and muscles."""


@dataclass(frozen=True)
class Save:
    """Answer with the worker's state."""


@dataclass(frozen=True)
class Restore:
    """Continue from a pickled state."""

    state: bytes


@dataclass(frozen=True)
class End:
    """Close everything at the end of the phase."""


@dataclass
class Answer:
    """The answer to a message; an episode has several.

    ``error`` is the pickled exception, or ``None`` if it cannot be pickled. ``trace`` is its traceback, ``said`` its
    class and message. ``problem`` is the reason for a missing ``state``. ``globals_used`` is set if a global random
    generator was used. ``warned`` has the warnings of the process since its last answer.
    """

    batch: Batch | None = None
    report: EpisodeReport | None = None
    state: bytes | None = None
    problem: str | None = None
    error: bytes | None = None
    trace: str | None = None
    said: str = ""
    globals_used: bool = False
    warned: Sequence[str] = ()


class Warned(logging.Handler):
    """Keeps the warnings of a worker process for its next answer."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep ``record`` as text."""
        try:
            self._texts.append(self.format(record))
        except Exception:
            self.handleError(record)

    def take(self) -> Sequence[str]:
        """Return and clear the kept warnings."""
        texts, self._texts = self._texts, []
        return texts


class RemoteError(Exception):
    """The traceback of an exception in a worker process, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


#: (``"agent"``, ``"environment"`` or ``"frames"``; name; group of bodies; whether it is an evaluation)
StreamKey = tuple[str, str, int, bool]
#: (number of preceding rows, muscle, terminated, truncated, final observations)
EndedEpisode = tuple[int, str, bool, bool, FloatVector]


class Columns:
    """Rows of one kind, stored by column: an array if all values have one type and shape, or else a list."""

    def __init__(self, rows: Sequence[Sequence[Any]]):
        self._columns = [_column(values) for values in zip(*rows, strict=True)]
        self._rows = len(rows)

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the original rows, with views instead of arrays."""
        return zip(*(values.tolist() if plain else values for plain, values in self._columns), strict=True)


def _column(values: Sequence[Any]) -> tuple[bool, Any]:
    """Convert ``values`` to an array if possible; return whether they are plain numbers of one type, and the result."""
    kinds = set(map(type, values))
    if kinds in ({int}, {float}, {bool}):
        # with the explicit type, because too large integers would become floats
        with suppress(OverflowError):
            return True, np.array(values, dtype=type(values[0]))
    # stacking would lose the features of subclasses, such as masks, and the byte order
    elif kinds == {np.ndarray} and len({(array.shape, array.dtype) for array in values}) == 1:
        first = values[0]
        if first.ndim and first.dtype.isnative and not first.dtype.hasobject:
            return False, np.stack(values)
    return False, list(values)


@dataclass
class Batch:
    """The events in one worker since the last batch.

    Attributes:
        episode: the number of the episode.
        steps: the episode's steps covered by the batch, as the steps before and after it.
        rows: single rows for the store.
        blocks: rows of several bodies for the store.
        experiences: by agent, rows for the brain.
        sizes: by agent, how many of these rows arrived together, in order; 0 for a single row.
        ends: by agent, episodes that ended with a previously sent row.
        news: by agent, the newly learned data of each body's filters.
        statistics: figures for the store.
        world: the phase's world, if it was built.
    """

    episode: int
    steps: tuple[int, int]
    rows: dict[StreamKey, Columns] = field(default_factory=dict)
    blocks: dict[StreamKey, list[AgentRows | EnvironmentRows]] = field(default_factory=dict)
    experiences: dict[str, Columns] = field(default_factory=dict)
    sizes: dict[str, list[int]] = field(default_factory=dict)
    ends: dict[str, list[EndedEpisode]] = field(default_factory=dict)
    news: dict[str, list[list[Any]]] = field(default_factory=dict)
    statistics: list[tuple[Any, ...]] = field(default_factory=list)
    world: Mapping[str, Any] | None = None


_FIELDS = tuple(f.name for f in fields(Experience))


class RemoteBrain:
    """The stand-in for a brain in a worker process, which buffers its rows."""

    #: updates come from the main process, so this object never has any
    shared_updates = True

    def __init__(self) -> None:
        self.statistics: dict[str, Any] = {}
        self.statistics_by_muscle: dict[str, dict[str, Any]] = {}
        self.updates = 0
        self.rows: list[tuple[Any, ...]] = []
        self.ends: list[EndedEpisode] = []
        #: numbers of rows that arrived together; 0 for a single row
        self.sizes: list[int] = []

    def learn(self, experience: Experience) -> None:
        """Buffer a row."""
        self.sizes.append(0)
        self.rows.append(tuple(getattr(experience, name) for name in _FIELDS))

    def learn_batch(self, experiences: Sequence[Experience]) -> None:
        """Buffer rows that arrived together."""
        self.sizes.append(len(experiences))
        self.rows += [tuple(getattr(experience, name) for name in _FIELDS) for experience in experiences]

    def mark_end(self, muscle: str, terminated: bool, truncated: bool, final: FloatVector) -> None:
        """Buffer the end of an episode."""
        self.ends.append((len(self.rows), muscle, terminated, truncated, final))

    def update_for(self, muscle: str) -> tuple[int, Any]:
        """Return no update."""
        return 0, None

    def exchange(self, filters: Sequence[FilterChain]) -> None:
        """Do nothing: filters are exchanged with each batch."""


class _Rows:
    """The stand-in for a stream of the store."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        #: rows of several bodies, in order
        self.blocks: list[AgentRows | EnvironmentRows] = []

    def append(self, *row: Any) -> None:
        self.rows.append(row)

    def append_rows(self, rows: AgentRows | EnvironmentRows) -> None:
        self.blocks.append(rows)


class WorkerBuffer:
    """Collects batches. It implements :class:`Recording`, and has a stand-in for every brain."""

    def __init__(self, learning: Sequence[str], recorded: bool):
        self.brains = {name: RemoteBrain() for name in learning}
        self.recorded = recorded
        self._streams: dict[StreamKey, _Rows] = {}
        self._statistics: list[tuple[Any, ...]] = []
        self._world: Mapping[str, Any] | None = None
        self._steps = 0

    def agent(self, name: str, evaluation: bool = False, group: int = 0) -> _Rows:
        """Return the stand-in for a stream of an agent's bodies."""
        return self._streams.setdefault(("agent", name, group, evaluation), _Rows())

    def environment(self, uid: str, evaluation: bool = False) -> _Rows:
        """Return the stand-in for an environment's stream."""
        return self._streams.setdefault(("environment", uid, 0, evaluation), _Rows())

    def frames(self, uid: str, evaluation: bool = False) -> _Rows:
        """Return the stand-in for the stream of an environment's frames."""
        return self._streams.setdefault(("frames", uid, 0, evaluation), _Rows())

    def statistic(self, *row: Any, evaluation: bool) -> None:
        """Buffer a figure for the store, with the arguments of :meth:`Recording.statistic`."""
        self._statistics.append((*row, evaluation))

    def world(self, data: Mapping[str, Any]) -> None:
        """Buffer the phase's world for the store."""
        self._world = data

    def take(self, episode: int, steps: int, filters: dict[str, list[FilterChain]], *, over: bool) -> Batch:
        """Return and clear everything collected since the last call.

        ``steps`` of the episode are done. ``over`` is set at the end of the episode.
        """
        batch = Batch(episode, (self._steps, steps))
        self._steps = 0 if over else steps
        for key, stream in self._streams.items():
            if stream.rows:
                batch.rows[key] = Columns(stream.rows)
                stream.rows = []
            if stream.blocks:
                batch.blocks[key], stream.blocks = stream.blocks, []
        for name, brain in self.brains.items():
            if brain.rows:
                batch.experiences[name] = Columns(brain.rows)
                batch.sizes[name] = brain.sizes
                brain.rows, brain.sizes = [], []
            if brain.ends:
                batch.ends[name], brain.ends = brain.ends, []
        learned = {name: [chain.news() for chain in chains] for name, chains in filters.items()}
        batch.news = {
            name: [data for data in news if data is not None] for name, news in learned.items() if any(news)
        }
        batch.statistics, self._statistics = self._statistics, []
        batch.world, self._world = self._world, None
        return batch


def transitions(batch: Batch, agent: str) -> Iterator[tuple[list[Experience], bool] | EndedEpisode]:
    """Yield a brain's transitions in their original order.

    Each is a list of rows and whether they arrived together, or the end of an episode with a previously yielded row.
    """
    ends = iter(batch.ends.get(agent, ()))
    end = next(ends, None)
    rows = iter(batch.experiences.get(agent, ()))
    yielded = 0
    for size in batch.sizes.get(agent, ()):
        while end is not None and end[0] <= yielded:
            yield end
            end = next(ends, None)
        yield [Experience(*next(rows)) for _ in range(size or 1)], bool(size)
        yielded += size or 1
    while end is not None:
        yield end
        end = next(ends, None)
