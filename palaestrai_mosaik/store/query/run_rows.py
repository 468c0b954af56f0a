"""The table of all runs, which of them have changed, their speed, and the time that they will still take."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session

from palaestrai_mosaik.core.errors import StoreError

from ..database import Database, reads
from ..labels import Labels, labels_by_run
from ..models import (
    Agent,
    Body,
    Environment,
    Episode,
    Experiment,
    Instance,
    Outcome,
    Phase,
    RunDocument,
    Stream,
)
from ..parts import count_rows, parts_so_far, settled
from .lookup import (
    Fold,
    Lookup,
    Table,
    finished_episodes,
    first_errors,
    folds_of,
    frame,
    in_chunks,
    inside,
    is_finished,
    of_finished_episode,
    restricted,
)
from .runs import status_of

if TYPE_CHECKING:
    import pandas as pd


#: the maximum length of a row's error message
_MESSAGE = 400

_COLUMNS = (
    *("id", "run", "document", "experiment", "status", "seed", "started", "ended"),
    *("phase", "phase_name", "phases", "episodes", "episodes_planned", "steps"),
    *("objective", "agent", "fold", "error", "name", "tags", "note"),
)
#: the episodes that did not finish
_UNFINISHED = Table(
    {
        "phase": Phase.number,
        "evaluation": Episode.evaluation,
        "worker": Episode.worker,
        "episode": Episode.episode,
        "steps": Episode.steps,
    },
    lambda statement: statement.join(Episode, Episode.phase_id == Phase.id).where(~is_finished()),
    [Episode.evaluation, Episode.episode, Episode.worker],
)
_FLOATS = ("started", "ended", "episodes_planned", "objective")


class PlannedPhase(NamedTuple):
    """A document's plan for a phase; ``episodes`` of each worker, ``None`` if there is no limit."""

    name: str
    workers: int
    episodes: int | None
    #: the number of steps of an episode, if the document determines it (:func:`planned_phases`)
    steps: int | None = None

    @property
    def total(self) -> int | None:
        """The number of episodes of all workers."""
        return None if self.episodes is None else self.workers * self.episodes


class RunRowQueries(Lookup):
    """Queries of all runs at once. Each is a fixed number of statements."""

    def __init__(self, database: Database, directory: Path):
        super().__init__(database, directory)
        #: plans of documents by row id, cached because a document never changes
        self._plans: dict[int, tuple[PlannedPhase, ...]] = {}

    @reads
    def run_rows(self, ids: Collection[int] | None = None) -> pd.DataFrame:
        """Return one row per run, oldest first.

        Columns: ``id`` (a number that grows with every new run), ``run`` (uid of the instance), ``document`` (its
        uid), ``experiment``, ``status`` (as in :meth:`runs`), ``seed`` (text), ``started``, ``ended`` (seconds since
        1970, NaN before it has ended), ``phase`` (number of the last phase that began, -1: none did),
        ``phase_name``, ``phases`` (the planned number), ``episodes`` (finished ones, without evaluations),
        ``episodes_planned`` (of all phases and workers; NaN if a phase has no limit), ``steps`` (of all
        episodes), ``objective`` (of the first agent in the last finished episode of worker 0; NaN if there is none),
        ``agent`` (this agent, else ``None``), ``fold`` (the statistic: ``sum`` or ``mean``, see :meth:`fold`),
        ``error`` (kind and beginning of the message of the first one, else ``None``), ``name``, ``tags`` (a list),
        ``note`` (:meth:`label`).

        Args:
            ids: ids of runs; ``None``: all.
        """
        with self.database.reading() as session:
            instances = self._instances(session, ids)
            phases = self._phases(session, ids)
            done = self._done(session, ids)
            objectives = self._objectives(session, ids)
            folds = folds_of(session, ids)
            errors = first_errors(session, ids, _MESSAGE)
            uids = None if ids is None else [instance.uid for instance in instances]
            labels = labels_by_run(session, uids)
            unfinished = {row.run_document_id for row in instances if row.status != "finished"}
            self._read_plans(session, unfinished)
        rows = []
        for instance in instances:
            (number, uid, document_id, status, seed, started, ended, *_, document, experiment) = instance
            begun, label = phases.get(number, []), labels.get(uid, Labels())
            fold = folds.get(number, "mean")
            episodes, steps, agent, last = 0, 0, None, None
            for phase in begun:
                count, taken = done.get(phase[0], (0, 0))
                episodes += count
                steps += taken
                if phase[0] in objectives:
                    agent, values = objectives[phase[0]]
                    last = values[fold]
            planned = [phase[2:] for phase in begun] if status == "finished" else self._plans[document_id]
            limits = [None if phase[2] is None else phase[1] * phase[2] for phase in planned]
            rows.append(
                (
                    *(number, uid, document, experiment),
                    status_of(instance) if status == "running" else status,
                    *(str(seed), started.timestamp(), None if ended is None else ended.timestamp()),
                    *((begun[-1][1], begun[-1][2]) if begun else (-1, None)),
                    *(len(limits), episodes, None if None in limits else sum(filter(None, limits))),
                    *(steps, last, agent, fold, errors.get(number)),
                    *(label.name, list(label.tags), label.note),
                )
            )
        result = frame(rows, _COLUMNS)
        return result.astype(dict.fromkeys(_FLOATS, float)) if rows else result

    @reads
    def unfinished_episodes(self, run: str) -> pd.DataFrame:
        """Return one row per episode in which a run failed or was interrupted; these are no results.

        Columns: ``phase``, ``evaluation``, ``worker``, ``episode``, ``steps``, ``planned`` (steps of an episode in the
        document; NA if it does not determine them).

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
        """
        import pandas as pd

        with self.database.reading() as session:
            instance, _ = self._find(session, run)
            document = select(Instance.run_document_id).where(Instance.id == instance)
            number = session.scalars(document).one()
            self._read_plans(session, [number])
        result = self._table(run, _UNFINISHED)
        planned = dict(enumerate(phase.steps for phase in self._plans[number]))
        result = result.astype({name: bool if name == "evaluation" else int for name in _UNFINISHED.columns})
        steps = [planned.get(phase) for phase in result["phase"]]
        return result.assign(planned=pd.array(steps, dtype="Int64"))

    @reads
    def changed_runs(self, after: int, ended: datetime | None) -> list[int]:
        """Return the ids of the runs that may have changed, sorted.

        Args:
            after: runs with a greater id are new.
            ended: runs that ended later have changed; ``None``: none. Runs that have not ended are always included.
        """
        changed = [Instance.id > after, Instance.status == "running"]
        if ended is not None:
            changed.append(Instance.ended > ended)
        with self.database.reading() as session:
            return list(session.scalars(select(Instance.id).where(or_(*changed)).order_by(Instance.id)))

    @reads
    def count_runs(self) -> int:
        """Return the number of runs."""
        with self.database.reading() as session:
            return session.scalar(select(func.count()).select_from(Instance)) or 0

    @reads
    def run_ids(self, runs: Collection[str]) -> dict[str, int]:
        """Return the ids of the runs with exactly these uids; unknown uids are left out."""
        ids: dict[str, int] = {}
        with self.database.reading() as session:
            for chunk in in_chunks(list(runs)):
                rows = session.execute(select(Instance.uid, Instance.id).where(Instance.uid.in_(chunk)))
                ids.update((uid, number) for uid, number in rows)
        return ids

    @reads
    def objective_curves(self, runs: Collection[str], points: int = 40) -> dict[str, list[float | None]]:
        """Return the course of the first agent's objective over all episodes of each run.

        Each point is the mean of an episode's objective (its sum or mean, see :meth:`fold`), over the workers, and
        over neighbouring episodes if a phase has more than its share of the points. Evaluations and unfinished
        episodes are left out.

        Args:
            runs: uids of instances, in full. One that does not exist has no curve.
            points: the maximum number of points of a curve (about as many if a run has very many phases).

        Returns:
            For each uid the values in the order of phases and episodes, ``None`` for NaN.
        """
        ids = self.run_ids(runs)
        uids = {number: uid for uid, number in ids.items()}
        curves: dict[str, list[float | None]] = {uid: [] for uid in ids}
        with self.database.reading() as session:
            counted = (
                select(Phase.instance_id, func.count().label("phases"))
                .where(Phase.instance_id.in_(uids))
                .group_by(Phase.instance_id)
                .subquery("counted")
            )
            last = (
                select(Episode.phase_id, func.max(Episode.episode).label("episode"))
                .join(Phase, Phase.id == Episode.phase_id)
                .where(Phase.instance_id.in_(uids), ~Episode.evaluation)
                .group_by(Episode.phase_id)
                .subquery("last")
            )
            share = points // counted.c.phases + 1
            # the number of neighbouring episodes per point
            width = (last.c.episode + share) // share
            point = Outcome.episode // width
            first = _first_agents(uids).subquery("first")
            folds = folds_of(session, uids)
            statement = (
                select(
                    Phase.instance_id, Phase.number, point, func.avg(Outcome.mean), func.avg(_sum_of_a_body())
                )
                .join(counted, counted.c.instance_id == Phase.instance_id)
                .join(last, last.c.phase_id == Phase.id)
                .join(first, first.c.phase_id == Phase.id)
                .join(Outcome, and_(Outcome.phase_id == Phase.id, Outcome.agent_id == first.c.agent_id))
                .where(Outcome.kind == "objective", ~Outcome.evaluation, Phase.instance_id.in_(uids))
                .group_by(Phase.instance_id, Phase.number, point)
                .order_by(Phase.instance_id, Phase.number, point)
            )
            for number, _, _, mean, total in session.execute(of_finished_episode(statement)):
                curves[uids[number]].append(total if folds.get(number) == "sum" else mean)
        return curves

    def _instances(self, session: Session, ids: Collection[int] | None) -> list[Any]:
        columns = (
            *(Instance.id, Instance.uid, Instance.run_document_id, Instance.status, Instance.seed),
            *(Instance.started, Instance.ended, Instance.host, Instance.pid, Instance.pid_started),
        )
        statement = (
            select(*columns, RunDocument.uid.label("document"), Experiment.uid.label("experiment"))
            .join(RunDocument, RunDocument.id == Instance.run_document_id)
            .outerjoin(Experiment, Experiment.id == Instance.experiment_id)
            .order_by(Instance.id)
        )
        return list(restricted(session, statement, Instance.id, ids))

    def _phases(self, session: Session, ids: Collection[int] | None) -> dict[int, list[tuple[Any, ...]]]:
        """Select each run's phases that began: id, number, name, workers, episodes of each worker."""
        phases: dict[int, list[tuple[Any, ...]]] = {}
        columns = (Phase.instance_id, Phase.id, Phase.number, Phase.name, Phase.workers, Phase.episodes)
        statement = select(*columns).order_by(Phase.instance_id, Phase.number)
        for instance, *phase in restricted(session, statement, Phase.instance_id, ids):
            phases.setdefault(instance, []).append(tuple(phase))
        return phases

    def _done(self, session: Session, ids: Collection[int] | None) -> dict[int, tuple[int, int]]:
        """Count each phase's finished episodes, and sum the steps of all its episodes."""
        statement = (
            select(Episode.phase_id, finished_episodes(), func.sum(Episode.steps))
            .where(~Episode.evaluation)
            .group_by(Episode.phase_id)
        )
        if ids is not None:
            statement = statement.join(Phase, Phase.id == Episode.phase_id)
        rows = restricted(session, statement, Phase.instance_id, ids)
        return {phase: (count, int(steps)) for phase, count, steps in rows}

    def _objectives(
        self, session: Session, ids: Collection[int] | None
    ) -> dict[int, tuple[str, dict[Fold, float | None]]]:
        """Select each phase's first agent, and its objective in the last finished episode of worker 0."""
        objectives: dict[int, tuple[str, dict[Fold, float | None]]] = {}
        for chunk in [None] if ids is None else in_chunks(sorted(ids)):
            last = select(Episode.phase_id, func.max(Episode.episode).label("episode"))
            last = last.where(Episode.worker == 0, ~Episode.evaluation, is_finished())
            last = last.group_by(Episode.phase_id)
            newest = _of_runs(last, Episode.phase_id, chunk).subquery("last")
            first = _first_agents(chunk).subquery("first")
            # all columns of the primary key, for lookups by index
            statement = (
                select(Outcome.phase_id, Agent.name, _sum_of_a_body(), Outcome.mean)
                .select_from(newest)
                .join(first, first.c.phase_id == newest.c.phase_id)
                .join(Agent, Agent.id == first.c.agent_id)
                .join(
                    Outcome,
                    and_(
                        Outcome.phase_id == newest.c.phase_id,
                        Outcome.worker == 0,
                        Outcome.episode == newest.c.episode,
                        Outcome.evaluation.is_(False),
                        Outcome.agent_id == first.c.agent_id,
                        Outcome.kind == "objective",
                        Outcome.name == "",
                    ),
                )
            )
            for phase, agent, total, mean in session.execute(statement):
                objectives[phase] = agent, {"sum": total, "mean": mean}
        return objectives

    def _read_plans(self, session: Session, documents: Collection[int]) -> None:
        missing = [number for number in documents if number not in self._plans]
        for chunk in in_chunks(missing):
            statement = select(RunDocument.id, RunDocument.document).where(RunDocument.id.in_(chunk))
            for number, document in session.execute(statement):
                self._plans[number] = planned_phases(document)


def planned_phases(document: Mapping[str, Any]) -> tuple[PlannedPhase, ...]:
    """Read the planned phases of a document in its canonical form.

    The steps of an episode are known if all its environments are of this package and have the parameter
    ``steps`` or ``max_iter``: the least of them. Conditions may end an episode earlier.
    """
    phases = []
    for entry in document.get("schedule", ()):
        for name, phase in entry.items():
            config = phase.get("phase_config", {})
            steps = [_steps_of(item.get("environment", {})) for item in phase.get("environments", ())]
            lengths = [item for item in steps if item is not None]
            phases.append(
                PlannedPhase(
                    str(name),
                    int(config.get("workers", 1)),
                    config.get("episodes"),
                    min(lengths) if lengths and len(lengths) == len(steps) else None,
                )
            )
    return tuple(phases)


def _steps_of(environment: Mapping[str, Any]) -> int | None:
    if not str(environment.get("name")).startswith("palaestrai_mosaik."):
        return None
    params = environment.get("params") or {}
    steps = params.get("steps", params.get("max_iter"))
    if not isinstance(steps, int) or isinstance(steps, bool):
        return None
    # a grid counts its states, among them the first one
    return steps - 1 if ".grid" in str(environment["name"]) else steps


def _first_agents(ids: Collection[int] | None) -> Any:
    first = select(Agent.phase_id, func.min(Agent.id).label("agent_id")).group_by(Agent.phase_id)
    return _of_runs(first, Agent.phase_id, ids)


def _sum_of_a_body() -> ColumnElement[Any]:
    """Build the sum of an outcome divided by the number of bodies of its agent."""
    bodies = select(func.sum(Body.count)).where(Body.agent_id == Outcome.agent_id).scalar_subquery()
    return Outcome.sum / func.coalesce(bodies, 1)


def _of_runs(statement: Any, phase: Any, ids: Collection[int] | None) -> Any:
    """Restrict the statement to the phases of these runs; ``phase`` is its column with a phase's id."""
    if ids is None:
        return statement
    return statement.where(phase.in_(select(Phase.id).where(Phase.instance_id.in_(ids))))


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


class PaceQueries(RunRowQueries):
    """Queries of the speed of runs. Each is a fixed number of statements."""

    def __init__(self, database: Database, directory: Path):
        super().__init__(database, directory)
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
            self._read_plans(session, {run.document for run in running.values()})
            folders = self._folders(session, running) if parts else {}
        result = {}
        for number, run in running.items():
            steps, moment = 0, math.nan
            if run.phase in folders and run.ended is None:
                rows, moment = self._rows_in(folders[run.phase][0])
                # each episode, even an unfinished one, has one more state than steps
                steps = rows // folders[run.phase][1] - run.done_steps - run.done - run.workers
            result[number] = _pace(run, self._plans[run.document], max(0, steps), moment)
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
                root = self.instance_directory(instances[phase])
                folders.setdefault(phase, (inside(root, folder), incarnations))
        return folders

    def _rows_in(self, folder: Path) -> tuple[int, float]:
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
    planned = next((phase.steps for phase in plan[run.number :]), None)
    length = run.done_steps / run.done if run.done else planned
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
