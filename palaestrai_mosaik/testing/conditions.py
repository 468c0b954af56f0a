"""Conformance check of termination conditions."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.simulation.conditions import (
    EpisodeOutcome,
    EvaluationView,
    PhaseView,
    TerminationCondition,
    check_flow,
)
from palaestrai_mosaik.types import Mode, SimulationFlowControl
from palaestrai_mosaik.types.arrays import FloatVector

from .findings import Findings, build, build_another, same

_WORKERS = 2


@dataclass
class _PhaseScript:
    """The events of a phase.

    ``objectives`` has, by worker and episode, the agents' objectives of shape (steps, agents). ``metrics`` has the
    metrics that brains add to each evaluation.
    """

    agents: Sequence[str]
    environments: Sequence[str]
    episodes: int
    objectives: dict[tuple[int, int], FloatVector]
    metrics: list[dict[str, float]]


class _View:
    """One step of an episode, as seen by a condition."""

    def __init__(self, script: _PhaseScript, worker: int, episode: int, step: int):
        self.worker, self.episode, self.time = worker, episode, step
        values = script.objectives[worker, episode]
        self.values = {a: values[:step, i].copy() for i, a in enumerate(script.agents)}
        over = step == len(values)
        self.ended = dict.fromkeys(script.environments, (over, False))
        self.endings = dict.fromkeys(script.environments, int(over))
        self.environments_reset = False

    def objectives(self, agent: str) -> FloatVector:
        return self.values.get(agent, np.empty(0))


def check_termination_condition(
    factory: Callable[[], TerminationCondition],
    *,
    agents: Sequence[str] = ("agent",),
    environments: Sequence[str] = ("environment",),
    steps: int = 50,
    episodes: int = 3,
    metrics: Sequence[str] = (),
    seed: int = 0,
) -> None:
    """Check that a termination condition keeps its contract.

    The condition is asked about a phase of two workers. Environments terminate with the last step of an episode, and
    objectives are random with a rising trend. After each episode of both workers, there is an evaluation.

    The check requires that every answer is a flow control value, that the arguments are not modified, and that equal
    phases get equal answers, even from copies pickled between two rounds of episodes, as in checkpoints. The answers
    for an episode must not depend on how the steps of the two workers alternate. The condition must not end a phase if
    ``can_end_phase`` returns false, and must not use global randomness.

    Args:
        factory: creates a condition.
        agents: the names of the agents in the phase.
        environments: the uids of the environments in the phase.
        steps: the number of steps of an episode.
        episodes: the number of episodes of each worker.
        metrics: the names of the metrics that brains add to an evaluation.
        seed: the seed of the objectives.

    Raises:
        ConformanceError: if any rule is broken; lists all of them.
    """
    first, findings = build(factory, TerminationCondition)
    rng = seeding.generator(seed, "objectives")
    rise = np.arange(1.0, steps + 1)[:, None]
    keys = [(worker, episode) for episode in range(episodes) for worker in range(_WORKERS)]
    objectives = {k: rise + rng.normal(size=(steps, len(agents))) for k in keys}
    added = [{name: float(i + rng.normal()) for name in metrics} for i in range(episodes)]
    script = _PhaseScript(agents, environments, episodes, objectives, added)
    one_by_one = _phase(findings, first, script)
    if not same(one_by_one, _phase(findings, build_another(factory, findings), script)):
        findings.add("two instances differ, asked about the same phase", "every answer must follow from it")
    if not same(one_by_one, _phase(findings, build_another(factory, findings), script, pickled=True)):
        findings.add(
            "a pickled copy answers differently",
            "a run that is resumed would not go on as it was interrupted",
        )
    alternating = _alternating(findings, build_another(factory, findings), script)
    for key, answers in alternating.items():
        if key in one_by_one[0] and not same(answers, one_by_one[0][key]):
            findings.add(
                "mixes up workers or episodes",
                f"worker {key[0]}, episode {key[1]} is answered differently when the steps of the workers "
                "alternate; keep what is remembered per (worker, episode)",
            )
    findings.raise_found()


def _ask(findings: Findings, ask: Callable[[Any], Any], view: Any, when: str) -> SimulationFlowControl:
    before = deepcopy(vars(view))
    with findings.calling(when):
        answer = ask(view)
    if not same(vars(view), before):
        findings.add("changes what it is shown", when)
    try:
        check_flow(ask.__self__, ask.__name__, answer)  # type: ignore[attr-defined]  # a method
    except ContractError as error:
        raise findings.stop("an answer is no SimulationFlowControl", f"{when}: {error}") from error
    return cast("SimulationFlowControl", answer)


def _steps(
    findings: Findings, condition: TerminationCondition, script: _PhaseScript, worker: int, episode: int
) -> Iterator[SimulationFlowControl]:
    """Ask after every step, until the episode is over."""
    for step in range(len(script.objectives[worker, episode]) + 1):
        view = _View(script, worker, episode, step)
        when = f"worker {worker}, episode {episode}, step {step}"
        answer = _ask(findings, condition.episode_flow_control, view, when)
        yield answer
        if answer is not SimulationFlowControl.CONTINUE:
            return


def _alternating(
    findings: Findings, condition: TerminationCondition, script: _PhaseScript
) -> dict[tuple[int, int], list[SimulationFlowControl]]:
    answers: dict[tuple[int, int], list[SimulationFlowControl]] = {}
    for episode in range(script.episodes):
        running = {w: _steps(findings, condition, script, w, episode) for w in range(_WORKERS)}
        while running:
            for worker in list(running):
                answer = next(running[worker], None)
                if answer is None:
                    del running[worker]
                else:
                    answers.setdefault((worker, episode), []).append(answer)
    return answers


def _phase(
    findings: Findings, condition: TerminationCondition, script: _PhaseScript, *, pickled: bool = False
) -> tuple[dict[tuple[int, int], list[SimulationFlowControl]], list[SimulationFlowControl]]:
    """Ask about a whole phase, worker by worker; return the answers to steps and episodes.

    With ``pickled``, the condition is replaced by a pickled copy before each round of episodes except the first.
    """
    of_steps: dict[tuple[int, int], list[SimulationFlowControl]] = {}
    of_episodes: list[SimulationFlowControl] = []
    outcomes: list[EpisodeOutcome] = []
    history: list[list[Any]] = [[] for _ in range(_WORKERS)]
    with findings.calling("can_end_phase"):
        possible = condition.can_end_phase(script.episodes)
    if not isinstance(possible, bool):
        findings.add("can_end_phase returns neither True nor False", repr(possible))
    for worker, episode in script.objectives:
        if pickled and worker == 0 and episode:
            with findings.calling("pickle, as for a checkpoint"):
                condition = pickle.loads(pickle.dumps(condition))
        answers = list(_steps(findings, condition, script, worker, episode))
        of_steps[worker, episode] = answers
        values = script.objectives[worker, episode][: len(answers) - 1]
        objectives = {a: values[:, i].copy() for i, a in enumerate(script.agents)}
        history[worker].append({a: float(v.mean()) if len(v) else np.nan for a, v in objectives.items()})
        last = EpisodeOutcome(worker, episode, len(values), answers[-1], "", objectives)
        view = PhaseView(Mode.TRAIN, _WORKERS, script.episodes, list(script.agents), last, history)
        when = f"after worker {worker}, episode {episode}"
        answer = _ask(findings, condition.phase_flow_control, view, when)
        of_episodes.append(answer)
        if answer >= SimulationFlowControl.STOP_SIMULATION and not possible:
            findings.add("ends a phase although can_end_phase says that it cannot", f"{when}: {answer.name}")
        outcomes.append(last)
        if worker == _WORKERS - 1:
            evaluation = _evaluation(script, episode, outcomes[-_WORKERS:])
            of_episodes.append(
                _ask(findings, condition.evaluation_flow_control, evaluation, f"after evaluation {episode}")
            )
    return of_steps, of_episodes


def _evaluation(script: _PhaseScript, number: int, outcomes: list[EpisodeOutcome]) -> EvaluationView:
    """Create an evaluation with the results of the training episodes ``outcomes``."""

    def mean(values: Iterator[float]) -> float:
        return float(np.mean(list(values)))

    metrics = {
        agent: {
            "objective": mean(outcome.mean_objective(agent) for outcome in outcomes),
            "objective_sum": mean(float(outcome.objectives[agent].sum()) for outcome in outcomes),
            "steps": mean(float(outcome.steps) for outcome in outcomes),
            **script.metrics[number],
        }
        for agent in script.agents
    }
    return EvaluationView(
        Mode.TRAIN, _WORKERS, script.episodes, list(script.agents), number, outcomes, metrics
    )
