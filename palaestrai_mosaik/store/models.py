"""The tables of the store, and the rows of them that runs share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Boolean,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    LargeBinary,
    MetaData,
    Select,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
    false,
    select,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from palaestrai_mosaik.core.errors import StoreError


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        return value.tolist()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"a {type(value).__name__} cannot be stored as JSON")


def to_json(value: Any) -> str:
    """Serialise ``value`` to compact JSON; numpy values become plain ones, NaN and infinities stay.

    Raises :class:`StoreError` if it has no JSON form.
    """
    try:
        return json.dumps(value, default=_plain, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"cannot store {str(value)[:80]!r}: {error}") from error


def utc_now() -> datetime:
    """The current time in UTC, as an aware datetime."""
    return datetime.now(UTC)


class JsonText(TypeDecorator[Any]):
    """JSON kept as text: databases' own JSON types reject NaN and infinities."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else to_json(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


class TolerantJsonText(JsonText):
    """JSON that users may have damaged; invalid text is ``None``."""

    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        try:
            return super().process_result_value(value, dialect)
        except (ValueError, RecursionError):
            return None


class UtcDateTime(TypeDecorator[datetime]):
    """An aware date and time, stored as UTC."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


class BigInt(TypeDecorator[int]):
    """An integer of any size, stored as text (a seed may have 128 bits)."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> str | None:
        return None if value is None else str(int(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> int | None:
        return None if value is None else int(value)


class SafeText(TypeDecorator[str]):
    """Text of any source; NUL and lone surrogates, which databases reject, are escaped."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        return value.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {str: SafeText, datetime: UtcDateTime, float: Float(53)}


class Experiment(Base):
    __tablename__ = "experiments"
    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(unique=True)


class RunDocument(Base):
    __tablename__ = "run_documents"
    id: Mapped[int] = mapped_column(primary_key=True)
    hash: Mapped[str] = mapped_column(unique=True)
    uid: Mapped[str] = mapped_column(index=True)
    document: Mapped[Any] = mapped_column(JsonText, nullable=False)
    text: Mapped[str]
    content: Mapped[str | None] = mapped_column(index=True)


class Description(Base):
    """A static description that runs share.

    ``kind`` is ``topology`` or ``world``; ``hash`` covers kind and content.
    """

    __tablename__ = "descriptions"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    hash: Mapped[str] = mapped_column(unique=True)
    content: Mapped[Any] = mapped_column(JsonText, nullable=False)


class Instance(Base):
    __tablename__ = "instances"
    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(unique=True)
    run_document_id: Mapped[int] = mapped_column(ForeignKey("run_documents.id"), index=True)
    experiment_id: Mapped[int | None] = mapped_column(ForeignKey("experiments.id"), index=True)
    seed: Mapped[int] = mapped_column(BigInt, nullable=False)
    version: Mapped[str]
    status: Mapped[str]
    started: Mapped[datetime]
    ended: Mapped[datetime | None]
    host: Mapped[str]
    pid: Mapped[int]
    pid_started: Mapped[float]
    packages: Mapped[Any] = mapped_column(JsonText, nullable=False)


class Phase(Base):
    __tablename__ = "phases"
    __table_args__ = (UniqueConstraint("instance_id", "number"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    instance_id: Mapped[int] = mapped_column(ForeignKey("instances.id"))
    number: Mapped[int]
    name: Mapped[str]
    mode: Mapped[str]
    workers: Mapped[int]
    episodes: Mapped[int | None]
    controller: Mapped[str]
    started: Mapped[datetime]
    ended: Mapped[datetime | None]
    reason: Mapped[str | None]
    world_id: Mapped[int | None] = mapped_column(ForeignKey("descriptions.id"), index=True)


class Environment(Base):
    __tablename__ = "environments"
    __table_args__ = (UniqueConstraint("phase_id", "uid"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    phase_id: Mapped[int] = mapped_column(ForeignKey("phases.id"))
    uid: Mapped[str]
    name: Mapped[str]
    params: Mapped[Any | None] = mapped_column(JsonText)
    world_model: Mapped[Any | None] = mapped_column(JsonText)
    start: Mapped[str | None]
    step_size: Mapped[int] = mapped_column(BigInteger)
    incarnations: Mapped[int] = mapped_column(server_default="1")
    topology_id: Mapped[int | None] = mapped_column(ForeignKey("descriptions.id"), index=True)
    rewards_accumulate: Mapped[bool] = mapped_column(Boolean, server_default=false())


class Agent(Base):
    __tablename__ = "agents"
    __table_args__ = (UniqueConstraint("phase_id", "name"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    phase_id: Mapped[int] = mapped_column(ForeignKey("phases.id"))
    name: Mapped[str]
    brain: Mapped[str | None]
    muscle: Mapped[str | None]
    objective: Mapped[str | None]


class Body(Base):
    """A group of identical bodies: numbers ``first`` up to ``first + count - 1`` of the agent's bodies.

    ``body_group`` counts the agent's groups from 0, ``name`` is their label. ``environment`` is
    the uid of their environment, or null if a body spans several. In channels,
    ``{body}`` stands for ``number`` for the first of them. In a batched environment, they sit in
    the list ``incarnations``; null means those from ``number`` on.
    """

    __tablename__ = "bodies"
    __table_args__ = (UniqueConstraint("agent_id", "body_group"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    phase_id: Mapped[int] = mapped_column(ForeignKey("phases.id"), index=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    body_group: Mapped[int]
    name: Mapped[str | None]
    first: Mapped[int]
    count: Mapped[int]
    number: Mapped[int]
    incarnations: Mapped[Any | None] = mapped_column(JsonText)
    environment: Mapped[str | None]
    muscle: Mapped[str | None]
    objective: Mapped[str | None]
    proposed: Mapped[bool] = mapped_column(Boolean)


class Channel(Base):
    """A sensor, an actuator or a reward, as ``kind`` says (``sensor``, ``actuator`` or ``reward``).

    It belongs to either an environment or a group of an agent's bodies; ``position`` counts
    from 0 within owner and kind. An agent's rewards have no space. ``unit`` is the
    one that a sensor declares, if any.
    """

    __tablename__ = "channels"
    id: Mapped[int] = mapped_column(primary_key=True)
    phase_id: Mapped[int] = mapped_column(ForeignKey("phases.id"), index=True)
    environment_id: Mapped[int | None] = mapped_column(ForeignKey("environments.id"))
    agent_id: Mapped[int | None] = mapped_column(ForeignKey("agents.id"))
    body_group: Mapped[int] = mapped_column(server_default="0")
    kind: Mapped[str]
    position: Mapped[int]
    uid: Mapped[str]
    space: Mapped[str | None]
    size: Mapped[int]
    unit: Mapped[str | None]


class Stream(Base):
    """A folder of part files below the instance's directory.

    ``kind`` is ``agent``, ``wall`` (an agent's wall-clock times), ``environment``, ``frames`` (an environment's
    rendered frames) or ``statistics``; ``name`` is the agent's name or the environment's uid, ``body_group`` the group
    of the agent's bodies. Evaluation episodes have their own streams, if a phase has any. ``rows``, ``parts`` and
    ``digest`` are null until the phase has ended (and always for ``wall``).
    """

    __tablename__ = "streams"
    __table_args__ = (UniqueConstraint("phase_id", "kind", "name", "body_group", "evaluation"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    phase_id: Mapped[int] = mapped_column(ForeignKey("phases.id"))
    kind: Mapped[str]
    name: Mapped[str]
    body_group: Mapped[int] = mapped_column(server_default="0")
    evaluation: Mapped[bool] = mapped_column(Boolean, server_default=false())
    folder: Mapped[str]
    rows: Mapped[int | None] = mapped_column(BigInteger)
    parts: Mapped[int | None]
    digest: Mapped[str | None]


#: ``ended_by`` of episodes that were cut short: their recording is kept, but they do not count
CUT_SHORT = ("failed", "interrupted")


class Episode(Base):
    """An episode of a worker; evaluation episodes are counted separately."""

    __tablename__ = "episodes"
    phase_id: Mapped[int] = mapped_column(ForeignKey("phases.id"), primary_key=True)
    worker: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    episode: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    evaluation: Mapped[bool] = mapped_column(Boolean, primary_key=True, server_default=false())
    steps: Mapped[int] = mapped_column(BigInteger)
    ticks: Mapped[int] = mapped_column(BigInteger)
    ended_by: Mapped[str]
    flow: Mapped[str]
    duration: Mapped[float]
    ended: Mapped[datetime]


class Outcome(Base):
    """An agent's outcome of an episode; ``kind`` is ``objective`` or ``reward``. Null is NaN."""

    __tablename__ = "outcomes"
    __table_args__ = (
        ForeignKeyConstraint(
            ["phase_id", "worker", "episode", "evaluation"],
            ["episodes.phase_id", "episodes.worker", "episodes.episode", "episodes.evaluation"],
        ),
    )
    phase_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    worker: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    episode: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    evaluation: Mapped[bool] = mapped_column(Boolean, primary_key=True, server_default=false())
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    sum: Mapped[float | None]
    mean: Mapped[float | None]
    min: Mapped[float | None]
    max: Mapped[float | None]


class StoredBrain(Base):
    """A dump of an agent's brain, kept by :class:`StoreBrainDumper`.

    ``phase`` is the phase's number; ``snapshot`` and ``tag`` are empty strings if unused.
    """

    __tablename__ = "brains"
    __table_args__ = (UniqueConstraint("instance_id", "phase", "agent", "snapshot", "tag"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    instance_id: Mapped[int] = mapped_column(ForeignKey("instances.id"))
    phase: Mapped[int]
    agent: Mapped[str]
    snapshot: Mapped[str]
    tag: Mapped[str]
    sha256: Mapped[str] = mapped_column(String(64))
    time: Mapped[datetime]
    dump: Mapped[bytes] = mapped_column(LargeBinary)


class Failure(Base):
    __tablename__ = "errors"
    id: Mapped[int] = mapped_column(primary_key=True)
    instance_id: Mapped[int] = mapped_column(ForeignKey("instances.id"), index=True)
    phase_id: Mapped[int | None] = mapped_column(ForeignKey("phases.id"))
    kind: Mapped[str]
    message: Mapped[str]
    traceback: Mapped[str]
    time: Mapped[datetime]


class Warned(Base):
    __tablename__ = "warnings"
    id: Mapped[int] = mapped_column(primary_key=True)
    instance_id: Mapped[int] = mapped_column(ForeignKey("instances.id"), index=True)
    text: Mapped[str]
    time: Mapped[datetime]


class Label(Base):
    """Name, tags and note that users give a run.

    ``run`` is the uid of the instance, without a reference: the instance's row is replaced when the run is collected
    again. No hash and no digest covers a label.
    """

    __tablename__ = "labels"
    run: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str | None] = mapped_column(index=True)
    tags: Mapped[Any] = mapped_column(TolerantJsonText, nullable=False)
    note: Mapped[str | None]
    changed: Mapped[datetime]


#: the kinds of descriptions
TOPOLOGY, WORLD = "topology", "world"


class SharedDescription(NamedTuple):
    """A static description that runs share; ``hash`` covers kind and content."""

    kind: str
    hash: str
    content: Any

    @classmethod
    def of(cls, kind: str, content: Any) -> SharedDescription:
        """Hash ``content``, plain data, as a description of this kind."""
        return cls(kind, hashlib.sha256(f"{kind}\n{to_json(content)}".encode()).hexdigest(), content)


def document_id(
    session: Session, uid: str, document: Any, text: str, hash: str, content: str | None = None
) -> int:
    """Return the row id of the run document with this hash; insert it if it is missing."""
    row = RunDocument(uid=uid, document=document, text=text, hash=hash, content=content)
    return _id_of(session, select(RunDocument.id).where(RunDocument.hash == hash), row)


def experiment_id(session: Session, uid: str) -> int:
    """Return the row id of the experiment ``uid``; insert it if it is missing."""
    return _id_of(session, select(Experiment.id).where(Experiment.uid == uid), Experiment(uid=uid))


def description_ids(session: Session, descriptions: Iterable[SharedDescription]) -> dict[str, int]:
    """Return the row ids of descriptions by hash; insert those that are missing."""
    ids: dict[str, int] = {}
    # in the same order everywhere, to avoid deadlocks in PostgreSQL
    for hash, description in sorted({description.hash: description for description in descriptions}.items()):
        statement = select(Description.id).where(Description.hash == hash)
        ids[hash] = _id_of(
            session, statement, Description(kind=description.kind, hash=hash, content=description.content)
        )
    return ids


def _id_of(session: Session, statement: Select[Any], row: Base) -> int:
    """Return the id that ``statement`` selects; insert ``row`` first if it is missing."""
    row_id: int | None = session.scalar(statement)
    if row_id is None:
        try:
            with session.begin_nested():
                session.add(row)
        except IntegrityError:  # another process was faster (cannot happen with SQLite)
            pass
        row_id = session.scalar(statement)
    assert row_id is not None
    return row_id
