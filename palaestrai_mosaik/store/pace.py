"""When the rows of a stream are due to be written."""

from __future__ import annotations

from time import monotonic

#: rows of a full part
PART_ROWS = 20_000
#: seconds after which a part is written though it is not full
PART_SECONDS = 4.0
# Rows after which the clock is read at the latest: steps may suddenly become slow.
_LONGEST_LOOK = 128


class Pace:
    """Decides when a part is due: when the block is full, or after some seconds.

    The seconds grow with the number of parts, so that a run of days ends with hundreds
    of files and not with tens of thousands; a kill then costs about a fortieth of the
    time passed, at least four seconds of it. The clock is read only every so many rows,
    several times a second.
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.next_look = 1
        self._looked = self._written = monotonic()
        self._looked_at = 0

    def due(self, filled: int, parts: int) -> bool:
        """Say whether ``filled`` rows, after ``parts`` parts, shall be written now."""
        now = monotonic()
        per_second = (filled - self._looked_at) / max(now - self._looked, 1e-6)
        self._looked, self._looked_at = now, filled
        self.next_look = min(filled + max(1, min(_LONGEST_LOOK, int(per_second / 8))), self.capacity)
        if filled >= self.capacity:
            return True
        return filled > 0 and now - self._written >= PART_SECONDS * (1 + parts / 20)

    def written(self) -> int:
        """Note that all rows were written; return after how many to ask again."""
        self._written = monotonic()
        self.next_look = max(1, self.next_look - self._looked_at)
        self._looked_at = 0
        return self.next_look
