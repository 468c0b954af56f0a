"""What a run document says, once it is read, checked and cascaded.

All classes are frozen. Their ``params`` are plain data (strings, numbers, booleans,
``None``, lists, mappings) and may be shared between phases: copy them before handing
them to code that might write to them.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from palaestrai_mosaik.errors import Problem
from palaestrai_mosaik.types.control import Mode

#: The version of the run-document format; ``major.minor`` are compared with a document's.
DOCUMENT_VERSION = "3.5"
#: steps that each of several workers makes before it hears from the brains
DEFAULT_SYNC_EVERY = 32
#: stands for the number of a body in the ids of its sensors and actuators
BODY_NUMBER = "{body}"
#: the bodies of an agent, and the largest ``first`` among them
MAX_BODIES = 1_000_000

Controller = Literal["vanilla", "taking_turns"]
Bridge = Literal["agents", "per_agent"]
Scheduler = Literal["direct", "mosaik"]

#: A way into a document or a model: keys and indices from the top.
Place = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ClassSpec:
    """A class to be loaded: its ``name`` as written, and its constructor's keywords."""

    name: str
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FrameSpec:
    """Which states of an environment are rendered, and their frames stored.

    Those of every so many episodes (``every``: 0, n, 2n, ...), or of the ``episodes`` that are listed; of these
    every so many steps (``step_every``), and always a state with which the environment ends. Evaluations are counted on their own, and
    so is each worker's.
    """

    every: int = 1
    episodes: tuple[int, ...] | None = None
    step_every: int = 1

    def includes(self, episode: int) -> bool:
        """Return whether frames of the episode with this number are stored."""
        return episode % self.every == 0 if self.episodes is None else episode in self.episodes


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """One environment of a phase; ``step_size`` is in mosaik ticks (``None``: its own).

    ``interpreter``: the Python that it runs in, in a process of its own (``None``: this one). ``frames``: what
    is stored of its rendered frames (``None``: nothing).
    """

    uid: str
    name: str
    params: dict[str, Any] = field(default_factory=dict)
    step_size: int | None = None
    reward: ClassSpec | None = None
    state_transformer: ClassSpec | None = None
    interpreter: str | None = None
    frames: FrameSpec | None = None


@dataclass(frozen=True, slots=True)
class ReplaySpec:
    """Stored trajectories that fill a brain's memory before a run.

    ``agent`` (``None``: the same), ``experiment_run`` (``None``: this one), ``instance``
    (``None``: this one, if the run is this one and ``phase`` an earlier phase of it or left out
    and there is an earlier one; else the newest that finished), ``phase`` (index or name,
    ``None``: all, of this instance all earlier ones), ``mode`` (``"train"`` or ``"test"``,
    ``None``: both) say which; ``repeat`` is how often they are taken. ``sensors`` and ``actuators`` name the channels to take where the other agent's
    differ (``None``: those of this agent).
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
    """When a brain is dumped during a phase: every so many episodes, and whenever it is best."""

    every: int | None = None
    best: bool = False


@dataclass(frozen=True, slots=True)
class BodySpec:
    """Bodies of an agent that are alike: ``count`` incarnations of it in one environment.

    What the document does not give is here as it stands on the agent. In ``sensors`` and
    ``actuators`` (full ids or patterns) the text ``{body}`` stands for the body's number among
    these: ``first``, ``first + 1``, ... Where both are empty, they are all channels of
    ``environment`` (of its incarnation ``{body}``, if it is a batched one). ``environment`` is
    the one that all sensors and actuators are in, also where the document does not say it; it
    is ``None`` in no sound document. ``name`` is a label for these bodies (``None``: none is
    given).
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
    document's order. Without ``brain`` the agent does not learn, without ``objective``
    nothing is made of its rewards. ``load`` says which brain to start from: ``None`` for
    none, an empty mapping for the same agent of the previous phase, else any of the keys
    ``agent``, ``experiment_run``, ``instance``, ``phase`` (index), ``phase_name`` (a name in
    ``phase`` goes here, too), ``base``, ``snapshot``.
    ``filters`` stand between environment and muscle, the first one next to the environment.

    Without ``bodies`` the agent has one body, with these sensors and actuators, in whatever
    environments they are. With them, its bodies are numbered from 0 in the document's order,
    and the agent's own muscle, objective, channels and filters are only what they have in common
    (the muscle is that of the first body, where the agent gives none).
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
    """Return the pattern of all sensors, or of all actuators, of an environment; it may have none of them."""
    return f"{glob.escape(uid)}.*"


@dataclass(frozen=True, slots=True)
class SimulationSpec:
    """Who acts when (``controller``; ``name`` is how it was written) and how episodes end.

    ``scheduler``: who executes mosaik's schedule, this package or mosaik itself; nothing else differs.
    ``bridge`` has no effect any more, but is part of the document's digest.
    """

    controller: Controller
    name: str
    conditions: tuple[ClassSpec, ...] = ()
    bridge: Bridge = "agents"
    scheduler: Scheduler = "direct"


@dataclass(frozen=True, slots=True)
class PhaseSpec:
    """One phase, complete: what earlier phases define is already in it.

    ``episodes`` is ``None`` where the document gives no number. Every worker runs an
    evaluation episode after each ``evaluate_every`` training episodes (``None``: never).
    Several workers hear from the brains every ``sync_every`` steps, all at the same one, or
    (``asynchronous``) each at its own.
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


@dataclass(frozen=True)
class RunDocument:
    """One sound experiment-run document.

    ``experiment_uid`` names the experiment (the design) that the run belongs to; it groups runs
    in the store and is no part of the document's identity. ``canonical`` is plain data: the cascaded document in one spelling, itself loadable
    by :func:`~palaestrai_mosaik.experiment.from_mapping`. ``hash`` is the SHA-256 (hex)
    of its canonical JSON and the document's identity. ``text`` is what was read from
    ``source``. ``lines`` gives the 1-based line of every path of the text
    (``schedule.0.phase_0.agents.1``), ``origins`` where each part of the model was
    written, where that is not the same place.
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
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    origins: Mapping[Place, Place] = field(default_factory=dict, repr=False, compare=False)

    def problem(self, message: str, *place: str | int) -> Problem:
        """Return a problem at ``place`` of this model, told where the user wrote it.

        ``place`` is the way from here: ``problem("...", "phases", 0, "agents", 1,
        "sensors", 2)``. Path and line are those of the text, also where the cascade or
        a definition brought the value there.
        """
        written: Place = tuple(place)
        for length in range(len(place), 0, -1):
            origin = self.origins.get(tuple(place[:length]))
            if origin is not None:
                written = origin + tuple(place[length:])
                break
        line = None
        for length in range(len(written), 0, -1):
            line = self.lines.get(join(written[:length]))
            if line is not None:
                break
        return Problem(message, join(written), self.source, line)


@dataclass(frozen=True)
class PartialDocument:
    """What could be read of an unsound document: its phases up to one that could not be read at all.

    ``whole`` says for each phase whether all its environments could be read. Of agents and conditions, those
    that could not be read are missing.
    """

    document: RunDocument
    whole: tuple[bool, ...]


def join(place: Place) -> str:
    """Return ``place`` as it is printed: ``schedule.0.phase_0``."""
    return ".".join(str(part) for part in place)
