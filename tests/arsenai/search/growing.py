"""Designs that grow in rounds, and commands that execute them."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

from arsenai.search.searches import written

from palaestrai_mosaik.cli.arsenai import main

#: what generating writes, all of which must be the same again
FILES = ("design.csv", "unit_sample.csv", "manifest.json", "SHA256SUMS")


def box_design(*, extra=2, steps=1, failures=0.0, **keys):
    """Return a design over formulas, one for each limit of the box x1 > 0.6, x2 < 0.5, x3 > 0.5.

    ``extra`` more factors limit nothing. ``failures``: share of the runs that fail. ``keys`` replace those of the design.
    """
    names = [f"x{i}" for i in range(1, extra + 2)]
    environments = []
    factors = {}
    for uid, own in (("f1", names), ("f2", ["x1"]), ("f3", ["x1"])):
        params = {"function": "linear", "steps": steps, "coefficients": [1.0] + [0.0] * (len(own) - 1)}
        if uid == "f1":
            params["failures"] = failures
        environments.append(
            {"environment": {"uid": uid, "name": "function", "params": {**params, **dict.fromkeys(own, 0.5)}}}
        )
        path = f"schedule.only.environments.{uid}.environment.params"
        factors[uid] = {"path": f"{path}.x1", "low": 0, "high": 1}
        factors |= {f"{name}_extra": {"path": f"{path}.{name}", "low": 0, "high": 1} for name in own[1:]}
    agent = {
        "name": "nobody",
        "muscle": "idle",
        "sensors": [],
        "actuators": ["f1.idle", "f2.idle", "f3.idle"],
    }
    only = {
        "environments": environments,
        "agents": [agent],
        "phase_config": {"mode": "test", "episodes": 1},
    }
    design = {
        "uid": "box",
        "seed": 3,
        "base": {"schedule": [{"only": only}]},
        "factors": factors,
        "sampler": {
            "name": "adaptive",
            "n": 20,
            "batch": 20,
            "condition": "y1 > 0.6 and y2 < 0.5 and y3 > 0.5",
            "until": {"max_n": 100},
        },
        "outcomes": {f"y{i}": {"of": f"reward.f{i}.y"} for i in (1, 2, 3)},
        "analysis": {"resamples": 5},
    }
    return {**design, **keys}


def ishigami_design(**keys):
    """Return a design over the Ishigami formula."""
    params = {"function": "ishigami", "x1": 0.0, "x2": 0.0, "x3": 0.0}
    path = "schedule.only.environments.formula.environment.params"
    only = {
        "environments": [{"environment": {"uid": "formula", "name": "function", "params": params}}],
        "agents": [{"name": "nobody", "muscle": "idle", "sensors": [], "actuators": ["formula.idle"]}],
        "phase_config": {"mode": "test", "episodes": 1},
    }
    design = {
        "uid": "ishigami",
        "seed": 1,
        "base": {"schedule": [{"only": only}]},
        "factors": {f"x{i}": {"path": f"{path}.x{i}", "low": -math.pi, "high": math.pi} for i in (1, 2, 3)},
        "sampler": {"name": "sobol", "n": 8, "second_order": False, "until": {"interval": 0.45}},
        "outcomes": {"y": {"of": "reward.y"}},
        "analysis": {"resamples": 100},
    }
    return {**design, **keys}


def executed(what, folder="f", *options, code=0):
    """Generate and run a design; return its folder."""
    assert main(["generate", written(what), "-o", folder, "--check", "none", "--quiet"]) == 0
    assert main(["run", folder, "--executor", "inline", "--quiet", *options]) == code
    return Path(folder)


def contents(folder):
    """Return the checksums of all that was generated."""
    files = [*(folder / name for name in FILES), *sorted((folder / "runs").iterdir())]
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
