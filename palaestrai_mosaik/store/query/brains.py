"""Brains in the database: for stores with files that not every reader can see."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, delete, func, insert, select
from sqlalchemy.orm import Session

from palaestrai_mosaik.core.errors import StoreError, did_you_mean

from ..database import reads
from ..models import Instance, StoredBrain, utc_now
from .lookup import Lookup, frame

if TYPE_CHECKING:
    import pandas as pd


class BrainQueries(Lookup):
    """Stores dumps of brains in SQL, each with its SHA-256."""

    def keep_brain(
        self, instance: str, phase: int, agent: str, dump: bytes, *, snapshot: str = "", tag: str = ""
    ) -> None:
        """Keep a dump of a brain in the database. It replaces the one with the same keys.

        Args:
            instance: the full uid of an instance.
            phase: number of the phase.
            agent: name of the agent.
            dump: the bytes to keep.
            snapshot: name of the snapshot; empty: none.
            tag: distinguishes several dumps of one brain; empty: none.

        Raises:
            StoreError: there is no such instance.
        """
        values = {"sha256": hashlib.sha256(dump).hexdigest(), "time": utc_now(), "dump": dump}

        def write(session: Session) -> None:
            owner = self._instance_id(session, instance)
            key = {"instance_id": owner, "phase": phase, "agent": agent, "snapshot": snapshot, "tag": tag}
            session.execute(delete(StoredBrain).where(*_is(**key)))
            session.execute(insert(StoredBrain), [key | values])

        self.database.write(write)

    @reads
    def brain(self, instance: str, phase: int, agent: str, *, snapshot: str = "", tag: str = "") -> bytes:
        """Return the dump with these keys.

        Args:
            instance: the full uid of an instance.
            phase: number of the phase.
            agent: name of the agent.
            snapshot: name of the snapshot; empty: none.
            tag: distinguishes several dumps of one brain; empty: none.

        Raises:
            StoreError: there is no such dump (the message names those that exist), or it is damaged: its
                bytes do not match the recorded SHA-256.
        """
        name = _named(instance, phase, agent, snapshot, tag)
        with self.database.reading() as session:
            owner = self._instance_id(session, instance)
            key = {"instance_id": owner, "phase": phase, "agent": agent, "snapshot": snapshot, "tag": tag}
            statement = select(StoredBrain.dump, StoredBrain.sha256).where(*_is(**key))
            row = session.execute(statement).first()
            if row is None:
                existing = _what_exists(session, owner, phase, agent)
                raise StoreError(f"the database {self.database.name} has no {name}; {existing}")
        dump, expected = row
        actual = hashlib.sha256(dump).hexdigest()
        if actual != expected:
            raise StoreError(
                f"the {name} in the database {self.database.name} is damaged: its {len(dump)} bytes have "
                f"the SHA-256 {actual}, written were bytes with {expected}"
            )
        return bytes(dump)

    @reads
    def brains(self, run: str) -> pd.DataFrame:
        """Return one row per brain in the database, without the dumps.

        Columns: ``phase`` (number), ``agent``, ``snapshot``, ``tag`` (both empty if unused),
        ``bytes``, ``sha256``, ``time``.

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
        """
        columns = {
            "phase": StoredBrain.phase,
            "agent": StoredBrain.agent,
            "snapshot": StoredBrain.snapshot,
            "tag": StoredBrain.tag,
            "bytes": func.length(StoredBrain.dump),
            "sha256": StoredBrain.sha256,
            "time": StoredBrain.time,
        }
        order = (StoredBrain.phase, StoredBrain.agent, StoredBrain.snapshot, StoredBrain.tag)
        with self.database.reading() as session:
            instance, _ = self._find(session, run)
            statement = select(*columns.values()).where(StoredBrain.instance_id == instance)
            return frame(session.execute(statement.order_by(*order)), columns)

    def _instance_id(self, session: Session, instance: str) -> int:
        row_id = session.scalar(select(Instance.id).where(Instance.uid == instance))
        if row_id is None:
            raise StoreError(f"the database {self.database.name} has no instance {instance!r}")
        return row_id


def _is(**key: Any) -> list[ColumnElement[bool]]:
    return [getattr(StoredBrain, name) == value for name, value in key.items()]


def _named(instance: str, phase: int, agent: str, snapshot: str, tag: str) -> str:
    text = f"brain of agent {agent!r} in phase {phase} of instance {instance}"
    text += f", snapshot {snapshot!r}" if snapshot else ""
    return text + (f", tag {tag!r}" if tag else "")


def _what_exists(session: Session, owner: int, phase: int, agent: str) -> str:
    columns = (StoredBrain.phase, StoredBrain.agent, StoredBrain.snapshot, StoredBrain.tag)
    kept = session.execute(select(*columns).where(StoredBrain.instance_id == owner).order_by(*columns)).all()
    if not kept:
        return "of this instance it has none"
    of_agent = [(snapshot, tag) for number, name, snapshot, tag in kept if (number, name) == (phase, agent)]
    if of_agent:
        listed = ", ".join(f"snapshot {snapshot!r} tag {tag!r}" for snapshot, tag in of_agent[:10])
        return f"of this agent and phase it has {listed}"
    agents = sorted({name for number, name, _, _ in kept if number == phase})
    if agents:
        return f"of this phase it has {', '.join(map(repr, agents[:10]))}{did_you_mean(agent, agents)}"
    phases = sorted({(number, name) for number, name, _, _ in kept})
    return f"it has {', '.join(f'{name!r} of phase {number}' for number, name in phases[:10])}"
