"""Checks run documents of a design like ``palaestrai-mosaik check``, and that they record its outcomes, before any is executed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from palaestrai_mosaik.arsenai.design.expansion import Expansion, run_file, run_uid
from palaestrai_mosaik.arsenai.design.model import DesignSpec, OutcomeSpec
from palaestrai_mosaik.arsenai.design.outcomes import is_meant, rewards_meant
from palaestrai_mosaik.arsenai.design.rows import RowFaults, all_rows, draw_rows, representative_rows
from palaestrai_mosaik.arsenai.design.search import examples
from palaestrai_mosaik.core.errors import DocumentError, Problem, did_you_mean
from palaestrai_mosaik.core.printing import listed
from palaestrai_mosaik.core.progress import ProgressCallback
from palaestrai_mosaik.experiment import PhaseSpec, from_mapping
from palaestrai_mosaik.runner.descriptions import phase_records
from palaestrai_mosaik.runner.environment_supply import SharedEnvironments
from palaestrai_mosaik.runner.preflight import Inspection, check_agents
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

    @property
    def evaluates(self) -> bool:
        """Whether the phase has evaluation episodes."""
        return bool(self.phase.evaluate_every) and self.phase.mode is Mode.TRAIN

    def bodies(self, agent: str | None) -> list[BodyRecord]:
        """Return the bodies of the agent ``agent``, or of all agents for ``None``."""
        return [body for record in self.agents if agent in (None, record.name) for body in record.bodies]

    def rewards(self, agent: str | None) -> list[str]:
        """Return the names of the rewards of an agent, or of all agents for ``None``."""
        return [reward for body in self.bodies(agent) for reward in body.rewards]


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
    handles = [inspection.environments.handle(spec) for spec in phase.environments]
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
    if outcome.evaluation and not there.evaluates:
        return (
            f"the phase {name!r} has no evaluation episodes; "
            "they need mode: train and evaluate_every in its phase_config"
        )
    source, _, quantity = outcome.of.partition(".")
    if source == "reward" and not there.replayed:
        names = there.rewards(outcome.agent)
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


#: the rows of a design to check: some with each level and each extreme value, all, or none
Extent = Literal["levels", "all", "none"]


class Checked(NamedTuple):
    """The number of checked rows, and the problems of some possible settings of a search (``failing``)."""

    rows: int
    failing: tuple[Problem, ...] = ()


def check_design(
    spec: DesignSpec, extent: Extent = "levels", progress: ProgressCallback | None = None
) -> Checked:
    """Check the documents of a design: classes, environments, sensors, actuators, set-up of agents, outcomes.

    Args:
        spec: the design.
        extent: the rows to check.
        progress: called with the number of checked rows, and their total.

    Raises:
        DocumentError: documents have problems. Each problem is reported once, with its first row and the factor that
            causes it. For a search, this is only raised if all rows have problems, or a row has no document; any other
            setting with problems fails during the search, which continues.
    """
    if extent == "none":
        return Checked(0)
    searches, spec = spec.search is not None, examples(spec)
    rows = draw_rows(spec)
    chosen = all_rows(spec, rows) if extent == "all" else representative_rows(spec, rows)
    expansion, faults, environments = Expansion(spec), RowFaults(spec), SharedEnvironments()
    outcomes, refused = OutcomeCheck(spec), not searches
    try:
        for done, (number, values) in enumerate(chosen.items(), 1):
            problems, has_document = _problems(expansion, number, values, environments, outcomes)
            refused = refused or not has_document
            if problems:
                faults.add(number, values, [_located(expansion, values, problem) for problem in problems])
            environments.trim()
            if progress is not None:
                progress(done, len(chosen))
    finally:
        environments.close()
    if faults.count and (refused or faults.count == len(chosen)):
        raise DocumentError(faults.problems())
    missing = list(outcomes.problems())
    if missing:
        raise DocumentError(missing)
    return Checked(len(chosen), tuple(faults.problems()))


def _problems(
    expansion: Expansion,
    number: int,
    values: Mapping[str, Any],
    environments: SharedEnvironments,
    outcomes: OutcomeCheck,
) -> tuple[list[Problem], bool]:
    """Return the problems of a row, and whether its factors yield a document."""
    uid = run_uid(expansion.spec.uid, number, 0)
    try:
        data = expansion.mapping(values, uid, 0)
    except DocumentError as error:
        return list(error.problems), False
    try:
        document = from_mapping(data, run_file(expansion.spec.uid, number, 0), text="", hashed=False)
    except DocumentError as error:
        return list(error.problems), True
    inspection = Inspection(document, shared=environments)
    check_agents(inspection)
    if not inspection.problems:
        outcomes.look(inspection)
    return inspection.problems, True


def _located(expansion: Expansion, values: Mapping[str, Any], problem: Problem) -> Problem:
    """Return ``problem`` with the design's line of the factor that causes it, else with the line of the base."""
    spec = expansion.spec
    try:
        factor = expansion.factor_at(problem.path, values)
    except DocumentError:
        return problem  # the problem is that a factor's path does not exist
    if factor is not None:
        return replace(problem, line=spec.problem("", "factors", factor.name).line)
    if spec.base is None:
        return problem  # in arsenAI's form, the document has other paths
    return spec.problem(problem.message, "base", *problem.path.split("."))
