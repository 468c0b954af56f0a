"""Mosaik worlds that were made for palaestrai-mosaik, as environments of run documents.

Descriptions of sensors and actuators are objects (palaestrAI's or ours) or dictionaries; values on
their way between entities and agents are converted as palaestrai-mosaik does.

::

    environment:
      name: palaestrai_mosaik:MosaikEnvironment
      uid: grid
      params:
        module: mypackage.grid            # or mypackage.grid:Descriptor
        description_func: describe        # (params) -> sensors, actuators[, world state]
        instance_func: get_world          # async (params) -> AsyncWorld, {full id: entity}
        arl_sync_freq: 900                # ticks between two readings
        end: 15*60*96
        start_date: 2020-06-01 00:00:00+0100
        params: {grid_name: demo}         # for the two functions

Both functions are called for every episode. The world that they make becomes part of the world of
the phase: mosaik schedules its simulators together with the agents and the other environments.
"""

from __future__ import annotations

import ast
import inspect
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from palaestrai_mosaik import importing
from palaestrai_mosaik.environment.cosimulation import (
    ActuatorPort,
    CoSimulation,
    SensorPort,
    WorldPlan,
)
from palaestrai_mosaik.environment.environment import EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.errors import ActionError, ContractError, SpaceError, did_you_mean
from palaestrai_mosaik.text import shorten
from palaestrai_mosaik.types import ActuatorInformation, SensorInformation, Space, Tuple
from palaestrai_mosaik.types.arrays import Array, FloatVector
from palaestrai_mosaik.types.vectors import Layout

#: what a sensor's (an actuator's) dictionary may be called by: uid, space and value
_SENSOR_KEYS = (("uid", "sensor_id"), ("space", "observation_space"), ("value", "sensor_value"))
_ACTUATOR_KEYS = (("uid", "actuator_id"), ("space", "action_space"), ("value", "setpoint"))

#: how dates are written in documents and handed to worlds
DATE_FORMAT = "%Y-%m-%d %H:%M:%S%z"

#: longer texts are shortened in messages
_SHOWN = 100

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def read_ticks(found: Any, name: str) -> int:
    """Return the number of ticks that ``found`` means: a number or text such as ``15*60*96``.

    ``name``: the parameter, for the message. Fractions of a tick are cut off. Raises :class:`ContractError`.
    """
    try:
        value = _evaluate(ast.parse(found.strip(), mode="eval").body) if isinstance(found, str) else found
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        return int(value)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        raise ContractError(
            f"{name} must be a number of ticks, or a product or sum of numbers such as '15*60*96', found "
            + shorten(repr(found), _SHOWN)
        ) from None


def read_seconds(found: Any, name: str) -> float:
    """Return the positive number of seconds ``found``; ``name``: the parameter. Raises :class:`ContractError`."""
    if isinstance(found, bool) or not isinstance(found, int | float) or not found > 0:
        raise ContractError(f"{name} must be a positive number of seconds, found {found!r}")
    return float(found)


def _evaluate(node: ast.AST) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.operand))
    raise ValueError


def read_start(start: Any, rng: np.random.Generator) -> str | None:
    """Return the date of tick 0 as worlds want it (:data:`DATE_FORMAT`); ``None`` without a date.

    ``random`` stands for an hour of a day in 2020, ``2017_random`` in that year, ``2017-03_random``
    in that month. Raises :class:`ContractError`.
    """
    if start is None:
        return None
    if isinstance(start, datetime):
        return (start if start.tzinfo else start.replace(tzinfo=UTC)).strftime(DATE_FORMAT)
    text = str(start)
    if text == "random" or text.endswith("_random"):
        year, _, month = ("2020" if text == "random" else text.removesuffix("_random")).partition("-")
        with suppress(ValueError):  # reported below
            text = (
                f"{int(year):04d}-{int(month) if month else rng.integers(1, 13):02d}-{rng.integers(1, 29):02d} "
                f"{rng.integers(0, 24):02d}:00:00+0100"
            )
    parse_date(text)
    return text


def parse_date(text: str) -> datetime:
    """Return the date that ``text`` (:data:`DATE_FORMAT`) means. Raises :class:`ContractError`."""
    try:
        return datetime.strptime(text, DATE_FORMAT)
    except (TypeError, ValueError):
        raise ContractError(
            "start_date must be a date such as '2020-01-31 12:00:00+0100', or 'random', '2020_random' or "
            f"'2020-03_random', found {text!r}"
        ) from None


def read_sensors(described: Any) -> list[SensorInformation]:
    """Return the sensors of a description. Raises :class:`ContractError`."""
    found = []
    for place, one in enumerate(_listed(described, "sensors")):
        uid, space, value = _parts(one, "sensor", place, _SENSOR_KEYS)
        found.append(SensorInformation(readable(space, uid)(value), space, uid))
    return found


def read_actuators(described: Any) -> list[ActuatorInformation]:
    """Return the actuators of a description. Raises :class:`ContractError`."""
    found = []
    for place, one in enumerate(_listed(described, "actuators")):
        uid, space, value = _parts(one, "actuator", place, _ACTUATOR_KEYS)
        try:
            found.append(ActuatorInformation(value, space, uid))
        except ActionError as error:
            raise ContractError(f"the description of an actuator: {error}") from None
    return found


def _listed(described: Any, what: str) -> Sequence[Any]:
    if isinstance(described, str | bytes | Mapping) or not isinstance(described, Sequence):
        raise ContractError(f"a description must give a list of {what}, found {described!r}")
    return described


def _parts(one: Any, kind: str, place: int, keys: Sequence[tuple[str, str]]) -> tuple[str, Space, Any]:
    """Return uid, space and value of one description."""
    where = f"the description of {kind} {place}"
    if isinstance(one, Mapping):
        allowed = [key for pair in keys for key in pair]
        for key in one:
            if key not in allowed:
                raise ContractError(
                    f"{where}: unknown key {key!r}{did_you_mean(str(key), allowed)}; allowed: {', '.join(allowed)}"
                )
        uid, space, value = (next((one[key] for key in pair if key in one), None) for pair in keys)
    else:
        uid, space, value = (getattr(one, name, None) for name in ("uid", "space", "value"))
    if not isinstance(uid, str) or uid.count(".") < 2 or not all(uid.split(".")):
        raise ContractError(
            f"{where}: its uid must be 'simulator.entity.attribute' (mosaik's ids), found {uid!r}"
            if uid is not None or isinstance(one, Mapping)
            else f"{where} is neither {kind} information nor a dictionary: {one!r}"
        )
    try:
        return uid, _space(space), value
    except SpaceError as error:
        raise ContractError(f"the description of {kind} {uid!r}: {error}") from None


def _space(found: Any) -> Space:
    if isinstance(found, Space):
        return found
    if hasattr(found, "to_string"):
        # palaestrAI's spaces write themselves in a form that ours are read from
        return Space.from_string(found.to_string())
    return Space.from_string(found)


def readable(space: Space, uid: str) -> Callable[[Any], Any]:
    """Return what makes readings of ``space`` of an entity's values.

    As in palaestrai-mosaik, a value is cast to the space's type. What is missing (``None``) is NaN, also
    where the type is one of whole numbers. Raises :class:`ContractError` where a value cannot be cast, is
    beyond the type's limits or has another shape.
    """
    if isinstance(space, Tuple):
        return _readable_tuple(space, uid)
    assert space.shape is not None
    assert space.dtype is not None
    missing, dtype = np.full(space.shape, np.nan), space.dtype
    whole = dtype.kind in "iu"
    # of a plain number, a number: faster than by way of an array
    number = dtype.type if space.size == 1 and dtype.kind == "f" else None

    def reading(value: Any) -> Any:
        if value is None:
            return missing
        if type(value) is float and number is not None:
            return number(value)
        try:
            array = np.asarray(value)
            if array.dtype.kind == "c" or (array.shape != space.shape and not array.size == space.size == 1):
                raise ValueError(f"it has shape {array.shape} and type {array.dtype}")
            return _whole(array, dtype) if whole and array.dtype.kind != "b" else array.astype(dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise ContractError(f"{value!r} is no reading of sensor {uid!r}, {space}: {error}") from None

    return reading


def _whole(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return ``array`` without fractions; as floating-point numbers where some are missing (NaN)."""
    if array.dtype.kind not in "iuf":
        array = array.astype(np.float64)
    limits = np.iinfo(dtype)
    cut = np.trunc(array)
    # numbers of 64 bits have no limit of their own as floating-point numbers, the next one is exact
    if not (np.isnan(cut) | ((cut >= limits.min) & (cut < limits.max + 1))).all():
        raise ValueError(f"{dtype} holds numbers from {limits.min} to {limits.max}")
    found: Array = cut if np.isnan(cut).any() else cut.astype(dtype)
    return found


def _readable_tuple(space: Tuple, uid: str) -> Callable[[Any], Any]:
    """Return :func:`readable` for several spaces: a value for each of them."""
    parts = [readable(one, uid) for one in space.spaces]

    def reading(value: Any) -> Any:
        if value is None:
            return tuple(part(None) for part in parts)
        if not isinstance(value, Sequence | np.ndarray) or len(value) != len(parts):
            raise ContractError(
                f"{value!r} is no reading of sensor {uid!r}, {space}: {len(parts)} values are needed"
            )
        return tuple(part(one) for part, one in zip(parts, value, strict=True))

    return reading


def settable(value: Any) -> Any:
    """Return a set-point as entities get it: numbers and lists; ``None`` where none was given yet."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return None if isinstance(value, float) and math.isnan(value) else value


#: accepted without effect: there is no second process to be reached any more
_PLACES = ("arl_sync_host", "arl_sync_port")


class MosaikEnvironment(CoSimulation):
    """A mosaik world that a Python function makes, with the parameters of palaestrai-mosaik.

    Args:
        module: where the two functions are: a module, or ``module:Class``, of which an object is made for
            every episode.
        description_func: called with the parameters (see ``params``); returns the sensors, the actuators and,
            if it wants, the state of the world (a dictionary). Sensors and actuators are information objects
            or dictionaries with ``uid`` (``simulator.entity.attribute``), ``space`` and ``value``.
        instance_func: called with the same parameters; returns a ``mosaik.AsyncWorld`` (or ``World``) that
            was not run, and its entities by full id. It may be asynchronous.
        arl_sync_freq: ticks from one reading of the sensors to the next.
        end: length of an episode in ticks: a number or a product or sum of some (``15*60*96``). The episode
            is truncated with the last reading that is not later.
        start_date: date of tick 0 (``2020-01-31 12:00:00+0100``), or ``random``, ``2020_random``,
            ``2020-03_random``: drawn for every episode.
        infer_start_date: whether the date comes from the state of the world where ``start_date`` is not
            given.
        silent: handed on to the functions.
        no_extra_step: whether the last reading is before ``end``, not at it.
        simulation_timeout: seconds that an answer of a simulator in another process may take, also to the
            instance function.
        params: for the two functions, which also get ``meta_params`` in it: ``seed`` (another one for every
            episode), ``end`` (exclusive), ``arl_sync_freq``, ``silent`` and, where there is one,
            ``start_date``.
        terminal_condition: ``module:function``; asked at the end of an episode with the sensors, it returns
            (terminated, truncated), each ``None`` for "as it is".

    Raises:
        ContractError, NameResolutionError: if the parameters do not fit, or something that they name is not
            there.
    """

    def __init__(  # noqa: PLR0913 (the names are those of palaestrai-mosaik)
        self,
        module: str,
        description_func: str,
        instance_func: str,
        arl_sync_freq: int | str,
        end: int | str,
        *,
        start_date: str | None = None,
        infer_start_date: bool = False,
        silent: bool = False,
        no_extra_step: bool = False,
        simulation_timeout: float = 600,
        params: Mapping[str, Any] | None = None,
        terminal_condition: str | Callable[..., Any] | None = None,
        **places: Any,
    ):
        for name in places:
            if name not in _PLACES:
                known = inspect.signature(MosaikEnvironment).parameters
                raise ContractError(f"MosaikEnvironment has no parameter {name!r}{did_you_mean(name, known)}")
        self.step_size = read_ticks(arl_sync_freq, "arl_sync_freq")
        #: the first tick that is not part of an episode
        self.end = read_ticks(end, "end") + (0 if no_extra_step else 1)
        if not 0 < self.step_size < self.end:
            raise ContractError(
                f"arl_sync_freq ({self.step_size}) must be at least 1 and less than the end ({self.end}), or nobody "
                "ever acts"
            )
        if not isinstance(params, Mapping | None):
            raise ContractError(f"params must be a mapping of parameters by name, found {params!r}")
        self.params = dict(params or {})
        self.timeout = read_seconds(simulation_timeout, "simulation_timeout")
        self._names = (module, description_func, instance_func)
        for name, found in zip(("module", "description_func", "instance_func"), self._names, strict=True):
            if not isinstance(found, str):
                raise ContractError(f"{name} must be text, found {found!r}")
        self._start, self._infer, self._silent = start_date, infer_start_date, silent
        self._terminal = (
            importing.load(terminal_condition, ours=False)
            if isinstance(terminal_condition, str)
            else terminal_condition
        )
        self._reward: Any = None
        self._sensors: list[SensorInformation] = []
        self._actuators: list[ActuatorInformation] = []
        self._setpoints: Callable[[], FloatVector] = lambda: np.empty(0)

    def takes_reward(self, reward: Any) -> bool:
        """Keep a reward of palaestrAI, which is called with sensors and actuators."""
        if not hasattr(reward, "compute"):
            return False
        self._reward = reward
        return True

    def setup(self) -> EnvironmentBaseline:
        """Ask the description; nothing is built or started."""
        _, given, world_state = self._describe(np.random.default_rng(0))
        date = given["meta_params"].get("start_date")
        #: the sensors and actuators in the order of the vectors
        self.layouts = [Layout.of(channels) for channels in (self._sensors, self._actuators)]
        rewards: Sequence[Any] = ()
        if self._reward is not None:
            # nobody knows the first readings, and palaestrAI's objects take members of their space only
            rewards = self._reward.declare(
                [SensorInformation(_plausible(one), one.space, one.uid) for one in self._sensors],
                self._actuators,
            )
        start: datetime | None = None
        if date is not None and "random" not in str(self._start):
            start = parse_date(date)
        self._n_rewards = len(rewards)
        return EnvironmentBaseline(self._sensors, self._actuators, rewards, start, world_state)

    def plan(self) -> WorldPlan:
        """Return how the world of the next episode is made, and what agents see and set of it."""
        rng = getattr(self, "rng", None) or np.random.default_rng(0)
        source, given, _ = self._describe(rng)
        self._compare("sensors", self.layouts[0], self._sensors)
        self._compare("actuators", self.layouts[1], self._actuators)
        make = self._function(source, self._names[2])
        sensors = [SensorPort(one, *_ends(one.uid)) for one in self._sensors]
        return WorldPlan(
            (),
            (),
            (),
            sensors,
            [ActuatorPort(one, *_ends(one.uid)) for one in self._actuators],
            build=partial(make, given),
            timeout=self.timeout,
            readings={
                (port.entity, port.attribute): readable(port.information.space, port.information.uid)
                for port in sensors
            },
            setpoint=settable,
            acting=partial(setattr, self, "_setpoints"),
        )

    def judge(self, time: int, readings: FloatVector) -> EnvironmentState:
        """Compute palaestrAI's reward, if there is one; truncate the episode at its last reading."""
        rewards: FloatVector = np.full(self._n_rewards, np.nan)
        # of the first readings, nobody has done anything yet
        if self._reward is not None and time > 0:
            sensors, actuators = self.layouts
            rewards = self._reward.compute(sensors, readings, actuators, self._setpoints())
        terminated, truncated = False, time + self.step_size >= self.end
        if truncated and self._terminal is not None:
            terminated, truncated = self._classified(readings)
        return EnvironmentState(readings, rewards, terminated, truncated)

    def _classified(self, readings: FloatVector) -> tuple[bool, bool]:
        layout = self.layouts[0]
        sensors = [
            SensorInformation(_value(space, readings[part]), space, uid)
            for uid, space, part in zip(layout.uids, layout.spaces, layout.slices, strict=True)
        ]
        assert self._terminal is not None
        terminated, truncated = self._terminal(sensors)
        terminated = bool(terminated)
        # it is over in any case
        return terminated, not terminated if truncated is None else bool(truncated) or not terminated

    def _describe(self, rng: np.random.Generator) -> tuple[Any, dict[str, Any], Any]:
        """Ask the description; return where the functions are, what they are given and the world's state."""
        source = self._source()
        given = deepcopy(self.params)
        meta = given["meta_params"] = {
            "seed": int(rng.integers(2**32 - 1)),
            "end": self.end,
            "arl_sync_freq": self.step_size,
            "silent": self._silent,
        }
        where = f"{self._names[0]}.{self._names[1]}"
        answer = self._function(source, self._names[1])(given)
        if not isinstance(answer, tuple | list) or len(answer) not in (2, 3):
            raise ContractError(f"{where} must return (sensors, actuators[, world state]), found {answer!r}")
        world_state = answer[2] if len(answer) > 2 else None
        date = read_start(self._start, rng)
        own = world_state.get("start_date") if isinstance(world_state, Mapping) else None
        if date is None and own is not None:
            if not self._infer:
                raise ContractError(
                    f"the world of {self._names[0]} needs a start_date: give one, or infer_start_date: true for "
                    f"its own, {own!r}"
                )
            date = read_start(own, rng)
        if date is not None:
            meta["start_date"] = date
        self._sensors, self._actuators = read_sensors(answer[0]), read_actuators(answer[1])
        for kind, found in (("sensors", self._sensors), ("actuators", self._actuators)):
            if not found:
                raise ContractError(f"{where} describes no {kind}; an environment needs some")
        return source, given, world_state

    def _compare(self, kind: str, layout: Layout, found: Sequence[Any]) -> None:
        """Raise :class:`ContractError` where a later episode has other channels than the first."""
        before = zip(layout.uids, layout.spaces, strict=True)
        for i, (old, new) in enumerate(zip_longest(before, ((one.uid, one.space) for one in found))):
            if old != new:
                was, now = (f"{one[0]!r}, {one[1]}" if one else "nothing" for one in (old, new))
                raise ContractError(
                    f"{self._names[0]}.{self._names[1]} must describe the same {kind} in every episode, in the same "
                    f"order: place {i} was {was}, is now {now}"
                )

    def _source(self) -> Any:
        name = self._names[0]
        if ":" in name:
            return importing.load(name, ours=False)()
        return importing.import_module(name, ours=False)

    def _function(self, source: Any, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] | None = getattr(source, name, None)
        if not callable(found):
            known = [key for key in dir(source) if not key.startswith("_") and callable(getattr(source, key))]
            raise ContractError(f"{self._names[0]} has no function {name!r}{did_you_mean(name, known)}")
        importing.check_origin(
            getattr(found, "__func__", found), self._names[0].partition(":")[0] + f":{name}"
        )
        return found


def _ends(uid: str) -> tuple[str, str]:
    """Return mosaik's full id of the entity, and the attribute."""
    entity, _, attribute = uid.rpartition(".")
    return entity, attribute


def _value(space: Space, reading: FloatVector) -> Any:
    """Return the value of a reading; ``None`` where whole numbers are missing, which know no NaN."""
    missing = space.flat_integral.any() and np.isnan(reading).any()
    return None if missing else space.unflatten(reading)


def _plausible(sensor: SensorInformation) -> Any:
    """Return the reading that was described, or the one next to zero."""
    if sensor.value is not None and not np.isnan(sensor.space.flatten(sensor.value)).any():
        return sensor.value
    return sensor.space.unflatten(np.clip(0.0, sensor.space.flat_low, sensor.space.flat_high))
