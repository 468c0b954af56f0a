"""Made ``results.db.gz``: a results database of palaestrAI 3.5.18, written by palaestrAI itself.

Called as ``python make.py FOLDER`` in an environment that has palaestrAI alone. Three runs: one with
evaluations, one with two workers and continuous spaces, one whose muscle raises at its third step.
"""

from __future__ import annotations

import gzip
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import yaml

MUSCLE = """
from palaestrai.agent.dummy_muscle import DummyMuscle


class Raising(DummyMuscle):
    def propose_actions(self, *args, **kwargs):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 3:
            raise ValueError("raised on purpose")
        return super().propose_actions(*args, **kwargs)
"""


def _agent(name: str, numbers: range, muscle: str) -> dict[str, object]:
    return {
        "name": name,
        "brain": {"name": "palaestrai.agent.dummy_brain:DummyBrain", "params": {}},
        "muscle": {"name": muscle, "params": {}},
        "objective": {"name": "palaestrai.agent.dummy_objective:DummyObjective", "params": {"params": 1}},
        "sensors": [f"myenv.{i}" for i in numbers],
        "actuators": [f"myenv.{i}" for i in numbers],
    }


def document(uid: str, seed: int, *, discrete: bool, muscle: str, train: dict[str, int]) -> dict[str, object]:
    """Return a run document of two agents and two phases, of 4 steps an episode."""

    def phase(controller: str, config: dict[str, object]) -> dict[str, object]:
        environment = {
            "name": "palaestrai.environment.dummy_environment:DummyEnvironment",
            "uid": "myenv",
            "params": {"discrete": discrete, "max_iter": 4},
        }
        condition = "palaestrai.simulation:VanillaSimControllerTerminationCondition"
        return {
            "environments": [{"environment": environment}],
            "agents": [_agent("defender", range(2), muscle), _agent("attacker", range(2, 5), muscle)],
            "simulation": {"name": controller, "conditions": [{"name": condition, "params": {}}]},
            "phase_config": config,
        }

    return {
        "uid": uid,
        "experiment_uid": "old experiment",
        "seed": seed,
        "version": "3.5",
        "schedule": [
            {"learn": phase("palaestrai.simulation:VanillaSimulationController", {"mode": "train", **train})},
            {
                "try": phase(
                    "palaestrai.simulation:TakingTurnsSimulationController",
                    {"mode": "test", "worker": 1, "episodes": 1},
                )
            },
        ],
        "run_config": {
            "condition": {
                "name": "palaestrai.experiment:VanillaRunGovernorTerminationCondition",
                "params": {},
            }
        },
    }


def main(folder: Path) -> None:
    folder.mkdir(parents=True)
    dummy = "palaestrai.agent.dummy_muscle:DummyMuscle"
    documents = [
        document(
            *("evaluated", 42),
            discrete=True,
            muscle=dummy,
            train={"worker": 1, "episodes": 2, "evaluate_every": 1},
        ),
        document("two workers", 43, discrete=False, muscle=dummy, train={"worker": 2, "episodes": 1}),
        document("raising", 44, discrete=True, muscle="raising:Raising", train={"worker": 1, "episodes": 1}),
    ]
    (folder / "raising.py").write_text(MUSCLE, encoding="utf-8")
    config = folder / "runtime.conf.yaml"
    store = {"store_uri": f"sqlite:///{folder}/p.db", "log_store_uri": f"sqlite:///{folder}/log.db"}
    config.write_text(yaml.safe_dump({**store, "data_path": f"{folder}/_outputs"}), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("palaestrai")), "-c", str(config)]
    subprocess.run([*command, "database-create"], cwd=folder, check=True)
    for number, found in enumerate(documents):
        path = folder / f"{number}.yml"
        path.write_text(yaml.safe_dump(found), encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        started = [*command, "experiment-start", str(path)]
        # (one whose muscle has raised may never end)
        subprocess.run(["timeout", "-s", "INT", "90", *started], cwd=folder, env=environment, check=False)
    with sqlite3.connect(folder / "p.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("VACUUM")
    connection.close()
    with (
        open(folder / "p.db", "rb") as data,
        gzip.GzipFile(folder / "results.db.gz", "wb", 9, mtime=0) as out,
    ):
        shutil.copyfileobj(data, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
