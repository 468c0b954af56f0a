"""The store of one run, as the next attempt at the run finds it."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import update

from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.location import StoreLocation
from palaestrai_mosaik.store.models import Instance, utc_now

from .instances import instances_of, resumable
from .job import temporary_beside

#: how a store in a folder names its database
_DATABASE = "store.db"


def open_own(location: StoreLocation) -> Store:
    """Open the store of one run, whose process this is; it is made where it is missing.

    Its database has no log beside it: that needs memory which hosts do not share over a network.
    Raises :class:`~palaestrai_mosaik.errors.StoreError`.
    """
    file = Path(location.location) / _DATABASE
    # what cannot be written is told by the store, which makes its database itself then
    with suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        if not file.exists():
            temporary = temporary_beside(file)
            temporary.write_bytes(empty_database())
            os.replace(temporary, file)
    return location.open(create=True, journal="delete")


@cache
def empty_database() -> bytes:
    """Return the database of a store that holds nothing yet: copying it is faster than making it."""
    with tempfile.TemporaryDirectory(prefix="palaestrai-mosaik-") as folder:
        StoreLocation(folder).open(create=True, journal="delete").close()
        return Path(folder, _DATABASE).read_bytes()


class Earlier(NamedTuple):
    """What earlier attempts left: the instance that has finished, or the one that goes on; if any."""

    finished: str | None
    resumable: str | None


def earlier_attempts(store: Store, hash: str) -> Earlier:
    """Return what earlier attempts left of the document with ``hash`` in ``store``, its run's own.

    Who calls this has the claim to the run, so none of them goes on, on whatever host it was begun:
    instances of processes that died are marked as interrupted, which another host could not know.
    """
    known = instances_of(store, [hash]).get(hash, [])
    if any(one.status in ("running", "lost") for one in known):
        with store.database.writing() as session:
            ended = {"status": "interrupted", "ended": utc_now()}
            session.execute(update(Instance).where(Instance.status == "running").values(ended))
    finished = next((one.uid for one in known if one.status == "finished"), None)
    return Earlier(finished, resumable(store, [one._replace(status="interrupted") for one in known]))
