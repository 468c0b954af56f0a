"""The zone in which palaestrAI has dated its rows, which it does not record.

An instance, and the end of each phase, are dated in UTC (by the database, and since 3.5), rows by the clock
on the wall.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

#: zones differ by such steps
_STEP = timedelta(minutes=15)
#: the zones in use that are not whole hours from -12 to 14 (IANA Time Zone Database, 2025)
_BETWEEN = (-9.5, -3.5, -2.5, 3.5, 4.5, 5.5, 5.75, 6.5, 8.75, 9.5, 10.5, 12.75, 13.75)
_ZONES = [timedelta(hours=hours) for hours in (*range(-12, 15), *_BETWEEN)]
#: a zone is taken from the end of a phase if it lies that near to one in use
_NEAR = timedelta(minutes=5)


def zone_of(started: datetime, first: datetime, ends: Sequence[tuple[datetime, datetime]]) -> timedelta:
    """Return by how much the dates of rows are before those of UTC.

    ``started``: when the instance was made, in UTC; ``first``: the date of its first row. ``ends``: for
    each phase that has ended, the date of its last row, and when palaestrAI says that it has ended, in
    UTC: they lie seconds apart. Where there is none of these, the zone is the one in use with the
    first row the nearest after the start. Then a run of which the first row came late may be
    taken for one of another zone.
    """
    # rows come before the end, so the least of these is the nearest
    if ends:
        apart = max(last - ended for last, ended in ends)
        zone = round(apart / _STEP) * _STEP
        if zone in _ZONES and abs(apart - zone) <= _NEAR:
            return zone
    # (by the clock of the database, the row may be a moment before the instance)
    before = [zone for zone in _ZONES if zone <= first - started + timedelta(minutes=1)]
    return max(before, default=_ZONES[0])
