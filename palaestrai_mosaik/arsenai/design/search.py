"""Reads ``search``, a design's search for its best settings, and checks it against the rest of the design."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from palaestrai_mosaik.core.errors import did_you_mean
from palaestrai_mosaik.core.printing import joined
from palaestrai_mosaik.experiment.fields import TEXT, Findings, Located, items_of, show
from palaestrai_mosaik.experiment.model import Place

from .model import Budget, DesignSpec, OutcomeSpec, SamplerSpec, SearchSpec
from .vocabulary import BUDGET, SEARCH

#: sampler of designs with a search, as others see it: their rows are explicit points
SAMPLER = "points"
#: samplers that support several objectives, and those that support factors with ``when``
SEVERAL_OBJECTIVES = ("tpe", "nsgaii", "random")
CONDITIONAL = ("tpe", "random")
#: folds that can be computed at the end of each episode
_KNOWN_FOLDS = ("sum", "mean", "min", "max")
#: fewest seeds with which the signed-rank test can be sure before the last of them
_LEAST_FOR_WILCOXON = 5
#: number of random settings that are checked before a search, as examples of the settings that it will try
_EXAMPLES = 256


def read_search(findings: Findings, at: Located | None) -> SearchSpec | None:
    """Read the search at ``at``; None if it is missing or invalid."""
    if at is None or at.value is None:
        return None
    errors = findings.count
    section = findings.section(at, SEARCH)
    if section is None:
        return None
    parts = {key: part for key, part in section.items() if part.value is not None}
    findings.missing(at.place, parts, SEARCH)
    plain = ("sampler", "seeds_per_setting", "prune", "confirm", "failures", "confirm_pruned")
    sampler, seeds, prune, confirm, failures, confirm_pruned = (
        SEARCH.keys[key].read(findings, parts.get(key), SEARCH.keys[key].title or key) for key in plain
    )
    budget = _budget(findings, parts["budget"]) if "budget" in parts else None
    objectives = _objectives(findings, parts.get("objectives"))
    if findings.count > errors or budget is None:
        return None
    return SearchSpec(sampler, budget, seeds, prune, objectives, confirm, failures, confirm_pruned)


def _budget(findings: Findings, at: Located) -> Budget | None:
    errors = findings.count
    section = findings.section(at, BUDGET)
    if section is None:
        return None
    values: dict[str, Any] = BUDGET.values(findings, section)
    if findings.count > errors:
        return None
    if all(value is None for value in values.values()):
        findings.error(
            at.place, "budget needs at least one of runs, steps and hours: else a search never ends"
        )
        return None
    return Budget(**values)


def _objectives(findings: Findings, at: Located | None) -> tuple[str, ...]:
    if at is None:
        return ()
    if not isinstance(at.value, str | list):
        findings.error(at.place, f"objectives must be a list of outcomes' names, found {show(at.value)}")
        return ()
    listed = [at] if isinstance(at.value, str) else items_of(at)
    names = [TEXT.read(findings, item, "an objective (the name of an outcome)") for item in listed]
    return tuple(dict.fromkeys(name for name in names if name is not None))


def sought(spec: DesignSpec) -> tuple[OutcomeSpec, ...]:
    """Return the outcomes that a valid design's search optimises, in order."""
    assert spec.search is not None
    return tuple(spec.outcome(name) for name in spec.search.objectives)


def examples(spec: DesignSpec) -> DesignSpec:
    """Return a design with rows that are examples of the settings that the search of ``spec`` may try.

    A design without a search is returned unchanged.
    """
    if spec.search is None:
        return spec
    return replace(spec, sampler=SamplerSpec("random", _EXAMPLES), search=None)


def check_search(spec: DesignSpec) -> Iterator[tuple[Place, str]]:
    """Yield the problems of the search of ``spec``, as places and messages.

    Args:
        spec: a design that is valid otherwise.
    """
    search = spec.search
    assert search is not None
    if not spec.axes:
        yield ("search",), "a search needs factors; the design has none"
    uncertain = [factor.name for factor in spec.factors if factor.uncertain]
    if uncertain:
        yield (
            ("factors", uncertain[0]),
            f"a search chooses the values of its factors, and {joined(uncertain)} "
            f"{'are' if len(uncertain) > 1 else 'is'} uncertain: leave it to the base, or find robust settings with a "
            "sampler (arsenai compare --robustness)",
        )
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
    path = ("search", "objectives")
    names = [outcome.name for outcome in spec.outcomes]
    if not names:
        yield (
            ("search",),
            "a search needs outcomes: say under 'outcomes' what is sought, with better: higher or lower",
        )
        return
    if not search.objectives:
        yield (
            ("search",),
            f"the design has several outcomes ({', '.join(names)}): name under 'objectives' those that are sought",
        )
    for name in search.objectives:
        if name not in names:
            near = did_you_mean(name, names)
            yield path, f"objectives names {name!r}, which is no outcome{near}; outcomes: {', '.join(names)}"
        elif spec.outcome(name).better is None:
            yield (
                ("outcomes", name),
                f"the search seeks {name!r}, and nothing says which direction is good: add better: higher, or "
                "better: lower",
            )
    if len(search.objectives) > 1 and search.sampler not in SEVERAL_OBJECTIVES:
        yield (
            path,
            f"the sampler {search.sampler} takes one objective; choose {' or '.join(SEVERAL_OBJECTIVES)} for several",
        )


def _check_sampler(spec: DesignSpec, search: SearchSpec) -> Iterator[tuple[Place, str]]:
    path, name = ("search", "sampler"), search.sampler
    nominal = [axis.name for axis in spec.axes if axis.nominal]
    if name == "cmaes" and nominal:
        yield (
            path,
            f"cmaes learns a normal distribution, which needs distances, and the levels of {joined(nominal)} have no "
            "order; mark levels that have one as ordered: true, or choose tpe or gp",
        )
    if name == "cmaes" and len(spec.axes) == 1:
        yield path, "cmaes needs two factors or more; choose tpe or gp for one"
    conditional = [factor.name for factor in spec.factors if factor.when is not None]
    if conditional and name not in CONDITIONAL:
        yield (
            path,
            f"{name} needs all factors in every setting, and {joined(conditional)} "
            f"{'have' if len(conditional) > 1 else 'has'} 'when'; choose {' or '.join(CONDITIONAL)}",
        )


def _check_pruner(spec: DesignSpec, search: SearchSpec) -> Iterator[tuple[Place, str]]:
    path = ("search", "prune")
    if search.confirm_pruned and not (search.confirm and search.prune != "none"):
        yield (
            ("search", "confirm_pruned"),
            "confirm_pruned executes settings that were stopped early with the seeds of confirm: give confirm and prune, "
            "or leave it out",
        )
    if search.prune == "none":
        return
    if len(search.objectives) > 1:
        yield (
            path,
            f"{search.prune} compares one number, the search has {len(search.objectives)} objectives; leave it out",
        )
        return
    if search.prune == "wilcoxon":
        if search.seeds < _LEAST_FOR_WILCOXON:
            yield (
                path,
                f"wilcoxon compares settings seed by seed, and is never sure before the last of {search.seeds} seeds; "
                f"give seeds_per_setting: {_LEAST_FOR_WILCOXON} or more, or choose another pruner",
            )
        return
    for outcome in spec.outcomes:
        if outcome.name in search.objectives and not _is_reported(outcome):
            yield (
                path,
                f"{search.prune} stops runs early by what they have so far, which is known of the objective and of "
                f"rewards ({', '.join(_KNOWN_FOLDS)} over steps, without 'outside'), not of {outcome.name!r}; leave it "
                "out, or choose wilcoxon, which compares whole runs",
            )


def _is_reported(outcome: OutcomeSpec) -> bool:
    """Return whether a run can report the outcome at the end of each episode."""
    source = outcome.of.partition(".")[0]
    return source in ("objective", "reward") and outcome.step in _KNOWN_FOLDS and not outcome.outside
