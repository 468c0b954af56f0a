"""``run_world`` with agents in the world: what ``world.run`` gives, by the package's own schedule."""

from __future__ import annotations

import asyncio
from typing import Any

import mosaik
import pytest
from mosaik.async_scenario import AsyncWorld

from palaestrai_mosaik import attach_agents, run_async_world, run_world
from palaestrai_mosaik.core.errors import SimulatorError
from palaestrai_mosaik.interop.mosaik import Agent
from palaestrai_mosaik.types import Box

from .test_attach_agents import CONFIG, HOUR, Fixed, charge, storage

SCHEDULERS = ["mosaik", "direct"]


def by(scheduler: str | None, hours: int, **options: Any) -> Any:
    """Return the agents of one run of a world with a storage."""
    world, battery = storage()
    agents = attach_agents(world, charge(battery), step_size=HOUR, **options)
    if scheduler is None:
        world.run(until=hours * HOUR, print_progress=False)
    else:
        run_world(world, until=hours * HOUR, print_progress=False, scheduler=scheduler)
    assert world.loop.is_closed()
    return agents


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_agents_see_and_do_the_same(scheduler: str) -> None:
    expected, found = by(None, 24), by(scheduler, 24)
    assert len(found.frame()) == 23
    assert found.frame().equals(expected.frame()) and found.states().equals(expected.states())


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_an_agent_ends_the_world(scheduler: str) -> None:
    options = {"ends": lambda seen: seen["Storage-0.Battery_0.soc"] > 0.6}
    found = by(scheduler, 1_000_000, **options)
    assert found.result.ended_by == "ends"
    assert found.frame().equals(by(None, 1_000_000, **options).frame())


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("starter", ["Storage", "Remote"])
def test_an_asynchronous_world(starter: str, scheduler: str) -> None:
    async def run() -> Any:
        async with AsyncWorld(CONFIG, skip_greetings=True, configure_logging=False) as world:
            battery = await (await world.start(starter, sim_id="Storage-0", step_size=HOUR)).Battery()
            agents = attach_agents(world, charge(battery), step_size=HOUR)
            await run_async_world(world, until=24 * HOUR, scheduler=scheduler)
        return agents

    assert asyncio.run(run()).frame().equals(by(None, 24).frame())


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_what_a_muscle_raises_stops_the_script(scheduler: str) -> None:
    world, battery = storage()
    agents = attach_agents(world, charge(battery, ValueError("no power today")), step_size=HOUR)
    with pytest.raises(ValueError, match="no power today"):
        run_world(world, until=5 * HOUR, print_progress=False, scheduler=scheduler)
    assert world.loop.is_closed()
    assert agents.result.ended_by == "failed"


def test_a_remote_simulator_that_fails_is_no_silent_end() -> None:
    with mosaik.World(CONFIG, skip_greetings=True, configure_logging=False) as world:
        mortal = world.start("Mortal", how="raise", after=3, step_size=1).Mortal()
        one = Agent("owner", Fixed(1.0), sensors={mortal: "value"}, actuators={mortal: {"x": Box(-1, 1)}})
        attach_agents(world, one)
        with pytest.raises(SimulatorError, match="Mortal"):
            run_world(world, until=100, print_progress=False)


def test_a_misspelt_scheduler() -> None:
    world, _ = storage()
    with pytest.raises(ValueError, match=r"scheduler is 'mosaic', expected 'direct' or 'mosaik'"):
        run_world(world, until=1, scheduler="mosaic")
    world.shutdown()
