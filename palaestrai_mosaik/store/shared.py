"""Rows that several instances share: each is there once, whoever records it first."""

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
    """A static description of something that runs have in common; ``hash`` is that of kind and content."""

    kind: str
    hash: str
    content: Any

    @classmethod
    def of(cls, kind: str, content: Any) -> SharedDescription:
        """Return the description of this kind with this content, plain data."""
        return cls(kind, hashlib.sha256(f"{kind}\n{to_json(content)}".encode()).hexdigest(), content)


def document_id(
    session: Session, uid: str, document: Any, text: str, hash: str, content: str | None = None
) -> int:
    """Return the id of the row of the run document with this hash; make it where there is none."""
    row = RunDocument(uid=uid, document=document, text=text, hash=hash, content=content)
    return _id_of(session, select(RunDocument.id).where(RunDocument.hash == hash), row)


def experiment_id(session: Session, uid: str) -> int:
    """Return the id of the row of the experiment ``uid``; make it where there is none."""
    return _id_of(session, select(Experiment.id).where(Experiment.uid == uid), Experiment(uid=uid))


def description_ids(session: Session, descriptions: Iterable[SharedDescription]) -> dict[str, int]:
    """Return the ids of the rows of descriptions by their hashes; make those that are missing."""
    found: dict[str, int] = {}
    # in one order everywhere, or two transactions of a PostgreSQL would wait for each other
    for hash, one in sorted({one.hash: one for one in descriptions}.items()):
        statement = select(Description.id).where(Description.hash == hash)
        found[hash] = _id_of(session, statement, Description(kind=one.kind, hash=hash, content=one.content))
    return found


def _id_of(session: Session, statement: Select[Any], row: Base) -> int:
    """Return the id that ``statement`` finds; where it finds none, insert ``row`` first."""
    found: int | None = session.scalar(statement)
    if found is None:
        try:
            with session.begin_nested():
                session.add(row)
        except IntegrityError:  # another process was faster (cannot happen with SQLite)
            pass
        found = session.scalar(statement)
    assert found is not None
    return found
