"""Queries over many runs at once, for the analysis of a whole design.

``runs`` are full uids of instances. ``phase`` is a phase's number or name; ``None`` is the last
phase that a run began. A run without such a phase has no rows. Rows are in the order of
``runs``, regardless of the order of their execution.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ..database import reads
from ..models import Agent, Body, Episode, Instance, Outcome, Phase, Stream
from .lookup import Lookup, first_errors, frame, in_chunks, inside
from .runs import Contents, Execution, duration_of, executions, status_of

if TYPE_CHECKING:
    import pandas as pd


class StreamFolder(NamedTuple):
    """The folder with the rows of an agent or an environment (``name``) of a run."""

    run: str
    name: str
    folder: Path
    #: the number of part files; not an integer before the phase has ended
    parts: Any


class _RunPhase(NamedTuple):
    """The phase of a run: the run's position in ``runs``, and the phase's number."""

    position: int
    run: str
    number: int


class ManyRunsQueries(Lookup):
    """Queries that take one statement per table, not one per run."""

    @reads
    def newest_runs(self, hashes: Collection[str], contents: Contents | None = None) -> pd.DataFrame:
        """Return for each hash of a run document its newest finished instance, else its newest one.

        There is one row per hash that was ever executed, in the order of ``hashes``. Columns: ``hash``,
        ``run`` (instance uid), ``status`` (as in :meth:`runs`), ``duration`` (seconds, NaN before it has
        ended), ``error`` (kind and message of the first one, else ``None``).

        Args:
            hashes: hashes of run documents, as a collection, because the query may be retried.
            contents: returns the contents of the documents with some hashes, by hash. With it, a document without a
                finished instance also gets instances of documents with the same content
                (:func:`~palaestrai_mosaik.store.query.runs.executions`); ``None``: it does not.
        """
        ordered = list(dict.fromkeys(hashes))
        newest: dict[str, Execution] = {}
        with self.database.reading() as session:
            for hashed, instances in executions(self, session, ordered, contents).items():
                finished = [instance for instance in instances if instance.status == "finished"]
                newest[hashed] = (finished or instances)[-1]
            failed = [instance.id for instance in newest.values() if instance.status != "finished"]
            errors = first_errors(session, failed)
            rows = []
            for hashed in ordered:
                if (instance := newest.get(hashed)) is not None:
                    ending = (status_of(instance), duration_of(instance), errors.get(instance.id))
                    rows.append((hashed, instance.uid, *ending))
        return frame(rows, ("hash", "run", "status", "duration", "error")).astype({"duration": float})

    def agents_across(self, runs: Sequence[str], phase: int | str | None = None) -> pd.DataFrame:
        """Return one row per run and agent of its phase, agents in the order of the document.

        Columns: ``run``, ``phase`` (number), ``agent``, ``objective`` (the class's name; ``None``: none).

        Args:
            runs: uids of instances, in full. Rows are in this order.
            phase: number or name of a phase; ``None``: the last phase that a run began. A run without this
                phase has no rows.
        """
        statement = select(Agent.phase_id, Agent.name, Agent.objective).order_by(Agent.id)
        return self._rows(runs, phase, statement, Agent.phase_id, ("agent", "objective"))

    def bodies_across(self, runs: Sequence[str], phase: int | str | None = None) -> pd.DataFrame:
        """Return the number of bodies of each agent, one row per run and agent.

        Columns: ``run``, ``phase`` (number), ``agent``, ``bodies``.

        Args:
            runs: uids of instances, in full. Rows are in this order.
            phase: number or name of a phase; ``None``: the last phase that a run began. A run without this
                phase has no rows.
        """
        statement = (
            select(Agent.phase_id, Agent.name, func.sum(Body.count))
            .join(Body, Body.agent_id == Agent.id)
            .group_by(Agent.phase_id, Agent.id, Agent.name)
            .order_by(Agent.id)
        )
        return self._rows(runs, phase, statement, Agent.phase_id, ("agent", "bodies"))

    def episodes_across(
        self, runs: Sequence[str], phase: int | str | None = None, *, evaluation: bool = False
    ) -> pd.DataFrame:
        """Return one row per run and episode: ``run``, ``phase``, ``episode``, ``worker``, ``steps``.

        Args:
            runs: uids of instances, in full. Rows are in this order.
            phase: number or name of a phase; ``None``: the last phase that a run began. A run without this
                phase has no rows.
            evaluation: evaluation episodes instead of training and test episodes.
        """
        statement = (
            select(Episode.phase_id, Episode.episode, Episode.worker, Episode.steps)
            .where(Episode.evaluation.is_(evaluation))
            .order_by(Episode.episode, Episode.worker)
        )
        return self._rows(runs, phase, statement, Episode.phase_id, ("episode", "worker", "steps"))

    @reads
    def steps_across(self, runs: Sequence[str]) -> dict[str, int]:
        """Return the number of environment steps of each run, over all phases, workers and evaluations."""
        totals = dict.fromkeys(runs, 0)
        statement = (
            select(Instance.uid, func.sum(Episode.steps))
            .join(Phase, Phase.id == Episode.phase_id)
            .join(Instance, Instance.id == Phase.instance_id)
            .group_by(Instance.uid)
        )
        with self.database.reading() as session:
            for chunk in in_chunks(list(runs)):
                totals |= {
                    uid: int(steps)
                    for uid, steps in session.execute(statement.where(Instance.uid.in_(chunk)))
                }
        return totals

    def outcomes_across(
        self,
        runs: Sequence[str],
        kind: str,
        name: str = "",
        phase: int | str | None = None,
        *,
        evaluation: bool = False,
    ) -> pd.DataFrame:
        """Return one row per run, episode and agent.

        Columns: ``run``, ``phase``, ``episode``, ``worker``, ``agent``, ``sum``, ``mean``, ``min``, ``max``.

        Args:
            runs: uids of instances, in full. Rows are in this order.
            kind: ``objective`` or ``reward``.
            name: name of the reward; empty for ``objective``.
            phase: number or name of a phase; ``None``: the last phase that a run began. A run without this
                phase has no rows.
            evaluation: evaluation episodes instead of training and test episodes.
        """
        columns = (Outcome.episode, Outcome.worker, Agent.name)
        moments = (Outcome.sum, Outcome.mean, Outcome.min, Outcome.max)
        statement = (
            select(Outcome.phase_id, *columns, *moments)
            .join(Agent, Agent.id == Outcome.agent_id)
            .where(Outcome.kind == kind, Outcome.name == name, Outcome.evaluation.is_(evaluation))
            .order_by(Outcome.episode, Outcome.worker, Agent.id)
        )
        names = ("sum", "mean", "min", "max")
        result = self._rows(runs, phase, statement, Outcome.phase_id, ("episode", "worker", "agent", *names))
        return result.astype(dict.fromkeys(names, float))

    @reads
    def reward_names_across(self, runs: Sequence[str], phase: int | str | None = None) -> list[str]:
        """Return the names of all rewards of agents in one phase, sorted.

        Args:
            runs: uids of instances, in full.
            phase: number or name of a phase; ``None``: the last phase that a run began.
        """
        names: set[str] = set()
        with self.database.reading() as session:
            for chunk in in_chunks(list(self._run_phases(session, runs, phase))):
                statement = select(Outcome.name).where(Outcome.phase_id.in_(chunk), Outcome.kind == "reward")
                names.update(session.scalars(statement.distinct()))
        return sorted(names)

    @reads
    def phases_across(self, runs: Sequence[str]) -> pd.DataFrame:
        """Return one row per number and name of a phase that any of the runs began: ``phase``, ``name``."""
        phases: set[tuple[int, str]] = set()
        with self.database.reading() as session:
            for chunk in in_chunks(list(runs)):
                statement = select(Phase.number, Phase.name).join(Instance).where(Instance.uid.in_(chunk))
                phases.update((number, name) for number, name in session.execute(statement.distinct()))
        return frame(sorted(phases), ("phase", "name"))

    def streams_across(
        self, runs: Sequence[str], kind: str, phase: int | str | None = None, *, evaluation: bool = False
    ) -> list[StreamFolder]:
        """Return the folders of part files of one kind.

        Args:
            runs: uids of instances, in full. Folders are in this order.
            kind: ``agent``, ``environment`` or ``statistics``.
            phase: number or name of a phase; ``None``: the last phase that a run began. A run without this
                phase has no folders.
            evaluation: folders of evaluation episodes instead of training and test episodes.
        """
        statement = (
            select(Stream.phase_id, Stream.name, Stream.folder, Stream.parts)
            .where(Stream.kind == kind, Stream.evaluation.is_(evaluation))
            .order_by(Stream.id)
        )
        names = ("name", "folder", "parts")
        rows = self._rows(runs, phase, statement, Stream.phase_id, names).astype({"parts": "Int64"})
        return [
            StreamFolder(run, name, inside(self.instance_directory(run), folder), parts)
            for run, name, folder, parts in rows[["run", *names]].itertuples(index=False)
        ]

    @reads
    def _rows(
        self,
        runs: Sequence[str],
        phase: int | str | None,
        statement: Any,
        column: Any,
        names: Sequence[str],
    ) -> pd.DataFrame:
        """Select the rows whose ``column``, the first selected one, is the id of a phase of ``runs``."""
        matches: list[tuple[_RunPhase, tuple[Any, ...]]] = []
        with self.database.reading() as session:
            run_phases = self._run_phases(session, runs, phase)
            for chunk in in_chunks(list(run_phases)):
                for phase_id, *values in session.execute(statement.where(column.in_(chunk))):
                    matches.append((run_phases[phase_id], tuple(values)))
        # the database's order within a run stays, because the sort is stable
        matches.sort(key=lambda row: row[0].position)
        rows = [(run_phase.run, run_phase.number, *values) for run_phase, values in matches]
        return frame(rows, ("run", "phase", *names))

    @staticmethod
    def _run_phases(session: Session, runs: Sequence[str], phase: int | str | None) -> dict[int, _RunPhase]:
        """Select the ids of the phases of ``runs``."""
        positions = {run: position for position, run in enumerate(runs)}
        last = select(Phase.instance_id, func.max(Phase.number).label("number")).group_by(Phase.instance_id)
        ended = last.subquery("last")
        matching = (Phase.instance_id == ended.c.instance_id) & (Phase.number == ended.c.number)
        column = Phase.number if isinstance(phase, int) else Phase.name
        run_phases: dict[int, _RunPhase] = {}
        for chunk in in_chunks(list(positions)):
            phases = (
                select(Phase.id, Phase.number, Instance.uid).join(Instance).where(Instance.uid.in_(chunk))
            )
            statement = phases.join(ended, matching) if phase is None else phases.where(column == phase)
            for phase_id, number, run in session.execute(statement):
                run_phases[phase_id] = _RunPhase(positions[run], run, number)
        return run_phases
