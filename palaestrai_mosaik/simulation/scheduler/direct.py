"""Executes a world of simulators in this process: one loop, which calls one simulator after the other.

Read :class:`Schedule` first, then :mod:`.runner`. The meaning of a world stays mosaik's: this module reads
the results of mosaik's analysis of the connections (``SimRunner``), and keeps its own state in mosaik's objects
(data of the outputs, waiting inputs), so that mosaik's own code can answer requests of simulators.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time as clock
from collections.abc import Mapping, Sequence
from functools import partial
from inspect import isgeneratorfunction
from operator import attrgetter
from typing import Any

from mosaik import scheduler as mosaik_scheduler
from mosaik.tiered_time import TieredTime

from . import versions
from .inputs import MANY, Inputs, OutputCache, collector, insert, without_collector
from .runner import Runner, answered, ranks

#: number of tiers of a time outside all groups
_PLAIN = 1
#: seconds after which other tasks of the event loop get their turn
_TURN = 0.005


class Schedule:
    """The schedule of a built world whose simulators are all in this process.

    A heap holds every planned step, by its position in the order (:mod:`.runner`). :meth:`run` takes the
    first, collects the inputs, calls the simulator, passes its outputs on, and plans the steps that follow from
    them, until no step before ``until`` is left.

    :meth:`run` is a coroutine that awaits nothing unless a simulator does so in ``step`` or ``get_data``, if they
    are generator functions. It therefore needs no event loop; :meth:`advance` drives it up to the next time that
    a simulator waits for an answer from outside.

    Args:
        world: a mosaik ``AsyncWorld`` that mosaik has compiled.
        until: the end, exclusive, in steps of mosaik's time.

    Raises:
        NoOrder: simulators wait for each other within one time (:class:`~.runner.NoOrder`).
        ValueError: a simulator is not in this process.
    """

    def __init__(self, world: Any, until: int):
        self.world = world
        #: the end, exclusive. It may be moved forward while the world runs; no simulator steps at it or later.
        self.until = until
        #: the time of the current step
        self.time = -1
        origins = versions.runners(world)
        self.runners = list(map(Runner, origins, ranks(origins)))
        #: a heap of tuples: time, rank, further pairs of tier and rank, runner
        self._heap: list[Any] = []
        self._count = itertools.count().__next__
        #: simulators that may request outputs of others through mosaik's code
        asking = {target.sid for origin in origins for target in origin.successors_to_wait_for}
        self._askers = [runner for runner in self.runners if runner.origin.sid in asking]
        #: whether any simulator may request something from mosaik
        self.asks = any(runner.asks for runner in self.runners)
        runner_of = {runner.origin.sid: runner for runner in self.runners}
        for runner in self.runners:
            self._compile(runner, runner_of)
        self._driven: Any = None
        self._is_set_up = False
        #: when other tasks of the event loop get their next turn
        self._turn = 0.0
        self._beginning = [self._initial(runner) for runner in self.runners]
        self._plan_first()

    def _compile(self, runner: Runner, runner_of: Mapping[str, Runner]) -> None:
        """Prepare the inputs and outputs of a simulator; ``runner_of`` has all by mosaik's id."""
        runner.connect(runner_of)
        outputs_of = {sid: other.outputs for sid, other in runner_of.items()}
        runner.inputs = collector(runner.origin, outputs_of, partial(self._inputs_with_set_data, runner))
        messages = sum(len(wires) for _, _, wires in runner.pushes)
        runner.pass_on = self._pass_on if messages < MANY else without_collector(self._pass_on)

    def _inputs_with_set_data(self, runner: Runner, time: int) -> Inputs:
        origin = runner.origin
        self._show(runner)
        data: Inputs = mosaik_scheduler.get_input_data(self.world, origin)
        # mosaik leaves a heap
        runner.queue.sort()
        return data

    # -- planning

    def _initial(self, runner: Runner) -> tuple[Any, ...]:
        origin = runner.origin
        return (
            [step.tiers for step in origin.next_steps],
            _copied(origin.persistent_inputs, 3),
            _copied(runner.outputs.outputs, 3),
        )

    def _plan_first(self) -> None:
        for runner, (steps, *_) in zip(self.runners, self._beginning, strict=True):
            for moment in steps:
                self._plan(runner, moment)

    def rewind(self) -> None:
        """Return to the initial state of the built world, to run it once more.

        The simulators themselves are not reset: that is left to the caller.
        """
        self._heap.clear()
        self._driven = None
        self._is_set_up = False
        self.time = -1
        for runner, (_, persistent, outputs) in zip(self.runners, self._beginning, strict=True):
            runner.pending.clear()
            runner.queue.clear()
            runner.origin.inputs_from_set_data = {}
            runner.origin.persistent_inputs.clear()
            runner.origin.persistent_inputs.update(_copied(persistent, 3))
            runner.outputs.rewind(_copied(outputs, 3))
            runner.moment, runner.last = None, -1
            # true if the last run was abandoned within a step
            runner.origin.is_in_step = False
        self._plan_first()

    def _plan(self, runner: Runner, moment: tuple[int, ...]) -> None:
        """Plan a step of ``runner`` at a tiered time, unless it is planned already."""
        pending = runner.pending
        if moment in pending:
            return
        heapq.heappush(pending, moment)
        simulator_ranks = runner.ranks
        if len(simulator_ranks) == 1:
            heapq.heappush(self._heap, (moment[0], simulator_ranks[0], runner))
        else:
            # each inner loop shares one tier less
            position = [part for pair in zip(moment, simulator_ranks, strict=False) for part in pair]
            heapq.heappush(self._heap, (*position, runner))

    # -- running

    async def run(self, *, among_others: bool = False) -> None:
        """Run the world until its end.

        Args:
            among_others: whether it runs in an event loop with other tasks, which get a turn from time to time and
                may pause the world (``world.running``).

        Raises:
            Exception: that of a simulator, or mosaik's for an invalid time of a step or an output.
        """
        await self._set_up()
        try:
            await self._run(among_others)
        except ConnectionError as error:
            (runner,) = (runner for runner in self.runners if runner.moment is not None)
            raise versions.connection_lost(runner.origin.sid, error) from error

    async def _run(self, among_others: bool) -> None:
        heap, world = self._heap, self.world
        bars = _bars(world, self.runners)
        limit = world.max_loop_iterations
        while heap and heap[0][0] < self.until:
            runner = heapq.heappop(heap)[-1]
            runner.moment = moment = heapq.heappop(runner.pending)
            time = moment[0]
            if time != self.time:
                self.time = time
                if bars:
                    self._show_progress(bars)
                if among_others:
                    await self._let_others()
            if len(moment) > _PLAIN and max(moment[1:]) >= limit:
                raise versions.error(
                    "MaxLoopIterationsExceededError", runner.origin.sid, limit, TieredTime(*moment)
                )
            inputs, advance = runner.inputs(time), self._max_advance(runner)
            if runner.step_is_generator:
                following = await self._asked_step(runner, inputs, advance)
            elif runner.takes_max_advance:
                following = runner.simulator.step(time, inputs, advance)
            else:
                following = runner.simulator.step(time, inputs)
            runner.last = time
            if following is not None or runner.is_time_based:
                self._plan_following(runner, following)
            if runner.get_data_is_generator:
                self._show(runner)
                runner.pass_on(runner, await answered(runner.simulator.get_data(runner.request)))
            elif runner.request:
                runner.pass_on(runner, runner.simulator.get_data(runner.request))
            runner.moment = None
            if self.asks:
                world.sim_progress = self.progress()
        for runner in self.runners:
            self._show(runner)
        world.sim_progress = self.progress()
        if bars:
            self._show_progress(bars)

    async def _set_up(self) -> None:
        """Call ``setup_done`` of every simulator, if not done before."""
        prepared = [] if self._is_set_up else self.runners
        self._is_set_up = True
        failures = []
        for runner in prepared:
            if runner.has_setup_done:
                try:
                    done = runner.simulator.setup_done()
                    if isgeneratorfunction(runner.simulator.setup_done):
                        await answered(done)
                except Exception as error:
                    failures.append(error)
        if failures:
            raise failures[0]

    async def _asked_step(self, runner: Runner, inputs: Inputs, advance: int) -> Any:
        """Perform a step that requests something from mosaik, or from outside, meanwhile."""
        if runner.asks:
            self._show(runner)
        runner.origin.is_in_step = True
        arguments = (self.time, inputs, advance) if runner.takes_max_advance else (self.time, inputs)
        following = await answered(runner.simulator.step(*arguments))
        runner.origin.is_in_step = False
        return following

    async def _let_others(self) -> None:
        """Give other tasks of the event loop a turn, if they wait for a time or have waited for long."""
        if not self.world.running.is_set():
            await self.world.running.wait()
        if self._publish_progress() or clock.perf_counter() > self._turn:
            await asyncio.sleep(0)
            self._turn = clock.perf_counter() + _TURN

    def _max_advance(self, runner: Runner) -> int:
        """Return the time up to which no other simulator can trigger ``runner``."""
        advance = self.until
        for ancestor, delay in runner.ancestors:
            if ancestor.pending and ancestor.pending[0][0] + delay <= advance:
                advance = ancestor.pending[0][0] + delay - 1
        pending = runner.pending
        if pending and pending[0][0] <= advance:
            advance = pending[0][0] - 1
        return advance

    def _plan_following(self, runner: Runner, following: Any) -> None:
        """Plan the step that a simulator has requested for itself."""
        if following is not None:
            if not isinstance(following, int):
                raise versions.error("InvalidNextStepTypeError", runner.origin.sid, following)
            if following <= runner.last:
                raise versions.error("InvalidNextStepTimeError", runner.origin.sid, following, runner.last)
            if following < self.until:
                self._plan(runner, (following, *runner.tiers))
        elif runner.is_time_based:
            raise AssertionError("A time-based simulator must always return a next step")

    def _pass_on(self, runner: Runner, data: Any) -> None:
        """Store and send a simulator's outputs, and trigger other simulators by them."""
        moment, count, requested = runner.moment, self._count, runner.requested
        if "time" in data:
            moment = self._output_time(runner, data)
        written: int = moment[0]  # type: ignore[index]
        if runner.cached:
            outputs = runner.outputs
            outputs.add(written, data)
            if len(outputs.outputs) > outputs.limit:
                self._forget(outputs)
        for eid in data:
            if eid not in requested or not requested[eid].issuperset(data[eid]):
                runner.origin.check_outputs(data)
                break
        for queue, delay, wires in runner.pushes:
            arrival, sent = written + delay, []
            for eid, attr, source, to_eid, to_attr, transform in wires:
                attributes = data.get(eid)
                if attributes is not None and attr in attributes:
                    value = attributes[attr]
                    if transform is not None:
                        value = transform(value)
                    sent.append((arrival, count(), source, to_eid, to_attr, value))
            if not queue or queue[-1][0] <= arrival:
                queue.extend(sent)
            else:
                insert(queue, arrival, sent)
        for target, delay, ports in runner.triggers:
            for eid, attr in ports:
                if eid in data and attr in data[eid]:
                    self._plan(target, (written + delay,) if type(delay) is int else _after(moment, delay))
                    break

    def _output_time(self, runner: Runner, data: Any) -> tuple[int, ...]:
        """Return the tiered time of outputs with a time of their own."""
        moment = runner.moment
        assert moment is not None
        written = versions.take_time(data, moment[0])
        if written < moment[0]:
            raise versions.error("InvalidOutputTimeError", runner.origin.sid, written, TieredTime(*moment))
        return moment if written == moment[0] else (written, *runner.tiers)

    def _forget(self, outputs: OutputCache) -> None:
        """Drop outputs that neither connected simulators nor requests can fetch any more."""
        # mosaik answers requests with the outputs at the time of the simulator's last step
        outputs.forget(min([self.time - outputs.reach, *(asker.last for asker in self._askers)]))

    def advance(self, answer: Any = None) -> Any:
        """Continue to the next time that a simulator awaits an answer from outside, or to the end.

        Args:
            answer: the answer to the last request; ``None`` for the first call.

        Returns:
            The next request (see :class:`.Question`), or ``None`` at the end.

        Raises:
            Exception: see :meth:`run`.
        """
        if self._driven is None:
            self._driven = self.run()
        try:
            return self._driven.send(answer)
        except StopIteration:
            return None

    def close(self) -> None:
        """Close a world that :meth:`advance` has not brought to its end."""
        if self._driven is not None:
            self._driven.close()

    # -- the state of mosaik's own objects

    def progress(self) -> float:
        """Return the mean progress of all simulators by mosaik's definition: from 0 to 100 percent of the time."""
        return mean_progress([self._reached(runner) for runner in self.runners], self.until)

    def _reached(self, runner: Runner) -> int:
        """Return the time before which ``runner`` has completed all its work."""
        reached = self.until
        if runner.moment is not None:
            reached = min(reached, runner.moment[0])
        elif runner.pending:
            reached = min(reached, runner.pending[0][0])
        for ancestor, delay in runner.ancestors:
            moment = ancestor.moment or (ancestor.pending[0] if ancestor.pending else None)
            if moment is not None:
                reached = min(reached, moment[0] + delay)
        return reached

    def _show(self, runner: Runner) -> None:
        """Update mosaik's object of a simulator."""
        origin, tiers = runner.origin, runner.tiers
        origin.current_step = None if runner.moment is None else TieredTime(*runner.moment)
        origin.last_step = TieredTime(runner.last, *tiers)
        origin.next_steps = sorted(
            (TieredTime(*moment) for moment in runner.pending), key=attrgetter("tiers")
        )
        origin.progress.time = TieredTime(self._reached(runner), *tiers)

    def _publish_progress(self) -> bool:
        """Wake tasks that wait for a simulator to reach a time; return whether there are any."""
        waited_for = [runner for runner in self.runners if runner.origin.progress._futures]
        for runner in waited_for:
            runner.origin.progress.set(TieredTime(self._reached(runner), *runner.tiers))
        return bool(waited_for)

    def _show_progress(self, bars: Sequence[tuple[Any, Sequence[Runner]]]) -> None:
        for bar, runners in bars:
            times = [min(self.until, self._reached(runner) + (len(runners) > 1)) for runner in runners]
            bar.update(sum(times) // len(times) - bar.n)


def mean_progress(times: Sequence[int], until: int) -> float:
    """Return the mean of ``times`` in percent of ``until``, 0 for a world without duration."""
    return sum(times) / len(times) * 100 / until if until else 0.0


def _copied(data: Any, levels: int) -> Any:
    """Copy nested dictionaries, ``levels`` deep; deeper values are shared."""
    return {key: _copied(value, levels - 1) for key, value in data.items()} if levels else data


def _after(moment: Any, delay: Any) -> tuple[int, ...]:
    """Return the tiered time at which data sent at ``moment`` arrive after ``delay``."""
    tiers: tuple[int, ...] = delay.tiers
    if len(tiers) == len(moment) == _PLAIN:
        return (moment[0] + tiers[0],)
    shared = delay.cutoff
    return (*(a + b for a, b in zip(moment, tiers[:shared], strict=False)), *tiers[shared:])


def _bars(world: Any, runners: Sequence[Runner]) -> list[tuple[Any, Sequence[Runner]]]:
    """Return the visible progress bars, each with the simulators that it shows."""
    bars = [(runner.origin.tqdm, [runner]) for runner in runners] + [(world.tqdm, runners)]
    return [(bar, shown_runners) for bar, shown_runners in bars if not bar.disable]
