"""The model of a run document, after reading, checks and cascade.

All classes are frozen. Their ``params`` are plain data (strings, numbers, booleans,
``None``, lists, mappings) and may be shared between phases: copy them before passing
them to code that might write to them.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from palaestrai_mosaik.core.errors import Problem
from palaestrai_mosaik.types.control import Mode

#: The version of the run-document format; ``major.minor`` is compared with a document's.
DOCUMENT_VERSION = "3.5"
#: the number of steps of each of several workers between updates from the brains
DEFAULT_SYNC_EVERY = 32
#: placeholder for the number of a body in the ids of its sensors and actuators
BODY_NUMBER = "{body}"
#: the maximum number of bodies of an agent, and the maximum of ``first``
MAX_BODIES = 1_000_000
Controller = Literal["vanilla", "taking_turns"]
Bridge = Literal["agents", "per_agent"]
Scheduler = Literal["direct", "mosaik"]
Values = Literal["count", "strict"]
#: A path into a document or a model: keys and indices from the top.
Place = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ClassSpec:
    """A class to load: its ``name`` as written, and its constructor's keywords."""

    name: str
    params: dict[str, Any] = field(default_factory=dict)


#: an unreadable class, in a :class:`PartialDocument`
UNREAD = ClassSpec("")


@dataclass(frozen=True, slots=True)
class FrameSpec:
    """The states of an environment to render and store as frames.

    Every n-th episode (``every``: 0, n, 2n, ...) or the listed ``episodes`` have frames; of these
    every ``step_every``-th step, and always the last state of the environment. Evaluations are counted separately, and
    so are each worker's episodes.
    """

    every: int = 1
    episodes: tuple[int, ...] | None = None
    step_every: int = 1

    def includes(self, episode: int) -> bool:
        """Whether frames of the episode with this number are stored."""
        return episode % self.every == 0 if self.episodes is None else episode in self.episodes


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """One environment of a phase; ``step_size`` is in mosaik ticks (``None``: its own).

    ``interpreter``: the Python of the environment's separate process (``None``: it runs in this one). ``timeout``:
    the maximum seconds for an answer of that process (``None``: 60). ``frames``: which rendered frames are stored
    (``None``: none).
    """

    uid: str
    name: str
    params: dict[str, Any] = field(default_factory=dict)
    step_size: int | None = None
    reward: ClassSpec | None = None
    state_transformer: ClassSpec | None = None
    interpreter: str | None = None
    timeout: float | None = None
    frames: FrameSpec | None = None


@dataclass(frozen=True, slots=True)
class ReplaySpec:
    """Stored trajectories that fill a brain's memory before a run.

    They are selected by ``agent`` (``None``: the same), ``experiment_run`` (``None``: this one), ``instance``
    (``None``: this one, if the run is this one and ``phase`` an earlier phase of it or left out
    and there is an earlier one; else the newest that finished), ``phase`` (index or name,
    ``None``: all, of this instance all earlier ones) and ``mode`` (``"train"`` or ``"test"``,
    ``None``: both). They are replayed ``repeat`` times. ``sensors`` and ``actuators`` name the other agent's channels
    if they differ (``None``: those of this agent).
    """

    agent: str | None = None
    experiment_run: str | None = None
    instance: str | None = None
    phase: int | str | None = None
    mode: str | None = None
    repeat: int = 1
    sensors: tuple[str, ...] | None = None
    actuators: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class SnapshotSpec:
    """When a brain is dumped during a phase: every ``every`` episodes, and whenever it is best."""

    every: int | None = None
    best: bool = False


@dataclass(frozen=True, slots=True)
class BodySpec:
    """A group of identical bodies of an agent: ``count`` incarnations of it in one environment.

    Keys that the document leaves out have the agent's values here. In ``sensors`` and
    ``actuators`` (full ids or patterns) the text ``{body}`` stands for the body's number among
    these: ``first``, ``first + 1``, ... If both are empty, they are all channels of
    ``environment`` (of its incarnation ``{body}``, if it is a batched one). ``environment`` is
    the common environment of all sensors and actuators, even if the document does not name it; it
    is never ``None`` in a sound document. ``name`` is a label for these bodies, or ``None``.
    """

    muscle: ClassSpec
    objective: ClassSpec | None = None
    sensors: tuple[str, ...] = ()
    actuators: tuple[str, ...] = ()
    filters: tuple[ClassSpec, ...] = ()
    environment: str | None = None
    name: str | None = None
    count: int = 1
    first: int = 0


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """One agent of a phase.

    ``sensors`` and ``actuators`` are full ids (``<environment uid>.<local id>``) in the
    document's order. Without ``brain`` the agent does not learn; without ``objective``
    its rewards are not used. ``load`` selects the brain to start from: ``None`` for
    none, an empty mapping for the same agent of the previous phase, else any of the keys
    ``agent``, ``experiment_run``, ``instance``, ``phase`` (index), ``phase_name`` (a name in
    ``phase`` becomes this key), ``base``, ``snapshot``.
    ``filters`` are between environment and muscle, the first one next to the environment.

    Without ``bodies`` the agent has one body, with these sensors and actuators, in all their
    environments. With ``bodies``, they are numbered from 0 in the document's order,
    and the agent's own muscle, objective, channels and filters are only the common ones
    (the muscle is that of the first body if the agent has none).
    """

    name: str
    muscle: ClassSpec
    brain: ClassSpec | None = None
    objective: ClassSpec | None = None
    sensors: tuple[str, ...] = ()
    actuators: tuple[str, ...] = ()
    load: dict[str, Any] | None = None
    filters: tuple[ClassSpec, ...] = ()
    replay: tuple[ReplaySpec, ...] = ()
    snapshots: SnapshotSpec | None = None
    bodies: tuple[BodySpec, ...] = ()


def all_channels(uid: str) -> str:
    """Build the pattern of all sensors, or all actuators, of an environment, which may have none."""
    return f"{glob.escape(uid)}.*"


@dataclass(frozen=True, slots=True)
class SimulationSpec:
    """The simulation controller (``controller``; ``name`` is the written form), and how episodes end.

    ``scheduler``: this package or mosaik itself executes mosaik's schedule; nothing else differs.
    ``values``: readings and rewards outside of their spaces are counted, or are an error.
    ``bridge`` has no effect any more, but is part of the document's digest.
    """

    controller: Controller
    name: str
    conditions: tuple[ClassSpec, ...] = ()
    bridge: Bridge = "agents"
    scheduler: Scheduler = "direct"
    values: Values = "count"


@dataclass(frozen=True, slots=True)
class PhaseSpec:
    """One complete phase, with all that it inherits from earlier phases.

    ``episodes`` is ``None`` if the document gives no number. Every worker runs an
    evaluation episode after each ``evaluate_every`` training episodes (``None``: never).
    Several workers receive updates from the brains every ``sync_every`` steps, all at the same one, or
    (``asynchronous``) each at its own. ``random_streams`` names the phase with the random numbers of
    this one (``None``: it has its own).
    """

    index: int
    name: str
    environments: tuple[EnvironmentSpec, ...]
    agents: tuple[AgentSpec, ...]
    simulation: SimulationSpec
    mode: Mode = Mode.TRAIN
    workers: int = 1
    episodes: int | None = None
    evaluate_every: int | None = None
    sync_every: int = DEFAULT_SYNC_EVERY
    asynchronous: bool = False
    random_streams: str | None = None

    @property
    def streams(self) -> str:
        """The first name in the path of each random generator of the phase."""
        return self.random_streams or self.name


@dataclass(frozen=True)
class RunDocument:
    """One sound experiment-run document.

    ``experiment_uid`` names the experiment (the design) that the run belongs to; it groups runs
    in the store and is not part of the document's identity. ``canonical`` is plain data: the cascaded document in one
    spelling, which :func:`~palaestrai_mosaik.experiment.from_mapping` can load. ``hash`` is the SHA-256 (hex)
    of its canonical JSON and the document's identity. ``text`` is the text of
    ``source``. ``notes`` list differences to palaestrAI's reading. ``lines`` has the 1-based line of every path of the
    text (``schedule.0.phase_0.agents.1``), ``origins`` the place in the text of each part of the model, if
    the two differ.
    """

    uid: str
    seed: int
    version: str
    phases: tuple[PhaseSpec, ...]
    conditions: tuple[ClassSpec, ...]
    canonical: dict[str, Any] = field(repr=False)
    hash: str
    source: str
    text: str = field(repr=False, compare=False)
    experiment_uid: str | None = field(default=None, compare=False)
    warnings: tuple[Problem, ...] = field(default=(), compare=False)
    notes: tuple[Problem, ...] = field(default=(), compare=False)
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    origins: Mapping[Place, Place] = field(default_factory=dict, repr=False, compare=False)

    def problem(self, message: str, *path: str | int) -> Problem:
        """Build a problem at ``path`` of this model, with the path and line in the text.

        ``path`` is a path in this model: ``problem("...", "phases", 0, "agents", 1,
        "sensors", 2)``. Path and line refer to the text, even if the cascade or
        a definition brought the value there.
        """
        written: Place = path
        for length in range(len(path), 0, -1):
            origin = self.origins.get(path[:length])
            if origin is not None:
                written = origin + path[length:]
                break
        return Problem(message, join(written), self.source, nearest_line(self.lines, written))


@dataclass(frozen=True)
class PartialDocument:
    """The readable part of an unsound document.

    ``whole`` says for each phase whether all its environments could be read. Unreadable environments
    are missing, unreadable classes are :data:`UNREAD`, and other values are defaults.
    """

    document: RunDocument
    whole: tuple[bool, ...]


def join(path: Place) -> str:
    """Format ``path`` for messages: ``schedule.0.phase_0``."""
    return ".".join(str(part) for part in path)


def nearest_line(lines: Mapping[str, int], path: Place) -> int | None:
    """Return the line of ``path``, or of the nearest part above it with a line."""
    above = (lines.get(join(path[:length])) for length in range(len(path), 0, -1))
    return next((line for line in above if line is not None), None)
