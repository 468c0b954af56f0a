"""What is run: run documents and designs, the same for both sides."""

from __future__ import annotations

from typing import Any

DUMMY = "palaestrai.agent.dummy"
UID = "race"
_PHASE = "phase_0"
_RUN = {"condition": {"name": "palaestrai.experiment:VanillaRunGovernorTerminationCondition", "params": {}}}
#: alternatives of each factor of a design
LEVELS = 10
#: topics of a design's phase that have them
_FACTORS = ("environments", "agents", "simulation", "phase_config")


def agent(name: str, **keys: Any) -> dict[str, Any]:
    """Return a dummy agent."""
    parts = {
        part: {"name": f"{DUMMY}_{part}:Dummy{part.title()}", "params": {}}
        for part in ("brain", "muscle", "objective")
    }
    return {"name": name, **parts, **keys}


def _document(
    environment: dict[str, Any], agents: list[dict[str, Any]], controller: str = "Vanilla"
) -> dict[str, Any]:
    phase = {
        "environments": [environment],
        "agents": agents,
        "simulation": _simulation(controller),
        "phase_config": {"mode": "train", "worker": 1, "episodes": 1},
    }
    return {
        **{"uid": UID, "seed": 42, "version": "3.5", "experiment_uid": UID},
        "schedule": [{_PHASE: phase}],
        "run_config": _RUN,
    }


def _simulation(controller: str) -> dict[str, Any]:
    end = "palaestrai.simulation:VanillaSimControllerTerminationCondition"
    return {"name": f"palaestrai.simulation:{controller}", "conditions": [{"name": end, "params": {}}]}


def dummy(steps: int, controller: str = "Vanilla") -> dict[str, Any]:
    """Return the dummy document: two agents with five sensors and five actuators each."""
    agents = [
        agent(name, sensors=list(ids), actuators=list(ids))
        for name, ids in (
            ("mighty_defender", [f"myenv.{i}" for i in range(5)]),
            ("evil_attacker", [f"myenv.{i}" for i in range(5, 10)]),
        )
    ]
    return _document(_dummy_environment(steps), agents, controller)


def crowd(steps: int) -> dict[str, Any]:
    """Return a document with eight agents that each see all ten sensors and set one actuator."""
    sensors = [f"myenv.{i}" for i in range(10)]
    agents = [agent(f"agent_{i}", sensors=sensors, actuators=[f"myenv.{i}"]) for i in range(8)]
    return _document(_dummy_environment(steps), agents)


def raising(steps: int) -> dict[str, Any]:
    """Return the dummy document with a muscle that raises at every step."""
    document = dummy(steps)
    phase = document["schedule"][0][_PHASE]
    phase["agents"][0]["muscle"]["name"] = "race_parts:RaisingMuscle"
    return document


def bad_sensor(steps: int) -> dict[str, Any]:
    """Return the dummy document with a sensor that the environment does not have."""
    document = dummy(steps)
    document["schedule"][0][_PHASE]["agents"][0]["sensors"][0] = "myenv.99"
    return document


def mosaik_world(steps: int) -> dict[str, Any]:
    """Return a document with a mosaik world made for palaestrai-mosaik, ten rooms and two agents."""
    params = {
        "module": "race_worlds",
        "description_func": "describe",
        "instance_func": "get_world",
        "arl_sync_freq": 1,
        "end": steps,
        "silent": True,
    }
    environment = {"uid": "house", "name": "palaestrai_mosaik:MosaikEnvironment", "params": params}
    return _house(environment, "Rooms-0.room-{}.temperature", "Rooms-0.room-{}.heat_kw")


def described_world(steps: int) -> dict[str, Any]:
    """Return the same world as this package's own co-simulation, described in the document."""
    rooms = [f"room-{i}" for i in range(10)]
    params = {
        "simulators": {
            "weather": {"python": "race_worlds:Weather"},
            "rooms": {"python": "race_worlds:Rooms"},
        },
        "entities": [
            {"uid": "air", "simulator": "weather", "model": "Air"},
            {"uid": "room", "simulator": "rooms", "model": "Room", "count": len(rooms)},
        ],
        "connections": [{"from": "air", "to": room, "attributes": ["t_air"]} for room in rooms],
        "sensors": [
            {"uid": f"t-{i}", "entity": room, "attribute": "temperature", "space": "Box(-50, 100, ())"}
            for i, room in enumerate(rooms)
        ],
        "actuators": [
            {"uid": f"h-{i}", "entity": room, "attribute": "heat_kw", "space": "Box(0, 4, ())", "value": 0.0}
            for i, room in enumerate(rooms)
        ],
        "end": steps,
    }
    name = "palaestrai_mosaik.environment.described:DescribedCoSimulation"
    return _house({"uid": "house", "name": name, "params": params}, "t-{}", "h-{}")


def design(factors: int) -> dict[str, Any]:
    """Return a full factorial of ``LEVELS ** factors`` runs in arsenAI's form; at most four factors."""
    counts = [LEVELS if i < factors else 1 for i in range(len(_FACTORS))]
    names = {
        topic: [f"{topic}_{i}" for i in range(count)] for topic, count in zip(_FACTORS, counts, strict=True)
    }
    definitions: dict[str, Any] = {
        "environments": {
            name: {"environment": _dummy_environment(i + 1)["environment"]}
            for i, name in enumerate(names["environments"])
        },
        "agents": {name: agent(name) for name in names["agents"]},
        "sensors": {"five": {"myenv": [0, 1, 2, 3, 4]}},
        "actuators": {"five": {"myenv": [0, 1, 2, 3, 4]}},
        "simulation": {name: _simulation("Vanilla") for name in names["simulation"]},
        "phase_config": {
            name: {"mode": "train", "worker": 1, "episodes": i + 1}
            for i, name in enumerate(names["phase_config"])
        },
        "run_config": _RUN,
    }
    # levels that differ in something, or equal documents would be made once only
    for i, simulation in enumerate(definitions["simulation"].values()):
        simulation["conditions"][0]["params"] = {"level": i}
    phase = {
        "environments": [[name] for name in names["environments"]],
        "agents": [[name] for name in names["agents"]],
        "simulation": names["simulation"],
        "phase_config": names["phase_config"],
        "sensors": {name: ["five"] for name in names["agents"]},
        "actuators": {name: ["five"] for name in names["agents"]},
    }
    return {
        **{"uid": "factorial", "seed": 1, "version": "3.5.5", "output": "generated"},
        **{"repetitions": 1, "max_runs": -1},
        "definitions": definitions,
        "schedule": [{_PHASE: phase}],
    }


def _dummy_environment(steps: int) -> dict[str, Any]:
    params = {"discrete": True, "max_iter": steps}
    return {"environment": {"uid": "myenv", "name": "race_parts:TimedDummyEnvironment", "params": params}}


def _house(environment: dict[str, Any], sensor: str, actuator: str) -> dict[str, Any]:
    agents = [
        agent(
            name,
            sensors=[f"house.{sensor.format(i)}" for i in mine],
            actuators=[f"house.{actuator.format(i)}" for i in mine],
        )
        for name, mine in (("upstairs", range(5)), ("downstairs", range(5, 10)))
    ]
    reward = {"name": "race_parts:Warmth", "params": {}}
    return _document({"environment": environment, "reward": reward}, agents)
