"""Conditions that name agents: thresholds, and the rules by which evaluations end a phase.

The check of documents and the condition itself share this reader. Source: the class of that
name in palaestrAI 3.5.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from palaestrai_mosaik.core.errors import did_you_mean
from palaestrai_mosaik.types.control import Mode

from .class_names import canonical_name, full_name
from .fields import TEXT, Fault, Findings, Located, Section, integer, number, show, word
from .model import PhaseSpec
from .vocabulary import AGENT_KEYED_CONDITION, EVALUATION_CONDITION

#: the maximum number of evaluations in a rule
_MOST = 10**9


@dataclass(frozen=True, slots=True)
class SuccessRule:
    """Met if ``metric`` is good in ``consecutive`` evaluations in a row, after at least ``min_evaluations``."""

    metric: str
    threshold: float
    direction: Literal["greater_equal", "less_equal"]
    consecutive: int
    min_evaluations: int

    def met_by(self, value: float) -> bool:
        """Whether an evaluation with this value of the metric is good."""
        return value >= self.threshold if self.direction == "greater_equal" else value <= self.threshold


@dataclass(frozen=True, slots=True)
class PlateauRule:
    """Met if the mean of ``metric`` over ``window`` evaluations has not improved in ``patience`` of them.

    It improves if it is better than the best so far by ``min_delta`` or more. Only
    evaluations from number ``min_evaluations`` on (counted from 1) can cost patience.
    """

    metric: str
    direction: Literal["maximize", "minimize"]
    min_delta: float
    patience: int
    min_evaluations: int
    window: int

    def improves(self, value: float, best: float | None) -> bool:
        """Whether ``value`` is better than ``best`` (``None`` for the first value)."""
        if best is None:
            return True
        return (
            value >= best + self.min_delta if self.direction == "maximize" else value <= best - self.min_delta
        )


@dataclass(frozen=True, slots=True)
class AgentRules:
    """The rules of one agent; at least one is set."""

    success: SuccessRule | None = None
    plateau: PlateauRule | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics that the rules read."""
        return tuple(rule.metric for rule in (self.success, self.plateau) if rule is not None)


def read_rules(agents: Any) -> tuple[dict[str, AgentRules], list[Fault]]:
    """Read the rules of all agents.

    Returns:
        The rules by agent, complete only without problems, and all problems.
    """
    if not isinstance(agents, Mapping) or not agents:
        return {}, [((), f"agents must be a mapping of agents to their rules, found {show(agents)}")]
    faults = [((agent, *path), message) for agent in agents for path, message in _faults(agents[agent])]
    if faults:
        return {}, faults
    rules = {
        agent: AgentRules(**{name: _RULES[name](**rule) for name, rule in entry.items() if rule is not None})
        for agent, entry in agents.items()
    }
    return rules, list(_gaps(rules))


def _faults(entry: Any) -> Iterator[Fault]:
    """Yield the faults of an agent's rules."""
    if not isinstance(entry, Mapping):
        yield (), f"an agent's rules must be a mapping, found {show(entry)}"
        return
    if all(name in _SECTIONS and rule is None for name, rule in entry.items()):
        yield (), "an agent needs the rule 'success', the rule 'plateau', or both"
    for name, rule in entry.items():
        if name not in _SECTIONS:
            near = did_you_mean(name, _SECTIONS)
            yield (name,), f"unknown rule {name!r}{near}; allowed: success, plateau"
        elif rule is not None:
            yield from (((name, *path), message) for path, message in _SECTIONS[name].faults(rule))


def _gaps(rules: Mapping[str, AgentRules]) -> Iterator[Fault]:
    """Yield a fault for each agent without a rule that another agent has: the phase's end would be ambiguous."""
    for name in _SECTIONS:
        having = [agent for agent, of_agent in rules.items() if getattr(of_agent, name) is not None]
        for agent in rules:
            if having and agent not in having:
                yield (agent,), f"agent {agent!r} needs the rule {name!r} too, as agent {having[0]!r} has it"


_NUMBER, _COUNT = number(), integer(1, _MOST, nullable=False)
_RULES: Mapping[str, Callable[..., Any]] = {"success": SuccessRule, "plateau": PlateauRule}
_SECTIONS = {
    "success": Section(
        "success",
        {
            "metric": TEXT,
            "threshold": _NUMBER,
            "direction": word(("greater_equal", "less_equal")),
            "consecutive": _COUNT,
            "min_evaluations": _COUNT,
        },
    ),
    "plateau": Section(
        "plateau",
        {
            "metric": TEXT,
            "direction": word(("maximize", "minimize")),
            "min_delta": number(0.0),
            "patience": _COUNT,
            "min_evaluations": _COUNT,
            "window": _COUNT,
        },
    ),
}
_THRESHOLD = re.compile(r"(brain|phase)_avg[1-9][0-9]*")


def check_agent_keys(findings: Findings, conditions: Iterable[Located], agents: Collection[str]) -> None:
    """Check that thresholds and rules by agent name existing agents and valid keys."""
    listed = list(conditions)
    for params in _params(listed, AGENT_KEYED_CONDITION):
        _check_agents(findings, params, agents)
        for agent in params.value:
            _check_thresholds(findings, params.child(agent))
    for params in _params(listed, EVALUATION_CONDITION):
        # otherwise, the check of the class's parameters reports it
        if "agents" in params.value:
            rules = params.child("agents")
            _check_agents(findings, rules, agents)
            for path, message in read_rules(rules.value)[1]:
                findings.error((*rules.place, *path), message)


def check_phase_averages(
    findings: Findings, of_phases: Iterable[Iterable[Located]], of_run: Iterable[Located]
) -> None:
    """Check that every ``phase_avgN`` is evaluated: those of ``simulation`` must also be in ``run_config``."""
    evaluated = _phase_averages(of_run)
    for conditions in of_phases:
        for agent, at in _phase_averages(conditions).items():
            if agent not in evaluated:
                findings.error(
                    at.place,
                    f"below 'simulation', {at.place[-1]} of agent {agent!r} is never asked; give it in a condition of "
                    "run_config",
                )


def _phase_averages(conditions: Iterable[Located]) -> dict[str, Located]:
    """Find the first ``phase_avgN`` of each agent."""
    places: dict[str, Located] = {}
    for params in _params(conditions, AGENT_KEYED_CONDITION):
        for agent, thresholds in params.value.items():
            for key in thresholds if isinstance(thresholds, dict) else ():
                if str(key).startswith("phase_avg"):
                    places.setdefault(agent, params.child(agent).child(key))
    return places


def check_evaluations(findings: Findings, conditions: Sequence[Located], phases: Sequence[PhaseSpec]) -> None:
    """Check that there are evaluations for the conditions of ``run_config`` that need them."""
    training = [phase for phase in phases if phase.mode is Mode.TRAIN]
    for params in _params(conditions, EVALUATION_CONDITION):
        path = params.place[:-1]
        if training and not any(phase.evaluate_every for phase in training):
            findings.error(
                path,
                "the condition needs evaluations, and no phase has any: give evaluate_every (the number of "
                "episodes between two of them) in the phase_config of a phase in train mode",
            )
            continue
        for phase in training:
            if reason := _why_never_met(params.value.get("agents"), phase):
                findings.warn(path, f"the condition's rules never end the phase {phase.name!r}: {reason}")


def _why_never_met(rules: Any, phase: PhaseSpec) -> str:
    """Explain why evaluations of a phase never meet these rules; "" if they may."""
    if not phase.evaluate_every:
        return "it has no evaluate_every"
    names = {agent.name for agent in phase.agents}
    absent = [agent for agent in rules if agent not in names] if isinstance(rules, dict) else []
    return f"it has no agent {absent[0]!r}" if absent else ""


def warn_of_evaluations(findings: Findings, conditions: Iterable[Located]) -> None:
    """Warn of conditions of ``simulation`` with rules that only ``run_config`` evaluates."""
    for params in _params(conditions, EVALUATION_CONDITION):
        findings.warn(
            params.place[:-1],
            "here the condition ends an episode with its environment and does nothing else; "
            "its rules are asked where it stands in run_config",
        )


def _params(conditions: Iterable[Located], name: str) -> Iterator[Located]:
    """Yield the params of the conditions with this canonical name, if they are a mapping."""
    for item in conditions:
        written = item.value.get("name") if isinstance(item.value, dict) else None
        if isinstance(written, str) and canonical_name(full_name(written, "condition")) == name:
            for key in ("params", "parameters"):
                if isinstance(item.value.get(key), dict):
                    yield item.child(key)
                    break


def _check_agents(findings: Findings, at: Located, agents: Collection[str]) -> None:
    # a phase without agents is reported elsewhere
    for agent in at.value if agents and isinstance(at.value, dict) else ():
        if agent not in agents:
            near = did_you_mean(agent, agents)
            message = f"there is no agent {agent!r}{near}; agents: {', '.join(agents)}"
            findings.error((*at.place, agent), message)


def _check_thresholds(findings: Findings, at: Located) -> None:
    if not isinstance(at.value, dict):
        findings.error(at.place, f"an agent's thresholds must be a mapping, found {show(at.value)}")
        return
    for key, value in at.value.items():
        if not isinstance(key, str) or not _THRESHOLD.fullmatch(key):
            findings.error(
                (*at.place, key), f"unknown threshold {key!r}; allowed: brain_avgN and phase_avgN, N from 1"
            )
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            findings.error((*at.place, key), f"{key} must be a number, found {show(value)}")
