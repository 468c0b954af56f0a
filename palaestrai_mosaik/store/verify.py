"""Whether a store still holds what was recorded: files are read, and compared with the database."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import select, update

from palaestrai_mosaik.errors import StoreError

from .kept import count_rows, read_kept
from .models import Failure, Instance, KeptBrain, RunDocument, to_json, utc_now
from .part_reading import whole_parts
from .parts import wall_folder, write_text
from .phase_recorder import digests_of
from .query import status_of
from .recorder import MARKER

if TYPE_CHECKING:
    from .store import Store

#: the kind of error that a finished instance has which was found damaged
DAMAGED = "Damaged"


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found of an instance.

    ``run`` is its uid, ``document`` that of its document, ``status`` as in :meth:`Store.runs`.
    ``rows`` of all its streams were read. ``damage``: a sentence for each thing that is not as it was
    recorded, with its file.
    """

    run: str
    document: str
    status: str
    rows: int
    damage: tuple[str, ...]


def verify(store: Store, run: str) -> Verified:
    """Read all that the store holds of an instance, and compare it with the digests in the database.

    Of phases that have not ended there is no digest: their parts are only read, and not even that as
    long as the run goes on. Raises :class:`StoreError` for an unknown run.
    """
    uid = store.find_run(run)
    with store.database.reading() as session:
        where = select(Instance, RunDocument.uid).join(RunDocument).where(Instance.uid == uid)
        instance, document = session.execute(where).one()
        status, damage = status_of(instance), []
        brains = select(KeptBrain.agent, KeptBrain.phase, KeptBrain.sha256, KeptBrain.dump)
        for agent, phase, digest, dump in session.execute(brains.where(KeptBrain.instance_id == instance.id)):
            if hashlib.sha256(dump).hexdigest() != digest:
                damage.append(f"a dump of the brain of {agent!r} in phase {phase} is damaged")
    directory = store.instance_directory(uid)
    table = store.streams(uid)
    streams = table[table["kind"] != "wall"][["folder", "kind", "rows", "parts", "digest"]]
    total = 0
    told: dict[str, dict[str, Any]] = {}
    for folder, kind, rows, parts, digest in streams.itertuples(index=False):
        told[folder] = {"rows": rows, "digest": digest}
        ended = hasattr(rows, "__index__")
        if not ended and status == "running":
            continue
        try:
            total += _read(directory / folder, kind, (int(rows), parts, digest) if ended else None)
        except StoreError as error:
            damage.append(str(error))
    if status == "finished":
        damage += _look_at_marker(directory / MARKER, digests_of(told))
    return Verified(uid, document, status, total, tuple(damage))


def _read(folder: Path, kind: str, recorded: tuple[int, Any, str | None] | None) -> int:
    """Return how many rows a stream holds. Raises :class:`StoreError` where it holds others than were recorded.

    ``recorded``: the number of rows and parts, and the digest, once the phase has ended.
    """
    number = len(whole_parts(folder, None if recorded is None else recorded[1]))
    try:
        kept = read_kept(kind, folder, number)
    except (KeyError, ValueError) as error:
        raise StoreError(f"{folder} is damaged: its parts have other columns ({error})") from error
    if recorded is None:
        return kept.rows
    expected, _, digest = recorded
    counts = {folder: kept.rows}
    if kind == "agent":
        walls = wall_folder(folder)
        counts[walls] = count_rows(walls, number)
    for place, count in counts.items():
        if count != expected:
            raise StoreError(f"{place} is damaged: it holds {count} rows, {expected} were recorded")
    if digest is not None and kept.digest.hexdigest() != digest:
        raise StoreError(f"{folder} is damaged: its parts hold other values than were recorded")
    return kept.rows


def _look_at_marker(path: Path, digests: dict[str, Any]) -> Sequence[str]:
    """Return what is wrong with the marker of a finished instance."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["digests"]
    except FileNotFoundError:
        # killed right before it was put there: the database has all of the run by then
        return ()
    except (OSError, ValueError, KeyError, TypeError) as error:
        return (f"{path} is damaged: {error}",)
    return () if found == digests else (f"{path} names other digests than the database",)


def instances_to_verify(store: Store) -> list[str]:
    """Return the uids of all instances, oldest first, but for those that are known to be damaged."""
    known = select(Failure.instance_id).where(Failure.kind == DAMAGED)
    with store.database.reading() as session:
        found = select(Instance.uid).where(Instance.id.not_in(known)).order_by(Instance.id)
        return list(session.scalars(found))


def mark_failed(store: Store, verified: Verified) -> bool:
    """Record a finished instance as failed because of its damage; return whether it was finished.

    Its document then counts as not executed, wherever finished runs are asked for.
    :func:`instances_to_verify` leaves it out.
    """
    with store.database.writing() as session:
        finished = (Instance.uid == verified.run, Instance.status == "finished")
        changed = update(Instance).where(*finished).values(status="failed").returning(Instance.id)
        row = session.execute(changed).scalar()
        if row is None:
            return False
        told = "\n".join(verified.damage)
        session.add(Failure(instance_id=row, kind=DAMAGED, message=told, traceback=told, time=utc_now()))
    marker = store.instance_directory(verified.run) / MARKER
    try:
        found = json.loads(marker.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True
    if isinstance(found, dict):
        write_text(marker, to_json(found | {"status": "failed"}) + "\n")
    return True
