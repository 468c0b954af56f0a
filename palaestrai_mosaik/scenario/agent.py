"""What a script says about an agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any

from palaestrai_mosaik.agent import Brain, Memory, Muscle, Objective
from palaestrai_mosaik.errors import ContractError, did_you_mean
from palaestrai_mosaik.experiment import ClassSpec
from palaestrai_mosaik.runner.factory import GivenPart
from palaestrai_mosaik.types import Space

#: an object, a class, its name (``package.module:Class``), or ``{"name": ..., "params": {...}}``
Part = Any
#: attributes of an entity: their names, or the space of each (``None``: any number)
Sensors = Mapping[Any, str | Sequence[str] | Mapping[str, Space | str | None]]
#: the space of each attribute that is set, or (space, value until the agent acts)
Actuators = Mapping[Any, Mapping[str, Space | str | tuple[Space | str, Any]]]

#: what ``load`` may say
_LOAD = ("base", "agent", "experiment_run", "phase", "snapshot")


@dataclass(frozen=True)
class Agent:
    """An agent of a scenario.

    Args:
        name: what the agent is called in results.
        muscle, brain, objective: an object, a class without mandatory arguments, a name
            ``package.module:Class``, or a mapping with ``name`` and ``params``, as in a run document. Without
            ``brain`` the agent does not learn. The objective may also be a function of the agent's memory;
            without one, its value is the sum of the rewards.
        sensors: for each entity (or its full id, ``"Grid-0.bus_1"``) the attributes that the agent sees:
            ``"vm_pu"``, ``["vm_pu", "va_degree"]``, or ``{"vm_pu": Box(0.8, 1.2)}``. Without a space a value
            is any number. A space may be written as a text. A ``Box`` with one place is a plain number.
        actuators: for each entity the attributes that the agent sets, with their spaces: ``{"q_mvar": Box(-1,
            1)}``, or, with the value that the entity gets until the agent has acted, ``(Box(-1, 1), 0.5)``.
            Without that value, it is zero. It triggers no simulator: one that is only triggered has nothing
            before.
        load: where the brain begins: a folder that :meth:`Agents.dump` has written, or a mapping with
            ``base`` (a folder), ``experiment_run``, ``phase``, ``agent`` and ``snapshot``, for what runs of
            documents keep.
    """

    name: str
    muscle: Part
    brain: Part = None
    objective: Part | Callable[[Memory], float] = None
    sensors: Sensors = field(default_factory=dict)
    actuators: Actuators = field(default_factory=dict)
    load: str | PathLike[str] | Mapping[str, str] | None = None


class _FromMemory(Objective):
    """An objective that is a function of the agent's memory."""

    def __init__(self, function: Callable[[Memory], float]):
        super().__init__()
        self.function = function

    def internal_reward(self, memory: Memory, **kwargs: Any) -> float | None:
        return self.function(memory)


def part_of(agent: str, what: str, given: Part) -> ClassSpec | None:
    """Return how to make a part (``muscle``, ``brain``, ``objective``) of an agent; ``None``: it has none."""
    if given is None:
        return None
    if isinstance(given, str):
        return ClassSpec(given)
    if isinstance(given, Mapping):
        params = given.get("params") or {}
        if (
            set(given) - {"name", "params"}
            or not isinstance(given.get("name"), str)
            or not isinstance(params, Mapping)
        ):
            raise ContractError(
                f"agent {agent!r}: {what} is a mapping of name (a text) and params (a mapping), found {dict(given)!r}"
            )
        return ClassSpec(given["name"], dict(params))
    if isinstance(given, type):
        given = given()
    elif what == "objective" and callable(given) and not isinstance(given, Objective):
        given = _FromMemory(given)
    kind = type(given)
    base = {"muscle": Muscle, "brain": Brain, "objective": Objective}[what]
    if not isinstance(given, base):
        raise ContractError(
            f"agent {agent!r}: {what} is no {base.__name__}, no class of one and no name, but {given!r}"
        )
    return GivenPart(f"{kind.__module__}:{kind.__qualname__}", part=given)


def load_of(agent: Agent, uid: str, phase: str) -> dict[str, str] | None:
    """Return where the agent's brain begins, with all keys; ``uid`` and ``phase`` are those of the scenario."""
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
