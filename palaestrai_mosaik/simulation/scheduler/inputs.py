"""The inputs of a simulator, sent or fetched, and the outputs kept for those that fetch them."""

from __future__ import annotations

import gc
import math
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

#: number of outputs that a simulator keeps before the ones that cannot be fetched any more are dropped
KEPT = 32


class OutputCache:
    """A simulator's outputs by time, in mosaik's own dictionary; the output that was written last comes last."""

    newest_time: int
    newest: Mapping[str, Any]

    def __init__(self, outputs: dict[int, Mapping[str, Any]]):
        self.outputs = outputs
        accumulate(outputs)
        #: the longest delay with which others fetch the outputs
        self.reach = 0
        self._begin()

    def _begin(self) -> None:
        self.newest_time, self.newest = next(reversed(self.outputs.items()), (-1, {}))
        #: with more outputs than this, :meth:`forget` is due
        self.limit = KEPT

    def rewind(self, initial: Mapping[int, Mapping[str, Any]]) -> None:
        """Return to the ``initial`` outputs."""
        self.outputs.clear()
        self.outputs.update(initial)
        self._begin()

    def add(self, time: int, data: Mapping[str, Any]) -> None:
        """Store the newest output."""
        if time in self.outputs and time != self.newest_time:
            del self.outputs[time]
        self.outputs[time] = self.newest = data
        self.newest_time = time

    def at(self, time: int) -> Mapping[str, Any]:
        """Return the output up to ``time`` that was written last."""
        return next((data for written, data in reversed(self.outputs.items()) if written <= time), {})

    def forget(self, oldest: int) -> None:
        """Drop the outputs that cannot be fetched for ``oldest`` or later times any more."""
        forget(self.outputs, oldest)
        self.limit = max(KEPT, 2 * len(self.outputs))


def accumulate(initial: dict[int, Any]) -> None:
    """Order initial data by time, and copy the data of earlier times into later ones.

    mosaik separates them by time shift, so the data of one would hide those of another.
    """
    before: dict[str, dict[str, Any]] = {}
    for time in sorted(initial):
        data = initial.pop(time)
        for eid, attrs in before.items():
            data[eid] = {**attrs, **data.get(eid, {})}
        initial[time] = before = data


def forget(outputs: dict[int, Any], oldest: int) -> None:
    """Drop the outputs that cannot be fetched for ``oldest`` or later times any more.

    A request for a time gets the output up to it that was written last.

    mosaik drops all outputs older than the last step of every simulator; but a connection with a time shift, and
    one to a simulator that has not caught up (without lazy stepping), still need some of them.
    """
    least: float = math.inf
    needed = []
    for time, data in reversed(outputs.items()):
        if least > max(time, oldest):
            needed.append((time, data))
            least = time
        if least <= oldest:
            break
    outputs.clear()
    outputs.update(reversed(needed))


#: with this many inputs or outputs, the garbage collector is paused while they are collected
MANY = 256
#: the time of a waiting input
_TIME = itemgetter(0)

Inputs = dict[str, dict[str, dict[str, Any]]]
_P = ParamSpec("_P")
_R = TypeVar("_R")


def collector(
    origin: Any, outputs_of: Mapping[str, OutputCache], with_set_data: Callable[[int], Inputs]
) -> Callable[[int], Inputs]:
    """Build the function that collects a simulator's inputs for a time, like mosaik's ``get_input_data``.

    Args:
        origin: mosaik's ``SimRunner`` of the simulator.
        outputs_of: the outputs of every simulator, by mosaik's id.
        with_set_data: collects the inputs if simulators have set data of this one while they stepped.
    """
    queue, persistent = origin.timed_input_buffer.input_queue, origin.persistent_inputs
    ports: dict[tuple[str, str], int] = {}
    pulls = []
    for (source, delay), descriptions in origin.pulled_inputs.items():
        wires = []
        for connection in descriptions:
            port = ports.setdefault(connection.dest_port, len(ports))
            full_id = f"{source.sid}.{connection.src_port[0]}"
            wires.append((*connection.src_port, effective(connection.transform), port, full_id))
        outputs = outputs_of[source.sid]
        outputs.reach = max(outputs.reach, delay.tiers[0])
        pulls.append((outputs, delay.tiers[0], wires, source.sid))
    # the first attribute of each entity, and all later ones
    firsts: list[tuple[str, str, int]] = []
    later: list[tuple[str, str, int]] = []
    entities: set[str] = set()
    for (eid, attr), port in ports.items():
        (later if eid in entities else firsts).append((eid, attr, port))
        entities.add(eid)

    def sent_and_fetched(time: int) -> Inputs:
        if origin.inputs_from_set_data:
            return with_set_data(time)
        # like mosaik, pass on the dictionaries of persistent inputs, so that sent values stay in them
        data: Inputs = dict(persistent)
        if queue:
            _take_due(queue, time, data)
        if not pulls:
            return data
        fetched: list[dict[str, Any]] = [{} for _ in ports]
        for outputs, delay, wires, sid in pulls:
            output = outputs.newest if outputs.newest_time + delay <= time else outputs.at(time - delay)
            for src_eid, src_attr, transform, port, full_id in wires:
                try:
                    value = output[src_eid][src_attr]
                except KeyError:
                    value = None
                    _warn_of_missing(sid, src_eid, src_attr, origin.sid)
                if transform is not None:
                    value = transform(value)
                fetched[port][full_id] = value
        if data:
            _add(ports, fetched, data)
            return data
        data = {eid: {attr: fetched[port]} for eid, attr, port in firsts}
        for eid, attr, port in later:
            data[eid][attr] = fetched[port]
        return data

    def only_sent(time: int) -> Inputs:
        if origin.inputs_from_set_data:
            return with_set_data(time)
        data: Inputs = {}
        if queue:
            _take_due(queue, time, data)
        return data

    collect = sent_and_fetched if pulls or persistent else only_sent
    return collect if len(ports) < MANY else without_collector(collect)


def insert(queue: list[Any], arrival: int, sent: Sequence[Any]) -> None:
    """Insert inputs that arrive at one time into a queue, behind those that arrive earlier or then."""
    following = bisect_right(queue, arrival, key=_TIME)
    queue[following:following] = sent


def _take_due(queue: list[Any], time: int, data: Inputs) -> None:
    """Move the waiting inputs up to a time to ``data``."""
    count = len(queue) if queue[-1][0] <= time else bisect_right(queue, time, key=_TIME)
    for _, _, full_id, eid, attr, value in queue[:count]:
        attributes = data.get(eid)
        if attributes is None:
            data[eid] = {attr: {full_id: value}}
        elif attr in attributes:
            attributes[attr][full_id] = value
        else:
            attributes[attr] = {full_id: value}
    del queue[:count]


def _add(ports: Iterable[tuple[str, str]], fetched: Sequence[dict[str, Any]], data: Inputs) -> None:
    """Add the fetched values of each entity and attribute to the inputs that were sent."""
    for (eid, attr), values in zip(ports, fetched, strict=True):
        attributes = data.get(eid)
        if attributes is None:
            data[eid] = {attr: values}
        elif attr in attributes:
            attributes[attr].update(values)
        else:
            attributes[attr] = values


def _warn_of_missing(source: str, eid: str, attr: str, target: str) -> None:
    warnings.warn(
        f"Simulator {source}'s entity {eid} did not produce output on its persistent attribute {attr} during its "
        f"last step. However, this value is now required by simulator {target}. This usually results from attributes "
        "that are marked persistent despite working like events. Supplying `None` for now. This will be an error in "
        "future versions of mosaik.",
        stacklevel=2,
    )


def _same(value: Any) -> Any:
    return value


def effective(transform: Callable[[Any], Any]) -> Callable[[Any], Any] | None:
    """Return the ``transform`` of a connection, or ``None`` for ``lambda x: x``, mosaik's default."""
    if not isinstance(transform, FunctionType):
        return transform
    code, same = transform.__code__, _same.__code__
    parts = (code.co_code, code.co_argcount, code.co_flags)
    return None if parts == (same.co_code, same.co_argcount, same.co_flags) else transform


def without_collector(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wrap ``call`` to pause the garbage collector meanwhile.

    It would run after every 700 new dictionaries or tuples, although none of them is garbage yet.
    """

    def without(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not gc.isenabled():
            return call(*args, **kwargs)
        gc.disable()
        try:
            return call(*args, **kwargs)
        finally:
            gc.enable()

    return without
