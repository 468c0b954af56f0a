"""What ``plan`` accepts can be analysed: the smallest designs of every method and sampler, with invented outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.factors import design, levels, number

from palaestrai_mosaik.arsenai.analysis.comparison import compare_design
from palaestrai_mosaik.arsenai.analysis.discovery import discover_design
from palaestrai_mosaik.arsenai.analysis.sensitivity import choose_methods, sensitivity
from palaestrai_mosaik.arsenai.design.decode import decode
from palaestrai_mosaik.arsenai.design.few import FEWEST_SETTINGS
from palaestrai_mosaik.arsenai.design.methods import METHODS
from palaestrai_mosaik.arsenai.design.model import DesignSpec, OutcomeSpec
from palaestrai_mosaik.arsenai.design.rules import PlannedAnalysis, check_sampler, fits
from palaestrai_mosaik.arsenai.design.samplers import SAMPLERS, sample

#: adaptive has no method, and given points are drawn as those of random
PAIRS = [
    (method, sampler.name)
    for method in METHODS
    for sampler in SAMPLERS.values()
    if fits(METHODS[method], sampler) and sampler.name != "points"
]
NUMBERS = {
    "floats": [number("x"), number("y")],
    "nested": [number("x"), number("y", when="x > 0.5")],
    "levels": [levels("x", 0, 1, 2), number("y")],
    "ordered": [levels("x", 0, 1, 2, ordered=True), number("y")],
}
TABLES = {
    "two": [levels("x", 0, 1), levels("y", 0, 1), levels("z", 0, 1)],
    "three": [levels("x", 0, 1, 2), levels("y", 0, 1, 2)],
    "nested": [levels("x", 0, 1), levels("y", 0, 1), levels("z", 0, 1, when="y == 1")],
}


class Invented:
    """Results of a design without base; each executed run has another outcome. Equal documents are executed once."""

    def __init__(self, spec: DesignSpec, seed: int = 0):
        self.spec = spec
        drawn = sample(spec)
        values = decode(spec, drawn.unit)
        self.folder = SimpleNamespace(sample=drawn, values=lambda: values)
        self.outcome_specs = (OutcomeSpec("y", "objective", better="higher"),)
        known: dict[str, int] = {}
        common = spec.seed_policy == "common"
        self.first = [known.setdefault(str(row), i) if common else i for i, row in enumerate(values)]
        row, repetition = np.divmod(np.arange(len(values) * spec.repetitions), spec.repetitions)
        run = np.array(self.first)[row] * spec.repetitions + repetition
        y = np.random.default_rng(seed).normal(size=len(run))[run]
        self.frame = pd.DataFrame(
            {"row": row, "repetition": repetition, "run": run, "status": "finished", "outcome": y}
        )
        self.frame["y"] = self.frame.pop("outcome")

    def outcomes(self) -> pd.DataFrame:
        return self.frame

    def problems(self) -> list[str]:
        """Return what ``plan`` says of the rows."""
        planned = PlannedAnalysis(self.spec, self.folder.sample)
        for values, first in zip(self.folder.values(), self.first, strict=True):
            planned.add(values, first)
        return [problem.message for problem in planned.problems()]


def sizes(sampler: str) -> Iterator[dict[str, Any]]:
    if sampler == "factorial":
        yield from ({"max_runs": runs} for runs in range(1, 10))
    elif SAMPLERS[sampler].size == "none":
        yield {}
    else:
        yield from ({"n": n} for n in (1, 2, 3, 8, 16, 19, 20, 32, 39, 40, 59, 60, 65, 80, 120))


def smallest(method: str, sampler: str, factors: Any, **keys: Any) -> Iterator[Invented]:
    """Yield the smallest design that is accepted, if any is."""
    for size in sizes(sampler):
        spec = replace(design(factors, sampler, methods=[method], **size), **keys)
        spec = replace(spec, analysis=replace(spec.analysis, resamples=2))
        if not check_sampler(spec) and not (made := Invented(spec)).problems():
            yield made
            return


@pytest.mark.parametrize(("method", "sampler"), PAIRS)
def test_no_method_refuses_the_smallest_design_that_is_accepted(method: str, sampler: str) -> None:
    tables = sampler in ("factorial", "fractional_factorial", "plackett_burman")
    accepted = 0
    for factors in (TABLES if tables else NUMBERS).values():
        for repetitions, policy in ((1, "common"), (2, "common"), (1, "independent")):
            found = smallest(method, sampler, factors, repetitions=repetitions, seed_policy=policy)
            for made in found:
                accepted += 1
                for told in sensitivity(made):  # type: ignore[arg-type]
                    assert not told.refused, (made.spec.sampler, made.spec.max_runs, repetitions, policy)
    assert accepted


@pytest.mark.parametrize("method", sorted(METHODS))
def test_what_is_refused_before_the_runs_is_refused_after_them(method: str) -> None:
    refused = []
    for sampler in (name for known, name in PAIRS if known == method):
        factors = TABLES["three"] if sampler == "factorial" else NUMBERS["floats"]
        specs = [design(factors, sampler, methods=[method], **size) for size in sizes(sampler)]
        made = [Invented(spec) for spec in specs if not check_sampler(spec)]
        refused += [one for one in made if one.problems()][-1:]
    for largest in refused:
        assert all(told.refused for told in sensitivity(largest))  # type: ignore[arg-type]
    # the others are limited by the size that their samplers take
    assert refused or method in ("sobol", "shapley", "morris", "fast")


@pytest.mark.parametrize("policy", ["common", "independent"])
def test_boxes_are_looked_for_in_the_smallest_design_that_is_accepted(policy: str) -> None:
    for factors in NUMBERS.values():
        for n in (19, 20, 30, 40, 60):
            spec = replace(design(factors, "lhs", n), seed_policy=policy)
            spec = replace(spec, analysis=replace(spec.analysis, discover=("y > 0",), resamples=2))
            made = Invented(spec)
            settings = len(set(made.first))
            assert bool(made.problems()) == (settings < FEWEST_SETTINGS)
            if settings >= FEWEST_SETTINGS:
                (found,) = discover_design(made)  # type: ignore[arg-type]
                assert not found.refused
                break


@pytest.mark.parametrize("size", [2, 3, 30])
def test_levels_that_are_accepted_are_compared(size: int) -> None:
    spec = design([levels("x", *range(size)), levels("z", 0, 1)], "factorial")
    spec = replace(spec, analysis=replace(spec.analysis, compare=("x",), resamples=2))
    made = Invented(spec)
    assert made.problems() == []
    (found,) = compare_design(made)  # type: ignore[arg-type]
    assert len(found.levels) == size


def test_defaults_are_those_of_the_sampler() -> None:
    assert choose_methods(Invented(design(NUMBERS["floats"], "lhs", 8)), None) == ("rbd_fast", "pawn")  # type: ignore[arg-type]
