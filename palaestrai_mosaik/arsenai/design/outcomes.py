"""Outcomes and analysis of a design: their sections, the folds of outcomes, and conditions over outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from palaestrai_mosaik.core.errors import DocumentError, Problem, did_you_mean
from palaestrai_mosaik.experiment.fields import TEXT, Findings, Located, integer, show
from palaestrai_mosaik.types.arrays import FloatVector

from .expressions import Expression
from .model import AnalysisSpec, Factor, OutcomeSpec, RobustnessSpec, did_you_mean_factor, is_number
from .vocabulary import ANALYSIS, OUTCOME, RESERVED, ROBUSTNESS, read_parts

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
    if at is None:
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
    parts = {"of": at} if isinstance(at.value, str) else read_parts(findings, at, OUTCOME)
    if parts is None or "of" not in parts:
        return None
    values = OUTCOME.values(findings, parts)
    values["phase"] = _phase(findings, parts.get("phase"), phases)
    if values["agent"] is not None:
        _check_agent(findings, parts["agent"], values["phase"], phases)
    return OutcomeSpec(name, **values) if findings.count == errors else None


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


def _check_agent(
    findings: Findings, at: Located, phase: int | str | None, phases: Sequence[PhaseNames]
) -> None:
    """Report an agent that the phase does not have."""
    if not phases:
        return
    if isinstance(phase, str):
        phase_names = next(candidate for candidate in phases if candidate.name == phase)
    else:
        phase_names = phases[-1 if phase is None else phase]
    if at.value not in phase_names.agents:
        findings.error(
            at.place,
            f"the phase {phase_names.name!r} has no agent {at.value!r}{did_you_mean(at.value, phase_names.agents)}; agents "
            f"there: {', '.join(phase_names.agents)}",
        )


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
    parts = None if at is None else findings.section(at, ANALYSIS)
    if parts is None:
        return AnalysisSpec()
    values = ANALYSIS.values(findings, parts)
    compare = _compared(findings, parts.get("compare"), values["compare"], factors, given_points)
    values |= {"compare": compare, "baseline": _baseline(findings, parts.get("baseline"), compare, factors)}
    _check_conditions(findings, parts.get("discover"), values["discover"], outcomes)
    if values["robustness"] is not None:
        values["robustness"] = _robustness(findings, parts["robustness"], outcomes)
    return AnalysisSpec(**values)


def _robustness(findings: Findings, at: Located, outcomes: Sequence[OutcomeSpec]) -> RobustnessSpec | None:
    """Read the section ``robustness``. The factors' names are checked later, with the design."""
    parts = findings.section(at, ROBUSTNESS)
    if parts is None:
        return None
    robustness = RobustnessSpec(**ROBUSTNESS.values(findings, parts))
    _check_conditions(findings, parts.get("satisfice"), robustness.satisfice, outcomes)
    return robustness


def _check_conditions(
    findings: Findings, at: Located | None, texts: Sequence[str], outcomes: Sequence[OutcomeSpec]
) -> None:
    # a design without named outcomes gets those of its runs, which are not known yet
    if at is None or not outcomes:
        return
    for text in texts:
        try:
            read_condition(text, [outcome.name for outcome in outcomes])
        except DocumentError as error:
            findings.error(at.place, error.problems[0].message)


def _compared(
    findings: Findings,
    at: Located | None,
    written: Sequence[str],
    factors: Sequence[Factor],
    given_points: bool,
) -> tuple[str, ...]:
    """Return the names of ``written`` that are factors with levels."""
    path = () if at is None else at.place
    kinds = {factor.name: factor.kind for factor in factors}
    compared = []
    for name in written:
        if name not in kinds:
            near = did_you_mean_factor(name, factors)
            findings.error(path, f"compare names {name!r}, which is no factor{near}")
        # explicit points have few values of a number, which can be compared
        elif kinds[name] != "levels" and not given_points:
            findings.error(path, f"compare names {name!r}, which has no levels that could be compared")
        else:
            compared.append(name)
    return tuple(compared)


def _baseline(
    findings: Findings, at: Located | None, compare: Sequence[str], factors: Sequence[Factor]
) -> str | None:
    if at is None or at.value is None:
        return None
    if is_number(at.value):
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
