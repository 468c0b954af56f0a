"""Many processes on one store at the same moment: ``python -m tests.support.writers WHAT LOCATION FILES NUMBER``.

They are forked from this one, which has imported everything, and wait for each other before the
moment that counts. Prints how many attempts failed; errors go to standard error.
"""

from __future__ import annotations

import multiprocessing
import sqlite3  # noqa: F401  (else each process would import them)
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.synchronize import Barrier
from typing import Any

import alembic.command  # noqa: F401
import pyarrow.parquet  # noqa: F401
import sqlalchemy as sa
from sqlalchemy.orm import configure_mappers

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.database import Database
from palaestrai_mosaik.store.store import package_versions

from . import records
from .waiting import HANG

with suppress(ImportError):  # only the extra 'postgresql' brings it
    import psycopg  # noqa: F401

#: transactions of each process
ROUNDS = 10
_INSERT = sa.text("INSERT INTO experiments (uid) VALUES (:uid)")
_COUNT = sa.text("SELECT count(*) FROM experiments")


def _open(location: str, files: str, number: int, barrier: Barrier) -> int:
    """Open the store, which is missing or has an earlier schema, and record something."""
    barrier.wait()
    with Store(location, directory=files if "://" in location else None, create=True) as store:
        with store.database.writing() as session:
            session.execute(_INSERT, {"uid": f"of {number}"})
        return 0


def _write(location: str, number: int, barrier: Barrier, *, plain: bool) -> int:
    """Read, then write, in one transaction, again and again; return how many were lost."""
    lost = 0
    database = Database(location, create=False)
    database.schema_version()
    barrier.wait()
    for turn in range(ROUNDS):
        try:
            with (database.reading if plain else database.writing)() as session:
                session.execute(_COUNT)
                session.execute(_INSERT, {"uid": f"{number}-{turn}"})
                if plain:
                    session.commit()
        except StoreError as error:
            lost += 1
            if lost == 1:
                print(error, file=sys.stderr)
    database.close()
    return lost


def _finish(location: str, files: str, number: int, barrier: Barrier) -> int:
    """Record a run of one of two documents; begin and finish it when all others do."""
    with Store(location, directory=files if "://" in location else None, create=True) as store:
        barrier.wait()
        run = records.begin(store, f"run-{number % 2}")
        phase = records.begin_phase(run)
        for step in range(3):
            phase.agent("a").append(0, 0, step, step, [step, 0], [number], [step], 0.0, False, False, 0.0)
        told = {"objective": records.moments(number), "rewards": {}}
        ended = {"steps": 3, "ticks": 3, "ended_by": "x", "flow": "RESET", "duration": 0.0}
        phase.episode(0, 0, **ended, agents={"a": told})
        barrier.wait()
        run.finish("finished")
    return 0


def _child(task: Callable[[int, Barrier], int], number: int, barrier: Barrier, failed: Any) -> None:
    try:
        failed[number] = task(number, barrier)
    except BaseException:
        traceback.print_exc()
        barrier.abort()
        failed[number] = 1


def main() -> None:
    """Do what the command line says, in so many processes."""
    what, location, files, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    package_versions()
    configure_mappers()
    tasks: dict[str, Callable[[int, Barrier], int]] = {
        "open": lambda number, barrier: _open(location, files, number, barrier),
        "write": lambda number, barrier: _write(location, number, barrier, plain=False),
        "write plainly": lambda number, barrier: _write(location, number, barrier, plain=True),
        "finish": lambda number, barrier: _finish(location, files, number, barrier),
    }
    context = multiprocessing.get_context("fork")
    barrier, failed = context.Barrier(count, timeout=HANG), context.Array("i", count)
    processes = [
        context.Process(target=_child, args=(tasks[what], number, barrier, failed)) for number in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    print(sum(failed))
    sys.exit(any(process.exitcode for process in processes))


if __name__ == "__main__":
    main()
