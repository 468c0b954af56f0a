"""Rules of designs: which samplers, factors, options and methods fit each other, and which analyses the rows do not allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import combinations
from typing import Any

import numpy as np

from palaestrai_mosaik.core.errors import DocumentError, NameResolutionError, Problem, did_you_mean
from palaestrai_mosaik.core.printing import count, joined
from palaestrai_mosaik.experiment.fields import show
from palaestrai_mosaik.experiment.model import Place
from palaestrai_mosaik.types.arrays import BoolVector, IntArray

from .distributions import bounded
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
from .model import INACTIVE, Axis, DesignSpec, Factor, RobustnessSpec
from .outcomes import STATUS, read_condition
from .registry import Registry, T
from .samplers import MAX_VALUES, SAMPLERS, Sampler, flag, in_rounds, units
from .samplers.adaptive import ADAPTIVE, most_rows
from .samplers.sampler import Fault, Sample
from .search import check_search

#: name of the sampler that ``max_runs`` can take rows out of
_FACTORIAL = "factorial"
#: Largest difference between weights that count as equal.
_ALIKE = 1e-9
#: path of the analysis that :func:`check_robustness` checks
_ROBUSTNESS: Place = ("analysis", "robustness")


def check_sampler(spec: DesignSpec) -> list[Fault]:
    """Return the problems of the sampler, its options, and the analysis, as places and messages.

    Args:
        spec: a complete design with valid factors.
    """
    sampler = _look_up(SAMPLERS, "sampler", spec.sampler.name)
    if isinstance(sampler, str):
        return [(("sampler",), sampler), *_methods(spec, None)]
    if spec.search is not None:
        return [*check_search(spec), *_methods(spec, sampler)]
    problems = [*_options(spec, sampler), *_size(spec, sampler)]
    if not problems:
        problems = list(_size_of_sample(spec, sampler))
    if not problems:
        problems = [*_axes(spec, sampler), *_groups(spec, sampler), *sampler.check(spec)]
    if not problems:
        problems = [*_max_runs(spec, sampler), *_numbers(spec, sampler)]
    return [*problems, *_constraints(spec, sampler), *_methods(spec, sampler)]


def check_robustness(spec: DesignSpec) -> Iterator[Fault]:
    """Yield the problems of the analysis's ``robustness``.

    Args:
        spec: a design with valid factors and outcomes.
    """
    robustness = spec.analysis.robustness
    if robustness is None:
        return
    yield from _decision_faults(spec, robustness)
    yield from _scenario_faults(spec, robustness)
    if not any(outcome.better for outcome in spec.outcomes):
        message = "robustness needs to know what is good: give an outcome better: higher, or better: lower"
        yield _ROBUSTNESS, message
    outcomes = [outcome.name for outcome in spec.outcomes]
    for text in robustness.satisfice:
        with suppress(DocumentError):  # reported already
            if STATUS in read_condition(text, outcomes).names:
                message = f"the condition {text!r} names the status: scenarios have outcomes, no status"
                yield (*_ROBUSTNESS, "satisfice"), message


def _decision(spec: DesignSpec, robustness: RobustnessSpec) -> Sequence[str]:
    """Return the factors of the decision."""
    nominal = [factor.name for factor in spec.factors if factor.nominal]
    return robustness.by or spec.analysis.compare or nominal


def _decision_faults(spec: DesignSpec, robustness: RobustnessSpec) -> Iterator[Fault]:
    kinds = {factor.name: factor.kind for factor in spec.factors}
    path = (*_ROBUSTNESS, "by")
    if not _decision(spec, robustness):
        yield (
            _ROBUSTNESS,
            "robustness needs 'by', the factors of the decision: no factor is a choice or has levels without order",
        )
    for name in robustness.by:
        if name not in kinds:
            yield path, f"by names {name!r}, which is no factor{did_you_mean(name, kinds)}"
        elif kinds[name] != "levels":
            yield path, f"by names {name!r}, which has no levels that could be compared"


def _scenario_faults(spec: DesignSpec, robustness: RobustnessSpec) -> Iterator[Fault]:
    axis_of = {factor.name: axis.name for axis in spec.axes for factor in axis.factors}
    axis_of |= {axis.name: axis.name for axis in spec.axes}
    # without 'by' and 'compare', each factor is a decision of its own, and the others are scenarios
    by = robustness.by or spec.analysis.compare
    decided = {axis_of[name] for name in by if name in axis_of}
    path = (*_ROBUSTNESS, "over")
    for name in robustness.over:
        if name not in axis_of:
            yield path, f"over names {name!r}, which is no factor{did_you_mean(name, axis_of)}"
        elif axis_of[name] in decided:
            yield path, f"over names {name!r}, which is a factor of the decision (by), or zipped with one"
    names = {factor.name for factor in spec.factors}
    if _decision(spec, robustness) and names.issuperset(robustness.by) and len(decided) == len(spec.axes):
        yield (
            _ROBUSTNESS,
            "robustness needs a factor beside those of the decision (by): else there are no scenarios",
        )


def check_without_value(name: str, keys: Sequence[str]) -> tuple[list[Fault], list[Fault]]:
    """Check the sampler options ``keys``, which are written without a value.

    Args:
        name: name of the sampler.
        keys: names of the options.

    Returns:
        The errors, and the warnings.
    """
    sampler = _look_up(SAMPLERS, "sampler", name)
    if isinstance(sampler, str):
        return [], []
    flags = {option.name: option.default for option in sampler.options if option.check is flag}
    names = {"name", "n", *(option.name for option in sampler.options)}
    wrong: list[Fault] = [(("sampler", key), _unknown(key, sampler)) for key in keys if key not in names]
    doubtful: list[Fault] = [
        (
            ("sampler", key),
            f"{key} has no value, so its default holds, {str(flags[key]).lower()}; write {key}: true or {key}: false",
        )
        for key in keys
        if key in flags
    ]
    return wrong, doubtful


def default_methods(spec: DesignSpec) -> tuple[str, ...]:
    """Return the default methods: those that support the sampler, the factors and the number of rows.

    Explicit points have none, because they may be any sample.

    Args:
        spec: a design that names no method.
    """
    if not spec.axes:
        return ()
    sampler = SAMPLERS[spec.sampler.name]
    return tuple(name for name in sampler.methods if _is_default(spec, sampler, METHODS[name]))


def _is_default(spec: DesignSpec, sampler: Sampler, method: Method) -> bool:
    return (
        not any(method.refuses(factor) for factor in spec.factors)
        and method.check(spec) is None
        and (not method.default_rows or sampler.rows(spec) >= method.default_rows)
    )


def fits(method: Method, sampler: Sampler) -> bool:
    """Return whether ``method`` supports the samples of ``sampler``: one of the two names the other."""
    return sampler.name in method.samplers or method.name in sampler.methods


def _options(spec: DesignSpec, sampler: Sampler) -> Iterator[Fault]:
    options = {option.name: option for option in sampler.options}
    for name, value in spec.sampler.options.items():
        if name not in options:
            yield ("sampler", name), _unknown(name, sampler)
            continue
        allowed = options[name].check(value)
        if allowed is not None:
            yield ("sampler", name), f"{name} must be {allowed}, found {show(value)}"


def _unknown(name: str, sampler: Sampler) -> str:
    names = [*(["n"] if sampler.size != "none" else []), *(option.name for option in sampler.options)]
    allowed = f"allowed: {', '.join(names)}" if names else "it has none"
    return f"unknown option {name!r} of the sampler {sampler.name}{did_you_mean(name, names)}; {allowed}"


def _written_size(spec: DesignSpec, sampler: Sampler) -> tuple[Any, Place]:
    """Return the sampler's ``n`` as the design has it, under either of its names, and its path."""
    if sampler.alias is not None and sampler.alias in spec.sampler.options:
        return spec.sampler.options[sampler.alias], ("sampler", sampler.alias)
    return spec.sampler.n, ("sampler", "n")


def _size(spec: DesignSpec, sampler: Sampler) -> Iterator[Fault]:
    n, path = _written_size(spec, sampler)
    if spec.sampler.n is not None and path[-1] == sampler.alias:
        yield ("sampler", "n"), f"n and {sampler.alias} are the same; keep one of them"
        return
    if n is None:
        if sampler.size == "required":
            yield (("sampler",), f"the sampler {sampler.name} needs n, the number of its {sampler.unit}")
    elif sampler.size == "none":
        yield path, f"the sampler {sampler.name} takes no n: its rows follow from the factors"
    elif not isinstance(n, int) or isinstance(n, bool) or n < 1:
        yield path, f"n must be a whole number of at least 1, found {show(n)}"
    elif n > MAX_VALUES:
        yield path, f"n must be at most {MAX_VALUES:,}, found {show(n)}"


def _size_of_sample(spec: DesignSpec, sampler: Sampler) -> Iterator[Fault]:
    """Yield a problem if the sampler, with its valid options, makes no sample of this size."""
    n, path = _written_size(spec, sampler)
    fault = None if n is None else sampler.size_check(spec, n)
    if fault is not None:
        yield path, fault


def _axes(spec: DesignSpec, sampler: Sampler) -> Iterator[Fault]:
    if not spec.axes and sampler.name != _FACTORIAL:
        yield (("sampler",), f"the sampler {sampler.name} needs factors; the design has none")
    for axis in spec.axes:
        yield from _level_faults(axis, sampler)
    includes_bounds = sampler.includes_bounds(spec)
    for factor in spec.factors:
        if includes_bounds and not bounded(factor):
            message = (
                f"{sampler.name} also takes the ends of a factor's range, and {factor.name} ({factor.dist}) "
                f"has none; give it low and high, or choose {sampler.inner}"
            )
            yield _written(factor), message
    method = METHODS.get(sampler.made_for or "")
    refused = [factor.name for factor in spec.factors if method is not None and method.refuses(factor)]
    if method is not None and refused:
        yield (("sampler",), f"{sampler.name} does not hold for {joined(refused)}: {_alternatives(method)}")


def _level_faults(axis: Axis, sampler: Sampler) -> Iterator[Fault]:
    """Yield the problems of the axis's number of levels, and of their weights."""
    factor = axis.factors[0]
    if sampler.two_level and axis.levels not in (None, 2):
        message = (
            f"{sampler.name} varies every factor between two levels, {axis.name} has {axis.levels}; "
            "keep two of them, or choose factorial or lhs"
        )
        yield _written(factor), message
    weights = factor.weights
    if weights and not sampler.uses_weights and max(weights) - min(weights) > _ALIKE:
        message = (
            f"{sampler.name} takes all levels of {axis.name} equally often, whatever their weights; leave the "
            "weights out, or choose lhs, random or sobol"
        )
        yield (*_written(factor), "weights"), message


def _written(factor: Factor) -> Place:
    """Return the path of ``factor`` in the document; for a factor of the schedule, that of the sampler."""
    return ("factors", factor.name) if factor.choice is None else ("sampler",)


def _alternatives(method: Method) -> str:
    marked = "; mark levels that have an order as ordered: true" if method.factors == "ordered" else ""
    return f"{method.reason}{marked}, or choose sobol, whose indices hold for any factor"


def _groups(spec: DesignSpec, sampler: Sampler) -> Iterator[Fault]:
    if not spec.groups:
        return
    if not sampler.groups:
        able = ", ".join(other.name for other in SAMPLERS.values() if other.groups)
        yield ("groups",), f"the sampler {sampler.name} knows no groups; leave them out, or choose {able}"
    elif len(units(spec)) == 1:
        yield ("groups",), "one group holds all factors, so there is nothing to tell apart"
    for axis in spec.axes:
        if axis.group is None and axis.name in spec.groups:
            yield ("groups", axis.name), f"{axis.name!r} is a group and a factor outside of it"


def _constraints(spec: DesignSpec, sampler: Sampler) -> Iterator[Fault]:
    if spec.constraints and not sampler.allows_constraints:
        message = (
            f"constraints take rows out of the sample, and {sampler.name} is useless with gaps; write the factors "
            "such that every combination is allowed (a share or a ratio in place of the second limit), or "
            "choose lhs or random, analysed by pawn, delta or rbd_fast"
        )
        yield ("constraints",), message


def _max_runs(spec: DesignSpec, sampler: Sampler) -> Iterator[Fault]:
    rows = sampler.rows(spec)
    if spec.max_runs is None or rows <= spec.max_runs or sampler.name == _FACTORIAL:
        return
    message = f"{sampler.name} makes {rows:,} rows and none can be left out; max_runs is {spec.max_runs:,}: "
    if sampler.scales_with(spec) is None:
        message += f"raise it to {rows:,}, or choose another sampler"
    else:
        message += f"raise it; {_fitting(spec, sampler, spec.max_runs)}"
    yield ("max_runs",), message


def _fitting(spec: DesignSpec, sampler: Sampler, most: int) -> str | None:
    """Describe the largest size that keeps a sample at ``most`` rows; None if no option scales the rows."""
    scales_with = sampler.scales_with(spec)
    if scales_with is None:
        return None
    name, size = scales_with
    each = sampler.rows(spec) // size
    fits = most // each
    while fits and name == "n" and sampler.size_check(spec, fits) is not None:
        fits -= 1
    return f"the largest {name} that fits is {fits:,}" if fits else f"even {name}: 1 has {each:,} rows"


def _numbers(spec: DesignSpec, sampler: Sampler) -> Iterator[Fault]:
    """Yield a problem if the sample is too large for memory and for later steps."""
    rows, axes = sampler.rows(spec), len(spec.axes)
    if sampler.name == _FACTORIAL and spec.max_runs is not None:
        rows = min(rows, spec.max_runs)
    if rows * axes > MAX_VALUES:
        advice = _fitting(spec, sampler, MAX_VALUES // axes)
        message = (
            f"{sampler.name} makes {rows:,} rows of {axes:,} numbers; a sample has at most {MAX_VALUES:,} "
            f"numbers{'; ' * bool(advice)}{advice or ''}"
        )
        yield ("max_runs",) if sampler.name == _FACTORIAL else ("sampler",), message


def _look_up(registry: Registry[T], what: str, name: str) -> T | str:
    """Return the item with this name, or the problem if there is no usable one."""
    try:
        return registry[name]
    except KeyError:
        near = did_you_mean(name, registry)
        return f"no {what} is called {name!r}{near}; allowed: {', '.join(registry)}"
    except NameResolutionError as error:
        return str(error)


def _methods(spec: DesignSpec, sampler: Sampler | None) -> Iterator[Fault]:
    for index, name in enumerate(spec.analysis.methods):
        method = _look_up(METHODS, "method", name)
        messages: Iterable[str] = ()
        if isinstance(method, str):
            messages = [method]
        elif sampler is not None:
            messages = _misfits(spec, method, sampler)
        yield from ((("analysis", "methods", index), message) for message in messages)


def _misfits(spec: DesignSpec, method: Method, sampler: Sampler) -> Iterator[str]:
    if not fits(method, sampler):
        samplers = [*method.samplers, *(item.name for item in SAMPLERS.values() if fits(method, item))]
        yield (
            f"{method.name} does not fit the sampler {sampler.name}: {method.why} ({', '.join(dict.fromkeys(samplers))}); "
            f"methods that fit {sampler.name}: {', '.join(_fitting_methods(sampler)) or 'none'}"
        )
        return
    refused = [factor.name for factor in spec.factors if method.refuses(factor)]
    if refused and sampler.made_for != method.name:
        yield f"{method.name} does not hold for {joined(refused)}: {method.reason}; pawn and delta do"
    if spec.groups and not method.groups:
        yield _lacking_groups(method, sampler)
    missing = method.check(spec)
    if missing is not None:
        yield f"{method.name} cannot be computed: {missing}"


def _lacking_groups(method: Method, sampler: Sampler) -> str:
    able = [name for name in _fitting_methods(sampler) if METHODS[name].groups]
    return f"{method.name} gives no indices of groups; leave the groups out, or choose {', '.join(able)}"


def _fitting_methods(sampler: Sampler) -> list[str]:
    return [method.name for method in METHODS.values() if fits(method, sampler)]


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
