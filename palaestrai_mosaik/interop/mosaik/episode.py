"""Runs a user's mosaik world with our agents in it.

The agents' simulators are started when the script runs its world, so the script may extend the world until then.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from palaestrai_mosaik.core.errors import SimulationError
from palaestrai_mosaik.simulation import mosaik_internals as internals
from palaestrai_mosaik.simulation.bridge import BridgeSimulator, guarded
from palaestrai_mosaik.simulation.connections import MosaikConnection
from palaestrai_mosaik.simulation.episode import Episode
from palaestrai_mosaik.simulation.mosaik_internals import new_sid
from palaestrai_mosaik.simulation.scheduler.versions import runners
from palaestrai_mosaik.simulation.world_builder import WorldBuilder
from palaestrai_mosaik.simulation.world_run import explain

from .environment import Scenario

#: the name of our simulator in ``sim_config``
_STARTER = "palaestrai-mosaik"
#: seconds to wait for simulators that are stepping: at the regular end of the world, and after a failure or Ctrl-C
_PATIENCE, _HURRIED = 30.0, 2.0
_POLL = 0.05

#: runs the world: mosaik's ``AsyncWorld.run`` with all its arguments
Run = Callable[[], Awaitable[Any]]


class ScenarioWorldBuilder(WorldBuilder):
    """Adds the agents to a world built by the user."""

    def __init__(self, episode: Episode, world: Any, entities: Mapping[str, Any]):
        super().__init__(episode)
        self.world = world
        (handle,) = self.handles
        assert isinstance(handle.domain, Scenario)
        self.scenario = handle.domain
        self.readings = handle.domain.readings
        self.entities = {(0, name): entity for name, entity in entities.items()}
        # any simulator may be in another process, so values sent to it must be plain data
        self.timeouts = {entity.sid: math.inf for entity in entities.values()}
        self.ended_early = False

    async def build(self) -> None:
        """Start the simulators of the agents and the coordinator, and connect them to the entities."""
        links, watching = guarded(self._prepare, "a muscle")
        config: dict[str, Any] = {**(self.world.sim_config or {}), _STARTER: internals.HANDED_OVER}
        self.world.sim_config = config
        await self._build_agents(links, watching)
        if self.scenario.can_end:
            internals.keep_in_step(self.world, self.coordinator_sid, self.agents)

    def _own_sid(self, name: str) -> str:
        # avoid names of the user's simulators
        return new_sid(name, "", [runner.sid for runner in runners(self.world)])

    async def _start_ours(self, sid: str, simulator: BridgeSimulator) -> Any:
        simulator.failures = self.failures
        internals.hand_over(simulator)
        factory = self.factories[sid] = await self.world.start(_STARTER, sim_id=sid)
        return factory

    def _plug(self, link: MosaikConnection, agent: Any, outward: bool = False) -> None:
        if outward:
            super()._plug(link, agent, outward)
            return
        entity = self.entities[link.environment, link.entity]
        missing, convert = self.readings[link.entity, link.source]
        # without mosaik's cache, a missing value would reach the agent as an unconverted None
        initial = None if self.world.use_cache else missing
        self._connect(entity, agent, (link.source, link.target), 0, initial, convert)

    def _stop(self, time: int) -> None:
        """Stop the world at ``time`` if it ends early; otherwise, let other simulators finish."""
        if self.handles[0].terminated:
            self.ended_early = True
            internals.stop(self.world, time)


async def run_episode(episode: Episode, world: Any, entities: Mapping[str, Any], run: Run) -> None:
    """Add the agents to mosaik's asynchronous ``world``, and run it to its end.

    Raises exceptions of user code, and :class:`SimulationError` if a simulator failed but mosaik ignores it. No task of
    the world is left running.
    """
    builder = ScenarioWorldBuilder(episode, world, entities)
    await builder.build()
    internals.mend_progress(world)
    main = asyncio.ensure_future(run())
    patience = _HURRIED
    try:
        await asyncio.wait([main])
        if builder.failures:
            raise builder.failures[0]
        if not builder.ended_early:
            _raise_failure(main)
        patience = _PATIENCE
    finally:
        await _end_tasks(main, world, patience)
    if not episode.coordinator.over:
        raise _cause(world)


def _raise_failure(main: asyncio.Future[Any]) -> None:
    error = main.exception()
    if error is not None:
        # an error in a remote simulator, which mosaik's run would only log
        sid = getattr(error, "source", None)
        raise error if sid is None else explain(sid, error, remote=True)


async def _end_tasks(main: asyncio.Future[Any], world: Any, patience: float) -> None:
    """Let simulators finish their current step, then cancel all tasks."""
    tasks = [runner.task for runner in runners(world) if runner.task is not None]
    waited = 0.0
    while not all(task.done() for task in tasks) and waited < patience:
        internals.cancel_idle(world)
        await asyncio.wait(tasks, timeout=_POLL)
        waited += _POLL
    for task in (*tasks, main):
        task.cancel()
    await asyncio.gather(*tasks, main, return_exceptions=True)


def _cause(world: Any) -> BaseException:
    """Return the error that ended the world early, including errors that mosaik did not raise."""
    for runner in runners(world):
        task = runner.task
        error = task.exception() if task is not None and task.done() and not task.cancelled() else None
        if error is not None:
            return explain(runner.sid, error, remote=True)
    return SimulationError("the world ended before its end was reached; was it interrupted?")
