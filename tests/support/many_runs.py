"""A store of many runs, inserted as rows: nothing is executed, and there are no part files."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.models import (
    Agent,
    Episode,
    Experiment,
    Failure,
    Instance,
    Outcome,
    Phase,
    RunDocument,
)
from palaestrai_mosaik.store.process import process_started

#: when the first run began; each of the others begins a minute later, and takes half of one
START = datetime(2026, 1, 1, tzinfo=UTC)
PHASES, STEPS = ("train", "test"), 100
AGENTS = ("defender", "attacker")
#: of every so many runs one has failed, after its first phase
FAILED_EVERY = 10


def uid_of(number: int) -> str:
    """Return the uid of the instance that is inserted as the run ``number``."""
    return f"{START + timedelta(minutes=number):%Y%m%dT%H%M%S%f}-{number:08x}"


def objective_of(number: int, phase: int, episode: int) -> float:
    """Return the mean of the first agent's objective in an episode of the run ``number``."""
    return ((number * 7919) % 1000) / 10 + phase + episode / 10


def insert_runs(folder: Path, count: int, episodes: int = 5) -> None:
    """Insert runs of two phases with some episodes each, and two agents with an objective and a reward.

    Run ``n`` is one of the document ``run-n``. Every tenth one has failed after its first phase; all others have
    finished.
    """
    document = {
        "schedule": [{name: {"phase_config": {"episodes": episodes, "workers": 1}}} for name in PHASES]
    }
    tables: dict[type[Any], list[dict[str, Any]]] = {
        table: [] for table in (Experiment, RunDocument, Instance, Phase, Agent, Episode, Outcome, Failure)
    }
    tables[Experiment].append({"id": 1, "uid": "many"})
    for n in range(count):
        began = START + timedelta(minutes=n)
        failed = n % FAILED_EVERY == FAILED_EVERY - 1
        tables[RunDocument].append(
            {
                "id": n + 1,
                "hash": f"{n:064x}",
                "uid": f"run-{n}",
                "document": document,
                "text": "",
                "content": None,
            }
        )
        tables[Instance].append(
            {
                **{"id": n + 1, "uid": uid_of(n), "run_document_id": n + 1, "experiment_id": 1, "seed": n},
                **{"version": "3.5", "status": "failed" if failed else "finished", "started": began},
                **{"ended": began + timedelta(seconds=30), "host": socket.gethostname(), "pid": os.getpid()},
                **{"pid_started": process_started(), "packages": {}},
            }
        )
        if failed:
            failure = {
                "kind": "ValueError",
                "message": f"bad value {n}\nmore",
                "traceback": "",
                "time": began,
            }
            tables[Failure].append({"instance_id": n + 1, "phase_id": None, **failure})
        for number, name in enumerate(PHASES[:1] if failed else PHASES):
            phase = 2 * n + number + 1
            tables[Phase].append(
                {
                    **{"id": phase, "instance_id": n + 1, "number": number, "name": name, "mode": name},
                    **{"workers": 1, "episodes": episodes, "controller": "vanilla", "reason": "MaxEpisodes"},
                    **{"started": began + timedelta(seconds=15 * number)},
                    **{"ended": began + timedelta(seconds=15 * number + 15)},
                }
            )
            for agent, label in enumerate(AGENTS):
                tables[Agent].append({"id": 2 * phase + agent, "phase_id": phase, "name": label})
            for episode in range(episodes):
                key = {"phase_id": phase, "worker": 0, "episode": episode, "evaluation": False}
                ended = {"ended": began + timedelta(seconds=15 * number + 3 * episode + 3), "duration": 3.0}
                done = {"steps": STEPS, "ticks": STEPS, "ended_by": "environment", "flow": "RESET", **ended}
                tables[Episode].append(key | done)
                mean = objective_of(n, number, episode)
                moments = {"sum": mean * STEPS, "mean": mean, "min": mean - 1, "max": mean + 1}
                for agent in range(len(AGENTS)):
                    owner = {**key, "agent_id": 2 * phase + agent, **moments}
                    tables[Outcome].append({**owner, "kind": "objective", "name": ""})
                    tables[Outcome].append({**owner, "kind": "reward", "name": "reward"})
    with Store(folder, create=True) as store:

        def write(session: Any) -> None:
            for table, rows in tables.items():
                if rows:
                    session.execute(insert(table), rows)

        store.database.write(write)
