"""Queries of runs, as pandas frames, and of the instances that executed a document.

The hash of a document covers its uid, which names the run and changes no result. A design
that has grown gives its runs other uids, and two designs may have runs in common: the content of the
document finds an execution under either name.

Everywhere, ``run`` is the uid of an instance, the beginning of one, the uid of a run
document (for its latest instance), or ``"latest"``. ``phase`` is a phase's number or
name. ``evaluation`` selects episodes: ``False`` training (the default),
``True`` evaluation, ``None`` both, with a column ``evaluation`` to distinguish them. All queries
work during a run and after it was killed; they return all that was written until then.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import Session

from palaestrai_mosaik.core.errors import StoreError

from ..database import reads
from ..labels import Labels, labels_by_run
from ..log import read_log
from ..models import (
    Agent,
    Episode,
    Experiment,
    Failure,
    Instance,
    Outcome,
    Phase,
    RunDocument,
    Stream,
    Warned,
)
from ..process import still_runs
from .lookup import (
    Fold,
    Lookup,
    Table,
    finished_episodes,
    first_errors,
    folds_of,
    frame,
    in_chunks,
    of_finished_episode,
    restricted,
)

if TYPE_CHECKING:
    import pandas as pd

#: returns the contents of the documents with these hashes, by hash
Contents = Callable[[Collection[str]], Mapping[str, str]]


#: seconds, see :func:`.process.still_runs`
START_TOLERANCE = 5.0

_RUN_COLUMNS = (
    *("run", "document", "experiment", "status", "seed", "version", "started", "ended", "duration"),
    *("phases", "episodes", "steps", "error", "hash", "host", "pid", "packages", "name", "tags", "note"),
)
_KEYS = ("phase", "worker", "episode")
_MOMENTS = ("sum", "mean", "min", "max")


class Execution(NamedTuple):
    """An instance, and the hash and the content of the document that it executed."""

    id: int
    uid: str
    status: str
    started: datetime
    ended: datetime | None
    host: str
    pid: int
    pid_started: float
    hash: str
    content: str | None


_COLUMNS = [
    getattr(RunDocument if name in ("hash", "content") else Instance, name) for name in Execution._fields
]
_QUESTION = select(*_COLUMNS).join(RunDocument, RunDocument.id == Instance.run_document_id)


def executions(
    store: Lookup, session: Session, hashes: Collection[str], contents: Contents | None = None
) -> dict[str, list[Execution]]:
    """Select the instances of some run documents.

    For a document without a finished instance, they include those of other documents with the same
    content, if their files are in this store: a database may be shared by folders with their own files.

    Args:
        store: locates the instances' files.
        session: an open session.
        hashes: hashes of run documents.
        contents: returns the known contents of the documents with some hashes, by hash. It is called only if the
            database has other documents than these; ``None``: contents are not compared.

    Returns:
        The instances by hash, the newest last.
    """
    ordered = list(dict.fromkeys(hashes))
    instances: dict[str, list[Execution]] = {}
    finished = set()
    for instance in _select(session, RunDocument.hash, ordered):
        instances.setdefault(instance.hash, []).append(instance)
        if instance.status == "finished":
            finished.add(instance.hash)
    missing = [hash_ for hash_ in ordered if hash_ not in finished]
    if contents is None or not missing or not _has_other_documents(session, ordered):
        return instances
    by_content: dict[str, list[str]] = {}
    for hash_, content in contents(missing).items():
        by_content.setdefault(content, []).append(hash_)
    for instance in _select(session, RunDocument.content, list(by_content)):
        assert instance.content is not None
        equal_hashes = [hash_ for hash_ in by_content[instance.content] if hash_ != instance.hash]
        if equal_hashes and store.instance_directory(instance.uid).is_dir():
            for hash_ in equal_hashes:
                instances.setdefault(hash_, []).append(instance)
    for hash_ in missing:
        instances.get(hash_, []).sort(key=attrgetter("id"))
    return instances


def _select(session: Session, column: Any, values: Sequence[str]) -> Iterator[Execution]:
    """Yield the instances of documents with ``values`` in ``column``, the newest last."""
    for chunk in in_chunks(values):
        yield from map(
            Execution._make, session.execute(_QUESTION.where(column.in_(chunk)).order_by(Instance.id))
        )


def _has_other_documents(session: Session, hashes: Sequence[str]) -> bool:
    """Whether the database has documents with other hashes."""
    count = select(func.count()).select_from(RunDocument)
    counts = [session.scalar(count.where(RunDocument.hash.in_(chunk))) or 0 for chunk in in_chunks(hashes)]
    return session.scalar(count) != sum(counts)


_DONE = (
    select(Episode.phase_id, finished_episodes().label("done"))
    .where(~Episode.evaluation)
    .group_by(Episode.phase_id)
    .subquery("counts")
)
_PHASES = Table(
    {
        "phase": Phase.number,
        "name": Phase.name,
        "mode": Phase.mode,
        "workers": Phase.workers,
        "episodes": Phase.episodes,
        "episodes_done": func.coalesce(_DONE.c.done, 0),
        "controller": Phase.controller,
        "started": Phase.started,
        "ended": Phase.ended,
        "reason": Phase.reason,
    },
    lambda statement: statement.outerjoin(_DONE, _DONE.c.phase_id == Phase.id),
)
_STREAMS = Table(
    {
        "phase": Phase.number,
        "kind": Stream.kind,
        "name": Stream.name,
        "group": Stream.body_group,
        "evaluation": Stream.evaluation,
        "folder": Stream.folder,
        "rows": Stream.rows,
        "parts": Stream.parts,
        "digest": Stream.digest,
    },
    lambda statement: statement.join(Stream),
    [Stream.id],
)


class RunQueries(Lookup):
    """Queries of the SQL tables. Unknown names raise :class:`StoreError`."""

    @reads
    def runs(self, run: str | Sequence[str] | None = None, *, tags: str | Sequence[str] = ()) -> pd.DataFrame:
        """Return one row per instance, oldest first.

        Columns: ``run`` (instance uid), ``document`` (its uid), ``experiment``, ``status`` (``running``, ``finished``,
        ``failed``, ``interrupted``, or ``lost``: it did not finish, and its process is gone), ``seed``, ``version``,
        ``started``, ``ended``, ``duration`` (seconds), ``phases``, ``episodes`` (finished ones: not one in which the
        run failed or was interrupted), ``steps`` (of all episodes; evaluations do not count in both), ``error`` (the
        first one's kind and message), ``hash`` (of the document), ``host``, ``pid``, ``packages``, ``name``, ``tags``
        (a sorted list), ``note`` (:meth:`label`). ``lost`` is only known on the host that ran it.

        Args:
            run: only this run, or these, as :meth:`find_run` takes them; ``None``: all.
            tags: only runs with this tag, or with all of these.

        Raises:
            StoreError: there is no such run.
        """
        with self.database.reading() as session:
            ids = uids = None
            wanted = {tags} if isinstance(tags, str) else {*tags}
            if run is not None:
                names = [run] if isinstance(run, str) else run
                chosen = {self._find(session, name) for name in names}
                ids, uids = {instance for instance, _ in chosen}, {uid for _, uid in chosen}
            counted = select(Phase.instance_id, func.count()).group_by(Phase.instance_id)
            phases = {row[0]: row[1] for row in restricted(session, counted, Phase.instance_id, ids)}
            summed = (
                select(Phase.instance_id, finished_episodes(), func.sum(Episode.steps))
                .join(Episode, (Episode.phase_id == Phase.id) & ~Episode.evaluation)
                .group_by(Phase.instance_id)
            )
            totals = {
                row[0]: (row[1], int(row[2])) for row in restricted(session, summed, Phase.instance_id, ids)
            }
            errors = first_errors(session, ids)
            labels = labels_by_run(session, uids)
            statement = (
                select(Instance, RunDocument.uid, RunDocument.hash, Experiment.uid)
                .join(RunDocument, RunDocument.id == Instance.run_document_id)
                .outerjoin(Experiment, Experiment.id == Instance.experiment_id)
                .order_by(Instance.id)
            )
            rows = [
                (
                    instance.uid,
                    document,
                    experiment,
                    status_of(instance),
                    instance.seed,
                    instance.version,
                    instance.started,
                    instance.ended,
                    duration_of(instance),
                    phases.get(instance.id, 0),
                    *totals.get(instance.id, (0, 0)),
                    errors.get(instance.id),
                    hashed,
                    instance.host,
                    instance.pid,
                    instance.packages,
                    label.name,
                    list(label.tags),
                    label.note,
                )
                for instance, document, hashed, experiment in restricted(session, statement, Instance.id, ids)
                if wanted <= {*(label := labels.get(instance.uid, Labels())).tags}
            ]
        return frame(rows, _RUN_COLUMNS).astype({"duration": float})

    def phases(self, run: str) -> pd.DataFrame:
        """Return one row per phase that began.

        Columns: ``phase`` (its number), ``name``, ``mode``, ``workers``, ``episodes`` (as configured),
        ``episodes_done`` (finished ones, without evaluations), ``controller``, ``started``, ``ended``, ``reason`` (why
        it ended).

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
        """
        return self._table(run, _PHASES).astype({"episodes": "Int64"})

    def outcomes(
        self,
        run: str,
        phase: int | str | None = None,
        agent: str | None = None,
        evaluation: bool | None = False,
        *,
        finished: bool = False,
    ) -> pd.DataFrame:
        """Return one row per episode, agent, and objective or reward, in long format.

        Columns: ``phase``, ``worker``, ``episode``, ``agent``, ``kind`` (``objective`` or ``reward``),
        ``name`` (of the reward), ``sum``, ``mean``, ``min``, ``max``.

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: all.
            agent: name of an agent; ``None``: all.
            evaluation: ``False``: training and test episodes; ``True``: evaluation episodes; ``None``: both,
                with a column ``evaluation`` after ``episode``.
            finished: leave out the episodes in which the run failed or was interrupted.

        Raises:
            StoreError: there is no such run, phase or agent.
        """
        columns = {
            "phase": Phase.number,
            "worker": Outcome.worker,
            "episode": Outcome.episode,
            **_evaluation_column(evaluation, Outcome.evaluation),
            "agent": Agent.name,
            "kind": Outcome.kind,
            "name": Outcome.name,
            "sum": Outcome.sum,
            "mean": Outcome.mean,
            "min": Outcome.min,
            "max": Outcome.max,
        }

        def joined(statement: Select[Any]) -> Select[Any]:
            statement = statement.join(Outcome, _of_phase(Outcome, evaluation))
            statement = statement.join(Agent, Agent.id == Outcome.agent_id)
            statement = of_finished_episode(statement) if finished else statement
            return statement if agent is None else statement.where(Agent.name == agent)

        self._check_member(run, phase, "agent", agent)
        order = [
            *(Outcome.evaluation, Outcome.episode, Outcome.worker),
            *(Agent.id, Outcome.kind, Outcome.name),
        ]
        result = self._read_table(run, Table(columns, joined, order), phase)
        return result.astype(dict.fromkeys(_KEYS, int) | dict.fromkeys(_MOMENTS, float))

    def episodes(
        self,
        run: str,
        phase: int | str | None = None,
        agent: str | None = None,
        evaluation: bool | None = False,
    ) -> pd.DataFrame:
        """Return one row per episode and agent, in order of phase, episode and worker.

        Columns: ``phase``, ``name`` (the phase's), ``worker``, ``episode``, ``agent``, ``steps``, ``ticks``,
        ``ended_by``, ``flow``, ``duration`` (seconds), ``ended``, then ``objective_sum``, ``_mean``,
        ``_min``, ``_max``, and the same for every reward (``reward.NAME_sum``).

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: all.
            agent: name of an agent; ``None``: all, and a row for each episode without agents.
            evaluation: ``False``: training and test episodes; ``True``: evaluation episodes; ``None``: both,
                with a column ``evaluation`` after ``episode``.

        Raises:
            StoreError: there is no such run, phase or agent.
        """
        columns = {
            "phase": Phase.number,
            "name": Phase.name,
            "worker": Episode.worker,
            "episode": Episode.episode,
            **_evaluation_column(evaluation, Episode.evaluation),
            "steps": Episode.steps,
            "ticks": Episode.ticks,
            "ended_by": Episode.ended_by,
            "flow": Episode.flow,
            "duration": Episode.duration,
            "ended": Episode.ended,
        }
        order = [Episode.evaluation, Episode.episode, Episode.worker]

        def joined(statement: Select[Any]) -> Select[Any]:
            return statement.join(Episode, _of_phase(Episode, evaluation))

        result = self._read_table(run, Table(columns, joined, order), phase)
        result = result.astype(dict.fromkeys(_KEYS, int))
        outcomes = self.outcomes(run, phase, agent, evaluation)
        episode = [*_KEYS, *_evaluation_column(evaluation, None)]
        keys = [*episode, "agent"]
        names = outcomes["kind"].where(outcomes["kind"] == "objective", "reward." + outcomes["name"])
        agents = outcomes[keys].drop_duplicates()
        # An episode without agents has a row, too, unless an agent is selected.
        result = result.merge(agents, on=episode, how="left" if agent is None else "inner", sort=False)
        for name in names.unique():
            moments = outcomes.loc[names == name, [*keys, *_MOMENTS]]
            moments = moments.rename(columns={moment: f"{name}_{moment}" for moment in _MOMENTS})
            result = result.merge(moments, on=keys, how="left", sort=False)
        result.insert(len(episode) + 1, "agent", result.pop("agent"))
        return result

    @reads
    def errors(self, run: str) -> pd.DataFrame:
        """Return the errors of a run, in order.

        Columns: ``phase`` (number, if one was running), ``kind`` (class), ``message``, ``traceback``,
        ``time``.

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
        """
        columns = {
            "phase": Phase.number,
            "kind": Failure.kind,
            "message": Failure.message,
            "traceback": Failure.traceback,
            "time": Failure.time,
        }
        with self.database.reading() as session:
            instance, _ = self._find(session, run)
            statement = select(*columns.values()).select_from(Failure).outerjoin(Phase)
            rows = session.execute(statement.where(Failure.instance_id == instance).order_by(Failure.id))
            return frame(rows, columns).astype({"phase": "Int64"})

    @reads
    def warnings(self, run: str) -> pd.DataFrame:
        """Return the warnings of a run: ``text`` and ``time``."""
        with self.database.reading() as session:
            instance, _ = self._find(session, run)
            statement = select(Warned.text, Warned.time).where(Warned.instance_id == instance)
            return frame(session.execute(statement.order_by(Warned.id)), ("text", "time"))

    def document(self, run: str) -> dict[str, Any]:
        """Return the canonical form of the run document."""
        document: dict[str, Any] = self._run_document(run).document
        return document

    @reads
    def fold(self, *runs: str) -> Fold:
        """Return the statistic of an episode that counts in runs, with which lists and figures open.

        Args:
            runs: the runs, in any form that :meth:`find_run` accepts.

        Returns:
            ``"sum"``, the return, if the rewards of all environments of all runs accumulate, as those of Gymnasium and
            PettingZoo do; else ``"mean"``.

        Raises:
            StoreError: there is no such run.
        """
        with self.database.reading() as session:
            ids = {self._find(session, run)[0] for run in runs}
            folds = folds_of(session, ids)
            return "sum" if {folds.get(instance, "mean") for instance in ids} == {"sum"} else "mean"

    def evaluate_every(self, run: str) -> dict[int, int]:
        """Return the training episodes of a worker between evaluations, by number of each phase that evaluates."""
        schedule = self.document(run).get("schedule", [])
        configs = [phase["phase_config"] for entry in schedule for phase in entry.values()]
        return {i: c["evaluate_every"] for i, c in enumerate(configs) if c.get("evaluate_every")}

    def document_text(self, run: str) -> str:
        """Return the text of the run document, from the first run of this form of it."""
        return self._run_document(run).text

    def streams(self, run: str, phase: int | str | None = None) -> pd.DataFrame:
        """Return one row per folder of part files.

        Columns: ``phase``, ``kind`` (``agent``, ``wall``, ``environment``, ``statistics``), ``name``,
        ``group`` (of the agent's bodies, else 0), ``evaluation``, ``folder`` (below the instance's
        directory), ``rows``, ``parts`` and ``digest`` (these three once the phase has ended, and not for
        ``wall``).

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: all.
        """
        return self._table(run, _STREAMS, phase).astype({"rows": "Int64", "parts": "Int64"})

    def log(self, run: str) -> str:
        """Return the log of a run: the messages of its execution, and why it failed.

        Args:
            run: the run, in any form that :meth:`find_run` accepts.

        Returns:
            Its text; "" if there is none, as for imported runs.

        Raises:
            StoreError: there is no such run, or its log cannot be read.
        """
        directory = self.instance_directory(self.find_run(run))
        try:
            return read_log(directory)
        except OSError as error:
            raise StoreError(f"the log of run {run!r} cannot be read: {error}") from error

    @reads
    def _run_document(self, run: str) -> RunDocument:
        with self.database.reading() as session:
            instance, _ = self._find(session, run)
            statement = select(RunDocument).join(Instance).where(Instance.id == instance)
            document = session.scalars(statement).one()
            session.expunge(document)
            return document


def _evaluation_column(evaluation: bool | None, column: Any) -> dict[str, Any]:
    return {"evaluation": column} if evaluation is None else {}


def _of_phase(table: type[Episode] | type[Outcome], evaluation: bool | None) -> ColumnElement[bool]:
    of_phase = table.phase_id == Phase.id
    return of_phase if evaluation is None else of_phase & (table.evaluation.is_(evaluation))


def short_ids(uids: Sequence[str], least: int = 15) -> dict[str, str]:
    """Abbreviate each uid to its shortest unique prefix of at least ``least`` characters.

    Fifteen characters of an instance's uid are its date and time to the second.
    """
    ordered = sorted(set(uids))
    shared = [
        sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*two, strict=False)))
        for two in pairwise(ordered)
    ]
    before, after = [0, *shared], [*shared, 0]
    return {uid: uid[: max(least, b + 1, a + 1)] for uid, b, a in zip(ordered, before, after, strict=True)}


def duration_of(instance: Instance | Execution) -> float | None:
    """Return the seconds between start and end, ``None`` before the end.

    Both are dates: the result is 0 if the clock was set back in between by more than that.
    """
    return None if instance.ended is None else max(0.0, (instance.ended - instance.started).total_seconds())


def status_of(instance: Instance | Execution) -> str:
    """Return the status; ``lost`` if the process of a running instance is gone from this host."""
    if instance.status != "running" or instance.host != socket.gethostname():
        return instance.status
    return "running" if still_runs(instance.pid, instance.pid_started, START_TOLERANCE) else "lost"
