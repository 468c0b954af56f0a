"""Mosaik worlds made for palaestrai-mosaik, as environments of run documents.

Sensors and actuators are described by objects (palaestrAI's or ours) or dictionaries. Values between entities and
agents are converted as in palaestrai-mosaik.

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

Both functions are called for every episode. Their world becomes part of the phase's world: mosaik schedules its
simulators together with the agents and the other environments.
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

from palaestrai_mosaik.core import importing
from palaestrai_mosaik.core.errors import ActionError, ContractError, SpaceError, did_you_mean
from palaestrai_mosaik.core.printing import shorten
from palaestrai_mosaik.environment.cosimulation import (
    ActuatorPort,
    CoSimulation,
    SensorPort,
    WorldPlan,
)
from palaestrai_mosaik.environment.environment import EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.types import ActuatorInformation, SensorInformation, Space, Tuple
from palaestrai_mosaik.types.arrays import Array, FloatVector
from palaestrai_mosaik.types.vectors import Layout, SensorReadings

#: alternative keys of uid, space and value in dictionaries of sensors and actuators
_SENSOR_KEYS = (("uid", "sensor_id"), ("space", "observation_space"), ("value", "sensor_value"))
_ACTUATOR_KEYS = (("uid", "actuator_id"), ("space", "action_space"), ("value", "setpoint"))

#: format of dates in documents and in the parameters of worlds
DATE_FORMAT = "%Y-%m-%d %H:%M:%S%z"

#: maximum length of texts in messages
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


def read_ticks(value: Any, name: str) -> int:
    """Return a number of ticks, from a number or a text such as ``15*60*96``, rounded towards zero.

    ``name`` is the parameter's name for messages. Raises :class:`ContractError` for any other value.
    """
    try:
        ticks = _evaluate(ast.parse(value.strip(), mode="eval").body) if isinstance(value, str) else value
        if isinstance(ticks, bool) or not isinstance(ticks, int | float):
            raise ValueError
        return int(ticks)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        raise ContractError(
            f"{name} must be a number of ticks, or a product or sum of numbers such as '15*60*96', found "
            + shorten(repr(value), _SHOWN)
        ) from None


def read_seconds(value: Any, name: str) -> float:
    """Return a positive number of seconds; ``name`` is the parameter. Raises :class:`ContractError` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ContractError(f"{name} must be a positive number of seconds, found {value!r}")
    return float(value)


def _evaluate(node: ast.AST) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.operand))
    raise ValueError


def read_start(start: Any, rng: np.random.Generator) -> str | None:
    """Return the date of tick 0 in the format :data:`DATE_FORMAT`, or ``None`` without a date.

    ``random`` draws a month, day and hour in 2020, ``2017_random`` in 2017, ``2017-03_random`` a day and hour in March
    2017. Raises :class:`ContractError` for invalid dates.
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
    """Parse a date in the format :data:`DATE_FORMAT`. Raises :class:`ContractError` for other texts."""
    try:
        return datetime.strptime(text, DATE_FORMAT)
    except (TypeError, ValueError):
        raise ContractError(
            "start_date must be a date such as '2020-01-31 12:00:00+0100', or 'random', '2020_random' or "
            f"'2020-03_random', found {text!r}"
        ) from None


def read_sensors(described: Any) -> list[SensorInformation]:
    """Create sensors from their descriptions. Raises :class:`ContractError` if these are invalid."""
    sensors = []
    for index, item in enumerate(_listed(described, "sensors")):
        uid, space, value = _parts(item, "sensor", index, _SENSOR_KEYS)
        sensors.append(SensorInformation(readable(space, uid)(value), space, uid, may_be_missing=True))
    return sensors


def read_actuators(described: Any) -> list[ActuatorInformation]:
    """Create actuators from their descriptions. Raises :class:`ContractError` if these are invalid."""
    actuators = []
    for index, item in enumerate(_listed(described, "actuators")):
        uid, space, value = _parts(item, "actuator", index, _ACTUATOR_KEYS)
        try:
            actuators.append(ActuatorInformation(value, space, uid))
        except ActionError as error:
            raise ContractError(f"the description of an actuator: {error}") from None
    return actuators


def _listed(described: Any, what: str) -> Sequence[Any]:
    if isinstance(described, str | bytes | Mapping) or not isinstance(described, Sequence):
        raise ContractError(f"a description must give a list of {what}, found {described!r}")
    return described


def _parts(item: Any, kind: str, index: int, keys: Sequence[tuple[str, str]]) -> tuple[str, Space, Any]:
    """Return uid, space and value of one sensor or actuator."""
    where = f"the description of {kind} {index}"
    if isinstance(item, Mapping):
        uid, space, value = _entries(item, keys, where)
    else:
        uid, space, value = (getattr(item, name, None) for name in ("uid", "space", "value"))
    if not isinstance(uid, str) or uid.count(".") < 2 or not all(uid.split(".")):
        raise ContractError(
            f"{where}: its uid must be 'simulator.entity.attribute' (mosaik's ids), found {uid!r}"
            if uid is not None or isinstance(item, Mapping)
            else f"{where} is neither {kind} information nor a dictionary: {item!r}"
        )
    try:
        return uid, _space(space), value
    except SpaceError as error:
        raise ContractError(f"the description of {kind} {uid!r}: {error}") from None


def _entries(item: Mapping[str, Any], keys: Sequence[tuple[str, str]], where: str) -> list[Any]:
    """Return the value of each of ``keys`` in a dictionary, under either of its two names, or ``None``."""
    allowed = [key for pair in keys for key in pair]
    for key in item:
        if key not in allowed:
            raise ContractError(
                f"{where}: unknown key {key!r}{did_you_mean(str(key), allowed)}; allowed: {', '.join(allowed)}"
            )
    return [next((item[key] for key in pair if key in item), None) for pair in keys]


def _space(source: Any) -> Space:
    if isinstance(source, Space):
        return source
    if hasattr(source, "to_string"):
        # palaestrAI's spaces have the same text form as ours
        return Space.from_string(source.to_string())
    return Space.from_string(source)


def readable(space: Space, uid: str) -> Callable[[Any], Any]:
    """Return a function that converts an entity's values to readings of ``space``.

    As in palaestrai-mosaik, values are cast to the space's type. Missing values (``None``) become NaN, even if the type
    is an integer. The function raises :class:`ContractError` if a value cannot be cast, exceeds the type's limits, or
    has another shape.
    """
    if isinstance(space, Tuple):
        return _readable_tuple(space, uid)
    assert space.shape is not None
    assert space.dtype is not None
    missing, dtype = np.full(space.shape, np.nan), space.dtype
    whole = dtype.kind in "iu"
    # fast path for plain floats, without an array
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
    """Truncate ``array`` to integers of ``dtype``; if values are missing (NaN), it stays floating-point."""
    if array.dtype.kind not in "iuf":
        array = array.astype(np.float64)
    limits = np.iinfo(dtype)
    cut = np.trunc(array)
    # the maximum of 64-bit integers is not representable as a float, but the maximum plus one is
    if not (np.isnan(cut) | ((cut >= limits.min) & (cut < limits.max + 1))).all():
        raise ValueError(f"{dtype} holds numbers from {limits.min} to {limits.max}")
    result: Array = cut if np.isnan(cut).any() else cut.astype(dtype)
    return result


def _readable_tuple(space: Tuple, uid: str) -> Callable[[Any], Any]:
    """Return the function of :func:`readable` for a tuple space, with one value for each of its spaces."""
    parts = [readable(item, uid) for item in space.spaces]

    def reading(value: Any) -> Any:
        if value is None:
            return tuple(part(None) for part in parts)
        if not isinstance(value, Sequence | np.ndarray) or len(value) != len(parts):
            raise ContractError(
                f"{value!r} is no reading of sensor {uid!r}, {space}: {len(parts)} values are needed"
            )
        return tuple(part(item) for part, item in zip(parts, value, strict=True))

    return reading


def settable(value: Any) -> Any:
    """Convert a set-point for entities: to a number or a list, or ``None`` if it is not set yet."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return None if isinstance(value, float) and math.isnan(value) else value


#: parameters without effect, because no second process has to be reached
_IGNORED = ("arl_sync_host", "arl_sync_port")


class MosaikEnvironment(CoSimulation):
    """A mosaik world created by a Python function, with the parameters of palaestrai-mosaik.

    Args:
        module: the module with the two functions, or ``module:Class``. The class is instantiated for every episode.
        description_func: is called with the parameters (see ``params``). Returns the sensors, the actuators, and
            optionally the state of the world (a dictionary). Sensors and actuators are information objects, or
            dictionaries with ``uid`` (``simulator.entity.attribute``), ``space`` and ``value``.
        instance_func: is called with the same parameters. Returns a ``mosaik.AsyncWorld`` (or ``World``) that has not
            been run, and its entities by full id. May be asynchronous.
        arl_sync_freq: ticks between two readings of the sensors.
        end: length of an episode in ticks: a number, or a product or sum of numbers (``15*60*96``). The episode is
            truncated at the last reading that is not later.
        start_date: date of tick 0 (``2020-01-31 12:00:00+0100``), or ``random``, ``2020_random``,
            ``2020-03_random`` to draw a date for every episode.
        infer_start_date: whether to take the date from the state of the world if ``start_date`` is missing.
        silent: is passed on to the functions.
        no_extra_step: whether the last reading is before ``end``, instead of at it.
        simulation_timeout: maximum number of seconds for an answer of a simulator in another process, including those
            to the instance function.
        params: parameters of the two functions. They also get ``meta_params`` with ``seed`` (different in every
            episode), ``end`` (exclusive), ``arl_sync_freq``, ``silent`` and, if there is a date, ``start_date``.
        terminal_condition: ``module:function`` that is called with the sensors at the end of an episode. Returns
            (terminated, truncated); ``None`` keeps the default.
        ignored: ``arl_sync_host`` and ``arl_sync_port``, which have no effect here.

    Raises:
        ContractError: a parameter is invalid.
        NameResolutionError: a name in the parameters does not exist.
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
        **ignored: Any,
    ):
        for name in ignored:
            if name not in _IGNORED:
                parameters = inspect.signature(MosaikEnvironment).parameters
                raise ContractError(
                    f"MosaikEnvironment has no parameter {name!r}{did_you_mean(name, parameters)}"
                )
        self.step_size = read_ticks(arl_sync_freq, "arl_sync_freq")
        #: the first tick after an episode
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
        for name, argument in zip(("module", "description_func", "instance_func"), self._names, strict=True):
            if not isinstance(argument, str):
                raise ContractError(f"{name} must be text, found {argument!r}")
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
        """Keep a palaestrAI reward, which is called with sensors and actuators."""
        if not hasattr(reward, "compute"):
            return False
        self._reward = reward
        return True

    def setup(self) -> EnvironmentBaseline:
        """Call the description function, without building or starting the world."""
        _, arguments, world_state = self._describe(np.random.default_rng(0))
        date = arguments["meta_params"].get("start_date")
        #: the sensors and actuators, in the order of the vectors
        self.layouts = [Layout.of(channels) for channels in (self._sensors, self._actuators)]
        rewards: Sequence[Any] = ()
        if self._reward is not None:
            # the first readings are unknown, but palaestrAI's objects only accept values in their space
            rewards = self._reward.declare(
                [SensorInformation(_plausible(sensor), sensor.space, sensor.uid) for sensor in self._sensors],
                self._actuators,
            )
        start: datetime | None = None
        if date is not None and "random" not in str(self._start):
            start = parse_date(date)
        self._n_rewards = len(rewards)
        return EnvironmentBaseline(self._sensors, self._actuators, rewards, start, world_state)

    def plan(self) -> WorldPlan:
        """Describe how to create the next episode's world, and the ports for agents."""
        rng = getattr(self, "rng", None) or np.random.default_rng(0)
        source, arguments, _ = self._describe(rng)
        self._compare("sensors", self.layouts[0], self._sensors)
        self._compare("actuators", self.layouts[1], self._actuators)
        make = self._function(source, self._names[2])
        sensors = [SensorPort(channel, *_ends(channel.uid)) for channel in self._sensors]
        return WorldPlan(
            (),
            (),
            (),
            sensors,
            [ActuatorPort(channel, *_ends(channel.uid)) for channel in self._actuators],
            build=partial(make, arguments),
            timeout=self.timeout,
            readings={
                (port.entity, port.attribute): readable(port.information.space, port.information.uid)
                for port in sensors
            },
            setpoint=settable,
            acting=partial(setattr, self, "_setpoints"),
        )

    def judge(self, time: int, readings: FloatVector) -> EnvironmentState:
        """Compute palaestrAI's reward, if there is one, and truncate the episode at its last reading."""
        rewards: FloatVector = np.full(self._n_rewards, np.nan)
        # no actions precede the first readings
        if self._reward is not None and time > 0:
            sensors, actuators = self.layouts
            rewards = self._reward.compute(sensors, readings, actuators, self._setpoints())
        terminated, truncated = False, time + self.step_size >= self.end
        if truncated and self._terminal is not None:
            terminated, truncated = self._classified(readings)
        return EnvironmentState(readings, rewards, terminated, truncated)

    def _classified(self, readings: FloatVector) -> tuple[bool, bool]:
        assert self._terminal is not None
        terminated, truncated = self._terminal(list(SensorReadings(self.layouts[0], readings)))
        terminated = bool(terminated)
        # the episode has ended, so at least one flag is set
        return terminated, not terminated if truncated is None else bool(truncated) or not terminated

    def _describe(self, rng: np.random.Generator) -> tuple[Any, dict[str, Any], Any]:
        """Call the description function; return the functions' source, their parameters and the world's state."""
        source = self._source()
        arguments = deepcopy(self.params)
        meta = arguments["meta_params"] = {
            "seed": int(rng.integers(2**32 - 1)),
            "end": self.end,
            "arl_sync_freq": self.step_size,
            "silent": self._silent,
        }
        where = f"{self._names[0]}.{self._names[1]}"
        answer = self._function(source, self._names[1])(arguments)
        if not isinstance(answer, tuple | list) or len(answer) not in (2, 3):
            raise ContractError(f"{where} must return (sensors, actuators[, world state]), found {answer!r}")
        world_state = answer[2] if len(answer) > 2 else None
        date = read_start(self._start, rng)
        inferred = world_state.get("start_date") if isinstance(world_state, Mapping) else None
        if date is None and inferred is not None:
            if not self._infer:
                raise ContractError(
                    f"the world of {self._names[0]} needs a start_date: give one, or infer_start_date: true for "
                    f"its own, {inferred!r}"
                )
            date = read_start(inferred, rng)
        if date is not None:
            meta["start_date"] = date
        self._sensors, self._actuators = read_sensors(answer[0]), read_actuators(answer[1])
        for kind, channels in (("sensors", self._sensors), ("actuators", self._actuators)):
            if not channels:
                raise ContractError(f"{where} describes no {kind}; an environment needs some")
        return source, arguments, world_state

    def _compare(self, kind: str, layout: Layout, channels: Sequence[Any]) -> None:
        """Raise :class:`ContractError` if the channels of an episode differ from those of the first."""
        before = zip(layout.uids, layout.spaces, strict=True)
        for i, (old, new) in enumerate(
            zip_longest(before, ((channel.uid, channel.space) for channel in channels))
        ):
            if old != new:
                was, now = (
                    f"{channel[0]!r}, {channel[1]}" if channel else "nothing" for channel in (old, new)
                )
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
        function: Callable[..., Any] | None = getattr(source, name, None)
        if not callable(function):
            names = [key for key in dir(source) if not key.startswith("_") and callable(getattr(source, key))]
            raise ContractError(f"{self._names[0]} has no function {name!r}{did_you_mean(name, names)}")
        importing.check_origin(
            getattr(function, "__func__", function), self._names[0].partition(":")[0] + f":{name}"
        )
        return function


def _ends(uid: str) -> tuple[str, str]:
    """Split a uid into mosaik's full id of the entity, and the attribute."""
    entity, _, attribute = uid.rpartition(".")
    return entity, attribute


def _plausible(sensor: SensorInformation) -> Any:
    """Return the described reading, or the value closest to zero."""
    if sensor.value is not None and not np.isnan(sensor.space.flatten(sensor.value)).any():
        return sensor.value
    return sensor.space.unflatten(np.clip(0.0, sensor.space.flat_low, sensor.space.flat_high))
