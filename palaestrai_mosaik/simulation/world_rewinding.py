"""Reuses a world for another episode: the simulators of its co-simulations are replaced by new ones."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from inspect import isgeneratorfunction
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.environment.cosimulation import CoSimulationPlan, SimulatorSpec

from .bridge import guarded
from .mosaik_internals import base_proxy
from .scheduler import Runner, Schedule
from .world_run import describe_start_failure

if TYPE_CHECKING:
    from .world_builder import WorldBuilder


def find_replaceable(builder: WorldBuilder) -> dict[str, Runner]:
    """Return the simulators of co-simulations that can be replaced for another episode, by mosaik's id."""
    if not isinstance(builder.schedule, Schedule) or builder.schedule.asks:
        return {}
    ids = {
        builder.sids[e, spec.uid]
        for e, plan in enumerate(builder.plans)
        for spec in (plan.simulators if type(plan) is CoSimulationPlan else ())
        if spec.factory is not None or spec.python is not None
    }
    return {
        runner.origin.sid: runner
        for runner in builder.schedule.runners
        if runner.origin.sid in ids and _can_be_replaced(runner)
    }


def _can_be_replaced(runner: Runner) -> bool:
    """Return whether mosaik calls the simulator without an adapter, and the simulator asks mosaik for nothing."""
    simulator, proxy = runner.simulator, runner.origin._proxy
    return base_proxy(proxy) is proxy and not any(
        map(isgeneratorfunction, (simulator.init, simulator.create))
    )


def replace_simulators(builder: WorldBuilder, e: int, plan: CoSimulationPlan) -> bool:
    """Replace the simulators of a co-simulation; return whether the new ones have the same descriptions.

    Args:
        builder: has the world.
        e: the index of the environment.
        plan: the plan of its next episode.

    Raises:
        SimulatorError: a simulator could not be started.
    """
    plan = builder.seeded(e, plan)
    for spec in plan.simulators:
        sid = builder.sids[e, spec.uid]
        runner, simulator = builder.replaceable[sid], _make_simulator(sid, spec)
        if type(simulator) is not type(runner.simulator):
            return False
        simulator.mosaik = runner.simulator.mosaik
        try:
            meta = simulator.init(sid, time_resolution=builder.world.time_resolution, **spec.params)
        except (Exception, SystemExit) as error:
            raise describe_start_failure(sid, error) from error
        builder.started[sid] = runner.simulator = runner.origin._proxy.sim = simulator
        if meta != runner.origin._proxy.meta:
            return False
    for entity in plan.entities:
        if entity.parent is None:
            simulator = builder.replaceable[builder.sids[e, entity.simulator]].simulator
            (created,) = simulator.create(1, entity.model, **entity.params)
            if not _is_described(builder.entities[e, entity.uid], created):
                return False
    return True


def _make_simulator(sid: str, spec: SimulatorSpec) -> Any:
    """Make a simulator of this process, like :meth:`WorldBuilder.build` and mosaik."""
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


def has_same_world(plan: CoSimulationPlan | None, before: CoSimulationPlan | None) -> bool:
    """Return whether two plans have the same world, apart from simulators made by factories."""
    if plan is before or plan is None or before is None:
        return plan is before
    try:
        return replace(plan, simulators=_without_factories(plan)) == replace(
            before, simulators=_without_factories(before)
        )
    except ValueError:  # arrays cannot be compared
        return False


def _without_factories(plan: CoSimulationPlan) -> list[SimulatorSpec]:
    return [replace(spec, factory=None) if spec.factory is not None else spec for spec in plan.simulators]
