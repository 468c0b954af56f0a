"""A made-up study for tests of reports: every kind of figure, with numbers that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from palaestrai_mosaik.arsenai.analysis.comparison import Comparison, ComparisonOptions
from palaestrai_mosaik.arsenai.analysis.report import LearningData, ReportData
from palaestrai_mosaik.arsenai.analysis.report.compared import Compared
from palaestrai_mosaik.arsenai.design.model import (
    AnalysisSpec,
    Axis,
    DesignSpec,
    Factor,
    OutcomeSpec,
    SamplerSpec,
)

#: what a user may call a factor
EVIL = "<script>window.planted=1</script><img src=x onerror='window.planted=1'>&amp;"
_S = "schedule.phase_0.agents.defender.muscle.params"


def factors(evil: str = "deadband") -> tuple[Factor, ...]:
    """Return numbers on a plain and on a logarithmic scale, and levels."""
    names = ("few", "all", "none")
    return (
        Factor("gain", "float", path=f"{_S}.gain", low=0, high=10),
        Factor(evil, "float", path=f"{_S}.deadband", low=0, high=1),
        Factor("learning_rate", "float", path=f"{_S}.rate", low=1e-5, high=1e-1, dist="loguniform"),
        Factor("sensors", "levels", path=f"{_S}.sensors", levels=names, labels=names, weights=(1 / 3,) * 3),
    )


def indices(names: list[str], outcome: str) -> pd.DataFrame:
    """Return Sobol indices of all orders and a Morris screening."""
    rows: list[dict[str, Any]] = []

    def add(
        method: str, index: str, factor: str, told: tuple[float, float], other: str | None = None
    ) -> None:
        value, half = told
        ends = {"low": value - half, "high": value + half}
        row = {"outcome": outcome, "method": method, "index": index, "factor": factor, "factor2": other}
        rows.append({**row, "value": value, **ends, "used": 54, "lost": 6, "executed": 54})

    for name, first, total in zip(names, (0.61, 0.2, -0.01, 0.05), (0.7, 0.3, 0.004, 0.15), strict=True):
        add("sobol", "S1", name, (first, 0.05))
        add("sobol", "ST", name, (total, 0.03))
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    for (a, b), value in zip(pairs, (0.09, -0.02, 0.01, 0.0, 0.03, 0.005), strict=True):
        add("sobol", "S2", a, (value, 0.04), b)
    for name, mu, sigma in zip(names, (3.2, 1.5, 0.2, 0.9), (1.0, 1.6, 0.1, 0.2), strict=True):
        add("morris", "mu_star", name, (mu, 0.3))
        add("morris", "sigma", name, (sigma, np.nan))
    for method in ("sobol", "morris"):
        for name, p in zip(names, (0.001, 0.002, 0.6, 0.01), strict=True):
            add(method, "p_adjusted", name, (p, np.nan))
    return pd.DataFrame(rows)


#: mean of each level in two settings, and how far its seeds lie from each other
MEANS = {"few": ((9.0, 11.0), 1.0), "all": ((7.5, 6.5), 0.5), "none": ((5.5, 7.5), 2.0)}
OFFSETS = (-1.0, -0.6, -0.2, 0.2, 0.6, 1.0)


def compared(by: str, outcome: str) -> Compared:
    """Return three levels, one of which is better than both others, but not in both settings."""
    settings = ("grid=a", "grid=b")
    cells = pd.DataFrame(
        [
            {
                "level": name,
                "setting": setting,
                "n": 6,
                "lost": 0,
                "mean": mean,
                "median": mean,
                "std": spread,
            }
            for name, (means, spread) in MEANS.items()
            for setting, mean in zip(settings, means, strict=True)
        ]
    )
    runs = pd.DataFrame(
        [
            {"level": name, "setting": setting, "repetition": seed, "value": mean + spread * offset}
            for name, (means, spread) in MEANS.items()
            for setting, mean in zip(settings, means, strict=True)
            for seed, offset in enumerate(OFFSETS)
        ]
    )
    levels = pd.DataFrame(
        [
            {
                "level": name,
                "n": 12,
                "lost": 0,
                "seeds": 6,
                "settings": 2,
                "distinct": 12,
                "mean": mean,
                "mean_low": mean - 1,
            }
            | {"mean_high": mean + 1, "iqm": mean + 0.1, "iqm_low": mean - 0.7, "iqm_high": mean + 0.8}
            for name, mean in (("few", 10.0), ("all", 7.0), ("none", 6.5))
        ]
    )
    rows = [("few", "all", 3.0, 1.2, 0.02, "all"), ("few", "none", 3.5, 1.5, 0.01, "none")]
    pairs = pd.DataFrame(
        [
            {"a": a, "b": b, "n": 12, "difference": d, "difference_low": d - h, "difference_high": d + h}
            | {"improvement": 0.1, "improvement_low": 0.02, "improvement_high": 0.3}
            | {"test": "permutation t (signs)", "p": p / 3, "p_holm": p, "p_worst": p, "favours": favours}
            for a, b, d, h, p, favours in [*rows, ("all", "none", 0.5, 1.5, 0.5, "")]
        ]
    )
    scores = np.linspace(0, 15, 16)
    parts = []
    for name, centre in (("few", 10.0), ("all", 7.0), ("none", 6.5)):
        share = 1 / (1 + np.exp(centre - scores))
        low, high = np.clip(share - 0.1, 0, 1), np.clip(share + 0.1, 0, 1)
        parts.append(pd.DataFrame({"level": name, "score": scores, "share": share, "low": low, "high": high}))
    few = ("only 6 repetitions of a level",)
    options = ComparisonOptions(better="lower")
    profiles = pd.concat(parts)
    told = Comparison((by,), outcome, True, options, levels, cells, pairs, profiles, few, ("Paired.",))
    return Compared(told, runs.assign(run=[f"run-{i}" for i in range(len(runs))]))


def learned(episodes: int) -> LearningData:
    """Return a learning curve of two levels."""
    episode = np.arange(1, episodes + 1)
    parts = []
    for name, end in (("few", 10.0), ("all", 7.0)):
        value = end * (1 - np.exp(-episode / 8))
        parts.append(
            pd.DataFrame(
                {
                    "level": name,
                    "episode": episode,
                    "n": 12,
                    "seeds": 6,
                    "value": value,
                    "low": value - 1,
                    "high": value + 1,
                }
            )
        )
    return LearningData("How defender learned", "objective", pd.concat(parts), "Lines: medians.")


def made_up(
    rows: int = 60, repetitions: int = 2, evil: str = "deadband", outcome: str = "violations"
) -> ReportData:
    """Return the whole study; one run in twenty has failed."""
    rng = np.random.default_rng(7)
    own = factors(evil)
    spec = DesignSpec(
        uid="voltage-study",
        seed=42,
        version="1",
        repetitions=repetitions,
        max_runs=None,
        output=None,
        base={},
        definitions=None,
        schedule=(),
        axes=tuple(Axis(factor.name, (factor,)) for factor in own),
        constraints=(),
        sampler=SamplerSpec("sobol", 16, {"second_order": True}),
        seed_policy="common",
        outcomes=(OutcomeSpec(outcome, "reward.voltage_band", "controller", "defender", better="lower"),),
        analysis=AnalysisSpec(),
        resolved={},
        hash="ab" * 32,
    )
    values, runs = [], []
    for row in range(rows):
        gain, band = float(rng.uniform(0, 10)), float(rng.uniform())
        level = ("few", "all", "none")[int(rng.integers(3))]
        values.append(
            {"gain": gain, evil: band, "learning_rate": float(10 ** rng.uniform(-5, -1)), "sensors": level}
        )
        for repetition in range(repetitions):
            number = row * repetitions + repetition
            done = number % 20 != 19
            uid = f"voltage-study-{row}-r{repetition}"
            y = (gain - 4) ** 2 + 30 * band * (level == "all") + float(rng.normal())
            status = "finished" if done else "failed"
            run = {"row": row, "repetition": repetition, "uid": uid, "run": uid, "status": status}
            runs.append({**run, outcome: y if done else np.nan})
    failed = [run for run in runs if run["status"] == "failed"]
    failures = pd.DataFrame(
        [
            {"run": run["uid"], "values": f"gain={values[run['row']]['gain']:.3g}", "error": evil}
            for run in failed
        ],
    )
    return ReportData(
        spec=spec,
        outcomes=(outcome,),
        values=values,
        runs=pd.DataFrame(runs),
        sensitivity=indices([factor.name for factor in own], outcome),
        comparisons=(compared("sensors", outcome),),
        learning=(learned(40),),
        failures=failures,
        sizes={"rows": f"{rows:,}", "runs": f"{len(runs):,}"},
        versions={"palaestrai_mosaik": "1.0", "SALib": "1.5"},
        commands=("arsenai generate design.yml", "arsenai run _outputs/voltage-study"),
        warnings=("sobol: 6 rows of a block with a failed run are left out",),
        notes=("a note",),
    )
