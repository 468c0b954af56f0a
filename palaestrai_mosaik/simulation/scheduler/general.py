"""Executes any world: simulators in other processes take part, several at once.

Here it is not enough to take the first planned step (:mod:`.direct`): while a simulator in another process is
busy, independent ones may continue. So mosaik's conditions are written out: when a simulator's next step is
settled, and when all its inputs are available. Of the simulators that may step, the first in the order
(:mod:`.runner`) is taken; one in this process is called at once, one in another process is requested to step,
and awaited when no other can continue. The step itself is mosaik's own code.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import Any

from mosaik import scheduler as mosaik_scheduler
from mosaik.exceptions import SimulationError
from mosaik.tiered_time import TieredTime

from . import versions
from .direct import mean_progress
from .inputs import KEPT, accumulate, forget
from .runner import NoOrder, ranks, remote_simulators


class _Sender:
    """Numbers sent values by the position of their sender; replaces mosaik's counters.

    The order of a simulator's inputs then does not depend on which simulator answered first.
    """

    def __init__(self) -> None:
        self.position: tuple[Any, ...] = ()
        self._count = itertools.count()

    def __next__(self) -> tuple[Any, ...]:
        return (*self.position, next(self._count))


class GeneralSchedule:
    """The schedule of a built world with simulators in other processes.

    Also for worlds that have no order (:class:`~.runner.NoOrder`), and for those that mosaik watches
    (``debug=True``): simulators in this process are then called one at a time.

    Args:
        world: a mosaik ``AsyncWorld`` that mosaik has compiled.
        until: the end, exclusive, in steps of mosaik's time.
        lazy_stepping: whether a simulator waits for its successors.
    """

    def __init__(self, world: Any, until: int, *, lazy_stepping: bool = True):
        self.world = world
        #: the end, exclusive; may be moved forward while the world runs
        self.until = until
        self.lazy_stepping = lazy_stepping
        self.runners = versions.runners(world)
        self._remote = set(remote_simulators(self.runners))
        try:
            self._ranks = dict(zip(self.runners, ranks(self.runners), strict=True))
        except NoOrder:
            self._ranks = {}
        self._number = {runner: i for i, runner in enumerate(self.runners)}
        #: running steps of simulators in other processes, in the order of their beginning
        self._steps: list[asyncio.Task[None]] = []
        self._sender = _Sender()
        for runner in self.runners:
            runner.timed_input_buffer.counter = self._sender
            accumulate(runner.outputs or {})

    async def run(self) -> None:
        """Run the world until its end.

        Raises:
            Exception: that of a simulator, the first in the order of events. Running steps of simulators in other
                processes then continue; the caller must end them.
            SimulationError: (mosaik's) simulators wait for each other.
        """
        await asyncio.gather(*(asyncio.ensure_future(runner.setup_done()) for runner in self.runners))
        for runner in self.runners:
            runner.started = True
        try:
            while await self._proceed():
                pass
        finally:
            for task in self._steps:
                task.add_done_callback(_forget)
        waiting = [r for r in self.runners if r.next_steps and r.next_steps[0].time < self.until]
        if waiting:
            raise SimulationError(
                "the world came to a standstill, because simulators wait for each other: "
                + ", ".join(f"{runner.sid} (at time {runner.next_steps[0]})" for runner in waiting)
            )

    async def _proceed(self) -> bool:
        """Make or begin the first step that is possible, or wait for a running step; return false without any."""
        await self._publish_progress()
        following = min(filter(self._may_step, self.runners), key=self._position, default=None)
        if following is None:
            if not self._steps:
                return False
            await asyncio.wait(self._steps, return_when=asyncio.FIRST_COMPLETED)
        elif following.sid in self._remote:
            task = asyncio.ensure_future(self._step(following, self._begin(following)))
            following.task = task
            self._steps.append(task)
            # send the request before another simulator keeps this process busy
            await asyncio.sleep(0)
        else:
            await self._step(following, self._begin(following))
            if self._steps:
                await asyncio.sleep(0)
        for task in [task for task in self._steps if task.done()]:
            self._steps.remove(task)
            task.result()
        return True

    async def _publish_progress(self) -> None:
        """Compute every simulator's progress, and let tasks continue that wait for it or have paused the world."""
        for runner in self.runners:
            self._advance_progress(runner)
        if any(runner.last_step.time >= 0 for runner in self.runners):
            self._show_progress()
        if any(runner.progress._futures for runner in self.runners):
            await asyncio.sleep(0)
        await self.world.running.wait()

    # -- conditions of a step

    def _advance_progress(self, runner: Any) -> None:
        """Compute the time up to which a simulator has completed its work; mosaik 3.5 and 3.6 ignore running steps."""
        times = [TieredTime(self.until) + runner.from_world_time]
        if runner.current_step is not None:
            times.append(runner.current_step)
        if runner.next_steps:
            times.append(runner.next_steps[0])
        for ancestor, distance in runner.triggering_ancestors.items():
            if ancestor.current_step is not None:
                times.append(distance.earliest_sum(ancestor.current_step))
            if ancestor.next_steps:
                times.append(distance.earliest_sum(ancestor.next_steps[0]))
        progress = min(times)
        if progress != runner.progress.time:
            # the end may have been moved forward
            runner.progress.set(max(progress, runner.progress.time))

    def _may_step(self, runner: Any) -> bool:
        """Return whether a simulator's next step is settled, and all its dependencies are done."""
        if runner.current_step is not None or not runner.next_steps:
            return False
        step = runner.next_steps[0]
        if step.time >= self.until or step > runner.progress.time:
            return False
        for source, delays in runner.input_delays.items():
            if any(not source.progress.time + delay > step for delay in delays.durations):
                return False
        followers = runner.successors if self.lazy_stepping else runner.successors_to_wait_for
        return all(target.progress.time >= step + adapt for target, adapt in followers.items())

    def _position(self, runner: Any) -> tuple[Any, ...]:
        step: TieredTime = runner.next_steps[0]
        if not self._ranks:
            return (*step.tiers, self._number[runner])
        simulator_ranks = self._ranks[runner]
        return tuple(part for pair in zip(step.tiers, simulator_ranks, strict=False) for part in pair)

    # -- execution of a step

    def _begin(self, runner: Any) -> tuple[tuple[Any, ...], Any, int]:
        """Start a step; return its position, the inputs, and how far the simulator may look ahead."""
        position = self._position(runner)
        runner.current_step = step = heapq.heappop(runner.next_steps)
        limit = self.world.max_loop_iterations
        if step != runner.progress.time:
            raise versions.error("StepTimeMismatchError", runner.sid, step, runner.progress.time)
        if any(tier >= limit for tier in step.tiers[1:]):
            raise versions.error("MaxLoopIterationsExceededError", runner.sid, limit, step)
        inputs = mosaik_scheduler.get_input_data(self.world, runner)
        advance: int = mosaik_scheduler.get_max_advance(self.world, runner, self.until)
        for ancestor, distance in runner.triggering_ancestors.items():
            if ancestor.current_step is not None and ancestor is not runner:
                # its triggers are not known yet
                advance = min(advance, distance.earliest_sum(ancestor.current_step).time - 1)
        return position, inputs, advance

    async def _step(self, runner: Any, started: tuple[tuple[Any, ...], Any, int]) -> None:
        position, inputs, advance = started
        world = self.world
        try:
            # by the module's attribute, which mosaik's debugging replaces
            await mosaik_scheduler.step(world, runner, inputs, advance)
            if runner.output_request:
                outputs = await runner.get_data(runner.output_request)
                self._pass_on(runner, outputs, position)
        except ConnectionError as error:
            raise versions.connection_lost(runner.sid, error) from error
        runner.current_step = None
        mosaik_scheduler.trigger_successors(runner)
        if runner.outputs is not None and len(runner.outputs) > KEPT:
            self._forget(runner)

    def _forget(self, source: Any) -> None:
        """Drop outputs of ``source`` that cannot be fetched any more."""
        oldest = source.progress.time.time
        for target in self.runners:
            for fetched_from, delay in target.pulled_inputs:
                if fetched_from is source:
                    oldest = min(oldest, target.progress.time.time - delay.tiers[0])
            if target in source.successors_to_wait_for:
                oldest = min(oldest, target.last_step.time)
        forget(source.outputs, oldest)

    def _pass_on(self, runner: Any, outputs: Any, position: tuple[Any, ...]) -> None:
        time = versions.take_time(outputs, runner.last_step.time)
        mosaik_scheduler.validate_output_time(runner, time)
        runner.output_time = mosaik_scheduler.determine_output_tiered_time(runner, time)
        if runner.outputs is not None:
            # the output written last must come last
            runner.outputs.pop(time, None)
            runner.outputs[time] = outputs
        runner.check_outputs(outputs)
        self._sender.position = position
        for (eid, attribute), connections in runner.output_to_push.items():
            if eid not in outputs or attribute not in outputs[eid]:
                continue
            # not mosaik's push_output_data, which would take a KeyError of the transform for a missing output
            for connection in connections:
                connection.dest_sim.timed_input_buffer.add(
                    time + connection.delay.tiers[0],
                    runner.sid,
                    eid,
                    *connection.dest_port,
                    connection.transform(outputs[eid][attribute]),
                )
        runner.data = outputs

    def _show_progress(self) -> None:
        times = [runner.progress.time.time for runner in self.runners]
        self.world.sim_progress = mean_progress(times, self.until)
        bar = self.world.tqdm
        if not bar.disable:
            bar.update(sum(min(self.until, time + 1) for time in times) // len(times) - bar.n)
        for runner in self.runners:
            if not runner.tqdm.disable:
                runner.tqdm.update(runner.progress.time.time - runner.tqdm.n)


def _forget(task: asyncio.Task[None]) -> None:
    """Retrieve the exception of an abandoned step, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()
