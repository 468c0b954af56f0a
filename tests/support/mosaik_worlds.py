"""A small deterministic world as users of palaestrai-mosaik write them; needs mosaik only.

A tank (one step a tick) is filled by rain (one step every two ticks) and by a valve; an alarm is told
by the tank whenever its level has passed a whole number.
"""

from __future__ import annotations

import asyncio
from typing import Any

import mosaik
import mosaik_api_v3

#: (time, valve) of every step of a tank, in order; and the meta_params of every world
STEPS: list[tuple[int, Any]] = []
META_PARAMS: list[dict[str, Any]] = []
#: finalized simulators
ENDED: list[str] = []


class _Small(mosaik_api_v3.Simulator):
    model = ""
    attrs: tuple[str, ...] = ()
    kind = "time-based"
    more: dict[str, Any] = {}

    def __init__(self) -> None:
        model = {"public": True, "params": ["level"], "attrs": list(self.attrs), **self.more}
        super().__init__({"api_version": "3.0", "type": self.kind, "models": {self.model: model}})
        self.values: dict[str, Any] = {}

    def init(self, sid: str, time_resolution: float = 1.0, **params: Any) -> Any:
        self.sid = sid
        return self.meta

    def create(self, num: int, model: str, **params: Any) -> list[dict[str, Any]]:
        self.values = {"level": params.get("level", 0.0)}
        return [{"eid": "e", "type": model}]

    def get_data(self, outputs: Any) -> Any:
        return {"e": {name: self.values[name] for name in outputs["e"] if name in self.values}}

    def finalize(self) -> None:
        ENDED.append(self.sid)


class Rain(_Small):
    model, attrs = "Sky", ("rain",)

    def step(self, time: int, inputs: Any, max_advance: int) -> int:
        self.values["rain"] = (time * 7 % 5) / 4
        return time + 2


class Tank(_Small):
    model, attrs = "Tank", ("level", "rain", "valve", "full")

    def step(self, time: int, inputs: Any, max_advance: int) -> int:
        mine = inputs.get("e", {})
        valve = next(iter(mine.get("valve", {}).values()), None)
        STEPS.append((time, valve))
        given = 0.0 if valve is None else valve[0] if isinstance(valve, list) else valve
        if given == 13:
            raise ValueError("the valve is stuck")
        self.values["level"] += 0.25 * sum(mine["rain"].values()) + 0.5 * given
        self.values["full"] = self.values["level"] > 2
        return time + 1


class Alarm(_Small):
    model, attrs, kind = "Bell", ("heard", "count"), "event-based"

    def step(self, time: int, inputs: Any, max_advance: int) -> None:
        (level,) = inputs["e"]["heard"].values()
        # it says something at every fourth tick only
        self.values = {"count": int(level * 10)} if time % 4 == 0 else {}


SIMULATORS: dict[str, Any] = {name: {"python": f"{__name__}:{name}"} for name in ("Rain", "Tank", "Alarm")}


def describe(params: dict[str, Any]) -> tuple[Any, ...]:
    sensors: list[dict[str, Any]] = [
        {"uid": "Tank-0.e.level", "space": "Box(low=0.0, high=1000000.0, shape=(), dtype=np.float32)"},
        {"sensor_id": "Tank-0.e.full", "observation_space": "Discrete(2)"},
        {"uid": "Rain-0.e.rain", "space": "Box(low=0.0, high=1.0, shape=(), dtype=np.float64)", "value": 0.0},
    ]
    if params.get("alarm"):
        sensors.append(
            {"uid": "Alarm-0.e.count", "space": "Box(low=-1, high=1000, shape=(), dtype=np.float64)"}
        )
    actuators = [{"uid": "Tank-0.e.valve", "space": "Box(low=0.0, high=20.0, shape=(1,), dtype=np.float32)"}]
    return sensors, actuators, params.get("world_state", {})


async def get_world(params: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    META_PARAMS.append(params["meta_params"])
    world = mosaik.AsyncWorld(
        SIMULATORS, time_resolution=params.get("resolution", 1.0), cache=params.get("cache", True)
    )
    rain = await world.start("Rain")
    tank = await world.start("Tank")
    sky, vessel = await rain.Sky(), await tank.Tank(level=params.get("level", 0.0))
    world.connect(sky, vessel, "rain")
    entities = {sky.full_id: sky, vessel.full_id: vessel}
    if params.get("alarm"):
        bell = await (await world.start("Alarm")).Bell()
        world.connect(vessel, bell, ("level", "heard"))
        entities[bell.full_id] = bell
    return world, entities


def get_world_in_a_thread(params: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The same, as a plain function with a ``mosaik.World``."""
    world = mosaik.World(SIMULATORS, skip_greetings=True, configure_logging=False)
    sky, vessel = world.start("Rain").Sky(), world.start("Tank").Tank(level=params.get("level", 0.0))
    world.connect(sky, vessel, "rain")
    return world, {sky.full_id: sky, vessel.full_id: vessel}


class Descriptor:
    """The same as an object that remembers what it has described."""

    def __init__(self) -> None:
        self.described = False

    def describe(self, params: dict[str, Any]) -> tuple[Any, ...]:
        self.described = True
        return describe(params)

    async def get_world(self, params: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        assert self.described
        await asyncio.sleep(0)
        return await get_world(params)
