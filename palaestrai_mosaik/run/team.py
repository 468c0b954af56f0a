"""The workers of a phase, and the one that stays in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from palaestrai_mosaik.simulation.body import Learner
from palaestrai_mosaik.simulation.conditions import TerminationCondition

from .context import Context
from .parts import WorkerPlan, make_ports
from .worker import EpisodeReport, EpisodeTask, Worker

if TYPE_CHECKING:
    from palaestrai_mosaik.store import PhaseRecorder


class Team(Protocol):
    """What the runner of a phase asks its workers to do."""

    #: a global random generator was used in another process
    globals_used: bool
    #: called with the report of every episode, also of one that failed
    on_report: Callable[[EpisodeReport], None]

    def start(self, recorder: PhaseRecorder | None) -> None:
        """Wait until all workers are set up; ``recorder`` gets what they do."""

    def run(self, tasks: Mapping[int, EpisodeTask]) -> list[EpisodeReport]:
        """Run one episode in each of some workers; return the reports in the workers' order."""

    def serve(
        self, tasks: Mapping[int, EpisodeTask], following: Callable[[EpisodeReport], EpisodeTask | None]
    ) -> None:
        """Run episodes without waiting for each other; ``following`` says what a worker does next."""

    def rebuild(self, worker: int) -> None:
        """Make a worker's environments and muscles anew."""

    def state(self) -> Any:
        """Return, between two episodes, what lasts; to be pickled.

        Raises :class:`CheckpointError` where a worker has what cannot be pickled.
        """

    def restore(self, state: Any) -> None:
        """Go on from what :meth:`state` returned."""

    def finish(self) -> None:
        """Let everything go after a phase without faults."""

    def close(self) -> None:
        """Let everything go, whatever has happened."""


def deliver(worker: Worker, learners: Mapping[str, Learner]) -> None:
    """Give new muscles what the brains of their agents have learned before."""
    for body in worker.bodies:
        learner = learners.get(body.agent)
        if learner is None or not body.learns:
            continue
        if learner.shared_updates:
            number, update = learner.update_for(body.agent)
            if number:
                body.muscle.update(update)
        else:
            for muscle in body.muscles:
                number, update = learner.update_for(muscle)
                if number:
                    body.update_of(muscle, update)
        if body.filters is not None and learner.filters is not None:
            body.filters.set_state(learner.filters.state())


class LocalTeam:
    """One worker, in this process."""

    globals_used = False

    def __init__(
        self,
        plan: WorkerPlan,
        context: Context,
        learners: Mapping[str, Learner],
        conditions: Sequence[TerminationCondition],
    ):
        self._plan = plan
        self._context = context
        self._learners = learners
        self._conditions = conditions
        self._recorder: PhaseRecorder | None = None
        self.on_report: Callable[[EpisodeReport], None] = lambda report: None
        self._worker = self._make()

    def start(self, recorder: PhaseRecorder | None) -> None:
        """See :class:`Team`."""
        self._recorder = self._worker.recording = recorder

    def _make(self) -> Worker:
        context = self._context
        ports = make_ports(self._plan.phase.environments, self._plan.stored, context.inspection.take)
        worker = Worker(
            self._plan, ports, self._learners, self._conditions, context.interrupt, self._recorder
        )
        worker.on_step = partial(context.progress.step, self._plan.index)
        worker.on_report = self._reported
        try:
            deliver(worker, self._learners)
        except BaseException:
            worker.close()
            raise
        return worker

    def _reported(self, report: EpisodeReport) -> None:
        self.on_report(report)

    def run(self, tasks: Mapping[int, EpisodeTask]) -> list[EpisodeReport]:
        """See :class:`Team`."""
        return [self._worker.run_episode(task, self._context.loop) for task in tasks.values()]

    def serve(
        self, tasks: Mapping[int, EpisodeTask], following: Callable[[EpisodeReport], EpisodeTask | None]
    ) -> None:
        """See :class:`Team`."""
        task = next(iter(tasks.values()), None)
        while task is not None:
            task = following(self._worker.run_episode(task, self._context.loop))

    def rebuild(self, worker: int) -> None:
        """See :class:`Team`."""
        self._worker.close()
        self._worker = self._make()

    def state(self) -> Any:
        """See :class:`Team`. Conditions are the phase's own objects, so pickle both together."""
        return self._worker.state()

    def restore(self, state: Any) -> None:
        """See :class:`Team`."""
        self._worker.restore(state)
        self._conditions = state["conditions"]

    def finish(self) -> None:
        """See :class:`Team`."""
        self._worker.close()

    def close(self) -> None:
        """See :class:`Team`."""
        self._worker.close()
