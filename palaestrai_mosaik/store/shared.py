"""Rows that several instances share: each exists once, recorded by the first of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import Select, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from .models import Base, Description, Experiment, RunDocument, to_json

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
