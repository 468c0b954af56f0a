"""Reads ``search``: how a design looks for its best settings; and what goes together with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from palaestrai_mosaik.errors import did_you_mean
from palaestrai_mosaik.experiment.fields import TEXT, items_of
from palaestrai_mosaik.experiment.located import Findings, Located, show
from palaestrai_mosaik.experiment.model import Place
from palaestrai_mosaik.text import joined

from .model import Budget, DesignSpec, OutcomeSpec, SamplerSpec, SearchSpec
from .vocabulary import BUDGET, SEARCH

#: the name of the sampler that a design with a search has for all that asks: its rows are given points
SAMPLER = "points"
#: samplers that take several objectives, and those that take factors with ``when``
SEVERAL_OBJECTIVES = ("tpe", "nsgaii", "random")
CONDITIONAL = ("tpe", "random")
#: folds that are known of every episode as soon as it is over
_KNOWN_FOLDS = ("sum", "mean", "min", "max")
#: with fewer seeds the signed-rank test is never sure before the last of them
_LEAST_FOR_WILCOXON = 5
#: so many random settings are looked at before a search, in place of those that it will try
_EXAMPLES = 256


def read_search(found: Findings, at: Located | None) -> SearchSpec | None:
    """Return the search at ``at``; ``None`` where there is none, or it is not sound."""
    if at is None or at.value is None:
        return None
    errors = found.count
    given = found.section(at, SEARCH)
    if given is None:
        return None
    parts = {key: part for key, part in given.items() if part.value is not None}
    found.missing(at.place, parts, SEARCH)
    plain = ("sampler", "seeds_per_setting", "prune", "confirm")
    sampler, seeds, prune, confirm = (
        SEARCH.keys[key].read(found, parts.get(key), SEARCH.keys[key].title or key) for key in plain
    )
    budget = _budget(found, parts["budget"]) if "budget" in parts else None
    objectives = _objectives(found, parts.get("objectives"))
    if found.count > errors or budget is None:
        return None
    return SearchSpec(sampler, budget, seeds, prune, objectives, confirm)


def _budget(found: Findings, at: Located) -> Budget | None:
    errors = found.count
    given = found.section(at, BUDGET)
    if given is None:
        return None
    values: dict[str, Any] = BUDGET.values(found, given)
    if found.count > errors:
        return None
    if all(value is None for value in values.values()):
        found.error(at.place, "budget needs at least one of runs, steps and hours: else a search never ends")
        return None
    return Budget(**values)


def _objectives(found: Findings, at: Located | None) -> tuple[str, ...]:
    if at is None:
        return ()
    if not isinstance(at.value, str | list):
        found.error(at.place, f"objectives must be a list of outcomes' names, found {show(at.value)}")
        return ()
    listed = [at] if isinstance(at.value, str) else items_of(at)
    names = [TEXT.read(found, item, "an objective (the name of an outcome)") for item in listed]
    return tuple(dict.fromkeys(name for name in names if name is not None))


def sought(spec: DesignSpec) -> tuple[OutcomeSpec, ...]:
    """Return the outcomes that the search of a sound design is about, in order."""
    assert spec.search is not None
    return tuple(spec.outcome(name) for name in spec.search.objectives)


def examples(spec: DesignSpec) -> DesignSpec:
    """Return a design whose rows stand for the settings that the search of ``spec`` may try; others as they are."""
    if spec.search is None:
        return spec
    return replace(spec, sampler=SamplerSpec("random", _EXAMPLES), search=None)


def check_search(spec: DesignSpec) -> Iterator[tuple[Place, str]]:
    """Yield what is wrong with the search of ``spec``, a design that is sound otherwise: places and messages."""
    search = spec.search
    assert search is not None
    if not spec.axes:
        yield ("search",), "a search needs factors; the design has none"
    yield from _check_objectives(spec, search)
    yield from _check_sampler(spec, search)
    yield from _check_pruner(spec, search)
    runs = search.budget.runs
    if runs is not None and runs < search.seeds:
        yield (
            ("search", "budget", "runs"),
            f"a setting takes {search.seeds} runs (seeds_per_setting), the budget has {runs}: it is not enough for one",
        )


def _check_objectives(spec: DesignSpec, search: SearchSpec) -> Iterator[tuple[Place, str]]:
    place = ("search", "objectives")
    known = [outcome.name for outcome in spec.outcomes]
    if not known:
        yield (
            ("search",),
            "a search needs outcomes: say under 'outcomes' what is sought, with better: higher or lower",
        )
        return
    if not search.objectives:
        yield (
            ("search",),
            f"the design has several outcomes ({', '.join(known)}): name under 'objectives' those that are sought",
        )
    for name in search.objectives:
        if name not in known:
            near = did_you_mean(name, known)
            yield place, f"objectives names {name!r}, which is no outcome{near}; outcomes: {', '.join(known)}"
        elif spec.outcome(name).better is None:
            yield (
                ("outcomes", name),
                f"the search seeks {name!r}, and nothing says which direction is good: add better: higher, or "
                "better: lower",
            )
    if len(search.objectives) > 1 and search.sampler not in SEVERAL_OBJECTIVES:
        yield (
            place,
            f"the sampler {search.sampler} takes one objective; choose {' or '.join(SEVERAL_OBJECTIVES)} for several",
        )


def _check_sampler(spec: DesignSpec, search: SearchSpec) -> Iterator[tuple[Place, str]]:
    place, name = ("search", "sampler"), search.sampler
    nominal = [axis.name for axis in spec.axes if axis.nominal]
    if name == "cmaes" and nominal:
        yield (
            place,
            f"cmaes learns a normal distribution, which needs distances, and the levels of {joined(nominal)} have no "
            "order; mark levels that have one as ordered: true, or choose tpe or gp",
        )
    if name == "cmaes" and len(spec.axes) == 1:
        yield place, "cmaes needs two factors or more; choose tpe or gp for one"
    conditional = [factor.name for factor in spec.factors if factor.when is not None]
    if conditional and name not in CONDITIONAL:
        yield (
            place,
            f"{name} needs all factors in every setting, and {joined(conditional)} "
            f"{'have' if len(conditional) > 1 else 'has'} 'when'; choose {' or '.join(CONDITIONAL)}",
        )


def _check_pruner(spec: DesignSpec, search: SearchSpec) -> Iterator[tuple[Place, str]]:
    place = ("search", "prune")
    if search.prune == "none":
        return
    if len(search.objectives) > 1:
        yield (
            place,
            f"{search.prune} compares one number, the search has {len(search.objectives)} objectives; leave it out",
        )
        return
    if search.prune == "wilcoxon":
        if search.seeds < _LEAST_FOR_WILCOXON:
            yield (
                place,
                f"wilcoxon compares settings seed by seed, and is never sure before the last of {search.seeds} seeds; "
                f"give seeds_per_setting: {_LEAST_FOR_WILCOXON} or more, or choose another pruner",
            )
        return
    for name in search.objectives:
        outcome = next((one for one in spec.outcomes if one.name == name), None)
        if outcome is None:
            continue
        source = outcome.of.partition(".")[0]
        if source not in ("objective", "reward") or outcome.step not in _KNOWN_FOLDS or outcome.outside:
            yield (
                place,
                f"{search.prune} stops runs early by what they have so far, which is known of the objective and of "
                f"rewards ({', '.join(_KNOWN_FOLDS)} over steps, without 'outside'), not of {name!r}; leave it out, "
                "or choose wilcoxon, which compares whole runs",
            )
