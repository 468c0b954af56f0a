"""The stream of what agents tell about themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from palaestrai_mosaik.errors import StoreError

from .digests import Line, StatisticsDigest
from .pace import PART_ROWS, Pace
from .parts import PartWriter, arrow_column, text_column


class StatisticsStream:
    """What agents tell about themselves now and then, in long format."""

    def __init__(self, folder: Path, metadata: dict[str, Any], on_part: Callable[[], None]):
        self._writer = PartWriter(folder, metadata)
        self._on_part = on_part
        self._pace = Pace(PART_ROWS)
        self._lines: list[Line] = []
        self._rows_written = 0
        self._digest = StatisticsDigest()
        #: the number of parts written so far
        self.parts = 0

    @property
    def folder(self) -> Path:
        """Where the parts lie."""
        return self._writer.folder

    @property
    def rows(self) -> int:
        """The number of rows appended so far."""
        return self._rows_written + len(self._lines)

    @property
    def rows_written(self) -> int:
        """The number of rows that are in complete parts."""
        return self._rows_written

    def append(self, agent: str, worker: int, episode: int, step: int, key: str, value: float) -> None:
        """Record that ``agent`` had ``key`` = ``value`` after ``step``."""
        if len(self._lines) >= self._pace.next_look and self._pace.due(len(self._lines), self.parts):
            self.flush()
            self._on_part()
        try:
            self._lines.append((agent, int(worker), int(episode), int(step), str(key), float(value)))
        except (TypeError, ValueError) as error:
            raise StoreError(f"statistic {key!r} of agent {agent!r}: {value!r} is not a number") from error

    def digest(self) -> str:
        """Return the SHA-256 of all rows so far, worker by worker, as hex digits."""
        return self._whole_digest().hexdigest()

    def restore(self, rows: int, parts: int, digest: StatisticsDigest) -> None:
        """Go on behind the ``rows`` that the first ``parts`` parts hold; ``digest`` is theirs."""
        self._rows_written, self.parts, self._digest = rows, parts, digest

    def flush(self) -> None:
        """Write the rows that are still in memory, if any, as a part."""
        if not self._lines:
            return
        agents, workers, episodes, steps, keys, values = zip(*self._lines, strict=True)
        self._writer.write(
            self.parts,
            {
                "agent": text_column(agents),
                "worker": arrow_column(np.array(workers, dtype=np.int16)),
                "episode": arrow_column(np.array(episodes, dtype=np.int32)),
                "step": arrow_column(np.array(steps, dtype=np.int64)),
                "key": text_column(keys),
                "value": arrow_column(np.array(values, dtype=np.float64)),
            },
        )
        digest = self._whole_digest()
        written = self.rows
        self._pace.written()
        # As in the streams of rows, no call from here on.
        self._digest = digest
        self._rows_written = written
        self._lines = []
        self.parts += 1

    def _whole_digest(self) -> StatisticsDigest:
        digest = self._digest.copy()
        digest.add(self._lines)
        return digest
