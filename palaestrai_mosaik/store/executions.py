"""Which instances executed a document: those of the document itself, and those of one with the same content.

The hash of a document has its uid in it, which names the run and changes nothing that is computed. A design
that has grown gives its runs other uids, and two designs may have runs in common: what was executed under
one name is found under the other by the content of the document.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from .lookup import Lookup
from .models import Instance, RunDocument

#: returns the contents of the documents with these hashes, by hash
Contents = Callable[[Collection[str]], Mapping[str, str]]
# As many values of an IN (...) at once: databases limit how many there may be.
_AT_ONCE = 500


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
    """Return the instances of the documents with these hashes, by hash, the newest last.

    Of a document of which no instance has finished, they are also those of other documents with the same
    content, as far as ``contents`` knows it and their files are in ``store``: a database may be shared by
    folders that keep files of their own. ``contents`` is asked only where the database has documents other
    than these.
    """
    found: dict[str, list[Execution]] = {}
    known = 0
    wanted = list(dict.fromkeys(hashes))
    for some in _chunks(wanted):
        mine = RunDocument.hash.in_(some)
        known += session.scalar(select(func.count()).select_from(RunDocument).where(mine)) or 0
        for one in map(Execution._make, session.execute(_QUESTION.where(mine).order_by(Instance.id))):
            found.setdefault(one.hash, []).append(one)
    if contents is None:
        return found
    missing = [hash_ for hash_ in wanted if not _finished(found.get(hash_, ()))]
    if not missing or session.scalar(select(func.count()).select_from(RunDocument)) == known:
        return found
    by_content: dict[str, list[str]] = {}
    for hash_, content in contents(missing).items():
        by_content.setdefault(content, []).append(hash_)
    for some in _chunks(list(by_content)):
        same = _QUESTION.where(RunDocument.content.in_(some)).order_by(Instance.id)
        for one in map(Execution._make, session.execute(same)):
            assert one.content is not None
            others = [hash_ for hash_ in by_content[one.content] if hash_ != one.hash]
            if others and store.instance_directory(one.uid).is_dir():
                for hash_ in others:
                    found.setdefault(hash_, []).append(one)
    for hash_ in missing:
        found.get(hash_, []).sort(key=lambda one: one.id)
    return found


def _finished(instances: Sequence[Execution]) -> bool:
    return any(one.status == "finished" for one in instances)


def _chunks(values: Sequence[str]) -> Iterator[Sequence[str]]:
    return (values[first : first + _AT_ONCE] for first in range(0, len(values), _AT_ONCE))
