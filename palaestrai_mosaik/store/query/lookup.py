"""Resolves names of runs and phases, and reads tables as frames, for all queries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Select, and_, case, func, select
from sqlalchemy.orm import Session

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError, did_you_mean
from palaestrai_mosaik.core.printing import listed

from ..database import reads
from ..models import (
    CUT_SHORT,
    Agent,
    Environment,
    Episode,
    Failure,
    Instance,
    Label,
    Outcome,
    Phase,
    RunDocument,
)

if TYPE_CHECKING:
    import pandas as pd

    from ..database import Database

T = TypeVar("T")

#: the folder of a store with a folder for each instance, named by its uid
INSTANCES = "instances"


#: the maximum number of values in an IN (...): databases limit it
_TOGETHER = 500


def in_chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split ``values`` into chunks that fit into an ``IN (...)``."""
    return (values[first : first + _TOGETHER] for first in range(0, len(values), _TOGETHER))


#: statistics of an episode's values
Fold = Literal["sum", "mean"]


def is_finished() -> ColumnElement[bool]:
    """Build the condition that an episode was not cut short: those that were are no results."""
    return Episode.ended_by.not_in(CUT_SHORT)


def finished_episodes() -> ColumnElement[int]:
    """Build the expression that counts a group's finished episodes."""
    return func.count(case((is_finished(), 1)))


def of_finished_episode(statement: Select[Any]) -> Select[Any]:
    """Restrict a statement that selects outcomes to those of finished episodes."""
    same = [
        getattr(Episode, name) == getattr(Outcome, name)
        for name in ("phase_id", "worker", "episode", "evaluation")
    ]
    return statement.join(Episode, and_(*same)).where(is_finished())


def folds_of(session: Session, ids: Collection[int] | None) -> dict[int, Fold]:
    """Select for each run the statistic of an episode that counts.

    It is the sum, the return, if the rewards of all its environments accumulate, else the mean. Runs without an
    environment are left out.
    """
    accumulate = func.min(case((Environment.rewards_accumulate, 1), else_=0))
    statement = select(Phase.instance_id, accumulate).join(Environment, Environment.phase_id == Phase.id)
    rows = restricted(session, statement.group_by(Phase.instance_id), Phase.instance_id, ids)
    return {instance: "sum" if every else "mean" for instance, every in rows}


def inside(directory: Path, name: str) -> Path:
    """Return the path of ``name``, from the database, in ``directory``.

    Raises :class:`StoreError` if it is outside: a database may come from elsewhere.
    """
    try:
        return files.inside(directory, name)
    except ValueError:
        raise StoreError(f"the store names {name!r}, which is not a path in {directory}") from None


class FoundInstance(NamedTuple):
    """An instance: its uid, the uid of its document, and its status."""

    uid: str
    document: str
    status: str


class StoredDocument(NamedTuple):
    """A run document: its hash, and the text that the user wrote."""

    hash: str
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table with rows for each phase of a run.

    Attributes:
        columns: the columns by name; the first one is ``phase``, the number of the phase.
        joined: adds the tables of the columns to a selection of phases.
        order: the order of the rows of a phase.
        large: whether phases can have thousands of rows, so that only those of the requested phase are read.
    """

    columns: Mapping[str, Any]
    joined: Callable[[Select[Any]], Select[Any]]
    order: Sequence[Any] = ()
    large: bool = False


#: the names of the members of each phase, by kind
_NAMES = {
    "agent": Table({"phase": Phase.number, "name": Agent.name}, lambda s: s.join(Agent)),
    "environment": Table({"phase": Phase.number, "name": Environment.uid}, lambda s: s.join(Environment)),
}


class Lookup:
    """Base class of queries: finds runs and phases by name, and reads tables. Unknown names raise :class:`StoreError`.

    ``directory`` is the folder that holds ``instances/``.
    """

    def __init__(self, database: Database, directory: Path):
        self.database = database
        self.directory = directory
        self._memory = threading.local()

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Remember the runs, phases and members that this thread reads, until the block ends.

        An answer that is made of many queries reads each of these tables once. Within the block, rows that are written
        later can be missing.
        """
        if self._remembered is not None:
            yield
            return
        self._memory.tables = {}
        try:
            yield
        finally:
            self._memory.tables = None

    @property
    def _remembered(self) -> dict[Hashable, Any] | None:
        """The tables that this thread remembers by name; ``None`` outside of :meth:`remembering`."""
        tables: dict[Hashable, Any] | None = getattr(self._memory, "tables", None)
        return tables

    def _once(self, key: Hashable, read: Callable[[], T]) -> T:
        """Return the result of ``read``, or what this thread remembers under ``key``."""
        tables = self._remembered
        if tables is None:
            return read()
        if key not in tables:
            tables[key] = read()
        value: T = tables[key]
        return value

    def instance_directory(self, instance_uid: str) -> Path:
        """Return the folder of the instance with exactly this uid."""
        return inside(self.directory / INSTANCES, instance_uid)

    def find_run(self, run: str) -> str:
        """Return the uid of the instance named ``run``.

        Args:
            run: the uid of an instance, the beginning of one, the uid of a run document (for its newest instance),
                the name of a run (:meth:`label`), or ``"latest"``.

        Raises:
            StoreError: there is no such run, several uids begin like this, or several runs have this name.
        """

        @reads
        def find(store: Lookup) -> tuple[int, str]:
            with store.database.reading() as session:
                return store._find(session, run)

        return self._once(("run", run), lambda: find(self))[1]

    @reads
    def find_instance(self, document: str | None, instance: str | None = None) -> FoundInstance:
        """Return the newest finished instance of a run document, or its newest one if none has finished.

        Args:
            document: the uid of the run document; ``None`` only with ``instance``.
            instance: names an instance instead, like the argument of :meth:`find_run`. It must belong to
                ``document``, if that is not ``None``.

        Raises:
            StoreError: there is no such document or instance, or the instance belongs to another document.
        """
        columns = (Instance.uid, RunDocument.uid, Instance.status)
        with self.database.reading() as session:
            all_of_them = select(*columns).join(RunDocument)
            if instance is not None:
                statement = all_of_them.where(Instance.id == self._find(session, instance)[0])
                named = FoundInstance(*session.execute(statement).one())
                if document not in (None, named.document):
                    raise StoreError(
                        f"instance {named.uid} is one of {named.document!r}, not of {document!r}"
                    )
                return named
            order = ((Instance.status == "finished").desc(), Instance.id.desc())
            row = session.execute(
                all_of_them.where(RunDocument.uid == document).order_by(*order).limit(1)
            ).first()
            if row is None:
                uids = set(session.scalars(select(RunDocument.uid)))
                hint = did_you_mean(document or "", uids)
                raise StoreError(f"there is no experiment run {document!r}{hint} in {self.directory}")
        return FoundInstance(*row)

    @reads
    def document_of(self, instance_uid: str) -> StoredDocument:
        """Return the run document that the instance with exactly this uid executed."""
        statement = (
            select(RunDocument.hash, RunDocument.text).join(Instance).where(Instance.uid == instance_uid)
        )
        with self.database.reading() as session:
            return StoredDocument(*session.execute(statement).one())

    def _find(self, session: Session, run: str) -> tuple[int, str]:
        """Return the id and the uid of the instance named ``run``."""
        return self._once(("run", run), lambda: self._select(session, run))

    def _select(self, session: Session, run: str) -> tuple[int, str]:
        latest = select(Instance.id, Instance.uid).order_by(Instance.id.desc()).limit(1)
        for choice in [latest.where(Instance.uid == run), *([latest] if run == "latest" else [])]:
            row = session.execute(choice).first()
            if row is not None:
                return row[0], row[1]
        of_document = session.execute(latest.join(RunDocument).where(RunDocument.uid == run)).first()
        named = self._named(session, run)
        rows = {(row[0], row[1]) for row in (of_document, *named) if row is not None}
        if len(rows) == 1:
            return rows.pop()
        if rows:
            uids = listed([row[1] for row in named], 3)
            also = "the uid of a document and " if of_document is not None else ""
            raise StoreError(
                f"run {run!r} is not unique: it is {also}the name of {uids}; use the id of a run"
            )
        prefix = Instance.uid.startswith(run, autoescape=True)
        several = (
            session.execute(select(Instance.id, Instance.uid).where(prefix).limit(4)).all() if run else []
        )
        if len(several) == 1:
            return several[0][0], several[0][1]
        if several:
            raise StoreError(f"run {run!r} is not unique: {listed([row[1] for row in several], 3)}")
        recent = list(session.scalars(select(Instance.uid).order_by(Instance.id.desc()).limit(1000)))
        if not recent:
            raise StoreError(f"the store {self.directory} has no run {run!r}: it has no runs yet")
        names = self._names(session)
        hint = did_you_mean(run, ["latest", *session.scalars(select(RunDocument.uid)), *names, *recent])
        hint = hint or f"; the latest ones are {', '.join(recent[:3])}"
        raise StoreError(f"the store {self.directory} has no run {run!r}{hint}")

    def _named(self, session: Session, name: str) -> Sequence[Any]:
        """Select the ids and uids of the first instances whose label has this name."""
        if not name:
            return []
        statement = select(Instance.id, Instance.uid).join(Label, Label.run == Instance.uid)
        return session.execute(statement.where(Label.name == name).order_by(Instance.id).limit(4)).all()

    def _names(self, session: Session) -> list[str]:
        """Select the names of all runs."""
        return [name for name in session.scalars(select(Label.name).distinct()) if name is not None]

    def _phase_ids(self, session: Session, instance: int, run: str, phase: int | str | None) -> list[int]:
        """Return the ids of the phases with the number or name ``phase``; ``None``: all."""
        statement = select(Phase.id, Phase.number, Phase.name).where(Phase.instance_id == instance)
        phases = self._once(
            ("phases", instance), lambda: session.execute(statement.order_by(Phase.number)).all()
        )
        chosen = [row[0] for row in phases if phase is None or phase in (row[1], row[2])]
        if phase is not None and not chosen:
            existing = ", ".join(f"{number} {name!r}" for _, number, name in phases) or "none yet"
            hint = did_you_mean(str(phase), [row[2] for row in phases])
            raise StoreError(f"run {run!r} has no phase {phase!r}{hint}; it has: {existing}")
        return chosen

    def _check_member(self, run: str, phase: int | str | None, kind: str, name: str | None) -> None:
        """Raise :class:`StoreError` if no ``agent`` or ``environment`` (``kind``) has this name."""
        if name is None:
            return
        names = set(self._table(run, _NAMES[kind], phase)["name"])
        if name not in names:
            raise unknown(kind, name, names, scope_of(run, phase))

    def _table(self, run: str, table: Table, phase: int | str | None = None) -> pd.DataFrame:
        """Return the rows of ``table`` for a run, or for one of its phases, in the order of the phases.

        Within :meth:`remembering`, the rows of a phase are taken from those of the run.
        """
        tables = self._remembered
        whole = (table, run, None)
        if isinstance(phase, int) and tables is not None and (not table.large or whole in tables):
            rows = self._once(whole, lambda: self._read_table(run, table, None))
            rows = rows[rows["phase"] == phase]
            if rows.empty:
                self._check_phase(run, phase)
            return rows.reset_index(drop=True)
        return self._once((table, run, phase), lambda: self._read_table(run, table, phase)).copy()

    @reads
    def _check_phase(self, run: str, phase: int) -> None:
        """Raise :class:`StoreError` if the run has no such phase."""
        with self.database.reading() as session:
            instance, _ = self._find(session, run)
            self._phase_ids(session, instance, run, phase)

    @reads
    def _read_table(self, run: str, table: Table, phase: int | str | None) -> pd.DataFrame:
        with self.database.reading() as session:
            instance, _ = self._find(session, run)
            ids = self._phase_ids(session, instance, run, phase)
            labelled = [column.label(name) for name, column in table.columns.items()]
            statement = table.joined(select(*labelled).select_from(Phase)).where(Phase.id.in_(ids))
            rows = session.execute(statement.order_by(Phase.number, *table.order))
            return frame(rows, table.columns)


def restricted(session: Session, statement: Any, column: Any, ids: Collection[int] | None) -> Iterator[Any]:
    """Yield the rows of a statement, of all runs, or only those whose ``column`` is one of ``ids``."""
    if ids is None:
        yield from session.execute(statement)
        return
    for chunk in in_chunks(sorted(ids)):
        yield from session.execute(statement.where(column.in_(chunk)))


def frame(rows: Iterable[Sequence[Any]], columns: Iterable[str]) -> pd.DataFrame:
    """Build a frame from database rows; without rows, it still has the columns."""
    import pandas as pd

    def series(values: list[Any]) -> pd.Series[Any]:
        # text stays object, with None if missing: pandas 3 would make it NaN
        has_text = not values or any(issubclass(kind, str) for kind in set(map(type, values)))
        return pd.Series(values, dtype=object if has_text else None)

    names = list(columns)
    by_column = [list(values) for values in zip(*rows, strict=True)] or [[] for _ in names]
    return pd.DataFrame(dict(zip(names, map(series, by_column), strict=True)), columns=names)


def scope_of(run: str, phase: int | str | None) -> str:
    """Name the run, or a phase of it, in an error."""
    return f"run {run!r}" if phase is None else f"phase {phase!r} of run {run!r}"


def first_errors(session: Session, ids: Collection[int] | None, longest: int | None = None) -> dict[int, str]:
    """Select the kind and message of the first error of each run, up to ``longest`` characters of the message."""
    first = select(func.min(Failure.id)).group_by(Failure.instance_id)
    message = Failure.message if longest is None else func.substr(Failure.message, 1, longest)
    statement = select(Failure.instance_id, Failure.kind, message).where(Failure.id.in_(first))
    rows = restricted(session, statement, Failure.instance_id, ids)
    return {instance: f"{kind}: {text}" for instance, kind, text in rows}


def unknown(what: str, name: str, names: Iterable[str], owner: str) -> StoreError:
    """Build the error for an unknown name, with the names that exist."""
    existing = sorted(names)
    return StoreError(
        f"{owner} has no {what} {name!r}{did_you_mean(name, existing)}; it has: {listed(existing, 20) or 'none'}"
    )
