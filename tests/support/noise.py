"""Outcomes that are nothing but chance: what an analysis finds in them are false alarms."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import yaml

from palaestrai_mosaik.arsenai.analysis.sensitivity import sensitivity
from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.model import OutcomeSpec

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
    **{
        f"{algos} algorithms, {grids} grids, {seeds} seeds; {share:.0%} of the seed's variance differs by grid": {
            "factors": {
                "algo": factor([f"algo {i}" for i in range(algos)]),
                "grid": factor([f"grid {i}" for i in range(grids)]),
            },
            "repetitions": seeds,
            "seed_by": ("grid", share),
        }
        for algos, grids, seeds, share in [
            *((5, 2, 5, share) for share in (0.0, 0.2, 0.5, 1.0)),
            *((3, 3, seeds, 0.5) for seeds in (2, 3, 10)),
        ]
    },
    "whole numbers of a Latin hypercube": {
        "factors": {name: factor(low=0, high=9, type="int") for name in ("x", "y")},
        "sampler": {"name": "lhs", "n": 150},
        "analysis": {"methods": ["pawn"]},
    },
}


class Noise:
    """Results of a design; every executed run has an outcome of its own, drawn from a normal distribution.

    ``seed_by``: a factor and a share. Each seed then adds an effect to all of its runs, of which this share of the
    variance is another one for each level of the factor; its standard deviation is 3.3 times that of a run's own
    outcome. ``effect`` is added to the outcomes of the first level of the first factor.
    """

    def __init__(
        self,
        folder: Path,
        lost: float = 0.0,
        seed_by: tuple[str, float] | None = None,
        effect: float = 0.0,
        **keys: Any,
    ):
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
        self._lost, self._effect = lost, effect
        rows, first = self.frame["row"].to_numpy(), next(iter(factors))
        self._first = pd.factorize(np.array([one[first] for one in values], dtype=object))[0][rows] == 0
        self._share, self._level = 0.0, np.zeros(0, dtype=np.intp)
        if seed_by is not None:
            name, self._share = seed_by
            self._level = pd.factorize(np.array([one[name] for one in values], dtype=object))[0][rows]

    def draw(self, rng: np.random.Generator) -> None:
        """Give every executed run another outcome; a share of them is lost."""
        y = rng.normal(size=len(self.executed))
        y[rng.random(len(y)) < self._lost] = np.nan
        self.frame = self.frame.assign(y=y[self._place] + self._effect * self._first + self._of_seeds(rng))

    def _of_seeds(self, rng: np.random.Generator) -> Any:
        if not len(self._level):
            return 0.0
        number = self.frame["repetition"].to_numpy()
        levels = int(self._level.max()) + 1
        alike = rng.normal(size=number.max() + 1)
        apart = rng.normal(size=(levels, len(alike)))
        apart = (apart - apart.mean(axis=0)) * (levels / (levels - 1)) ** 0.5
        whole = (1 - self._share) ** 0.5 * alike[number] + self._share**0.5 * apart[self._level, number]
        return whole / 0.3

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
