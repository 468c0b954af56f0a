"""The rules for the results of environments and rewards, shared by runs, ``check`` and the conformance checks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.core.importing import class_name
from palaestrai_mosaik.core.printing import count, listed, shorten
from palaestrai_mosaik.types import ActuatorInformation, RewardInformation, SensorInformation, Space

from .environment import EnvironmentBaseline, EnvironmentState

#: the channels of a baseline
KINDS = ("sensors", "actuators", "rewards")
#: kinds of numpy's types that are numbers
NUMBERS = "fiub"

_CLASSES: Mapping[str, type] = {
    "sensor": SensorInformation,
    "actuator": ActuatorInformation,
    "reward": RewardInformation,
}
_BASELINE = "return EnvironmentBaseline(sensors=[...], actuators=[...], rewards=[...])"
_STATE = "return EnvironmentState(readings, rewards, terminated=..., truncated=...)"


class Fault(NamedTuple):
    """A broken rule; ``detail`` states the offending value and the remedy."""

    rule: str
    detail: str


def refusal(who: str, faults: Iterable[Fault]) -> ContractError:
    """Build the error for the faults of ``who``."""
    first: dict[str, str] = {}
    for rule, detail in faults:
        # repeat a rule only once, with its first remedy
        first.setdefault(rule, detail)
    return ContractError(f"{who}: " + "; ".join(f"{rule}: {detail}" for rule, detail in first.items()))


def shown(value: Any) -> str:
    """Describe a value in a message: ``None``, or its text and type."""
    return "None" if value is None else f"{shorten(repr(value), 60)}, {_typed(value)}"


def _returned(value: Any) -> str:
    """Describe a method's result in a message."""
    return "None (is a return missing?)" if value is None else shown(value)


def _typed(value: Any) -> str:
    name = "class" if isinstance(value, type) else type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' or name == 'ndarray' else 'a'} {name}"


def baseline_faults(baseline: Any) -> Iterator[Fault]:
    """Yield the faults of a baseline, the result of an environment's ``setup``."""
    if not isinstance(baseline, EnvironmentBaseline):
        yield Fault("returns no EnvironmentBaseline", f"found {_returned(baseline)}; write {_BASELINE}")
        return
    for kind in KINDS:
        yield from channel_faults(kind[:-1], getattr(baseline, kind))


def channel_faults(kind: str, channels: Any) -> Iterator[Fault]:
    """Yield the faults of declared sensors, actuators or rewards; ``kind`` is their singular."""
    noun = f"{'an' if kind == 'actuator' else 'a'} {kind}"
    example = f'{_CLASSES[kind].__name__}(0.0, Box(0.0, 1.0, shape=()), "name")'
    if not isinstance(channels, Collection) or isinstance(channels, str | bytes | Mapping):
        yield Fault(f"its {kind}s are no list", f"found {shown(channels)}; write [{example}], or [] for none")
        return
    uids: set[str] = set()
    for index, channel in enumerate(channels):
        if not isinstance(channel, _CLASSES[kind]):
            yield Fault(
                f"{noun} is no {_CLASSES[kind].__name__}",
                f"number {index} is {shown(channel)}; write {example}",
            )
            continue
        uid: Any = channel.uid  # type: ignore[attr-defined]
        space: Any = channel.space  # type: ignore[attr-defined]
        if not isinstance(uid, str) or not uid:
            yield Fault(
                f"{noun} has no uid", f"the uid of number {index} is {uid!r}, not a name; write {example}"
            )
        elif uid in uids:
            yield Fault(f"several {kind}s have the same uid", f"{uid!r}; each needs a name of its own")
        uids.add(str(uid))
        if not isinstance(space, Space):
            yield Fault(f"{noun} has no space", f"{uid!r} has {space_fault(space)}")


def space_fault(space: Any) -> str:
    """Describe a value that is not a space of this package."""
    description = "None" if space is None else f"{shorten(repr(space), 60)}, of {class_name(type(space))}"
    return f"{description}; write a space of palaestrai_mosaik.types, such as Box(0.0, 1.0, shape=())"


def step_size_faults(size: Any) -> Iterator[Fault]:
    """Yield the faults of an environment's ``step_size``."""
    whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
    if not whole or size < 1:
        yield Fault("step_size is not a whole number of at least 1", f"found {size!r}")


def state_faults(state: Any, sensors: Sequence[Any]) -> Iterator[Fault]:
    """Yield the faults of a state of an environment with these ``sensors``, except those of its rewards."""
    if not isinstance(state, EnvironmentState):
        yield Fault("returns no EnvironmentState", f"found {_returned(state)}; write {_STATE}")
        return
    size = sum(sensor.space.size for sensor in sensors)
    names = listed([sensor.uid for sensor in sensors], 10) or "no sensors"
    try:
        readings = np.asarray(state.readings)
    except ValueError:
        yield Fault(
            "readings are not numbers", f"found {shown(state.readings)}; concatenate the readings of {names}"
        )
    else:
        if readings.dtype.kind not in NUMBERS:
            yield Fault(
                "readings are not numbers", f"found {shown(state.readings)}; expected are those of {names}"
            )
        elif readings.shape != (size,):
            yield Fault(
                f"readings are not a vector of shape ({size},)",
                f"their shape is {readings.shape}; expected are those of {names}",
            )
    for name in ("terminated", "truncated"):
        flag = getattr(state, name)
        if not isinstance(flag, bool | np.bool_):
            yield Fault(f"{name} is neither True nor False", f"found {flag!r}; write {name}=bool(...)")


def reward_faults(values: Any, declared: Sequence[Any]) -> Iterator[Fault]:
    """Yield the faults of the rewards ``values``; ``declared`` has their names and spaces."""
    names = listed([reward.uid for reward in declared], 10) or "none"
    rewards: Any = None
    # lists of different lengths
    with suppress(ValueError):
        rewards = np.asarray(values)
    if rewards is None or rewards.dtype.kind not in NUMBERS:
        yield Fault(
            "rewards are not numbers",
            f"found {_returned(values)}; expected is one number for each of: {names}",
        )
    elif rewards.shape != (len(declared),) and (len(declared) != 1 or rewards.shape):
        yield Fault(
            f"{count(len(declared), 'reward')} declared, others given",
            f"found {_returned(values)}; expected is one number for each of: {names}; declare all of them, or return "
            "their sum",
        )
