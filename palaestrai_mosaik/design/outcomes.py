"""``outcomes`` and ``analysis``: what is taken from the results, and how it is looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from palaestrai_mosaik.errors import DocumentError, Problem, did_you_mean
from palaestrai_mosaik.experiment.fields import TEXT, integer, items_of
from palaestrai_mosaik.experiment.located import Findings, Located, show

from .expressions import Expression
from .factors import did_you_mean_factor
from .model import AnalysisSpec, Factor, OutcomeSpec, RobustnessSpec
from .vocabulary import ANALYSIS, OF_BEGINNINGS, OF_WORDS, OUTCOME, RESERVED, ROBUSTNESS

#: what conditions call the status of a run
STATUS = "status"


@dataclass(frozen=True)
class PhaseNames:
    """A phase's name and the agents that it has in any document of the design."""

    name: str
    agents: tuple[str, ...]


def read_outcomes(
    found: Findings, at: Located | None, phases: Sequence[PhaseNames], factors: Sequence[Factor]
) -> tuple[OutcomeSpec, ...]:
    """Return the outcomes at ``at`` of a design with these ``phases`` (none: not known)."""
    if at is None or at.value is None:
        return ()
    if not isinstance(at.value, dict):
        found.error(at.place, f"outcomes must be a mapping from names, found {show(at.value)}")
        return ()
    outcomes = []
    names = {factor.name for factor in factors}
    for name in at.value:
        item = at.child(name)
        if not isinstance(name, str) or not name or not name.isprintable():
            found.error(item.place, f"an outcome's name must be a string, found {show(name)}")
        elif name in names or name.lower() in RESERVED:
            what = "a factor" if name in names else "a column of the table of runs"
            found.error(item.place, f"{name!r} is already the name of {what}; give the outcome another one")
        else:
            outcome = _outcome(found, item, name, phases)
            if outcome is not None:
                outcomes.append(outcome)
    return tuple(outcomes)


def _outcome(found: Findings, at: Located, name: str, phases: Sequence[PhaseNames]) -> OutcomeSpec | None:
    errors = found.count
    if isinstance(at.value, str):
        of = _of(found, at)
        return OutcomeSpec(name, of) if of is not None else None
    given = found.section(at, OUTCOME)
    if given is None:
        return None
    parts = {key: part for key, part in given.items() if part.value is not None}
    if found.missing(at.place, parts, OUTCOME):
        return None
    of = _of(found, parts["of"])
    phase = _phase(found, parts.get("phase"), phases)
    agent = _agent(found, parts.get("agent"), phase, phases)
    plain = ("step", "episode", "evaluation", "better")
    step, episode, evaluation, better = (
        OUTCOME.keys[key].read(found, parts.get(key), OUTCOME.keys[key].title or key) for key in plain
    )
    outside = _band(found, parts.get("outside"))
    if found.count > errors or of is None:
        return None
    return OutcomeSpec(name, of, phase, agent, step, episode, outside, evaluation, better)


def _of(found: Findings, at: Located) -> str | None:
    text: str | None = TEXT.read(found, at, "of (what an outcome is taken of)")
    if text is None:
        return None
    beginning, dot, name = text.partition(".")
    if text in OF_WORDS or (beginning in OF_BEGINNINGS and dot and name):
        return text
    allowed = [*OF_WORDS, *(f"{word}.NAME" for word in OF_BEGINNINGS)]
    near = did_you_mean(beginning, [*OF_WORDS, *OF_BEGINNINGS])
    found.error(at.place, f"an outcome cannot be of {text!r}{near}; allowed: {', '.join(allowed)}")
    return None


def _phase(found: Findings, at: Located | None, phases: Sequence[PhaseNames]) -> int | str | None:
    """Return the index or name of a phase."""
    if at is None:
        return None
    names = [phase.name for phase in phases]
    if isinstance(at.value, str):
        if at.value in names:
            return at.value
        found.error(
            at.place,
            f"there is no phase {at.value!r}{did_you_mean(at.value, names)}; phases: {', '.join(names)}",
        )
        return None
    index: int | None = integer(0).read(found, at, "phase (an index, or a name)")
    if index is not None and index >= len(names):
        found.error(at.place, f"there is no phase {index}: the last of {len(names)} is {len(names) - 1}")
        return None
    return index


def _agent(
    found: Findings, at: Located | None, phase: int | str | None, phases: Sequence[PhaseNames]
) -> str | None:
    if at is None:
        return None
    name: str | None = TEXT.read(found, at, "agent")
    if name is None or not phases:
        return name
    if isinstance(phase, str):
        there = next(one for one in phases if one.name == phase)
    else:
        there = phases[-1 if phase is None else phase]
    if name not in there.agents:
        found.error(
            at.place,
            f"the phase {there.name!r} has no agent {name!r}{did_you_mean(name, there.agents)}; agents there: "
            f"{', '.join(there.agents)}",
        )
    return name


def _band(found: Findings, at: Located | None) -> tuple[float, float] | None:
    if at is None:
        return None
    ends = at.value if isinstance(at.value, list) else []
    numbers = [
        one
        for one in ends
        if isinstance(one, (int, float)) and not isinstance(one, bool) and not math.isnan(one)
    ]
    if len(ends) != 2 or len(numbers) != 2 or not numbers[0] < numbers[1]:
        found.error(at.place, f"outside must be a band [low, high], low below high, found {_text(at.value)}")
        return None
    return float(numbers[0]), float(numbers[1])


def _text(value: Any) -> str:
    return str(value) if isinstance(value, list) else show(value)


def read_condition(text: str, outcomes: Sequence[str]) -> Expression:
    """Return the condition over ``outcomes``, and over the status of a run.

    Raises :class:`~palaestrai_mosaik.errors.DocumentError` where it is not understood, or names no outcome.
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
    found: Findings,
    at: Located | None,
    factors: Sequence[Factor],
    outcomes: Sequence[OutcomeSpec],
    *,
    given_points: bool = False,
) -> AnalysisSpec:
    """Return how results are looked at; the methods' names are checked with the sampler.

    ``given_points``: the rows are given points, not drawn.
    """
    if at is None or at.value is None:
        return AnalysisSpec()
    given = found.section(at, ANALYSIS)
    if given is None:
        return AnalysisSpec()
    parts = {key: part for key, part in given.items() if part.value is not None}
    compare = _compared(found, parts.get("compare"), factors, given_points)
    confidence = parts["confidence"].value if "confidence" in parts else 0.95
    number = isinstance(confidence, (int, float)) and not isinstance(confidence, bool)
    if not number or not 0 < confidence < 1:
        found.error(
            parts["confidence"].place,
            f"confidence must be a number between 0 and 1, found {show(confidence)}",
        )
    resamples = ANALYSIS.keys["resamples"].read(found, parts.get("resamples"), "resamples")
    baseline = _baseline(found, parts.get("baseline"), compare, factors)
    return AnalysisSpec(
        tuple(_words(found, parts.get("methods"), "methods")),
        compare,
        baseline,
        confidence,
        resamples,
        _conditions(found, parts.get("discover"), outcomes),
        _robustness(found, parts.get("robustness"), outcomes),
    )


def _robustness(
    found: Findings, at: Located | None, outcomes: Sequence[OutcomeSpec]
) -> RobustnessSpec | None:
    """Return what is asked for; the names of factors are checked with the design."""
    given = None if at is None else found.section(at, ROBUSTNESS)
    if given is None:
        return None
    parts = {key: part for key, part in given.items() if part.value is not None}
    return RobustnessSpec(
        tuple(_words(found, parts.get("by"), "by (factors of the decision)")),
        tuple(_words(found, parts.get("over"), "over (factors that make scenarios)")),
        _conditions(found, parts.get("satisfice"), outcomes, "satisfice"),
    )


def _conditions(
    found: Findings, at: Located | None, outcomes: Sequence[OutcomeSpec], key: str = "discover"
) -> tuple[str, ...]:
    texts = _words(found, at, f"{key} (conditions over outcomes)")
    for text in texts:
        try:
            # where the design names no outcomes, those of its runs are not known yet
            if outcomes:
                read_condition(text, [outcome.name for outcome in outcomes])
        except DocumentError as error:
            found.error(at.place if at is not None else (), error.problems[0].message)
    return tuple(texts)


def _words(found: Findings, at: Located | None, what: str) -> list[str]:
    """Return the words of a list; one word may stand alone."""
    if at is None:
        return []
    if isinstance(at.value, str):
        return [at.value]
    if not isinstance(at.value, list):
        found.error(at.place, f"{what} must be a list, found {show(at.value)}")
        return []
    words = [TEXT.read(found, item, f"an entry of {what}") for item in items_of(at)]
    return list(dict.fromkeys(word for word in words if word is not None))


def _compared(
    found: Findings, at: Located | None, factors: Sequence[Factor], given_points: bool
) -> tuple[str, ...]:
    # (of a number, given points have few values, which can be compared)
    names = {factor.name: factor for factor in factors}
    compared = []
    for name in _words(found, at, "compare"):
        place = at.place if at is not None else ()
        if name not in names:
            found.error(
                place, f"compare names {name!r}, which is no factor{did_you_mean_factor(name, factors)}"
            )
        elif names[name].kind != "levels" and not given_points:
            found.error(place, f"compare names {name!r}, which has no levels that could be compared")
        else:
            compared.append(name)
    return tuple(compared)


def _baseline(
    found: Findings, at: Located | None, compare: Sequence[str], factors: Sequence[Factor]
) -> str | None:
    if at is None:
        return None
    if isinstance(at.value, (int, float)) and not isinstance(at.value, bool):
        name: str | None = str(at.value)
    else:
        name = TEXT.read(found, at, "baseline (the label of a level)")
    labels = [label for factor in factors if not compare or factor.name in compare for label in factor.labels]
    if name is not None and name not in labels:
        found.error(
            at.place,
            f"baseline is {name!r}, no label of a level{did_you_mean(name, labels)}; labels: {', '.join(labels)}",
        )
    return name
