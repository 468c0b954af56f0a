"""Checks before the runs for results that the analysis of a design cannot compute, whatever their outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from palaestrai_mosaik.core.errors import Problem
from palaestrai_mosaik.core.text import count, joined
from palaestrai_mosaik.types.arrays import BoolVector, IntArray

from .expansion import Values
from .few import (
    FEW_SEEDS,
    FEWEST_SETTINGS,
    MOST_LEVELS,
    enough_pairs,
    enough_runs,
    least_p_of_pairs,
    least_p_of_runs,
    significance_level,
)
from .methods import METHODS, Method, Repetitions, Study
from .model import INACTIVE, DesignSpec, Factor
from .rules import default_methods
from .sample import Sample
from .samplers import in_rounds
from .samplers.adaptive import ADAPTIVE, most_rows

#: the numbers of levels of several axes in a row
_Levels = tuple[int, ...]


class PlannedAnalysis:
    """The rows of a design, without outcomes, as its analysis will get them.

    Args:
        spec: the design.
        sample: its rows.
    """

    def __init__(self, spec: DesignSpec, sample: Sample):
        self._spec = spec
        self._sample = sample
        self._first: list[int] = []
        #: number of the level of each row and axis, -1 if it is inactive
        self._rows: list[_Levels] = []
        self._known: list[dict[tuple[str, ...], int]] = [{} for _ in spec.axes]
        # the settings of a search are not known yet
        self._skipped = spec.search is not None
        single = any(METHODS[name].shared_runs == "observations" for name in self._methods())
        self._with_levels = single or bool(spec.analysis.compare)

    def add(self, values: Values, first: int) -> None:
        """Add the next row; ``first`` is the first row with identical documents."""
        if self._skipped:
            return
        self._first.append(first)
        if self._with_levels:
            axes = zip(self._spec.axes, self._known, strict=True)
            self._rows.append(tuple(_number(axis.factors, values, numbers) for axis, numbers in axes))

    def problems(self) -> Iterator[Problem]:
        """Yield a problem for each requested analysis that the rows are not enough for."""
        spec = self._spec
        if self._skipped:
            return
        for i, name in enumerate(spec.analysis.methods):
            lacking = self._lacking(METHODS[name])
            if lacking is not None:
                yield spec.problem(f"{name} cannot be computed: {lacking}", "analysis", "methods", i)
        yield from self._too_few_settings()
        if spec.analysis.compare:
            levels = len(set(self._levels()))
            names = joined(spec.analysis.compare)
            if levels < 2:
                message = f"compare: the rows have one level of {names} only, nothing to compare it with"
                yield spec.problem(message, "analysis", "compare")
            if levels > MOST_LEVELS:
                message = (
                    f"compare: {levels:,} levels of {names} are too many to compare (at most {MOST_LEVELS})"
                )
                yield spec.problem(message, "analysis", "compare")

    def advice(self) -> Iterator[Problem]:
        """Yield a warning for each weakness of the analyses that are possible."""
        spec = self._spec
        if self._skipped:
            return
        message = self._lacking_default_methods()
        if message is not None:
            yield spec.problem(message, "sampler")
        # these methods compare rows of a block, and each difference contains noise
        chosen = [name for name in self._methods() if METHODS[name].drops in ("block", "nothing")]
        if chosen and spec.seed_policy == "independent" and spec.repetitions == 1:
            noise_message = (
                f"each row is run once, with a seed of its own: {joined(chosen)} cannot tell noise and interactions apart "
                "(repetitions: 2 would)"
            )
            yield spec.problem(noise_message, "seeds", "policy")
        message = self._few_seeds() if spec.analysis.compare else None
        if message is not None:
            yield spec.problem(f"compare: {message}", "analysis", "compare")

    def _methods(self) -> tuple[str, ...]:
        """Return the sensitivity methods that the analysis will use."""
        return () if self._skipped else self._spec.analysis.methods or default_methods(self._spec)

    def _lacking_default_methods(self) -> str | None:
        """Return which of the default methods the rows are not enough for, or None."""
        names = () if self._spec.analysis.methods else default_methods(self._spec)
        lacking = {name: text for name in names if (text := self._lacking(METHODS[name])) is not None}
        if not lacking:
            return None
        reasons = "; ".join(f"{name}: {text}" for name, text in lacking.items())
        which = "no sensitivity index can" if len(lacking) == len(names) else "some indices cannot"
        return f"{which} be computed from these rows ({reasons})"

    def _lacking(self, method: Method) -> str | None:
        """Return why the rows are not enough for a method, or None."""
        study = self._study(method)
        if len(np.unique(study.executed)) < 2:
            return "all rows are one executed run, so that nothing varies"
        return method.needs(study)

    def _study(self, method: Method) -> Study:
        spec, sample = self._spec, self._sample
        first = np.array(self._first, dtype=np.int64)
        used = rows_used(spec, method, sample.block, first)
        rows, times = int(used.sum()), spec.repetitions
        repetitions = None
        if times > 1:
            row, number = np.repeat(np.arange(rows), times), np.tile(np.arange(times), rows)
            repetitions = Repetitions(row, number, np.zeros(rows * times), spec.seed_policy == "common")
        levels = self._level_numbers(first)[used] if method.shared_runs == "observations" else None
        return Study(
            sample.unit[used],
            np.zeros(rows),
            sample.block[used],
            tuple(axis.name for axis in spec.axes),
            tuple(axis.group or axis.name for axis in spec.axes),
            spec.sampler.name,
            sample.arguments,
            spec.analysis.confidence,
            spec.analysis.resamples,
            repetitions=repetitions,
            run=np.unique(first[used], return_inverse=True)[1],
            levels=levels,
        )

    def _level_numbers(self, first: IntArray) -> IntArray:
        """Return the number of each row's level of each axis, -1 if it makes no difference."""
        numbers = np.array(self._rows, dtype=np.int64)
        for column in numbers.T:
            column[np.isin(first, first[column != column[first]])] = -1
        return numbers

    def _too_few_settings(self) -> Iterator[Problem]:
        """Yield a problem if boxes cannot be distinguished from chance."""
        spec = self._spec
        adaptive = spec.sampler.name == ADAPTIVE.name
        if not (spec.analysis.discover or adaptive):
            return
        path = ("sampler",) if adaptive else ("analysis", "discover")
        if not spec.axes:
            yield spec.problem("discover needs factors, whose ranges a box could limit", *path)
            return
        if adaptive:
            settings = max(most_rows(spec), len(self._first))
        elif in_rounds(spec):
            return
        else:
            settings = len(set(self._first))
        if settings < FEWEST_SETTINGS:
            message = (
                f"{count(settings, 'setting')} are too few to tell a box from chance; at least {FEWEST_SETTINGS} "
                "are needed"
            )
            yield spec.problem(message, *path)

    def _few_seeds(self) -> str | None:
        """Return why the comparison has too few seeds to find any difference, or None."""
        spec = self._spec
        levels, seeds = self._levels(), spec.repetitions
        pairs, alpha = self._pairs(set(levels)), significance_level(spec.analysis.confidence)
        shared = _shared(levels, self._settings(levels))
        common = spec.seed_policy == "common"
        if not pairs:
            return None
        if not shared:
            if common:
                return None if seeds >= FEW_SEEDS else _advised(seeds)
            rows = sorted(levels.count(level) for level in set(levels))[:2]
            least, enough = least_p_of_runs([(rows[0], rows[1])]), enough_runs(pairs, alpha)
            sample_size, remedy = count(rows[0], "row"), f"{enough} rows of each level would do"
        elif common:
            least, enough = least_p_of_pairs(seeds), enough_pairs(pairs, alpha)
            sample_size, remedy = count(seeds, "seed"), f"{enough} would do (repetitions: {enough})"
        else:
            least, enough = least_p_of_runs([(seeds, seeds)] * shared), enough_runs(pairs, alpha, shared)
            sample_size, remedy = (
                f"{count(seeds, 'run')} of a level in a setting",
                f"repetitions: {enough} would do",
            )
        if pairs * least <= alpha:
            return None
        corrected = f", {min(1.0, pairs * least):.3g} corrected for {pairs} pairs (Holm)" if pairs > 1 else ""
        return (
            f"{sample_size}: no difference can be significant at the confidence {spec.analysis.confidence:g}, because the smallest "
            f"p that a test can give is {least:.3g}{corrected}; {remedy}"
        )

    def _levels(self) -> list[_Levels]:
        """Return the compared levels of each row."""
        names = self._spec.analysis.compare
        axes = [i for i, axis in enumerate(self._spec.axes) if any(f.name in names for f in axis.factors)]
        return [tuple(row[i] for i in axes) for row in self._rows]

    def _settings(self, levels: Sequence[_Levels]) -> list[_Levels]:
        """Return the setting of each row: its levels of the other axes, except for axes that only some levels have."""
        names, axes = self._spec.analysis.compare, []
        for i, axis in enumerate(self._spec.axes):
            if any(factor.name in names for factor in axis.factors):
                continue
            has = {level for level, row in zip(levels, self._rows, strict=True) if row[i] >= 0}
            if not has or has == set(levels):
                axes.append(i)
        return [tuple(row[i] for i in axes) for row in self._rows]

    def _pairs(self, levels: set[_Levels]) -> int:
        """Return the number of pairs of levels to test."""
        baseline, names = self._spec.analysis.baseline, self._spec.analysis.compare
        compared = [axis for axis in self._spec.axes if any(factor.name in names for factor in axis.factors)]
        for index, axis in enumerate(compared):
            for factor in axis.factors:
                if baseline in factor.labels:
                    # each other level is compared with its counterpart that has the baseline of this axis
                    size = len({level[index] for level in levels})
                    return len(levels) - len(levels) // size
        return len(levels) * (len(levels) - 1) // 2


def rows_used(spec: DesignSpec, method: Method, block: IntArray, run: IntArray) -> BoolVector:
    """Return which rows of a design a method uses.

    Methods for independent rows use the first and the last row of each block of a Saltelli sample, because those
    between them repeat their coordinates. A method of single runs uses one row of each executed run.

    Args:
        spec: the design.
        method: the method.
        block: (rows,) number of each row's block.
        run: (rows,) number of the run that is executed for each row.

    Returns:
        (rows,) booleans.
    """
    used = np.ones(len(block), dtype=bool)
    if spec.sampler.name == "sobol" and method.drops == "row":
        used = np.append(True, block[1:] != block[:-1]) | np.append(block[1:] != block[:-1], True)
    if method.shared_runs == "observations":
        once = np.zeros(len(run), dtype=bool)
        once[np.unique(run, return_index=True)[1]] = True
        used &= once
    return np.asarray(used)


def _number(factors: Sequence[Factor], values: Values, numbers: dict[tuple[str, ...], int]) -> int:
    """Return the number of a row's level of zipped factors, -1 if all are inactive.

    Args:
        factors: the zipped factors.
        values: values of the row.
        numbers: numbers of the levels so far; a new level is added.
    """
    active = tuple(repr(v) for factor in factors if (v := values[factor.name]) is not INACTIVE)
    return numbers.setdefault(active, len(numbers)) if active else -1


def _shared(levels: Sequence[_Levels], settings: Sequence[_Levels]) -> int:
    """Return the smallest number of settings that two levels share, without pairs that share none."""
    of: dict[_Levels, set[_Levels]] = {}
    for level, setting in zip(levels, settings, strict=True):
        of.setdefault(level, set()).add(setting)
    shared = [len(a & b) for a, b in combinations(of.values(), 2)]
    return min((number for number in shared if number), default=0)


def _advised(seeds: int) -> str:
    alone = ", and one seed gives no test" if seeds == 1 else ""
    return (
        f"levels share no setting, so that seeds count, and {count(seeds, 'seed')} are few{alone}: only large "
        f"differences can be found; {FEW_SEEDS} or more are advised (repetitions: {FEW_SEEDS})"
    )
