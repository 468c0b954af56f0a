"""How fast running runs are, and how long they will take.

An episode has a row in the database once it has ended. What one that still runs has done until now is known from the
part files of an environment: a part has a row for each state, and says at its end how many rows it has.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from palaestrai_mosaik.errors import StoreError

from ..database import reads
from ..models import Environment, Episode, Instance, Phase, Stream
from ..parts import count_rows, parts_so_far, settled
from .lookup import Lookup, Queries, in_chunks, inside
from .run_rows import PlannedPhase, RunRowQueries

#: how many of a worker's last episodes say how fast a run is
_RECENT = 20


class Pace(NamedTuple):
    """How fast a run is.

    Attributes:
        steps: of the episodes that have not ended, as far as they are written.
        rate: steps per second, lately; NaN where nothing is known.
        left: seconds until all planned episodes are done; NaN where that cannot be told.
    """

    steps: int
    rate: float
    left: float


@dataclass
class _Running:
    """The phase in which a run is, and what is known of it."""

    instance: str
    document: int
    phase: int
    number: int
    workers: int
    episodes: int | None
    started: float
    ended: float | None
    done: int = 0
    done_steps: int = 0
    #: of the last episodes: how many, their steps, when the first began and the last ended
    recent: int = 0
    recent_steps: int = 0
    begin: float = math.nan
    end: float = math.nan


class PaceQueries(Queries):
    """Queries of how fast runs are. Each is a fixed number of statements."""

    def __init__(self, lookup: Lookup, run_rows: RunRowQueries):
        super().__init__(lookup)
        self._run_rows = run_rows
        #: rows of a part by its path, with the time and size that it had (after a resumption, another one may be there)
        self._part_rows: dict[Path, tuple[int, int, int]] = {}

    @reads
    def paces(self, ids: Collection[int], *, parts: bool = True) -> dict[int, Pace]:
        """Return how fast runs are that have not ended, by id; one that has not begun a phase is left out.

        The rate is that of the last episodes of the phase, and of the steps behind them. Episodes that are to come
        are taken to be as long as those of the phase until now, or as their document says.

        Args:
            ids: of the runs (:meth:`run_rows`).
            parts: read how many steps of unfinished episodes are written. Without, these count as none.
        """
        with self.database.reading() as session:
            running = self._running(session, ids)
            self._add_episodes(session, running)
            plans = self._run_rows.planned(session, {one.document for one in running.values()})
            folders = self._folders(session, running) if parts else {}
        result = {}
        for number, one in running.items():
            steps, moment = 0, math.nan
            if one.phase in folders and one.ended is None:
                rows, moment = self._rows(folders[one.phase][0])
                # each episode has a state more than steps, also those that have begun
                steps = rows // folders[one.phase][1] - one.done_steps - one.done - one.workers
            result[number] = _pace(one, plans[one.document], max(0, steps), moment)
        return result

    def _running(self, session: Session, ids: Collection[int]) -> dict[int, _Running]:
        """Return the last phase that each of the runs has begun."""
        found: dict[int, _Running] = {}
        columns = (
            *(Instance.uid, Instance.run_document_id, Phase.id, Phase.number, Phase.workers, Phase.episodes),
            *(Phase.started, Phase.ended),
        )
        for some in in_chunks(sorted(ids)):
            statement = select(Instance.id, *columns).join(Phase, Phase.instance_id == Instance.id)
            statement = statement.where(Instance.id.in_(some)).order_by(Phase.number)
            for row in session.execute(statement):
                uid, document, phase, number, workers, episodes, started, ended = row[1:]
                began = started.timestamp()
                found[row[0]] = _Running(
                    *(uid, document, phase, number, workers, episodes, began),
                    None if ended is None else ended.timestamp(),
                )
        return found

    def _add_episodes(self, session: Session, running: Mapping[int, _Running]) -> None:
        by_phase = {one.phase: one for one in running.values()}
        for some in in_chunks(sorted(by_phase)):
            of_them = (Episode.phase_id.in_(some), ~Episode.evaluation)
            counted = select(Episode.phase_id, func.count(), func.sum(Episode.steps)).where(*of_them)
            for phase, count, steps in session.execute(counted.group_by(Episode.phase_id)):
                by_phase[phase].done, by_phase[phase].done_steps = count, int(steps)
            last = select(Episode.phase_id, Episode.worker, func.max(Episode.episode).label("last"))
            ends = last.where(*of_them).group_by(Episode.phase_id, Episode.worker).subquery("ends")
            same = and_(Episode.phase_id == ends.c.phase_id, Episode.worker == ends.c.worker)
            statement = (
                select(Episode.phase_id, Episode.steps, Episode.duration, Episode.ended)
                .join(ends, same)
                .where(Episode.episode > ends.c.last - _RECENT, ~Episode.evaluation)
            )
            for phase, steps, duration, ended in session.execute(statement):
                one, end = by_phase[phase], ended.timestamp()
                one.recent += 1
                one.recent_steps += steps
                one.begin = min(end - duration, one.begin) if one.begin == one.begin else end - duration
                one.end = max(end, one.end) if one.end == one.end else end

    def _folders(self, session: Session, running: Mapping[int, _Running]) -> dict[int, tuple[Path, int]]:
        """Return for each phase the folder of the environment that steps most often, and its incarnations."""
        instances = {one.phase: one.instance for one in running.values()}
        found: dict[int, tuple[Path, int]] = {}
        for some in in_chunks(sorted(instances)):
            statement = (
                select(Stream.phase_id, Stream.folder, Environment.incarnations)
                .join(
                    Environment,
                    and_(Environment.phase_id == Stream.phase_id, Environment.uid == Stream.name),
                )
                .where(Stream.phase_id.in_(some), Stream.kind == "environment", ~Stream.evaluation)
                .order_by(Environment.step_size, Environment.id)
            )
            for phase, folder, incarnations in session.execute(statement):
                root = self._lookup.instance_directory(instances[phase])
                found.setdefault(phase, (inside(root, folder), incarnations))
        return found

    def _rows(self, folder: Path) -> tuple[int, float]:
        """Return how many rows a folder has until now, and when the last part was written (NaN: there is none)."""
        total, moment = 0, math.nan
        for path in _parts(folder):
            try:
                path = settled(path)
                state = path.stat()
                known = self._part_rows.get(path)
                if known is None or known[:2] != (state.st_mtime_ns, state.st_size):
                    rows = count_rows(path)
                    known = (state.st_mtime_ns, state.st_size, int(rows))
                    self._part_rows[path] = known
            except (OSError, StoreError):
                break  # the run is being deleted, or has been resumed from before this part
            total, moment = total + known[2], state.st_mtime
        return total, moment


def _parts(folder: Path) -> list[Path]:
    try:
        return parts_so_far(folder)
    except StoreError:
        return []  # the run is being deleted, or resumed


def _pace(one: _Running, plan: Sequence[PlannedPhase], steps: int, moment: float) -> Pace:
    """Return how fast a run is; ``moment`` is when the last of the unfinished ``steps`` was written."""
    begin = one.begin if one.recent else one.started
    end = moment if steps and not moment <= one.end else one.end
    seconds = end - begin
    if not seconds > 0:
        return Pace(steps, math.nan, math.nan)
    rate = (one.recent_steps + steps) / seconds
    length = one.done_steps / one.done if one.done else _length(plan[one.number : one.number + 1])
    later = plan[one.number + 1 :]
    limits = [one.episodes, *(phase.episodes for phase in later)]
    if length is None or None in limits or not rate > 0:
        return Pace(steps, rate, math.nan)
    here = 0.0 if one.ended is not None else one.workers * (one.episodes or 0) - one.done
    left = max(0.0, here * length - steps) / rate
    for phase in later:
        # more workers are as much faster, as far as is known
        left += phase.episodes * (phase.steps or length) * one.workers / rate  # type: ignore[operator]
    return Pace(steps, rate, max(0.0, left - (time.time() - end)))


def _length(plan: Iterable[PlannedPhase]) -> int | None:
    return next((phase.steps for phase in plan), None)
