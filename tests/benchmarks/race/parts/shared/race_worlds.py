"""A mosaik world as users of palaestrai-mosaik write it: ten heated rooms and the weather.

Nothing in it belongs to either side. Sensors and actuators are described by dictionaries.
"""

import math

import mosaik
import mosaik_api_v3
import numpy as np
from race_clock import Clock

ROOMS = 10
DEGREES = "Box(low=-50.0, high=100.0, shape=(), dtype=np.float32)"
KILOWATTS = "Box(low=0.0, high=4.0, shape=(), dtype=np.float32)"


class Weather(mosaik_api_v3.Simulator):
    """The air outside: 10 degrees, 5 up and down within 96 ticks."""

    def __init__(self):
        models = {"Air": {"public": True, "params": [], "attrs": ["t_air"]}}
        super().__init__({"api_version": "3.0", "type": "time-based", "models": models})
        self.time = 0

    def init(self, sid, time_resolution=1.0):
        return self.meta

    def create(self, num, model):
        return [{"eid": "air", "type": model}]

    def step(self, time, inputs, max_advance):
        self.time = time
        return time + 1

    def get_data(self, outputs):
        return {"air": {"t_air": 10.0 + 5.0 * math.sin(self.time * math.tau / 96)}}


class Rooms(mosaik_api_v3.Simulator):
    """Rooms that lose 0.1 kW per kelvin; a kilowatt warms one up by a quarter of a kelvin a tick."""

    def __init__(self):
        models = {"Room": {"public": True, "params": [], "attrs": ["t_air", "heat_kw", "temperature"]}}
        super().__init__({"api_version": "3.0", "type": "time-based", "models": models})
        self.rooms = {}
        self.clock = Clock()

    def init(self, sid, time_resolution=1.0):
        return self.meta

    def create(self, num, model):
        new = [f"room-{len(self.rooms) + i}" for i in range(num)]
        self.rooms.update(dict.fromkeys(new, 15.0))
        return [{"eid": eid, "type": model} for eid in new]

    def step(self, time, inputs, max_advance):
        self.clock.tick()
        for eid, temperature in self.rooms.items():
            given = inputs.get(eid, {})
            # before the first action there is no set-point
            heat = sum(float(np.ravel(v)[0]) for v in given.get("heat_kw", {}).values() if v is not None)
            air = sum(given["t_air"].values())
            self.rooms[eid] = temperature + (heat - 0.1 * (temperature - air)) / 4
        return time + 1

    def get_data(self, outputs):
        return {eid: {"temperature": self.rooms[eid]} for eid in outputs}

    def finalize(self):
        self.clock.stop()


def describe(params):
    """Return sensors, actuators and the static state of the world."""
    # palaestrAI takes no plain number for a value of a box
    warm, off = np.array(15.0, np.float32), np.array(0.0, np.float32)
    rooms = [f"Rooms-0.room-{i}" for i in range(ROOMS)]
    sensors = [{"uid": f"{room}.temperature", "space": DEGREES, "value": warm} for room in rooms]
    actuators = [{"uid": f"{room}.heat_kw", "space": KILOWATTS, "value": off} for room in rooms]
    return sensors, actuators, {}


async def get_world(params):
    """Return the world and its entities by full id."""
    world = mosaik.AsyncWorld(
        {"Weather": {"python": "race_worlds:Weather"}, "Rooms": {"python": "race_worlds:Rooms"}},
        skip_greetings=True,
    )
    weather = await world.start("Weather")
    air = await weather.Air()
    rooms = await world.start("Rooms")
    entities = await rooms.Room.create(ROOMS)
    for room in entities:
        world.connect(air, room, "t_air")
    return world, {entity.full_id: entity for entity in [air, *entities]}
