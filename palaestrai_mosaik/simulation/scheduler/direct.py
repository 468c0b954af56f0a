"""Executes a world of simulators in this process: one loop, which calls one simulator after the other.

Read :class:`Schedule` first, then :mod:`.order`. The meaning of a world stays mosaik's: this module reads
the results of mosaik's analysis of the connections (``SimRunner``), and keeps its own state in mosaik's objects
(data of the outputs, waiting inputs), so that mosaik's own code can answer requests of simulators.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
import math
import time as clock
import warnings
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from inspect import isgeneratorfunction
from operator import attrgetter, itemgetter
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

from mosaik import scheduler as mosaik_scheduler
from mosaik.adapters import V2ToV1Adapter, V3ToV2Adapter
from mosaik.proxies import LocalProxy
from mosaik.tiered_time import TieredTime

from . import versions
from .order import ranks

#: number of tiers of a time outside all groups
_PLAIN = 1
#: seconds after which other tasks of the event loop get their turn
_TURN = 0.005
#: number of outputs that a simulator keeps before the ones that cannot be fetched any more are dropped
KEPT = 32
#: with this many inputs or outputs, the garbage collector is paused while they are collected
_MANY = 256
#: the time of a waiting input
_TIME = itemgetter(0)

#: mark of a generator function that requests nothing from mosaik
_ONLY_QUESTIONS = "only_questions"

Inputs = dict[str, dict[str, dict[str, Any]]]
_P = ParamSpec("_P")
_R = TypeVar("_R")


def _same(value: Any) -> Any:
    return value


def _changes(transform: Callable[[Any], Any]) -> bool:
    """Return whether ``transform`` differs from ``lambda x: x``, mosaik's default without an effect."""
    if not isinstance(transform, FunctionType):
        return True
    code, same = transform.__code__, _same.__code__
    return (code.co_code, code.co_argcount, code.co_flags) != (
        same.co_code,
        same.co_argcount,
        same.co_flags,
    )


def local_simulator(proxy: Any) -> tuple[Any, bool, bool] | None:
    """Return the simulator behind mosaik's ``proxy``, if it is in this process and can be called directly.

    The other two results are whether its ``step`` takes ``max_advance``, and whether it has ``setup_done``:
    mosaik's adapters for older versions of its API lack them. ``None`` for any other proxy.
    """
    advance = setup = True
    while type(proxy) in (V3ToV2Adapter, V2ToV1Adapter):
        advance = advance and type(proxy) is not V3ToV2Adapter
        setup = setup and type(proxy) is not V2ToV1Adapter
        proxy = proxy._out
    return (proxy.sim, advance, setup) if type(proxy) is LocalProxy else None


class Runner:
    """The schedule's data about one simulator, derived from mosaik's ``SimRunner`` (``origin``)."""

    __slots__ = (
        "advances",
        "ancestors",
        "asks",
        "cached",
        "gives",
        "inputs",
        "known",
        "last",
        "latest",
        "latest_time",
        "moment",
        "must_step",
        "origin",
        "outputs",
        "passes_on",
        "pending",
        "pushes",
        "queue",
        "ranks",
        "reach",
        "request",
        "sets_up",
        "simulator",
        "steps",
        "tiers",
        "triggers",
        "trim_at",
    )

    def __init__(self, origin: Any, found: tuple[Any, bool, bool], place: tuple[int, ...]):
        self.origin = origin
        self.simulator, self.advances, self.sets_up = found
        self.ranks = place
        #: zeros, one for each tier of its times after the first
        self.tiers = (0,) * (len(origin.last_step) - 1)
        #: a heap of the times (tuples of tiers) at which it will step
        self.pending: list[tuple[int, ...]] = []
        #: the tiered time of its current step, if any, and the first tier of its last one
        self.moment: tuple[int, ...] | None = None
        self.last = -1
        self.must_step = origin.type == "time-based"
        #: whether its functions are generators, which may request something from mosaik
        self.steps = isgeneratorfunction(self.simulator.step)
        self.gives = bool(origin.output_request) and isgeneratorfunction(self.simulator.get_data)
        #: whether they may do so in fact: mosaik's objects must be up to date then
        self.asks = self.gives or (self.steps and not getattr(self.simulator.step, _ONLY_QUESTIONS, False))
        #: the simulators that can trigger it, and the shortest time until then
        self.ancestors: list[tuple[Runner, int]] = []
        #: builds its inputs for a time
        self.inputs: Callable[[int], Inputs]
        #: processes its outputs
        self.passes_on: Callable[[Runner, Any], None]
        #: inputs that have been sent to it, in order: (time, number, source, entity, attribute, value). It shares
        #: mosaik's heap; a sorted list is a heap, too.
        self.queue: list[Any] = origin.timed_input_buffer.input_queue
        self.request = origin.output_request
        #: the requested attributes of each entity
        self.known = {eid: frozenset(attrs) for eid, attrs in self.request.items()}
        #: for each target queue and delay, the outputs to send: entity, attribute, name of the source, entity and
        #: attribute of the target, transform
        self.pushes: list[tuple[list[Any], int, list[tuple[str, str, str, str, str, Any]]]] = []
        #: for each triggered simulator and delay (in ticks, if neither is in a group), the entities and
        #: attributes that trigger it
        self.triggers: list[tuple[Runner, Any, list[tuple[str, str]]]] = []
        #: its outputs by time, if others fetch them; the newest output, and its time
        self.cached = origin.outputs is not None
        self.outputs: dict[int, Mapping[str, Any]] = origin.outputs if self.cached else {}
        accumulate(self.outputs)
        self.latest_time: int
        self.latest: Mapping[str, Any]
        self.latest_time, self.latest = next(reversed(self.outputs.items()), (-1, {}))
        self.trim_at = KEPT
        #: the longest delay with which others fetch its outputs
        self.reach = 0


class Schedule:
    """The schedule of a built world whose simulators are all in this process.

    A heap holds every planned step, by its position in the order (:mod:`.order`). :meth:`run` takes the
    first, collects the inputs, calls the simulator, passes its outputs on, and plans the steps that follow from
    them, until no step before ``until`` is left.

    :meth:`run` is a coroutine that awaits nothing unless a simulator does so in ``step`` or ``get_data``, if they
    are generator functions. It therefore needs no event loop; :meth:`advance` drives it up to the next time that
    a simulator waits for an answer from outside.

    Raises :class:`~.order.NoOrder` if the world has no order, and ``ValueError`` if a simulator is not in this
    process.
    """

    def __init__(self, world: Any, until: int):
        self.world = world
        #: the end, exclusive. It may be moved forward while the world runs; no simulator steps at it or later.
        self.until = until
        #: the time of the current step
        self.time = -1
        origins = versions.runners(world)
        found = [local_simulator(origin._proxy) for origin in origins]
        if None in found:
            raise ValueError("a simulator of this world is in another process")
        places = ranks(origins)
        self.runners = [
            Runner(origin, local, place)
            for origin, local, place in zip(origins, found, places, strict=True)
            if local is not None
        ]
        self._runner_of = {runner.origin.sid: runner for runner in self.runners}
        #: (time, rank, [tier, rank, ...] runner)
        self._heap: list[Any] = []
        self._count = itertools.count().__next__
        #: simulators that may request outputs of others through mosaik's code
        asking = {target.sid for origin in origins for target in origin.successors_to_wait_for}
        self._askers = [runner for runner in self.runners if runner.origin.sid in asking]
        #: whether any simulator may request something from mosaik
        self.asks = any(runner.asks for runner in self.runners)
        for runner in self.runners:
            self._compile(runner)
        self._driven: Any = None
        self._is_set_up = False
        #: when other tasks of the event loop get their next turn
        self._turn = 0.0
        self._beginning = [self._initial(runner) for runner in self.runners]
        self._plan_first()

    def _compile(self, runner: Runner) -> None:
        origin, of = runner.origin, self._runner_of
        for ancestor, delays in origin.triggering_ancestors.items():
            runner.ancestors.append((of[ancestor.sid], min(delay.tiers[0] for delay in delays.durations)))
        pushes: dict[tuple[Runner, int], list[Any]] = {}
        for (eid, attr), descriptions in origin.output_to_push.items():
            for d in descriptions:
                transform = d.transform if _changes(d.transform) else None
                wire = (eid, attr, f"{origin.sid}.{eid}", *d.dest_port, transform)
                pushes.setdefault((of[d.dest_sim.sid], d.delay.tiers[0]), []).append(wire)
        runner.pushes = [(target.queue, delay, wires) for (target, delay), wires in pushes.items()]
        triggers: dict[tuple[Runner, Any], list[tuple[str, str]]] = {}
        for port, triggered in origin.triggers.items():
            for target, delay in triggered:
                triggers.setdefault((of[target.sid], delay), []).append(port)
        runner.triggers = [
            (target, delay.tiers[0] if runner.tiers == target.tiers == () else delay, ports)
            for (target, delay), ports in triggers.items()
        ]
        runner.inputs = self._inputs_of(runner)
        messages = sum(len(wires) for _, _, wires in runner.pushes)
        runner.passes_on = self._pass_on if messages < _MANY else _without_collector(self._pass_on)

    def _inputs_of(self, runner: Runner) -> Callable[[int], Inputs]:
        """Build the function that collects the inputs of ``runner`` for a time, like mosaik's ``get_input_data``."""
        origin, queue, persistent = runner.origin, runner.queue, runner.origin.persistent_inputs
        ports: dict[tuple[str, str], int] = {}
        pulls = []
        for (source, delay), descriptions in origin.pulled_inputs.items():
            wires = []
            for d in descriptions:
                port = ports.setdefault(d.dest_port, len(ports))
                full_id = f"{source.sid}.{d.src_port[0]}"
                wires.append((*d.src_port, d.transform if _changes(d.transform) else None, port, full_id))
            fetched_from = self._runner_of[source.sid]
            fetched_from.reach = max(fetched_from.reach, delay.tiers[0])
            pulls.append((fetched_from, delay.tiers[0], wires))
        # the first attribute of each entity, and all later ones
        firsts: list[tuple[str, str, int]] = []
        later: list[tuple[str, str, int]] = []
        entities: set[str] = set()
        for (eid, attr), port in ports.items():
            (later if eid in entities else firsts).append((eid, attr, port))
            entities.add(eid)

        def inputs(time: int) -> Inputs:
            if origin.inputs_from_set_data:
                return self._inputs_with_set_data(runner, time)
            # like mosaik, pass on the dictionaries of persistent inputs, so that sent values stay in them
            data: Inputs = dict(persistent)
            if queue:
                _take_due(queue, time, data)
            if not pulls:
                return data
            fetched: list[dict[str, Any]] = [{} for _ in ports]
            for source, delay, wires in pulls:
                if source.latest_time + delay <= time:
                    outputs = source.latest
                else:
                    outputs = self._output_for(source, time - delay)
                for src_eid, src_attr, transform, port, full_id in wires:
                    try:
                        value = outputs[src_eid][src_attr]
                    except KeyError:
                        value = None
                        _warn_of_missing(source.origin.sid, src_eid, src_attr, origin.sid)
                    if transform is not None:
                        value = transform(value)
                    fetched[port][full_id] = value
            if data:
                _add(ports, fetched, data)
                return data
            data = {eid: {attr: fetched[port]} for eid, attr, port in firsts}
            for eid, attr, port in later:
                data[eid][attr] = fetched[port]
            return data

        def sent(time: int) -> Inputs:
            if origin.inputs_from_set_data:
                return self._inputs_with_set_data(runner, time)
            data: Inputs = {}
            if queue:
                _take_due(queue, time, data)
            return data

        collect = inputs if pulls or persistent else sent
        return collect if len(ports) < _MANY else _without_collector(collect)

    def _inputs_with_set_data(self, runner: Runner, time: int) -> Inputs:
        origin = runner.origin
        self._show(runner)
        data: Inputs = mosaik_scheduler.get_input_data(self.world, origin)
        # mosaik leaves a heap
        runner.queue.sort()
        return data

    def _output_for(self, source: Runner, time: int) -> Mapping[str, Any]:
        """Return the output of ``source`` up to ``time`` that was written last."""
        for written, data in reversed(source.outputs.items()):
            if written <= time:
                return data
        return {}

    # -- planning

    def _initial(self, runner: Runner) -> tuple[Any, ...]:
        origin = runner.origin
        return (
            [step.tiers for step in origin.next_steps],
            _copied(origin.persistent_inputs, 3),
            _copied(runner.outputs, 3),
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
            runner.outputs.clear()
            runner.outputs.update(_copied(outputs, 3))
            runner.latest_time, runner.latest = next(reversed(runner.outputs.items()), (-1, {}))
            runner.moment, runner.last, runner.trim_at = None, -1, KEPT
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
        """Run the world until its end, or raise a simulator's exception.

        ``among_others``: whether it runs in an event loop with other tasks, which get a turn from time to time and
        may pause the world (``world.running``).
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
                raise versions.too_many_repetitions(runner.origin.sid, limit, TieredTime(*moment))
            inputs, advance = runner.inputs(time), self._max_advance(runner)
            if runner.steps:
                following = await self._asked_step(runner, inputs, advance)
            elif runner.advances:
                following = runner.simulator.step(time, inputs, advance)
            else:
                following = runner.simulator.step(time, inputs)
            runner.last = time
            if following is not None or runner.must_step:
                self._plan_following(runner, following)
            if runner.gives:
                self._show(runner)
                runner.passes_on(runner, await _answered(runner.simulator.get_data(runner.request)))
            elif runner.request:
                runner.passes_on(runner, runner.simulator.get_data(runner.request))
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
        setting_up = [] if self._is_set_up else self.runners
        self._is_set_up = True
        failures = []
        for runner in setting_up:
            if runner.sets_up:
                try:
                    done = runner.simulator.setup_done()
                    if isgeneratorfunction(runner.simulator.setup_done):
                        await _answered(done)
                except Exception as error:
                    failures.append(error)
        if failures:
            raise failures[0]

    async def _asked_step(self, runner: Runner, inputs: Inputs, advance: int) -> Any:
        """Perform a step that requests something from mosaik, or from outside, meanwhile."""
        if runner.asks:
            self._show(runner)
        runner.origin.is_in_step = True
        arguments = (self.time, inputs, advance) if runner.advances else (self.time, inputs)
        following = await _answered(runner.simulator.step(*arguments))
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
                raise versions.no_integer(runner.origin.sid, following)
            if following <= runner.last:
                raise versions.not_later(runner.origin.sid, following, runner.last)
            if following < self.until:
                self._plan(runner, (following, *runner.tiers))
        elif runner.must_step:
            raise AssertionError("A time-based simulator must always return a next step")

    def _pass_on(self, runner: Runner, data: Any) -> None:
        """Store and send a simulator's outputs, and trigger other simulators by them."""
        sid, moment, count = runner.origin.sid, runner.moment, self._count
        assert moment is not None
        written = versions.take_time(data, moment[0]) if "time" in data else moment[0]
        if written == moment[0]:
            out = moment
        elif written < moment[0]:
            raise versions.too_early(sid, written, TieredTime(*moment))
        else:
            out = (written, *runner.tiers)
        if runner.cached:
            self._keep(runner, written, data)
        requested = runner.known
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
                following = bisect_right(queue, arrival, key=_TIME)
                queue[following:following] = sent
        for target, delay, ports in runner.triggers:
            for eid, attr in ports:
                if eid in data and attr in data[eid]:
                    due = (written + delay,) if type(delay) is int else _after(out, delay)
                    self._plan(target, due)
                    break

    def _keep(self, runner: Runner, written: int, data: Any) -> None:
        """Store outputs for simulators that fetch them."""
        outputs = runner.outputs
        if written in outputs and written != runner.latest_time:
            # the output written last must come last
            del outputs[written]
        outputs[written] = runner.latest = data
        runner.latest_time = written
        if len(outputs) > runner.trim_at:
            oldest = self.time - runner.reach
            if self._askers:
                # mosaik answers them with the outputs at the time of their last step
                oldest = min(oldest, *(asker.last for asker in self._askers))
            forget(outputs, oldest)
            runner.trim_at = max(KEPT, 2 * len(outputs))

    def advance(self, answer: Any = None) -> Any:
        """Continue to the next time that a simulator awaits an answer from outside, or to the end.

        Args:
            answer: the answer to the last request; ``None`` for the first call.

        Returns:
            The next request (see :class:`Question`), or ``None`` at the end.
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
        """Return the mean progress of all simulators, in percent of the time, by mosaik's definition."""
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


def accumulate(initial: dict[int, Any]) -> None:
    """Order initial data by time, and copy the data of earlier times into later ones.

    mosaik separates them by time shift, so the data of one would hide those of another.
    """
    before: dict[str, dict[str, Any]] = {}
    for time in sorted(initial):
        data = initial.pop(time)
        for eid, attrs in before.items():
            data[eid] = {**attrs, **data.get(eid, {})}
        initial[time] = before = data


def forget(outputs: dict[int, Any], oldest: int) -> None:
    """Drop the outputs that cannot be fetched for ``oldest`` or later times any more.

    A request for a time gets the output up to it that was written last.

    mosaik drops all outputs older than the last step of every simulator; but a connection with a time shift, and
    one to a simulator that has not caught up (without lazy stepping), still need some of them.
    """
    least: float = math.inf
    needed = []
    for time, data in reversed(outputs.items()):
        if least > max(time, oldest):
            needed.append((time, data))
            least = time
        if least <= oldest:
            break
    outputs.clear()
    outputs.update(reversed(needed))


def mean_progress(times: Sequence[int], until: int) -> float:
    """Return the mean of ``times`` in percent of ``until``, 0 for a world without duration."""
    return sum(times) / len(times) * 100 / until if until else 0.0


def _without_collector(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wrap ``call`` to pause the garbage collector meanwhile.

    It would run after every 700 new dictionaries or tuples, although none of them is garbage yet.
    """

    def without(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not gc.isenabled():
            return call(*args, **kwargs)
        gc.disable()
        try:
            return call(*args, **kwargs)
        finally:
            gc.enable()

    return without


def _copied(data: Any, levels: int) -> Any:
    """Copy nested dictionaries, ``levels`` deep; deeper values are shared."""
    return {key: _copied(value, levels - 1) for key, value in data.items()} if levels else data


def _take_due(queue: list[Any], time: int, data: Inputs) -> None:
    """Move the waiting inputs up to a time to ``data``."""
    count = len(queue) if queue[-1][0] <= time else bisect_right(queue, time, key=_TIME)
    for _, _, full_id, eid, attr, value in queue[:count]:
        attributes = data.get(eid)
        if attributes is None:
            data[eid] = {attr: {full_id: value}}
        elif attr in attributes:
            attributes[attr][full_id] = value
        else:
            attributes[attr] = {full_id: value}
    del queue[:count]


def _add(ports: Iterable[tuple[str, str]], fetched: Sequence[dict[str, Any]], data: Inputs) -> None:
    """Add the fetched values of each entity and attribute to the inputs that were sent."""
    for (eid, attr), values in zip(ports, fetched, strict=True):
        attributes = data.get(eid)
        if attributes is None:
            data[eid] = {attr: values}
        elif attr in attributes:
            attributes[attr].update(values)
        else:
            attributes[attr] = values


def _after(moment: tuple[int, ...], delay: Any) -> tuple[int, ...]:
    """Return the tiered time at a target for one at the source."""
    tiers: tuple[int, ...] = delay.tiers
    if len(tiers) == len(moment) == _PLAIN:
        return (moment[0] + tiers[0],)
    shared = delay.cutoff
    return (*(a + b for a, b in zip(moment, tiers[:shared], strict=False)), *tiers[shared:])


def _bars(world: Any, runners: Sequence[Runner]) -> list[tuple[Any, Sequence[Runner]]]:
    """Return the visible progress bars, each with the simulators whose mean it shows."""
    bars = [(runner.origin.tqdm, [runner]) for runner in runners] + [(world.tqdm, runners)]
    return [(bar, shown_runners) for bar, shown_runners in bars if not bar.disable]


def _warn_of_missing(source: str, eid: str, attr: str, target: str) -> None:
    warnings.warn(
        f"Simulator {source}'s entity {eid} did not produce output on its persistent attribute {attr} during its "
        f"last step. However, this value is now required by simulator {target}. This usually results from attributes "
        "that are marked persistent despite working like events. Supplying `None` for now. This will be an error in "
        "future versions of mosaik.",
        stacklevel=2,
    )


async def _answered(asking: Generator[Any, Any, Any]) -> Any:
    """Run a simulator's generator that requests something, and return its result."""
    try:
        request: Awaitable[Any] = next(asking)
        while True:
            request = asking.send(await request)
    except StopIteration as stop:
        return stop.value


def only_questions(step: Callable[_P, _R]) -> Callable[_P, _R]:
    """Mark a simulator's generator function that awaits only :class:`Question`."""
    setattr(step, _ONLY_QUESTIONS, True)
    return step


class Question:
    """A request to the code that drives the schedule, awaited by a simulator's generator function.

    :meth:`Schedule.advance` returns it, and its next call passes the answer.
    """

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self)
