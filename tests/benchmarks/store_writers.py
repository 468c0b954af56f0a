"""How many runs a second can be recorded by several processes in one store.

    python tests/benchmarks/store_writers.py [--runs 60] [--rows 100] [--writers 1 2 4]

A run here is one phase of 100 rows and one episode, with all that the store writes about it; nothing is
simulated. Each writer is a process of its own that records runs one after the other. Prints runs per
second in a folder (SQLite) and, where PALAESTRAI_MOSAIK_TEST_POSTGRESQL holds a URL, in a database of its
own on that server, by number of writers: with the files, and (in brackets) the database's part alone.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow.parquet  # noqa: F401  (so that no writer has to import it)
import sqlalchemy as sa

from palaestrai_mosaik.store import (
    AgentRecord,
    BodyRecord,
    ChannelRecord,
    EnvironmentRecord,
    InstanceRecorder,
    Store,
)

#: seconds within which all writers must be done; one that has died is not waited for any longer
PATIENCE = 300.0
SPACE = "Box(low=0.0, high=1.0, shape=(1,), dtype=float64)"
MOMENTS = {"sum": 1.0, "mean": 1.0, "min": 1.0, "max": 1.0}


def channels(prefix: str, count: int) -> list[ChannelRecord]:
    return [ChannelRecord(f"e.{prefix}{i}", SPACE, 1) for i in range(count)]


def record(store: Store, number: int, rows: int) -> None:
    """Record one run as its process would."""
    run: InstanceRecorder = store.begin_run(
        uid=f"run-{number}", document={"seed": number}, text="", hash=f"hash {number}", seed=1, version="3.5"
    )
    sensors, actuators = channels("s", 10), channels("a", 5)
    body = BodyRecord(sensors=sensors, actuators=actuators, rewards=["r"])
    phase = run.begin_phase(
        *(0, "phase"),
        mode="test",
        workers=1,
        episodes=1,
        controller="Vanilla",
        environments=[EnvironmentRecord("e", "Dummy", {}, sensors=sensors, actuators=actuators)],
        agents=[AgentRecord("a", None, None, None, [body])],
    )
    agent, environment = phase.agent("a"), phase.environment("e")
    readings, setpoints = np.arange(10.0), np.arange(5.0)
    for step in range(rows):
        environment.append(0, 0, step, step, readings, [], False, False, None)
        agent.append(0, 0, step, step, readings, setpoints, [1.0], 1.0, False, False, 0.0)
    told = {"objective": MOMENTS, "rewards": {"r": MOMENTS}}
    phase.episode(*(0, 0), steps=rows, ticks=rows, ended_by="", flow="", duration=0.0, agents={"a": told})
    run.finish("finished")


def write(place: tuple[str, str | None], first: int, runs: int, rows: int, barrier: Barrier) -> None:
    """Record some runs; the clock runs between the two barriers."""
    try:
        with Store(place[0], directory=place[1], create=True) as store:
            record(store, first, rows)
            barrier.wait()
            for number in range(runs):
                record(store, first + 1 + number, rows)
            barrier.wait()
    except BaseException:
        # the others need not wait for this one
        barrier.abort()
        raise


def measure(place: tuple[str, str | None], writers: int, runs: int, rows: int) -> float:
    """Return runs per second, where each writer records ``runs`` runs of ``rows`` rows."""
    with Store(place[0], directory=place[1], create=True):
        pass
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(writers + 1, timeout=PATIENCE)
    processes = [
        context.Process(target=write, args=(place, (runs + 1) * writer, runs, rows, barrier))
        for writer in range(writers)
    ]
    for process in processes:
        process.start()
    barrier.wait()
    started = perf_counter()
    barrier.wait()
    taken = perf_counter() - started
    for process in processes:
        process.join()
    with Store(place[0], directory=place[1], create=True) as store:
        recorded = int((store.runs()["status"] == "finished").sum())
    assert recorded == writers * (runs + 1), f"{recorded} runs are recorded"
    return writers * runs / taken


@contextmanager
def on_sqlite() -> Iterator[tuple[str, str | None]]:
    with tempfile.TemporaryDirectory() as folder:
        yield folder, None


@contextmanager
def on_postgresql() -> Iterator[tuple[str, str | None]]:
    server = sa.make_url(os.environ["PALAESTRAI_MOSAIK_TEST_POSTGRESQL"])
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    name = f"benchmark_{os.getpid()}"
    with engine.connect() as connection, tempfile.TemporaryDirectory() as folder:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
        try:
            yield server.set(database=name).render_as_string(hide_password=False), str(Path(folder))
        finally:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=60, help="of each writer")
    parser.add_argument("--rows", type=int, default=100, help="of each run")
    parser.add_argument("--writers", type=int, nargs="+", default=[1, 2, 4])
    arguments = parser.parse_args()
    places: dict[str, Any] = {"SQLite": on_sqlite}
    if os.environ.get("PALAESTRAI_MOSAIK_TEST_POSTGRESQL"):
        places["PostgreSQL"] = on_postgresql
    else:
        print("PALAESTRAI_MOSAIK_TEST_POSTGRESQL holds no URL: SQLite alone", file=sys.stderr)
    print(
        f"runs per second ({arguments.rows} rows each; in brackets: without rows, so without files of them)"
    )
    print("writers  " + "  ".join(f"{name:>15}" for name in places))
    for writers in arguments.writers:
        cells = []
        for open_place in places.values():
            rates = []
            for rows in (arguments.rows, 0):
                with open_place() as place:
                    rates.append(measure(place, writers, arguments.runs, rows))
            cells.append(f"{rates[0]:6.0f} ({rates[1]:6.0f})")
        print(f"{writers:>7}  " + "  ".join(f"{cell:>15}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
