"""The outputs of a simulator, kept for the simulators that fetch them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

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
