"""Seconds that a folder of short runs takes on this machine by each way to execute it, and at best.

    python tests/benchmarks/cluster.py [--runs 200] [--seconds 0.5] [--jobs 2] [--only parsl,local]

A run computes for so many seconds (of CPU time, so they cannot be slept away) and records its steps.
``bare`` is this computing alone, ``runs * seconds / jobs``. ``ideal`` is what such runs take one after the
other in a warm process, recording included, over ``jobs``: it is measured with a tenth of them. ``local``
is a process for each run, ``shared`` a process for ten; ``array`` a job array of Slurm with one run per task,
``chunks of 10`` and ``chunks of 50`` one with so many; ``pilots`` is Parsl with as many workers as jobs
(``10 each``: a worker is handed ten runs at once), ``pilots on slurm`` the same as a job of Slurm. ``seconds`` are those from the call
that executes the folder, with no process, pilot or task there yet, to the last record. It is made by this
process, which has imported all (it has measured the ideal): the second that ``arsenai`` takes to start is not in
them. ``to bare`` and ``to ideal`` are the ratios to these two, ``overhead`` is what a run took more than
ideally. ``collect`` are the seconds after that in which results were brought into one store, where runs have
stores of their own.

The rows of Slurm are there if it answers (``SLURM_CONF``); its node should have ``jobs`` cores. Wall-clock
time: the machine must do nothing else.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.execution import FolderProgress, Settings, run_folder
from palaestrai_mosaik.arsenai.execution.settings import ParslSettings, SlurmSettings

STEPS = 10


class Spin(Muscle):
    """Computes for ``seconds`` of CPU time in each of its steps; ``number`` makes runs differ."""

    def __init__(self, seconds: float = 0.05, number: int = 0):
        self.seconds, self.number = seconds, number

    def propose_actions(self, sensors: list[Any], actuators_available: list[Any]) -> tuple[list[Any], None]:
        until = time.process_time() + self.seconds
        while time.process_time() < until:
            pass
        for actuator in actuators_available:
            actuator.value = actuator.space.sample(self.rng)
        return actuators_available, None


class Clock(FolderProgress):
    """Notes when the last run had ended."""

    last = 0.0

    def end(self) -> None:
        self.last = time.perf_counter()


def design(runs: int, seconds: float) -> dict[str, Any]:
    """Return a design of ``runs`` rows, each of which computes for ``seconds``."""
    conditions = "palaestrai_mosaik.simulation.conditions"
    environment = {
        "uid": "myenv",
        "name": "palaestrai_mosaik.environment.dummy:DummyEnvironment",
        "params": {"max_iter": STEPS},
    }
    agent = {
        "name": "spinner",
        "muscle": {"name": "cluster:Spin", "params": {"seconds": seconds / STEPS, "number": 0}},
        "sensors": ["myenv.0"],
        "actuators": ["myenv.0"],
    }
    phase = {
        "environments": [{"environment": environment}],
        "agents": [agent],
        "simulation": {
            "name": "vanilla",
            "conditions": [{"name": f"{conditions}:EnvironmentTerminationCondition"}],
        },
        "phase_config": {"mode": "test", "workers": 1, "episodes": 1},
    }
    number = {"path": "schedule[0].spin.agents.spinner.muscle.params.number", "levels": list(range(runs))}
    return {
        "uid": "spin",
        "seed": 1,
        "version": "3.5",
        "base": {
            "schedule": [{"spin": phase}],
            "run_config": {"condition": {"name": f"{conditions}:VanillaRunGovernorTerminationCondition"}},
        },
        "factors": {"number": number},
    }


def execute(folder: DesignFolder, settings: Settings) -> tuple[float, float]:
    """Execute the folder; return the seconds to the last record, and those after it."""
    clock, begun = Clock(), time.perf_counter()
    summary = run_folder(folder, settings=settings, progress=clock)
    ended = time.perf_counter()
    if not summary.whole:
        raise SystemExit(f"not all runs have finished: {summary}")
    return clock.last - begun, ended - clock.last


def ideal(folder: DesignFolder, runs: int, jobs: int) -> float:
    """Return the seconds of all ``runs`` over ``jobs``, as those of the folder after the first one tell."""
    warm = Settings(executor="inline")
    run_folder(folder, rows=[0], settings=warm)
    seconds, _ = execute(folder, warm)
    return seconds / (len(folder.documents) - 1) * runs / jobs


def slurm_answers() -> bool:
    """Whether there is a Slurm to submit to."""
    try:
        return (
            subprocess.run(["scontrol", "ping"], capture_output=True, timeout=10, check=False).returncode == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def variants(jobs: int) -> dict[str, Settings]:
    """Return the settings of each row of the table."""
    found = {
        "local": Settings(jobs=jobs),
        "shared": Settings(jobs=jobs, runs_per_process=10),
        "pilots": Settings(executor="parsl", parsl=ParslSettings(workers=jobs)),
        "pilots 10 each": Settings(executor="parsl", parsl=ParslSettings(workers=jobs, runs_per_task=10)),
    }
    if slurm_answers():
        on_slurm = ParslSettings(provider="slurm", workers=jobs, walltime="01:00:00")
        found |= {
            "pilots on slurm": Settings(executor="parsl", parsl=on_slurm),
            "array": Settings(executor="slurm", slurm=SlurmSettings(runs_per_task=1)),
        }
        for chunk in (10, 50):
            slurm = SlurmSettings(runs_per_task=chunk)
            found[f"chunks of {chunk}"] = Settings(executor="slurm", slurm=slurm)
    return found


def in_new_folder(runs: int, seconds: float, measure: Callable[[DesignFolder], Any]) -> Any:
    """Return what ``measure`` gives for a new folder."""
    with tempfile.TemporaryDirectory() as temporary:
        return measure(Design.from_mapping(design(runs, seconds)).generate(Path(temporary) / "f"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", help="rows of the table, with commas")
    options = parser.parse_args()
    runs, seconds = options.runs, options.seconds
    rows = variants(options.jobs)
    wanted = list(rows) if options.only is None else options.only.split(",")
    if not set(wanted) <= set(rows):
        sys.exit(f"rows are {', '.join(rows)}")
    few = max(runs // 10, 5) + 1
    best = in_new_folder(few, seconds, lambda folder: ideal(folder, runs, options.jobs))
    print(f"{runs} runs of {seconds:g} s, {options.jobs} at the same time")
    bare = runs * seconds / options.jobs
    print(f"{'':16} {'seconds':>8} {'to bare':>8} {'to ideal':>8} {'overhead':>10} {'collect':>8}")
    print(f"{'bare':16} {bare:8.1f} {1:8.2f}")
    print(f"{'ideal':16} {best:8.1f} {best / bare:8.2f} {1:8.2f}", flush=True)
    for name in wanted:
        took, collected = in_new_folder(runs, seconds, lambda folder, s=rows[name]: execute(folder, s))
        more = (took - best) * options.jobs / runs * 1000
        told = f"{collected:6.1f} s" if rows[name].executor in ("slurm", "parsl") else ""
        ratios = f"{took / bare:8.2f} {took / best:8.2f}"
        print(f"{name:16} {took:8.1f} {ratios} {more:7.0f} ms {told}", flush=True)


if __name__ == "__main__":
    main()
