"""One phase: rounds of episodes, evaluations, and the conditions that end it.

In a round, all active workers begin an episode at the same time. ``episodes`` of the document is the maximum number of
training episodes per worker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from palaestrai_mosaik.agent import Brain
from palaestrai_mosaik.core.errors import ContractError, RunInterrupted, RunPruned
from palaestrai_mosaik.experiment import PhaseSpec, SnapshotSpec
from palaestrai_mosaik.simulation.body_placement import BodyGroup, place_bodies
from palaestrai_mosaik.simulation.conditions import EvaluationView, PhaseView
from palaestrai_mosaik.simulation.coordinator import ask
from palaestrai_mosaik.simulation.environment_handle import EnvironmentHandle
from palaestrai_mosaik.simulation.learner import Learner
from palaestrai_mosaik.simulation.values import Tally
from palaestrai_mosaik.types import Mode, SimulationFlowControl

from .brains import BrainKeeper, Dumpers, brain_keeper
from .factory import WorkerPlan, all_conditions, call_all
from .learners import expects_updates, make_learner, refused_update_warning, store_model
from .recorded_sessions import ReplayContext, StoredSessions
from .run_context import RunContext
from .worker import EpisodeReport, EpisodeTask
from .worker_pool import LocalWorkerPool, ProcessWorkerPool, WorkerPool

#: the attributes of a phase that are saved in checkpoints
_STATE = (
    *("learners", "conditions", "run_conditions", "history", "ends", "evaluations"),
    *("active", "reasons", "best", "steps", "values"),
)
#: the flow control of the run after the phase, and the reason for the phase's end
Verdict = tuple[SimulationFlowControl, str]


def metrics_of(agent: str, reports: Sequence[EpisodeReport]) -> dict[str, float]:
    """Return the means of an agent's objective and of the episode lengths over an evaluation's episodes."""
    objectives = [report.outcomes[agent]["objective"] for report in reports]
    return {
        "objective": mean([o["mean"] for o in objectives]),
        "objective_sum": mean([o["sum"] for o in objectives]),
        "steps": mean([report.steps for report in reports]),
    }


def more_metrics(brain: Brain, metrics: Mapping[str, float]) -> Mapping[str, float]:
    """Pass ``metrics`` to the brain, and return the metrics that it adds."""
    more = brain.evaluated(dict(metrics))
    if more is not None and not isinstance(more, Mapping):
        raise ContractError(
            f"{type(brain).__name__}.evaluated of agent {brain.name!r} must return a mapping of metrics or None, "
            f"not {more!r}"
        )
    return more or {}


def mean(values: Sequence[float]) -> float:
    """Return the mean of ``values``, ignoring NaN; NaN if there are no other values."""
    array = np.array(values, dtype=np.float64)
    valid = array[~np.isnan(array)]
    return float(valid.mean()) if len(valid) else math.nan


@dataclass(frozen=True)
class PhaseResult:
    """The result of a phase: the reason for its end, and its numbers of episodes and steps.

    Evaluations do not count.
    """

    name: str
    reason: str
    episodes: int
    steps: int
    flow: SimulationFlowControl
    globals_used: bool = False
    #: the learning agents that never got an update, although their muscles expect one
    silent: tuple[str, ...] = ()
    #: by agent, the warning that its brain returned false values instead of updates
    refused: Mapping[str, str] = field(default_factory=dict)


class PhaseRunner:
    """Runs one phase of a document."""

    def __init__(self, context: RunContext, phase: PhaseSpec):
        self.context = context
        self.phase = phase
        self.conditions, self.run_conditions = all_conditions(phase, context.document.conditions)
        self.keepers: dict[str, BrainKeeper] = {
            spec.name: brain_keeper(spec, phase, context.document, context.directory, context.store)
            for spec in phase.agents
        }
        self.learners: dict[str, Learner] = {}
        self.recorder: Any = None
        self.team: WorkerPool | None = None
        self.steps = 0
        self.scalars = context.scalars.phase(phase) if context.scalars is not None else None
        #: for each worker, the agents' mean objectives in each training episode
        self.history: list[list[Mapping[str, float]]] = [[] for _ in range(phase.workers)]
        #: for each worker, the total number of steps at the end of each training episode
        self.ends: list[list[int]] = [[] for _ in range(phase.workers)]
        #: for each evaluation, the reports that have arrived
        self.evaluations: list[list[EpisodeReport]] = []
        #: the number of judged evaluations in an asynchronous phase
        self._judged = 0
        #: the workers that continue; ``reasons`` has why the others stopped
        self.active = list(range(phase.workers))
        self.reasons: dict[int, str] = {}
        #: the best figure of each agent with snapshots of its best brain
        self.best: dict[str, float] = {}
        #: by environment, the number of values outside of their spaces
        self.values: dict[str, Tally] = {spec.uid: Tally() for spec in phase.environments}
        #: called between two rounds, when no worker runs an episode
        self.on_round: Callable[[], None] | None = None

    def run(self, state: Mapping[str, Any] | None = None) -> PhaseResult:
        """Run the phase to its end, from its beginning or from a checkpoint's ``state``."""
        context, phase = self.context, self.phase
        reason, flow, used = "failed", SimulationFlowControl.CONTINUE, False
        context.progress.begin_phase(phase.name, phase.workers, phase.episodes)
        try:
            self._set_up(state)
            if state is not None:
                context.progress.carry(phase.name, sum(map(len, self.history)), self.steps)
            assert self.team is not None
            flow, reason = self._asynchronous() if phase.asynchronous else self._rounds()
            for name, learner in self.learners.items():
                store_model(learner, self.keepers[name])
            self.team.finish()
            used = self.team.globals_used
        except RunInterrupted:
            reason = "interrupted"
            raise
        except RunPruned:
            reason = "pruned"
            raise
        finally:
            endings: list[Callable[[], None]] = [] if self.team is None else [self.team.close]
            if self.scalars is not None:
                endings.append(self.scalars.finish)
            if self.recorder is not None:
                endings.append(partial(self.recorder.finish, reason))
            call_all(endings)
        context.progress.end_phase(phase.name, reason)
        episodes = sum(map(len, self.history))
        return PhaseResult(
            phase.name, reason, episodes, self.steps, flow, used, tuple(self._silent()), self._refused()
        )

    def values_outside(self) -> list[str]:
        """Return a sentence for each sensor and reward with values outside of its space."""
        return [sentence for tally in self.values.values() for sentence in tally.sentences()]

    def _silent(self) -> Iterator[str]:
        """Yield the learning agents without any update, although their muscles expect one."""
        for spec in self.phase.agents:
            learner = self.learners.get(spec.name)
            if learner is None or learner.updates or learner.refused is not None:
                continue
            if self.phase.mode is Mode.TRAIN and self.steps and expects_updates(spec):
                yield spec.name

    def _refused(self) -> dict[str, str]:
        """Return the warnings about brains that returned false values instead of updates, by agent."""
        learning = [spec for spec in self.phase.agents if spec.name in self.learners]
        warnings = {spec.name: refused_update_warning(spec, self.learners[spec.name]) for spec in learning}
        return {name: warning for name, warning in warnings.items() if warning}

    def state(self) -> dict[str, Any]:
        """Return the state of the phase between two rounds, which can be pickled."""
        assert self.team is not None
        state = {name: getattr(self, name) for name in _STATE} | {"team": self.team.state()}
        return state | {"scalars": None if self.scalars is None else self.scalars.state()}

    def _set_up(self, state: Mapping[str, Any] | None) -> None:
        """Create brains and workers or restore them from a checkpoint, and begin to record."""
        context, phase = self.context, self.phase
        handles = [context.environments.handle(spec) for spec in phase.environments]
        groups = {spec.name: place_bodies(spec, handles)[0] for spec in phase.agents}
        if state is None:
            self._make_learners(groups)
        else:
            self._restore(state)
        plans = [
            WorkerPlan(
                *(phase, context.document.conditions, context.document.seed, index, self.keepers),
                StoredSessions.of(context.store, context.recorder, phase.index),
            )
            for index in range(phase.workers)
        ]
        learning = self.learners if phase.mode is Mode.TRAIN else {}
        if phase.workers == 1:
            self.team = LocalWorkerPool(plans[0], context, learning, [*self.conditions, *self.run_conditions])
        else:
            self.team = ProcessWorkerPool(plans, context, learning)
        self.recorder = self._recorder(handles, groups, resumed=state is not None)
        if self.scalars is not None and self.recorder is not None:
            self.recorder = self.scalars.recording(self.recorder)
        self.team.on_report = self._record
        self.team.start(self.recorder)
        if state is not None:
            self.team.restore(state["team"])

    def _make_learners(self, groups: Mapping[str, Sequence[BodyGroup]]) -> None:
        context = self.context
        instance = context.recorder.uid if context.recorder is not None else None
        replayed = ReplayContext(context.document, self.phase, instance)
        for spec in self.phase.agents:
            keeper = self.keepers[spec.name]
            learner = make_learner(spec, replayed, keeper, groups[spec.name], context.store)
            if learner is not None:
                self.learners[spec.name] = learner

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Restore brains, conditions and counts, but not the workers, from a checkpoint's ``state``."""
        for name in _STATE:
            setattr(self, name, state[name])
        for name, learner in self.learners.items():
            learner.brain._dumpers = Dumpers([self.keepers[name]])
        if self.scalars is not None and state["scalars"] is not None:
            self.scalars.restore(state["scalars"])

    def _recorder(
        self,
        handles: Sequence[EnvironmentHandle],
        groups: Mapping[str, Sequence[BodyGroup]],
        *,
        resumed: bool,
    ) -> Any:
        phase, recorder = self.phase, self.context.recorder
        if recorder is None:
            return None
        # imported here because worker processes need no store
        from .descriptions import agent_record, environment_record

        environments = [environment_record(s, p) for s, p in zip(phase.environments, handles, strict=True)]
        agents = [agent_record(s, groups[s.name]) for s in phase.agents]
        if resumed:
            return recorder.reopen_phase(phase.index, environments, agents)
        return recorder.begin_phase(
            phase.index,
            phase.name,
            mode=phase.mode.value,
            workers=phase.workers,
            episodes=phase.episodes,
            controller=phase.simulation.controller,
            environments=environments,
            agents=agents,
        )

    def _rounds(self) -> Verdict:
        while True:
            verdict = self._round()
            if verdict is not None:
                return verdict
            self._stop_early()
            if self.on_round is not None:
                self.on_round()

    def _round(self) -> Verdict | None:
        """Run an episode in every active worker, and an evaluation if it is due."""
        assert self.team is not None
        workers = list(self.active)
        number = len(self.history[workers[0]])
        verdict: Verdict | None = None
        for report in self._run(workers, EpisodeTask(number)):
            # all workers' episodes are recorded, so the first verdict holds whatever the others return
            verdict = verdict or self._judge(report)
        self._snapshots(number + 1)
        every = self.phase.evaluate_every
        if every and self.phase.mode is Mode.TRAIN and (number + 1) % every == 0 and not _ends_run(verdict):
            task = EpisodeTask(len(self.evaluations), evaluation=True)
            self.evaluations.append(self._run(workers, task))
            # judged even if the phase is over, because metrics and best brains are still recorded
            judged = self._judge_evaluation(task.number)
            verdict = verdict or judged
        return verdict or self._all_done()

    def _run(self, workers: Sequence[int], task: EpisodeTask) -> list[EpisodeReport]:
        assert self.team is not None
        reports = self.team.run(dict.fromkeys(workers, task))
        if any(report.interrupted for report in reports):
            raise self._interrupted(task)
        if not task.evaluation:
            for report in reports:
                self._remember(report)
        self.context.progress.reports(self.phase, reports)
        return reports

    def _stop_early(self) -> None:
        """Raise :class:`RunPruned` if the run should be stopped early. Call only if more episodes would follow."""
        why = self.context.interrupt.pruned
        if why is not None:
            raise RunPruned(f"stopped early in phase {self.phase.name!r}: {why}")

    def _asynchronous(self) -> Verdict:
        """Run episodes without waiting for all workers; evaluations are judged once all workers have run them."""
        assert self.team is not None
        every = self.phase.evaluate_every if self.phase.mode is Mode.TRAIN else None
        verdict: Verdict | None = None

        def following(report: EpisodeReport) -> EpisodeTask | None:
            nonlocal verdict
            if report.interrupted:
                raise self._interrupted(EpisodeTask(report.number, report.evaluation))
            if not report.evaluation:
                self._remember(report)
            self.context.progress.reports(self.phase, [report])
            if report.evaluation:
                judged = self._evaluated(report)
                verdict = verdict or judged
            else:
                verdict = verdict or self._judge(report) or self._judge_evaluations()
                done = len(self.history[report.worker])
                if report.worker == 0:
                    self._snapshots(done)
                if every and done % every == 0 and not _ends_run(verdict):
                    return EpisodeTask(done // every - 1, evaluation=True)
            if verdict is not None or report.worker not in self.active:
                return None
            self._stop_early()
            return EpisodeTask(len(self.history[report.worker]))

        self.team.serve({worker: EpisodeTask(0) for worker in self.active}, following)
        ended = verdict or self._all_done()
        assert ended is not None
        return ended

    def _evaluated(self, report: EpisodeReport) -> Verdict | None:
        while len(self.evaluations) <= report.number:
            self.evaluations.append([])
        self.evaluations[report.number].append(report)
        return self._judge_evaluations()

    def _judge_evaluations(self) -> Verdict | None:
        """Judge, in order, the evaluations that all expected workers have run."""
        verdict: Verdict | None = None
        while verdict is None and self._judged < len(self.evaluations):
            number, reports = self._judged, self.evaluations[self._judged]
            due = (number + 1) * (self.phase.evaluate_every or 0)
            # a finished worker may have stopped before this evaluation
            expected = [w for w, means in enumerate(self.history) if w in self.active or len(means) >= due]
            if len(reports) < len(expected):
                break
            reports.sort(key=lambda r: r.worker)
            self._judged += 1
            verdict = self._judge_evaluation(number)
        return verdict

    def _interrupted(self, task: EpisodeTask) -> RunInterrupted:
        kind = "evaluation" if task.evaluation else "episode"
        return RunInterrupted(f"interrupted in phase {self.phase.name!r}, {kind} {task.number}")

    def _record(self, report: EpisodeReport) -> None:
        """Record an episode, whether it failed or not."""
        if not report.evaluation:
            self.steps += report.steps
        for uid, tally in report.values.items():
            self.values[uid].add(tally)
        if self.recorder is not None:
            report.record(self.recorder)

    def _remember(self, report: EpisodeReport) -> None:
        outcome = report.outcome()
        means = {name: outcome.mean_objective(name) for name in report.objectives}
        self.history[report.worker].append(means)
        ends = self.ends[report.worker]
        ends.append(report.steps + (ends[-1] if ends else 0))
        if self.scalars is not None:
            self.scalars.episode(report, ends)
        self.context.progress.episode(report.worker, report.number, report.steps, means)

    def _judge(self, report: EpisodeReport) -> Verdict | None:
        """Ask the conditions after a training episode; return the verdict if the phase ends."""
        phase, worker = self.phase, report.worker
        view = PhaseView(
            phase.mode,
            phase.workers,
            phase.episodes,
            [spec.name for spec in phase.agents],
            report.outcome(),
            self.history,
        )
        flow, by = ask(self.run_conditions, "phase_flow_control", view)
        # among equal answers, the episode's own answer is the reason
        if report.flow >= flow:
            flow, by = report.flow, report.ended_by
        if flow >= SimulationFlowControl.STOP_PHASE:
            return flow, by
        if flow is SimulationFlowControl.STOP_SIMULATION:
            self._done(worker, by)
        elif phase.episodes is not None and len(self.history[worker]) >= phase.episodes:
            self._done(worker, "episodes")
        elif flow is SimulationFlowControl.RESTART:
            assert self.team is not None
            self.team.rebuild(worker)
        return None

    def _judge_evaluation(self, number: int) -> Verdict | None:
        """Report an evaluation to brains and conditions once all workers have run it."""
        phase, reports = self.phase, self.evaluations[number]
        if self.scalars is not None:
            for report in reports:
                self.scalars.episode(report, self.ends[report.worker])
        metrics: dict[str, dict[str, float]] = {}
        for spec in phase.agents:
            metrics[spec.name] = metrics_of(spec.name, reports)
            learner = self.learners.get(spec.name)
            if learner is not None:
                metrics[spec.name] |= more_metrics(learner.brain, metrics[spec.name])
                statistics, last = learner.brain.pop_statistics(), reports[0]
                step = max(last.last_rows[spec.name], 0)
                for key, value in statistics.items() if self.recorder is not None else ():
                    self.recorder.statistic(spec.name, last.worker, number, step, key, value, evaluation=True)
        self._best({name: figures["objective"] for name, figures in metrics.items()})
        view = EvaluationView(
            phase.mode,
            phase.workers,
            phase.episodes,
            list(metrics),
            number,
            [report.outcome() for report in reports],
            metrics,
        )
        flow, by = ask(self.run_conditions, "evaluation_flow_control", view)
        # free the memory: the objectives of all steps are no longer needed
        self.evaluations[number] = []
        return (flow, by) if flow >= SimulationFlowControl.STOP_PHASE else None

    def _snapshots(self, episodes: int) -> None:
        """Save the snapshots of brains that are due after ``episodes`` episodes, or are the best so far."""
        if self.phase.mode is not Mode.TRAIN:
            return
        for agent, snapshots in self._snapshot_specs():
            if snapshots.every and episodes % snapshots.every == 0:
                self._dump(agent, f"episode-{episodes}")
        if not self.phase.evaluate_every:
            newest = [means[episodes - 1] for means in self.history if len(means) >= episodes]
            self._best({s.name: mean([m.get(s.name, math.nan) for m in newest]) for s in self.phase.agents})

    def _best(self, figures: Mapping[str, float]) -> None:
        """Save the brains that are the best so far, by the ``figures`` of their agents; NaN is never the best."""
        for agent, snapshots in self._snapshot_specs():
            if snapshots.best and figures[agent] > self.best.get(agent, -math.inf):
                self.best[agent] = figures[agent]
                self._dump(agent, "best")

    def _snapshot_specs(self) -> Iterator[tuple[str, SnapshotSpec]]:
        """Yield the learning agents with snapshots."""
        for spec in self.phase.agents:
            if spec.name in self.learners and spec.snapshots is not None:
                yield spec.name, spec.snapshots

    def _dump(self, agent: str, snapshot: str) -> None:
        store_model(self.learners[agent], self.keepers[agent].snapshot(snapshot))

    def _done(self, worker: int, reason: str) -> None:
        self.active.remove(worker)
        self.reasons[worker] = reason

    def _all_done(self) -> Verdict | None:
        if self.active:
            return None
        reasons = set(self.reasons.values())
        return SimulationFlowControl.CONTINUE, (reasons.pop() if len(reasons) == 1 else "episodes")


def _ends_run(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict[0] is SimulationFlowControl.SHUTDOWN
