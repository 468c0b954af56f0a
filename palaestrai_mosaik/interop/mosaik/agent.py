"""The description of an agent in a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any

from palaestrai_mosaik.agent import Brain, Memory, Muscle, Objective
from palaestrai_mosaik.core.errors import ContractError, did_you_mean
from palaestrai_mosaik.experiment import ClassSpec
from palaestrai_mosaik.runner.factory import GivenPart
from palaestrai_mosaik.types import Space

#: an object, a class, its name (``package.module:Class``), or ``{"name": ..., "params": {...}}``
Part = Any
#: by entity, its attributes: names, or a mapping of names to spaces (``None``: any number)
Sensors = Mapping[Any, str | Sequence[str] | Mapping[str, Space | str | None]]
#: by entity, its attributes with their spaces, or with pairs of space and initial value
Actuators = Mapping[Any, Mapping[str, Space | str | tuple[Space | str, Any]]]

#: keys of ``load``
_LOAD = ("base", "agent", "experiment_run", "phase", "snapshot")


@dataclass(frozen=True)
class Agent:
    """An agent of a scenario.

    Args:
        name: the name of the agent in results.
        muscle, brain, objective: an object, a class without mandatory arguments, a name
            ``package.module:Class``, or a mapping with ``name`` and ``params``, as in a run document. Without
            ``brain``, the agent does not learn. The objective may also be a function of the agent's memory. Without
            one, it is the sum of the rewards.
        sensors: for each entity (or its full id, ``"Grid-0.bus_1"``), the attributes that the agent observes:
            ``"vm_pu"``, ``["vm_pu", "va_degree"]``, or ``{"vm_pu": Box(0.8, 1.2)}``. Without a space, values are
            unbounded numbers. A space may be given as text. Values of a ``Box`` with one element are plain numbers.
        actuators: for each entity, the attributes that the agent sets, with their spaces: ``{"q_mvar": Box(-1, 1)}``,
            or ``(Box(-1, 1), 0.5)`` with the value that the entity gets before the agent's first action. The
            default is zero. This value does not trigger a simulator, so a purely event-based simulator does not get
            it.
        load: the initial model of the brain: a folder written by :meth:`Agents.dump`, or for models from runs of
            documents, a mapping with ``base`` (a folder), ``experiment_run``, ``phase``, ``agent`` and
            ``snapshot``.
    """

    name: str
    muscle: Part
    brain: Part = None
    objective: Part | Callable[[Memory], float] = None
    sensors: Sensors = field(default_factory=dict)
    actuators: Actuators = field(default_factory=dict)
    load: str | PathLike[str] | Mapping[str, str] | None = None


class _FromMemory(Objective):
    """An objective computed by a function of the agent's memory."""

    def __init__(self, function: Callable[[Memory], float]):
        super().__init__()
        self.function = function

    def internal_reward(self, memory: Memory, **kwargs: Any) -> float | None:
        return self.function(memory)


def part_of(agent: str, what: str, part: Part) -> ClassSpec | None:
    """Return the specification of an agent's ``muscle``, ``brain`` or ``objective``, or ``None`` if it has none."""
    if part is None:
        return None
    if isinstance(part, str):
        return ClassSpec(part)
    if isinstance(part, Mapping):
        return _described(f"agent {agent!r}: {what}", part)
    if isinstance(part, type):
        part = part()
    elif what == "objective" and callable(part) and not isinstance(part, Objective):
        part = _FromMemory(part)
    kind = type(part)
    base = {"muscle": Muscle, "brain": Brain, "objective": Objective}[what]
    if not isinstance(part, base):
        raise ContractError(
            f"agent {agent!r}: {what} is no {base.__name__}, no class of one and no name, but {part!r}"
        )
    return GivenPart(f"{kind.__module__}:{kind.__qualname__}", part=part)


def _described(who: str, part: Mapping[str, Any]) -> ClassSpec:
    """Return the specification in a mapping with ``name`` and ``params``."""
    name, params = part.get("name"), part.get("params") or {}
    if set(part) - {"name", "params"} or not isinstance(name, str) or not isinstance(params, Mapping):
        raise ContractError(
            f"{who} is a mapping of name (a text) and params (a mapping), found {dict(part)!r}"
        )
    return ClassSpec(name, dict(params))


def load_of(agent: Agent, uid: str, phase: str) -> dict[str, str] | None:
    """Return the agent's ``load`` with defaults for missing keys: the scenario's ``uid`` and ``phase``."""
    load = agent.load
    if load is None:
        return None
    if not isinstance(load, Mapping):
        load = {"base": fspath(load)}
    for key in load:
        if key not in _LOAD:
            raise ContractError(
                f"agent {agent.name!r}: load has {key!r}{did_you_mean(key, _LOAD)}; it may have {', '.join(_LOAD)}"
            )
    if "base" not in load:
        raise ContractError(f"agent {agent.name!r}: load needs base, the folder where brains are kept")
    usual = {"experiment_run": uid, "phase": phase, "agent": agent.name, "snapshot": ""}
    return usual | {key: fspath(value) for key, value in load.items()}
