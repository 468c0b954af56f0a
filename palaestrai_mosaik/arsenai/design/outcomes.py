"""Outcomes and analysis of a design: their sections, the folds of outcomes, and conditions over outcomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from palaestrai_mosaik.core.errors import DocumentError, Problem, did_you_mean
from palaestrai_mosaik.experiment.fields import TEXT, Findings, Located, integer, items_of, show
from palaestrai_mosaik.types.arrays import FloatVector

from .expressions import Expression
from .model import AnalysisSpec, Factor, OutcomeSpec, RobustnessSpec, did_you_mean_factor
from .vocabulary import ANALYSIS, OF_BEGINNINGS, OF_WORDS, OUTCOME, RESERVED, ROBUSTNESS

_FOLDS: dict[str, Callable[[FloatVector], Any]] = {
    "mean": np.mean,
    "median": np.median,
    "sum": np.sum,
    "min": np.min,
    "max": np.max,
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
}


def fold(values: FloatVector, how: str) -> float:
    """Reduce ``values``, (n,), to one number; NaN if ``values`` is empty or contains NaN.

    Args:
        values: the values, in order.
        how: one of :data:`.model.Fold`.
    """
    return float(_FOLDS[how](values)) if len(values) else float("nan")


#: name of a run's status in conditions
STATUS = "status"


@dataclass(frozen=True)
class PhaseNames:
    """A phase's name and all agents that it has in any document of the design."""

    name: str
    agents: tuple[str, ...]


def read_outcomes(
    findings: Findings, at: Located | None, phases: Sequence[PhaseNames], factors: Sequence[Factor]
) -> tuple[OutcomeSpec, ...]:
    """Read the outcomes at ``at``.

    Args:
        findings: collects the problems.
        at: the section ``outcomes``, if there is one.
        phases: phases of the design; empty if unknown.
        factors: factors of the design, which must have other names.
    """
    if at is None or at.value is None:
        return ()
    if not isinstance(at.value, dict):
        findings.error(at.place, f"outcomes must be a mapping from names, found {show(at.value)}")
        return ()
    outcomes = []
    names = {factor.name for factor in factors}
    for name in at.value:
        item = at.child(name)
        if not isinstance(name, str) or not name or not name.isprintable():
            findings.error(item.place, f"an outcome's name must be a non-empty string, found {show(name)}")
        elif name in names or name.lower() in RESERVED:
            owner = "a factor" if name in names else "a column of the table of runs"
            findings.error(
                item.place, f"{name!r} is already the name of {owner}; give the outcome another one"
            )
        else:
            outcome = _outcome(findings, item, name, phases)
            if outcome is not None:
                outcomes.append(outcome)
    return tuple(outcomes)


def _outcome(findings: Findings, at: Located, name: str, phases: Sequence[PhaseNames]) -> OutcomeSpec | None:
    errors = findings.count
    if isinstance(at.value, str):
        of = _of(findings, at)
        return OutcomeSpec(name, of) if of is not None else None
    section = findings.section(at, OUTCOME)
    if section is None:
        return None
    parts = {key: part for key, part in section.items() if part.value is not None}
    if findings.missing(at.place, parts, OUTCOME):
        return None
    of = _of(findings, parts["of"])
    phase = _phase(findings, parts.get("phase"), phases)
    agent = _agent(findings, parts.get("agent"), phase, phases)
    plain = ("step", "episode", "evaluation", "better")
    step, episode, evaluation, better = (
        OUTCOME.keys[key].read(findings, parts.get(key), OUTCOME.keys[key].title or key) for key in plain
    )
    outside = _band(findings, parts.get("outside"))
    if findings.count > errors or of is None:
        return None
    return OutcomeSpec(name, of, phase, agent, step, episode, outside, evaluation, better)


def _of(findings: Findings, at: Located) -> str | None:
    text: str | None = TEXT.read(findings, at, "of (what an outcome is taken of)")
    if text is None:
        return None
    beginning, dot, name = text.partition(".")
    if text in OF_WORDS or (beginning in OF_BEGINNINGS and dot and name):
        return text
    allowed = [*OF_WORDS, *(f"{word}.NAME" for word in OF_BEGINNINGS)]
    near = did_you_mean(beginning, [*OF_WORDS, *OF_BEGINNINGS])
    findings.error(at.place, f"an outcome cannot be of {text!r}{near}; allowed: {', '.join(allowed)}")
    return None


def _phase(findings: Findings, at: Located | None, phases: Sequence[PhaseNames]) -> int | str | None:
    """Read the index or name of a phase."""
    if at is None:
        return None
    names = [phase.name for phase in phases]
    if isinstance(at.value, str):
        if at.value in names:
            return at.value
        findings.error(
            at.place,
            f"there is no phase {at.value!r}{did_you_mean(at.value, names)}; phases: {', '.join(names)}",
        )
        return None
    index: int | None = integer(0).read(findings, at, "phase (an index, or a name)")
    if index is not None and index >= len(names):
        findings.error(at.place, f"there is no phase {index}: the last of {len(names)} is {len(names) - 1}")
        return None
    return index


def _agent(
    findings: Findings, at: Located | None, phase: int | str | None, phases: Sequence[PhaseNames]
) -> str | None:
    if at is None:
        return None
    name: str | None = TEXT.read(findings, at, "agent")
    if name is None or not phases:
        return name
    if isinstance(phase, str):
        phase_names = next(candidate for candidate in phases if candidate.name == phase)
    else:
        phase_names = phases[-1 if phase is None else phase]
    if name not in phase_names.agents:
        findings.error(
            at.place,
            f"the phase {phase_names.name!r} has no agent {name!r}{did_you_mean(name, phase_names.agents)}; agents there: "
            f"{', '.join(phase_names.agents)}",
        )
    return name


def _band(findings: Findings, at: Located | None) -> tuple[float, float] | None:
    if at is None:
        return None
    ends = at.value if isinstance(at.value, list) else []
    numbers = [
        end
        for end in ends
        if isinstance(end, (int, float)) and not isinstance(end, bool) and not math.isnan(end)
    ]
    if len(ends) != 2 or len(numbers) != 2 or not numbers[0] < numbers[1]:
        findings.error(
            at.place, f"outside must be a band [low, high], low below high, found {_text(at.value)}"
        )
        return None
    return float(numbers[0]), float(numbers[1])


def _text(value: Any) -> str:
    return str(value) if isinstance(value, list) else show(value)


def rewards_meant(name: str, rewards: Sequence[str]) -> list[str]:
    """Return those of ``rewards`` that an outcome of ``reward.NAME`` refers to; it may omit the environment's uid."""
    return [name] if name in rewards else [reward for reward in rewards if reward.endswith(f".{name}")]


def is_meant(name: str, wanted: str) -> bool:
    """Return whether an outcome of ``wanted`` includes ``name``.

    It does if ``wanted`` is that name, the id of one of its floats, or a pattern that matches it.
    """
    return name == wanted or name.startswith(f"{wanted}[") or fnmatchcase(name, wanted)


def read_condition(text: str, outcomes: Sequence[str]) -> Expression:
    """Read a condition over ``outcomes``, and over the status of a run.

    Raises:
        DocumentError: it is invalid, or names no outcome.
    """
    names = (*outcomes, STATUS)
    condition = Expression.parse(text, names, "outcome")
    if not condition.names:
        message = (
            f"the condition {text!r} names no outcome, so it is always the same; outcomes: {', '.join(names)}"
        )
        raise DocumentError([Problem(message)])
    if not condition.is_condition({**dict.fromkeys(outcomes, 1.0), STATUS: "finished"}):
        message = f"{text!r} is a value and no condition: compare it with something, such as {condition.names[0]} > 0.5"
        raise DocumentError([Problem(message)])
    return condition


def read_analysis(
    findings: Findings,
    at: Located | None,
    factors: Sequence[Factor],
    outcomes: Sequence[OutcomeSpec],
    *,
    given_points: bool = False,
) -> AnalysisSpec:
    """Read the section ``analysis``. The methods' names are checked later, with the sampler.

    Args:
        findings: collects the problems.
        at: the section, if there is one.
        factors: factors of the design.
        outcomes: outcomes of the design.
        given_points: whether the rows are explicit points, not drawn.
    """
    if at is None or at.value is None:
        return AnalysisSpec()
    section = findings.section(at, ANALYSIS)
    if section is None:
        return AnalysisSpec()
    parts = {key: part for key, part in section.items() if part.value is not None}
    compare = _compared(findings, parts.get("compare"), factors, given_points)
    confidence = parts["confidence"].value if "confidence" in parts else 0.95
    number = isinstance(confidence, (int, float)) and not isinstance(confidence, bool)
    if not number or not 0 < confidence < 1:
        findings.error(
            parts["confidence"].place,
            f"confidence must be a number between 0 and 1, found {show(confidence)}",
        )
    resamples = ANALYSIS.keys["resamples"].read(findings, parts.get("resamples"), "resamples")
    baseline = _baseline(findings, parts.get("baseline"), compare, factors)
    return AnalysisSpec(
        tuple(_words(findings, parts.get("methods"), "methods")),
        compare,
        baseline,
        confidence,
        resamples,
        _conditions(findings, parts.get("discover"), outcomes),
        _robustness(findings, parts.get("robustness"), outcomes),
    )


def _robustness(
    findings: Findings, at: Located | None, outcomes: Sequence[OutcomeSpec]
) -> RobustnessSpec | None:
    """Read the section ``robustness``. The factors' names are checked later, with the design."""
    section = None if at is None else findings.section(at, ROBUSTNESS)
    if section is None:
        return None
    parts = {key: part for key, part in section.items() if part.value is not None}
    return RobustnessSpec(
        tuple(_words(findings, parts.get("by"), "by (factors of the decision)")),
        tuple(_words(findings, parts.get("over"), "over (factors that make scenarios)")),
        _conditions(findings, parts.get("satisfice"), outcomes, "satisfice"),
    )


def _conditions(
    findings: Findings, at: Located | None, outcomes: Sequence[OutcomeSpec], key: str = "discover"
) -> tuple[str, ...]:
    texts = _words(findings, at, f"{key} (conditions over outcomes)")
    for text in texts:
        try:
            # a design without named outcomes gets those of its runs, which are not known yet
            if outcomes:
                read_condition(text, [outcome.name for outcome in outcomes])
        except DocumentError as error:
            findings.error(at.place if at is not None else (), error.problems[0].message)
    return tuple(texts)


def _words(findings: Findings, at: Located | None, what: str) -> list[str]:
    """Return the words of a list; a single word counts as a list."""
    if at is None:
        return []
    if isinstance(at.value, str):
        return [at.value]
    if not isinstance(at.value, list):
        findings.error(at.place, f"{what} must be a list, found {show(at.value)}")
        return []
    words = [TEXT.read(findings, item, f"an entry of {what}") for item in items_of(at)]
    return list(dict.fromkeys(word for word in words if word is not None))


def _compared(
    findings: Findings, at: Located | None, factors: Sequence[Factor], given_points: bool
) -> tuple[str, ...]:
    # explicit points have few values of a number, which can be compared
    names = {factor.name: factor for factor in factors}
    compared = []
    for name in _words(findings, at, "compare"):
        path = at.place if at is not None else ()
        if name not in names:
            findings.error(
                path, f"compare names {name!r}, which is no factor{did_you_mean_factor(name, factors)}"
            )
        elif names[name].kind != "levels" and not given_points:
            findings.error(path, f"compare names {name!r}, which has no levels that could be compared")
        else:
            compared.append(name)
    return tuple(compared)


def _baseline(
    findings: Findings, at: Located | None, compare: Sequence[str], factors: Sequence[Factor]
) -> str | None:
    if at is None:
        return None
    if isinstance(at.value, (int, float)) and not isinstance(at.value, bool):
        name: str | None = str(at.value)
    else:
        name = TEXT.read(findings, at, "baseline (the label of a level)")
    labels = [label for factor in factors if not compare or factor.name in compare for label in factor.labels]
    if name is not None and name not in labels:
        findings.error(
            at.place,
            f"baseline is {name!r}, no label of a level{did_you_mean(name, labels)}; labels: {', '.join(labels)}",
        )
    return name
