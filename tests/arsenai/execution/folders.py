"""Design folders whose runs do what a test wants, and drivers of them in other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.documents import VANILLA_RUN, agent, environment, named, phase
from support.processes import Program

from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.folder import RESULTS, DesignFolder
from palaestrai_mosaik.arsenai.execution import StoreLocation, load_run_states
from palaestrai_mosaik.arsenai.execution.job import Marker

ROOT = Path(__file__).parents[3]
_OURS = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
}


def environment_now():
    """Return the variables of another process: as they are now, for a test may have changed them."""
    return {**os.environ, **_OURS}


def make_folder(path, what, *, steps=5, episodes=1, gate=None, repetitions=1, **execution):
    """Generate a design in which the agent does in each row what :class:`Doing` does for that word."""
    one = agent("a", count=1, muscle=named("arsenai.execution.parts:Doing", do="well"))
    del one["brain"]
    only = phase([environment(max_iter=steps)], [one], episodes=episodes)
    doing = {
        "path": "schedule[0].phase_0.agents.a.muscle.params",
        "levels": [{"do": word, "number": i, "gate": gate} for i, word in enumerate(what)],
        "labels": [f"{word}-{i}" for i, word in enumerate(what)],
    }
    design = {
        "uid": "doing",
        "seed": 5,
        "version": "3.5",
        "repetitions": repetitions,
        "base": {"schedule": [{"phase_0": only}], "run_config": {"conditions": [named(VANILLA_RUN)]}},
        "factors": {"doing": doing},
    }
    if execution:
        design["execution"] = execution
    return Design.from_mapping(design).generate(path)


def drive(folder, *arguments, command="run", **options):
    """Start ``arsenai run`` for ``folder`` in a process group of its own."""
    call = [sys.executable, "-m", "palaestrai_mosaik.cli.arsenai", command, str(folder), *arguments]
    return Program(
        call,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment_now(),
        process_group=0,
        **options,
    )


def markers(folder):
    """Return the markers of the runs that go on, those whose instance is known, by run."""
    found = (Marker.read(path) for path in (Path(folder) / "jobs").glob("*.running"))
    return {marker.run: marker for marker in found if marker is not None and marker.instance is not None}


def statuses(folder):
    """Return the status of every run of the folder, in the order of the design."""
    opened = DesignFolder.open(folder)
    return [
        str(state.status) for state in load_run_states(opened, StoreLocation.of(opened.path / RESULTS)).runs
    ]
