"""How often sensitivity methods name a factor that does nothing: in 5 % of the studies, at most.

    python tests/benchmarks/sensitivity_noise.py [METHOD ...] [--studies 200] [--seed 1] [--factors 4] [--runs 1 2]

A study is drawn from a sampler that fits the method, and analysed as ``arsenai analyse`` does. A method names the
factors of which ``p_adjusted`` is at most 0.05. Printed is, in %, how often it names

* ``normal noise``, ``exponential noise``: any factor, if the outcome is such noise whatever the factors are;
* ``x2``: any factor but x1, if the outcome is x1 plus normal noise, which has ``--share`` of the variance;
* ``x1``: x1, in the same studies: the power;
* ``x1 x2``: x1 or x2, if the outcome is their product around 0 (an interaction alone) plus such noise.

``--runs`` are the numbers of repetitions; ``common`` seeds add an effect of the seed to all rows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.factors import function_design

from palaestrai_mosaik.arsenai.design import from_mapping
from palaestrai_mosaik.arsenai.design.methods import METHODS, Repetitions, Study
from palaestrai_mosaik.arsenai.design.samplers import sample
from palaestrai_mosaik.types.arrays import FloatArray

LEVEL = 0.05
#: a sampler of each method, with a small and a larger number of rows
SAMPLERS: dict[str, tuple[dict[str, Any], ...]] = {
    "sobol": tuple({"name": "sobol", "n": n, "second_order": False} for n in (32, 128)),
    "shapley": tuple({"name": "sobol", "n": n} for n in (32, 128)),
    "morris": tuple({"name": "morris", "n": n} for n in (10, 40)),
    "fast": tuple({"name": "fast", "n": n} for n in (65, 257)),
    "dgsm": tuple({"name": "finite_differences", "n": n} for n in (16, 64)),
    "rbd_fast": tuple({"name": "lhs", "n": n} for n in (60, 200)),
    "pawn": tuple({"name": "lhs", "n": n} for n in (60, 200)),
    "delta": tuple({"name": "lhs", "n": n} for n in (60, 200)),
    "anova": ({"name": "factorial"},),
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help=f"default: all ({', '.join(SAMPLERS)})")
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--factors", type=int, default=4)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 2])
    chosen = parser.parse_args(argv)
    print(
        "| method | rows | repetitions | seeds | studies | normal noise | exponential noise | x2 | x1 | x1 x2 |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in chosen.methods or SAMPLERS:
        for sampler in SAMPLERS[name]:
            for runs in chosen.runs:
                for common in (False, True) if runs > 1 else (False,):
                    counted = [0] * 5
                    rows = 0
                    for number in range(chosen.studies):
                        rng = np.random.default_rng([chosen.seed, number, runs, common])
                        found = _named(name, sampler, chosen, runs, common, rng, number)
                        counted = [a + b for a, b in zip(counted, found[1], strict=True)]
                        rows = found[0]
                    shares = " | ".join(f"{100 * one / chosen.studies:.1f}" for one in counted)
                    seeds = "common" if common else "independent"
                    print(f"| {name} | {rows} | {runs} | {seeds} | {chosen.studies} | {shares} |", flush=True)
    return 0


def _named(
    name: str,
    sampler: dict[str, Any],
    chosen: argparse.Namespace,
    runs: int,
    common: bool,
    rng: np.random.Generator,
    number: int,
) -> tuple[int, list[bool]]:
    """Return the number of rows, and whether a factor is named in each of the five outcomes."""
    factors: dict[str, Any] = {
        f"x{i + 1}": {"levels": [0, 1]} if name == "anova" else {"low": 0.0, "high": 1.0}
        for i in range(chosen.factors)
    }
    spec = from_mapping(design_of(factors, sampler, number + 1))
    drawn = sample(spec)
    x = drawn.unit - drawn.unit.mean(axis=0)
    seed = rng.standard_normal(runs) * common
    normal, skewed = (draw((len(x), runs)) + seed for draw in (rng.standard_normal, rng.standard_exponential))
    signal = {"x1": x[:, 0], "x1 x2": x[:, 0] * x[:, 1]}
    scale = np.sqrt(chosen.share / (1 - chosen.share))
    noisy = [one[:, None] + scale * one.std() * normal for one in signal.values()]

    def named(y: FloatArray) -> set[str]:
        row, repetition = np.nonzero(np.ones_like(y, dtype=bool))
        repetitions = Repetitions(row, repetition, y.ravel(), common) if runs > 1 else None
        names = tuple(factors)
        study = Study(
            *(drawn.unit, y.mean(axis=1), drawn.block, names, names, spec.sampler.name, drawn.arguments),
            resamples=20,
            seed=number + 1,
            repetitions=repetitions,
        )
        return {
            one.factor
            for one in METHODS[name].analyse(study).rows
            if one.index == "p_adjusted" and one.value <= LEVEL
        }

    of_effect = named(noisy[0])
    return len(x), [
        bool(named(normal)),
        bool(named(skewed)),
        bool(of_effect - {"x1"}),
        "x1" in of_effect,
        bool(named(noisy[1]) & {"x1", "x2"}),
    ]


def design_of(factors: dict[str, Any], sampler: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return a design with these factors."""
    return {**function_design("linear", factors, sampler), "seed": seed}


if __name__ == "__main__":
    sys.exit(main())
