"""What the adapters of an agent's parts have in common."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import palaestrai.types

from palaestrai_mosaik.types import Mode

from .random_streams import Streams

#: An objective's NaN as its bits. A row that has no objective has Python's own NaN, and what is on its way to
#: the brain has one number for both, so that the two differ in a bit of which arithmetic makes no use.
_COMPUTED = struct.pack("<Q", 0x7FF8_0000_0000_0001)
#: the objective of a row for which NaN was computed (a part of palaestrAI hears of it, as there)
COMPUTED_NAN: float = struct.unpack("<d", _COMPUTED)[0]

_MODES = {Mode.TRAIN: palaestrai.types.Mode.TRAIN, Mode.TEST: palaestrai.types.Mode.TEST}


def their_mode(mode: Mode) -> Any:
    """Return palaestrAI's mode. In evaluations its parts are told that they test, and so they are here."""
    return _MODES[mode]


def is_known(objective: float) -> bool:
    """Whether a row has an objective: a number, or a NaN that was computed."""
    return objective == objective or struct.pack("<d", objective) == _COMPUTED  # noqa: PLR0124 (NaN)


class Adapted:
    """An adapter: keeps the document's ``params`` until the part is made from them (:meth:`_make`).

    ``part`` is the object of palaestrAI's class, ``streams`` are the global generators that it sees.
    """

    theirs: ClassVar[type]
    part: Any
    streams: Streams

    def __init__(self, **params: Any):
        self.params = params

    def _make(self, seed: int) -> None:
        """Make the part; its global generators are seeded from ``seed``."""
        self.streams = Streams(seed)
        with self.streams:
            self.part = self.theirs(**deepcopy(self.params))


@dataclass(slots=True)
class Carried:
    """What a muscle of palaestrAI gave for its brain, for filters to change on the way."""

    data: Any


def figures(statistics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the figures among what a part of palaestrAI reports, which may be anything.

    Of several numbers (an array, a list, a mapping to numbers) it is their mean; what else there is
    cannot be stored as a figure, and is left out.
    """
    for key, value in statistics.items():
        several = list(value.values()) if isinstance(value, Mapping) else value
        if isinstance(several, Real):
            yield key, float(several)
            continue
        if isinstance(several, str | bytes) or several is None:
            continue
        try:
            array = np.asarray(several, dtype=np.float64)
        except (TypeError, ValueError):
            continue
        if array.ndim <= 1 and array.size:
            yield key, float(array.mean())
