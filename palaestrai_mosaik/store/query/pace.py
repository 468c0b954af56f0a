"""The speed of running runs, and the time that they will still take.

An episode has a row in the database once it has ended. The progress of a running episode is known from the
part files of an environment: a part has a row for each state, and the number of rows at its end.
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

from palaestrai_mosaik.core.errors import StoreError

from ..database import reads
from ..models import Environment, Episode, Instance, Phase, Stream
from ..parts import count_rows, parts_so_far, settled
from .lookup import Lookup, Queries, in_chunks, inside
from .run_rows import PlannedPhase, RunRowQueries

#: the number of a worker's last episodes from which the rate is computed
_RECENT = 20


class Pace(NamedTuple):
    """The speed of a run.

    Attributes:
        steps: written steps of the episodes that have not ended.
        rate: recent steps per second; NaN if it is unknown.
        left: seconds until all planned episodes are done; NaN if that is unknown.
    """

    steps: int
    rate: float
    left: float


@dataclass
class _Running:
    """The current phase of a run, and its progress."""

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
    #: of the last episodes: their number, their steps, the first start and the last end
    recent: int = 0
    recent_steps: int = 0
    begin: float = math.nan
    end: float = math.nan


class PaceQueries(Queries):
    """Queries of the speed of runs. Each is a fixed number of statements."""

    def __init__(self, lookup: Lookup, run_rows: RunRowQueries):
        super().__init__(lookup)
        self._run_rows = run_rows
        #: by path, a part's mtime, size and number of rows (a resumed run may replace the part)
        self._part_rows: dict[Path, tuple[int, int, int]] = {}

    @reads
    def paces(self, ids: Collection[int], *, parts: bool = True) -> dict[int, Pace]:
        """Return the speed of runs that have not ended, by id; a run that has not begun a phase is left out.

        The rate is that of the last episodes of the phase, and of the steps after them. Future episodes
        are assumed to be as long as those of the phase until now, or as in the document.

        Args:
            ids: of the runs (:meth:`run_rows`).
            parts: read how many steps of unfinished episodes are written. Without, these count as none.
        """
        with self.database.reading() as session:
            running = self._running(session, ids)
            self._add_episodes(session, running)
            plans = self._run_rows.planned(session, {run.document for run in running.values()})
            folders = self._folders(session, running) if parts else {}
        result = {}
        for number, run in running.items():
            steps, moment = 0, math.nan
            if run.phase in folders and run.ended is None:
                rows, moment = self._rows(folders[run.phase][0])
                # each episode, even an unfinished one, has one more state than steps
                steps = rows // folders[run.phase][1] - run.done_steps - run.done - run.workers
            result[number] = _pace(run, plans[run.document], max(0, steps), moment)
        return result

    def _running(self, session: Session, ids: Collection[int]) -> dict[int, _Running]:
        """Select the last phase that each of the runs has begun."""
        running: dict[int, _Running] = {}
        columns = (
            *(Instance.uid, Instance.run_document_id, Phase.id, Phase.number, Phase.workers, Phase.episodes),
            *(Phase.started, Phase.ended),
        )
        for chunk in in_chunks(sorted(ids)):
            statement = select(Instance.id, *columns).join(Phase, Phase.instance_id == Instance.id)
            statement = statement.where(Instance.id.in_(chunk)).order_by(Phase.number)
            for row in session.execute(statement):
                uid, document, phase, number, workers, episodes, started, ended = row[1:]
                began = started.timestamp()
                running[row[0]] = _Running(
                    *(uid, document, phase, number, workers, episodes, began),
                    None if ended is None else ended.timestamp(),
                )
        return running

    def _add_episodes(self, session: Session, running: Mapping[int, _Running]) -> None:
        by_phase = {run.phase: run for run in running.values()}
        for chunk in in_chunks(sorted(by_phase)):
            of_them = (Episode.phase_id.in_(chunk), ~Episode.evaluation)
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
                run, end = by_phase[phase], ended.timestamp()
                run.recent += 1
                run.recent_steps += steps
                run.begin = min(end - duration, run.begin) if run.begin == run.begin else end - duration
                run.end = max(end, run.end) if run.end == run.end else end

    def _folders(self, session: Session, running: Mapping[int, _Running]) -> dict[int, tuple[Path, int]]:
        """Select for each phase the folder of the environment that steps most often, and its incarnations."""
        instances = {run.phase: run.instance for run in running.values()}
        folders: dict[int, tuple[Path, int]] = {}
        for chunk in in_chunks(sorted(instances)):
            statement = (
                select(Stream.phase_id, Stream.folder, Environment.incarnations)
                .join(
                    Environment,
                    and_(Environment.phase_id == Stream.phase_id, Environment.uid == Stream.name),
                )
                .where(Stream.phase_id.in_(chunk), Stream.kind == "environment", ~Stream.evaluation)
                .order_by(Environment.step_size, Environment.id)
            )
            for phase, folder, incarnations in session.execute(statement):
                root = self._lookup.instance_directory(instances[phase])
                folders.setdefault(phase, (inside(root, folder), incarnations))
        return folders

    def _rows(self, folder: Path) -> tuple[int, float]:
        """Count the rows in a folder, and get the time of the last part (NaN if there is none)."""
        total, moment = 0, math.nan
        for path in _parts(folder):
            try:
                path = settled(path)
                state = path.stat()
                cached = self._part_rows.get(path)
                if cached is None or cached[:2] != (state.st_mtime_ns, state.st_size):
                    rows = count_rows(path)
                    cached = (state.st_mtime_ns, state.st_size, int(rows))
                    self._part_rows[path] = cached
            except (OSError, StoreError):
                break  # the run is being deleted, or has been resumed from before this part
            total, moment = total + cached[2], state.st_mtime
        return total, moment


def _parts(folder: Path) -> list[Path]:
    try:
        return parts_so_far(folder)
    except StoreError:
        return []  # the run is being deleted, or resumed


def _pace(run: _Running, plan: Sequence[PlannedPhase], steps: int, moment: float) -> Pace:
    """Estimate the speed of a run; ``moment`` is the time of the last write of the unfinished ``steps``."""
    begin = run.begin if run.recent else run.started
    end = moment if steps and not moment <= run.end else run.end
    seconds = end - begin
    if not seconds > 0:
        return Pace(steps, math.nan, math.nan)
    rate = (run.recent_steps + steps) / seconds
    length = run.done_steps / run.done if run.done else _length(plan[run.number : run.number + 1])
    later = plan[run.number + 1 :]
    limits = [run.episodes, *(phase.episodes for phase in later)]
    if length is None or None in limits or not rate > 0:
        return Pace(steps, rate, math.nan)
    here = 0.0 if run.ended is not None else run.workers * (run.episodes or 0) - run.done
    left = max(0.0, here * length - steps) / rate
    for phase in later:
        # assuming that the rate is proportional to the number of workers
        left += phase.episodes * (phase.steps or length) * run.workers / rate  # type: ignore[operator]
    return Pace(steps, rate, max(0.0, left - (time.time() - end)))


def _length(plan: Iterable[PlannedPhase]) -> int | None:
    return next((phase.steps for phase in plan), None)
