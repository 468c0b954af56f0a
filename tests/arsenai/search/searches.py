"""Designs with a search, whose answers are known, and commands that execute them."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import yaml
from arsenai.execution.folders import environment_now
from support.processes import Program

from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.store import Store

PARAMS = "schedule.only.environments.formula.environment.params"
#: the point at which Branin's function has one of its minima, and the minimum
MINIMUM = 0.397887


#: fails in its third step as long as there is no file of this name
GATED = {"name": "arsenai.execution.parts:Doing", "params": {"do": "well", "gate": "mended"}}


def search_design(*, function="branin", steps=1, episodes=1, muscle=None, noise=0.0, **keys):
    """Return a design that searches for the minimum of a function; ``keys`` replace those of the design."""
    formula = {"function": function, "steps": steps, "noise": noise, "x1": 0.0, "x2": 0.0}
    agent = {"name": "nobody", "muscle": muscle or "idle", "sensors": [], "actuators": ["formula.idle"]}
    design = {
        "uid": "valley",
        "seed": 11,
        "base": {
            "schedule": [
                {
                    "only": {
                        "environments": [
                            {"environment": {"uid": "formula", "name": "function", "params": formula}}
                        ],
                        "agents": [agent],
                        "phase_config": {"mode": "test", "episodes": episodes},
                    }
                }
            ]
        },
        "factors": {
            "x1": {"path": f"{PARAMS}.x1", "low": -5, "high": 10},
            "x2": {"path": f"{PARAMS}.x2", "low": 0, "high": 15},
        },
        "search": {"sampler": "tpe", "budget": {"runs": 12}},
        "outcomes": {"y": {"of": "reward.y", "step": "mean", "better": "lower"}},
    }
    return {**design, **keys}


def pruning(runs=24, **keys):
    """Return a search of which some settings are stopped early, and others executed in full."""
    search = {"sampler": "random", "budget": {"runs": runs}, "seeds_per_setting": 2, "prune": "median"}
    return search_design(search={**search, **keys}, episodes=4, noise=0.3)


def written(what, name="d.yml"):
    """Write a design into the working directory; return its name."""
    Path(name).write_text(yaml.safe_dump(what, sort_keys=False))
    return name


def tuned(what, folder="f", *options, code=0, jobs="inline"):
    """Search, in this process, and return the settings of the folder's table."""
    executor = ["--executor", "inline"] if jobs == "inline" else ["-j", str(jobs)]
    assert main(["tune", written(what), "-o", folder, "--quiet", *executor, *options]) == code
    return settings(folder)


def answered(capsys, *command, code=0):
    """Call a command with --json and return its answer."""
    capsys.readouterr()
    assert main([*command, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def printed(capsys, *command, code=0):
    """Call a command and return what it printed: on standard output, and on standard error."""
    capsys.readouterr()
    assert main(list(command)) == code
    return capsys.readouterr()


def settings(folder="f"):
    """Return the lines of the table of settings, as they are written."""
    with open(Path(folder, "search/settings.csv"), encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def told(folder="f"):
    """Return what became of each setting: nothing that depends on when and by whom it was executed."""
    return [
        (one["number"], one["state"], one["values"], one["runs"], one["steps"]) for one in settings(folder)
    ]


def generated(folder="f"):
    """Return the bytes of all files that a design's folder has by generating."""
    root = Path(folder)
    names = ("design.yml", "design.csv", "unit_sample.csv", "manifest.json", "SHA256SUMS")
    return {
        str(file.relative_to(root)): file.read_bytes()
        for file in (*(root / name for name in names), *sorted((root / "runs").iterdir()))
    }


def outcomes(folder="f"):
    """Return the digests of what every finished run has recorded, by the uid of its document."""
    found = {}
    with Store(f"{folder}/results", read_only=True) as store:
        runs = store.runs()
    for run, document, status in zip(runs["run"], runs["document"], runs["status"], strict=True):
        if status == "finished":
            marker = json.loads(Path(folder, "results/instances", run, "complete.json").read_text())
            found.setdefault(document, []).append(marker["digests"])
    return found


def start(*arguments):
    """Start ``arsenai`` in a process group of its own."""
    call = [sys.executable, "-m", "palaestrai_mosaik.cli.arsenai", *map(str, arguments)]
    return Program(
        call,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment_now(),
        start_new_session=os.name == "posix",
    )
