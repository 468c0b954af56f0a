"""Checks that runs record the outcomes of a design, before any of them is executed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from palaestrai_mosaik.arsenai.design.model import DesignSpec, OutcomeSpec
from palaestrai_mosaik.arsenai.design.outcomes import is_meant, rewards_meant
from palaestrai_mosaik.core.errors import Problem, did_you_mean
from palaestrai_mosaik.core.text import listed
from palaestrai_mosaik.experiment import PhaseSpec
from palaestrai_mosaik.runner.descriptions import phase_records
from palaestrai_mosaik.runner.preflight import Inspection
from palaestrai_mosaik.store import AgentRecord, BodyRecord, EnvironmentRecord
from palaestrai_mosaik.store.records import channel_columns
from palaestrai_mosaik.types import Mode

#: maximum number of names in a message
_MOST_NAMES = 20


@dataclass(frozen=True)
class _Recorded:
    """The records of a phase; if ``replayed``, its rewards are those of recorded episodes, with unknown names."""

    phase: PhaseSpec
    environments: Sequence[EnvironmentRecord]
    agents: Sequence[AgentRecord]
    replayed: bool

    def bodies(self, agent: str | None) -> list[BodyRecord]:
        """Return the bodies of the agent ``agent``, or of all agents for ``None``."""
        return [body for record in self.agents if agent in (None, record.name) for body in record.bodies]


class OutcomeCheck:
    """Finds outcomes of a design that no run records.

    Args:
        spec: the design.
    """

    def __init__(self, spec: DesignSpec):
        self._spec = spec
        self._missing: dict[str, str] = {}
        self._ambiguous: dict[str, str] = {}
        self._sound: set[str] = set()

    def look(self, inspection: Inspection) -> None:
        """Look for the outcomes in a valid run document after the set-up of its environments."""
        recorded: dict[int, _Recorded] = {}
        for outcome in self._spec.outcomes:
            phase = _phase(inspection.phases, outcome.phase)
            if phase is None:
                continue
            if phase.index not in recorded:
                recorded[phase.index] = _recorded(inspection, phase)
            records = recorded[phase.index]
            several, missing = _several(outcome, records), _missing(outcome, records)
            if several:
                self._ambiguous.setdefault(outcome.name, several)
            if missing:
                self._missing.setdefault(outcome.name, missing)
            else:
                self._sound.add(outcome.name)

    def problems(self) -> Iterator[Problem]:
        """Yield a problem for each outcome that is missing in all documents, or ambiguous in one."""
        for outcome in self._spec.outcomes:
            message = self._ambiguous.get(outcome.name)
            if message is None and outcome.name not in self._sound:
                message = self._missing.get(outcome.name)
            if message is not None:
                yield self._spec.problem(message, "outcomes", outcome.name, "of")


def _phase(phases: Sequence[PhaseSpec], wanted: int | str | None) -> PhaseSpec | None:
    """Return the phase with this index or name, by default the last one; ``None`` if it does not exist."""
    if wanted is None:
        return phases[-1] if phases else None
    return next((phase for phase in phases if wanted in (phase.index, phase.name)), None)


def _recorded(inspection: Inspection, phase: PhaseSpec) -> _Recorded:
    handles = [inspection.handle(spec) for spec in phase.environments]
    return _Recorded(phase, *phase_records(phase, handles), any(handle.replays for handle in handles))


def _several(outcome: OutcomeSpec, there: _Recorded) -> str:
    """Return a message if several agents may have the objective of an outcome, else an empty string."""
    if outcome.of != "objective" or outcome.agent is not None:
        return ""
    able = [agent.name for agent in there.agents if agent.objective is not None]
    names = able or [agent.name for agent in there.agents]
    if len(names) < 2:
        return ""
    which = "have an objective" if able else "get rewards, and none has an objective"
    return f"several agents of the phase {there.phase.name!r} {which}: name one under `agent` ({', '.join(names)})"


def _missing(outcome: OutcomeSpec, there: _Recorded) -> str:
    """Return a message if runs do not have an outcome; empty if they do, or if this is unknown."""
    name = there.phase.name
    if outcome.evaluation and not (there.phase.evaluate_every and there.phase.mode is Mode.TRAIN):
        return (
            f"the phase {name!r} has no evaluation episodes; "
            "they need mode: train and evaluate_every in its phase_config"
        )
    source, _, quantity = outcome.of.partition(".")
    if source == "reward" and not there.replayed:
        names = [reward for body in there.bodies(outcome.agent) for reward in body.rewards]
        return "" if rewards_meant(quantity, names) else _unknown(source, quantity, names, name)
    if source in ("reading", "setpoint"):
        names = _channel_names(source, outcome.agent, there)
        if not any(is_meant(channel, quantity) for channel in names):
            return _unknown(source, quantity, names, name)
    return ""


def _channel_names(source: str, agent: str | None, there: _Recorded) -> list[str]:
    """Return the names of all recorded readings or set-points: those of the agent, if there is a name."""
    if source == "setpoint":
        channels = [body.actuators for body in there.bodies(agent)]
    elif agent is not None:
        channels = [body.sensors for body in there.bodies(agent)]
    else:
        channels = [environment.sensors for environment in there.environments]
    return [column.removeprefix(".") for part in channels for column in channel_columns("", part)]


def _unknown(source: str, wanted: str, recorded: Sequence[str], phase: str) -> str:
    names = list(dict.fromkeys(recorded))
    near = did_you_mean(wanted, [*(name.partition(".")[2] for name in names), *names])
    kind = {"reward": "reward", "reading": "reading", "setpoint": "set-point"}[source]
    return f"the phase {phase!r} has no {kind} {wanted!r}{near}; there are: {listed(names, _MOST_NAMES) or 'none'}"
