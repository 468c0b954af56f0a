"""Recorded sessions as flat columns: all ticks of the first one, then all of the second, ..."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import ContractError

Array = npt.NDArray[Any]
IntVector = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sessions:
    """``n`` sessions, each of any number of ticks (at least one).

    ``offsets`` (n + 1,): session ``i`` is the rows ``offsets[i]`` to ``offsets[i + 1]`` of the
    columns of ``by_tick``. These are ``observation.<i>`` and ``action.<i>`` (rows, numbers), as
    :meth:`.fields.Signature.places` lays them out, and ``reward`` (rows, rewards), which is that of
    the action in the same row. The columns of ``by_session`` have one row for each: ``final.<i>``
    (n, numbers), the observations after the last action; ``terminated`` (n,), whether the world ended then; and, where there are any,
    ``memory.<i>`` (n, *shape), what the agent's memory held before the first tick.

    No array is written to again.
    """

    offsets: IntVector
    by_tick: Mapping[str, Array]
    by_session: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> IntVector:
        """The number of ticks, i.e. of actions, of each session."""
        return np.diff(self.offsets)

    def chosen(self, selector: npt.ArrayLike) -> IntVector:
        """Return ``selector`` as places of sessions.

        Raises :class:`ContractError` if it is no list of whole numbers, or one is not there.
        """
        places = np.asarray(selector)
        if places.ndim != 1 or (places.size and places.dtype.kind not in "iu"):
            raise ContractError(
                f"a selector is a list of whole numbers, found {places.dtype} of shape {places.shape}"
            )
        places = places.astype(np.int64)
        wrong = places[(places < 0) | (places >= len(self))]
        if wrong.size:
            raise ContractError(f"there is no session {wrong[0]}: the pool has {len(self)}, numbered from 0")
        return places

    def take(self, selector: npt.ArrayLike) -> Sessions:
        """Return the sessions at these places, in this order, as columns of their own."""
        places = self.chosen(selector)
        starts, stops = self.offsets[places], self.offsets[places + 1]
        parts = list(zip(starts.tolist(), stops.tolist(), strict=True))
        return Sessions(
            offsets_of(stops - starts),
            {
                name: np.concatenate([column[a:b] for a, b in parts] or [column[:0]])
                for name, column in self.by_tick.items()
            },
            {name: column[places] for name, column in self.by_session.items()},
        )

    def dense(self, name: str) -> Array:
        """Return a column of ``by_tick`` as ``[session, tick, ...]``, with zeros behind a session's end."""
        column = self.by_tick[name]
        alive = self.alive()
        result = np.zeros((*alive.shape, *column.shape[1:]), dtype=column.dtype)
        result[alive] = column
        return result

    def alive(self) -> npt.NDArray[np.bool_]:
        """Return ``[session, tick]``: whether the session has not ended by this tick."""
        lengths = self.lengths
        return np.asarray(np.arange(lengths.max(initial=0)) < lengths[:, None])


def offsets_of(lengths: npt.ArrayLike) -> IntVector:
    """Return where sessions of these lengths begin, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
