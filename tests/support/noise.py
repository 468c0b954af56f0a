"""Outcomes that are nothing but chance: what an analysis finds in them are false alarms."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import yaml

from palaestrai_mosaik.analysis.sensitivity import sensitivity
from palaestrai_mosaik.design.design import Design
from palaestrai_mosaik.design.model import OutcomeSpec

from .documents import document

LEVEL = 0.05
_PLACE = "schedule[0].phase_0.environments.myenv.environment.params"


def factor(levels: list[Any] | None = None, **told: Any) -> dict[str, Any]:
    """Return a factor with these levels, or as ``told``; its path is that of its name."""
    return {**({} if levels is None else {"levels": levels}), **told}


_PPO = 'algo == "ppo"'
_CLIP = [0.1, 0.15, 0.2, 0.25, 0.3, 0.4]

#: designs of which some factor is inactive in part of the rows, or some rows make the same document
DESIGNS: dict[str, dict[str, Any]] = {
    "one of two algorithms has a parameter": {
        "factors": {"algo": factor(["ppo", "sac"]), "clip": factor(_CLIP, when=_PPO)},
        "repetitions": 5,
    },
    "the same, seeds of their own": {
        "factors": {"algo": factor(["ppo", "sac"]), "clip": factor(_CLIP, when=_PPO)},
        "repetitions": 5,
        "seeds": {"policy": "independent"},
    },
    "two of three have it, on two grids": {
        "factors": {
            "algo": factor(["ppo", "a2c", "sac"]),
            "clip": factor([0.1, 0.2, 0.3], when='algo in ["ppo", "a2c"]'),
            "grid": factor(["rural", "urban"]),
        },
        "repetitions": 3,
    },
    "a parameter of a parameter": {
        "factors": {
            "algo": factor(["ppo", "sac"]),
            "clip": factor([0.1, 0.2, 0.3], when=_PPO),
            "anneal": factor([1, 2, 3, 4], when="clip == 0.1"),
        },
        "repetitions": 4,
    },
    "each of two has its own": {
        "factors": {
            "algo": factor(["ppo", "sac"]),
            "clip": factor([0.1, 0.2, 0.3, 0.4], when=_PPO),
            "entropy": factor([1, 2, 3], when='algo == "sac"'),
        },
        "repetitions": 3,
    },
    "active where two factors agree": {
        "factors": {"a": factor([1, 2, 3]), "b": factor([1, 2, 3]), "c": factor([1, 2, 3], when="a == b")},
        "repetitions": 3,
    },
    "without repetitions": {
        "factors": {
            "algo": factor(["ppo", "sac"]),
            "clip": factor([0.1, 0.2, 0.3, 0.4], when=_PPO),
            **{name: factor([1, 2, 3]) for name in ("grid", "load", "wind")},
        },
    },
    "a fraction of two levels": {
        "factors": {
            "algo": factor(["ppo", "sac"]),
            "clip": factor([0.1, 0.2], when=_PPO),
            **{f"x{i}": factor([0, 1]) for i in range(3)},
        },
        "sampler": {"name": "fractional_factorial", "resolution": 4},
        "repetitions": 3,
    },
    "whole numbers of a Latin hypercube": {
        "factors": {name: factor(low=0, high=9, type="int") for name in ("x", "y")},
        "sampler": {"name": "lhs", "n": 150},
        "analysis": {"methods": ["pawn"]},
    },
}


class Noise:
    """Results of a design; every executed run has an outcome of its own, drawn from a normal distribution."""

    def __init__(self, folder: Path, lost: float = 0.0, **keys: Any):
        base = {key: value for key, value in document().canonical.items() if key not in ("uid", "seed")}
        factors = {
            name: {"path": f"{_PLACE}.{name}", "create": True, **told}
            for name, told in keys.pop("factors").items()
        }
        told = {"uid": "noise", "seed": 1, "version": "3.5", "base": base, "factors": factors}
        folder.mkdir(parents=True)
        file = folder / "design.yml"
        file.write_text(yaml.safe_dump({**told, "sampler": {"name": "factorial"}, **keys}))
        opened = Design.load(file).generate(folder / "out")
        self.spec = opened.spec
        values = opened.values()
        self.folder = SimpleNamespace(sample=opened.sample, values=lambda: values)
        self.outcome_specs = (OutcomeSpec("y", "objective"),)
        rows = [(run.row, run.repetition, run.run) for run in opened.runs]
        self.frame = pd.DataFrame(rows, columns=["row", "repetition", "run"]).assign(status="finished")
        # in the order of the design: what runs are called must not decide on what is drawn
        self._place, self.executed = pd.factorize(self.frame["run"])
        self._lost = lost

    def draw(self, rng: np.random.Generator) -> None:
        """Give every executed run another outcome; a share of them is lost."""
        y = rng.normal(size=len(self.executed))
        y[rng.random(len(y)) < self._lost] = np.nan
        self.frame = self.frame.assign(y=y[self._place])

    def outcomes(self) -> pd.DataFrame:
        return self.frame


def alarms(noise: Noise, times: int, seed: int) -> dict[str, float]:
    """Return how often each factor, or pair, is taken for more than chance at the 5 % level, as a share."""
    rng = np.random.Generator(np.random.PCG64(seed))
    found: Counter[str] = Counter()
    tested: Counter[str] = Counter()
    for _ in range(times):
        noise.draw(rng)
        (result,) = sensitivity(noise)  # type: ignore[arg-type]
        for name, alarm in _told(result.frame):
            tested[name] += 1
            found[name] += alarm
    return {name: found[name] / tested[name] for name in sorted(tested)}


def _told(frame: pd.DataFrame) -> list[tuple[str, bool]]:
    tests = frame[(frame["index"] == "p") & frame["value"].notna()]
    if len(tests):
        names = [
            " x ".join(filter(None, pair)) for pair in zip(tests["factor"], tests["factor2"], strict=True)
        ]
        return list(zip(names, tests["value"] <= LEVEL, strict=True))
    values = frame[frame["index"] == "median"].set_index("factor")["value"]
    chance = values.pop("(irrelevant)")
    return [(str(name), value > chance) for name, value in values.items()]
