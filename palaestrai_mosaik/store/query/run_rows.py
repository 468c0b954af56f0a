"""The table of all runs: a few statements for thousands of them, and which of them have changed.

A row combines a run's database rows with the plan of its document: the number of phases and episodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from ..database import reads
from ..models import Agent, Episode, Experiment, Failure, Instance, Outcome, Phase, RunDocument
from .lookup import Lookup, Queries, finished_episodes, frame, in_chunks, restricted
from .runs import status_of

if TYPE_CHECKING:
    import pandas as pd

#: the maximum length of a row's error message
_MESSAGE = 400

_COLUMNS = (
    *("id", "run", "document", "experiment", "status", "seed", "started", "ended"),
    *("phase", "phase_name", "phases", "episodes", "episodes_planned", "steps", "objective", "error"),
)
_NONE: Sequence[Any] = ()
_NOTHING = (0, 0)
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


class RunRowQueries(Queries):
    """Queries of all runs at once. Each is a fixed number of statements."""

    def __init__(self, lookup: Lookup):
        super().__init__(lookup)
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
        episodes), ``objective`` (mean of the first agent's objective in the last episode of worker 0; NaN if
        there is none), ``error`` (kind and beginning of the message of the first one, else ``None``).

        Args:
            ids: ids of runs; ``None``: all.
        """
        with self.database.reading() as session:
            instances = self._instances(session, ids)
            phases = self._phases(session, ids)
            done = self._done(session, ids)
            objectives = self._objectives(session, ids)
            errors = self._errors(session, ids)
            unfinished = {row.run_document_id for row in instances if row.status != "finished"}
            self._read_plans(session, unfinished)
        rows = []
        for instance in instances:
            (number, uid, document_id, status, seed, started, ended, *_, document, experiment) = instance
            begun = phases.get(number, _NONE)
            episodes, steps, last = 0, 0, None
            for phase in begun:
                count, taken = done.get(phase[0], _NOTHING)
                episodes += count
                steps += taken
                last = objectives.get(phase[0], last)
            planned = [phase[2:] for phase in begun] if status == "finished" else self._plans[document_id]
            limits = [None if phase[2] is None else phase[1] * phase[2] for phase in planned]
            rows.append(
                (
                    *(number, uid, document, experiment),
                    status_of(instance) if status == "running" else status,
                    *(str(seed), started.timestamp(), None if ended is None else ended.timestamp()),
                    *((begun[-1][1], begun[-1][2]) if begun else (-1, None)),
                    *(len(limits), episodes, None if None in limits else sum(filter(None, limits))),
                    *(steps, last, errors.get(number)),
                )
            )
        result = frame(rows, _COLUMNS)
        return result.astype(dict.fromkeys(_FLOATS, float)) if rows else result

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

        Each point is the mean of an episode's mean objective, over the workers, and over neighbouring episodes
        if a phase has more than its share of the points. Evaluations are left out.

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
            statement = (
                select(Phase.instance_id, Phase.number, point, func.avg(Outcome.mean))
                .join(counted, counted.c.instance_id == Phase.instance_id)
                .join(last, last.c.phase_id == Phase.id)
                .join(first, first.c.phase_id == Phase.id)
                .join(Outcome, and_(Outcome.phase_id == Phase.id, Outcome.agent_id == first.c.agent_id))
                .where(Outcome.kind == "objective", ~Outcome.evaluation, Phase.instance_id.in_(uids))
                .group_by(Phase.instance_id, Phase.number, point)
                .order_by(Phase.instance_id, Phase.number, point)
            )
            for number, _, _, value in session.execute(statement):
                curves[uids[number]].append(value)
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

    def _objectives(self, session: Session, ids: Collection[int] | None) -> dict[int, float | None]:
        """Select each phase's mean of the first agent's objective in the last episode of worker 0."""
        objectives: dict[int, float | None] = {}
        for chunk in [None] if ids is None else in_chunks(sorted(ids)):
            last = select(Episode.phase_id, func.max(Episode.episode).label("episode"))
            last = last.where(Episode.worker == 0, ~Episode.evaluation).group_by(Episode.phase_id)
            newest = _of_runs(last, Episode.phase_id, chunk).subquery("last")
            first = _first_agents(chunk).subquery("first")
            # all columns of the primary key, for lookups by index
            statement = (
                select(Outcome.phase_id, Outcome.mean)
                .select_from(newest)
                .join(first, first.c.phase_id == newest.c.phase_id)
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
            objectives.update((phase, mean) for phase, mean in session.execute(statement))
        return objectives

    def _errors(self, session: Session, ids: Collection[int] | None) -> dict[int, str]:
        first = select(func.min(Failure.id)).group_by(Failure.instance_id)
        message = func.substr(Failure.message, 1, _MESSAGE)
        statement = select(Failure.instance_id, Failure.kind, message).where(Failure.id.in_(first))
        rows = restricted(session, statement, Failure.instance_id, ids)
        return {instance: f"{kind}: {text}" for instance, kind, text in rows}

    def planned(self, session: Session, documents: Collection[int]) -> Mapping[int, Sequence[PlannedPhase]]:
        """Return the plans of the documents with these ids, and maybe others, by id."""
        self._read_plans(session, documents)
        return self._plans

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
    return steps if isinstance(steps, int) and not isinstance(steps, bool) else None


def _first_agents(ids: Collection[int] | None) -> Any:
    first = select(Agent.phase_id, func.min(Agent.id).label("agent_id")).group_by(Agent.phase_id)
    return _of_runs(first, Agent.phase_id, ids)


def _of_runs(statement: Any, phase: Any, ids: Collection[int] | None) -> Any:
    """Restrict the statement to the phases of these runs; ``phase`` is its column with a phase's id."""
    if ids is None:
        return statement
    return statement.where(phase.in_(select(Phase.id).where(Phase.instance_id.in_(ids))))
