"""Reuses a world for another episode: the simulators of its co-simulations are replaced by new ones."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import isgeneratorfunction
from typing import Any

from palaestrai_mosaik.environment.cosimulation import CoSimulationPlan, SimulatorSpec

from .bridge import guarded
from .connections import plans_of
from .mosaik_internals import FOREVER, base_proxy, needs_no_shutdown
from .scheduler import Runner, Schedule
from .world_builder import EpisodeSettings, WorldBuilder
from .world_run import describe_start_failure
from .world_shutdown import finalize_local


class RewindingBuilder(WorldBuilder):
    """Builds the world of an episode, and rewinds it for the next one if all its simulators are in this process."""

    def __init__(
        self,
        episode: EpisodeSettings,
        plans: Sequence[CoSimulationPlan | None] | None = None,
        *,
        differs: bool = False,
    ):
        super().__init__(episode, plans)
        #: whether the replaced simulators of the last world had other descriptions
        self._differs = differs
        #: simulators of co-simulations that can be replaced for another episode, by mosaik's id
        self.replaceable: dict[str, Runner] = {}
        #: simulators of this episode, until they are finalized
        self.started: dict[str, Any] = {}

    async def build(self) -> None:
        await super().build()
        self.replaceable = {} if self._differs else self._find_replaceable()
        self.started = {sid: runner.simulator for sid, runner in self.replaceable.items()}
        if self.rewinds:
            needs_no_shutdown(self.world)

    @property
    def rewinds(self) -> bool:
        """Whether the world can be used for another episode: all its simulators are ours or can be replaced."""
        if not isinstance(self.schedule, Schedule):
            return False
        return len(self.own_simulators) + len(self.replaceable) == len(self.schedule.runners)

    def _find_replaceable(self) -> dict[str, Runner]:
        if not isinstance(self.schedule, Schedule) or self.schedule.asks:
            return {}
        ids = {
            self.sids[e, spec.uid]
            for e, plan in enumerate(self.plans)
            if type(plan) is CoSimulationPlan
            for spec in plan.simulators
        }
        runners = [runner for runner in self.schedule.runners if runner.origin.sid in ids]
        return {runner.origin.sid: runner for runner in filter(_can_be_replaced, runners)}

    def rewind(self, episode: EpisodeSettings) -> RewindingBuilder:
        """Start another episode in the same world, and return this builder.

        If a co-simulation has changed, return a new builder of the world that must be built for it.
        """
        assert isinstance(self.schedule, Schedule)
        self.episode = episode
        guarded(self._begin_environments, "an environment or a muscle")
        plans = self.plans
        if self.replaceable:
            plans = guarded(lambda: plans_of(self.handles), "an environment or a muscle")
        if not all(map(_is_same_plan, plans, self.plans)):
            return RewindingBuilder(episode, plans)
        is_started = False
        try:
            if all(self._replace(e, plan) for e, plan in enumerate(plans) if plan is not None):
                guarded(self._begin_agents, "an environment or a muscle")
                is_started = True
        finally:
            if not is_started:
                self.finalize(hurried=True)
        if not is_started:
            return RewindingBuilder(episode, plans, differs=True)
        for simulator in self.own_simulators:
            simulator.begin()
        self.schedule.until = FOREVER
        self.schedule.rewind()
        return self

    def _replace(self, e: int, plan: CoSimulationPlan) -> bool:
        """Replace the simulators of a co-simulation; return whether the new ones have the same descriptions."""
        plan = self._seeded(e, plan)
        for spec in plan.simulators:
            sid = self.sids[e, spec.uid]
            runner, simulator = self.replaceable[sid], _make_simulator(sid, spec)
            if type(simulator) is not type(runner.simulator):
                return False
            simulator.mosaik = runner.simulator.mosaik
            try:
                meta = simulator.init(sid, time_resolution=self.world.time_resolution, **spec.params)
            except (Exception, SystemExit) as error:
                raise describe_start_failure(sid, error) from error
            self.started[sid] = runner.simulator = runner.origin._proxy.sim = simulator
            if meta != runner.origin._proxy.meta:
                return False
        for entity in plan.entities:
            if entity.parent is None:
                simulator = self.replaceable[self.sids[e, entity.simulator]].simulator
                (created,) = simulator.create(1, entity.model, **entity.params)
                if not _is_described(self.entities[e, entity.uid], created):
                    return False
        return True

    def finalize(self, *, hurried: bool) -> None:
        """Finalize the simulators of this episode that will be replaced; see :func:`.world_shutdown.shut_down`."""
        started, self.started = self.started, {}
        finalize_local(started, hurried=hurried)


def _can_be_replaced(runner: Runner) -> bool:
    """Return whether mosaik calls the simulator without an adapter, and the simulator asks mosaik for nothing."""
    simulator, proxy = runner.simulator, runner.origin._proxy
    return base_proxy(proxy) is proxy and not any(
        map(isgeneratorfunction, (simulator.init, simulator.create))
    )


def _make_simulator(sid: str, spec: SimulatorSpec) -> Any:
    """Make a simulator of this process, like :meth:`.WorldBuilder.build` and mosaik."""
    if spec.factory is not None:
        return guarded(spec.factory, f"the factory of simulator {sid!r}")
    assert spec.python is not None
    module, _, name = spec.python.partition(":")
    try:
        return getattr(sys.modules[module], name)()
    except (Exception, SystemExit) as error:
        raise describe_start_failure(sid, error) from error


def _is_described(entity: Any, described: Mapping[str, Any]) -> bool:
    """Return whether ``described``, a result of a simulator's ``create``, matches mosaik's ``entity``."""
    children = described.get("children", ())
    return (
        (described["eid"], described["type"]) == (entity.eid, entity.type)
        and len(children) == len(entity.children)
        and all(map(_is_described, entity.children, children))
    )


def _is_same_plan(plan: CoSimulationPlan | None, before: CoSimulationPlan | None) -> bool:
    """Return whether two plans are equal, apart from simulators made by factories."""
    if plan is before or plan is None or before is None:
        return plan is before
    try:
        return _without_factories(plan) == _without_factories(before)
    except ValueError:  # arrays cannot be compared
        return False


def _without_factories(plan: CoSimulationPlan) -> CoSimulationPlan:
    return replace(plan, simulators=[replace(spec, factory=None) for spec in plan.simulators])
