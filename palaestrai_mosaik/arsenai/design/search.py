"""Reads ``search``, a design's search for its best settings, and checks it against the rest of the design."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from palaestrai_mosaik.core.errors import did_you_mean
from palaestrai_mosaik.core.printing import joined
from palaestrai_mosaik.experiment.fields import Fault, Findings, Located

from .model import DesignSpec, OutcomeSpec, SamplerSpec, SearchSpec
from .vocabulary import SEARCH, read_parts

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
    if at is None:
        return None
    errors = findings.count
    parts = read_parts(findings, at, SEARCH)
    if parts is None:
        return None
    values = SEARCH.values(findings, parts)
    return SearchSpec(seeds=values.pop("seeds_per_setting"), **values) if findings.count == errors else None


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


def check_search(spec: DesignSpec) -> Iterator[Fault]:
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


def _check_objectives(spec: DesignSpec, search: SearchSpec) -> Iterator[Fault]:
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


def _check_sampler(spec: DesignSpec, search: SearchSpec) -> Iterator[Fault]:
    path, name = ("search", "sampler"), search.sampler
    if name == "cmaes":
        yield from ((path, message) for message in _cmaes_faults(spec))
    conditional = [factor.name for factor in spec.factors if factor.when is not None]
    if conditional and name not in CONDITIONAL:
        yield (
            path,
            f"{name} needs all factors in every setting, and {joined(conditional)} "
            f"{'have' if len(conditional) > 1 else 'has'} 'when'; choose {' or '.join(CONDITIONAL)}",
        )


def _cmaes_faults(spec: DesignSpec) -> Iterator[str]:
    nominal = [axis.name for axis in spec.axes if axis.nominal]
    if nominal:
        yield (
            f"cmaes learns a normal distribution, which needs distances, and the levels of {joined(nominal)} have no "
            "order; mark levels that have one as ordered: true, or choose tpe or gp"
        )
    if len(spec.axes) == 1:
        yield "cmaes needs two factors or more; choose tpe or gp for one"


def _check_pruner(spec: DesignSpec, search: SearchSpec) -> Iterator[Fault]:
    if search.confirm_pruned and not (search.confirm and search.prune != "none"):
        yield (
            ("search", "confirm_pruned"),
            "confirm_pruned executes settings that were stopped early with the seeds of confirm: give confirm and prune, "
            "or leave it out",
        )
    if search.prune != "none":
        yield from ((("search", "prune"), message) for message in _pruner_faults(spec, search))


def _pruner_faults(spec: DesignSpec, search: SearchSpec) -> Iterator[str]:
    if len(search.objectives) > 1:
        yield f"{search.prune} compares one number, the search has {len(search.objectives)} objectives; leave it out"
    elif search.prune == "wilcoxon":
        if search.seeds < _LEAST_FOR_WILCOXON:
            yield (
                f"wilcoxon compares settings seed by seed, and is never sure before the last of {search.seeds} seeds; "
                f"give seeds_per_setting: {_LEAST_FOR_WILCOXON} or more, or choose another pruner"
            )
    else:
        for outcome in spec.outcomes:
            if outcome.name in search.objectives and not _is_reported(outcome):
                yield (
                    f"{search.prune} stops runs early by what they have so far, which is known of the objective and of "
                    f"rewards ({', '.join(_KNOWN_FOLDS)} over steps, without 'outside'), not of {outcome.name!r}; leave it "
                    "out, or choose wilcoxon, which compares whole runs"
                )


def _is_reported(outcome: OutcomeSpec) -> bool:
    """Return whether a run can report the outcome at the end of each episode."""
    source = outcome.of.partition(".")[0]
    return source in ("objective", "reward") and outcome.step in _KNOWN_FOLDS and not outcome.outside
