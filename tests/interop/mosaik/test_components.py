"""Published mosaik components, unchanged, in run documents and in scripts with agents.

Those that are not installed are skipped; docs/mosaik-components.md says which versions were run.
"""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mosaik
import pytest

from palaestrai_mosaik import attach_agents
from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.interop.mosaik import Agent
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

HOUR = 900
BATTERY = {"python": "example_simulators.battery_sim:BatterySimulator"}
CSV = {"python": "mosaik_csv:CSV"}


@dataclass(frozen=True)
class Component:
    """A component beside a battery: how it starts, and what is connected.

    ``child`` is the entity (mosaik's id) that is meant, where it is a child of the one created.
    ``source``: a column of a CSV file is connected to this input. ``stores``: it takes the battery's ``soc``.
    """

    module: str
    start: Mapping[str, str]
    init: Mapping[str, Any]
    model: str
    create: Mapping[str, Any] = field(default_factory=dict)
    child: str | None = None
    sensor: str | None = None
    actuator: tuple[str, str, float] | None = None
    source: str | None = None
    stores: bool = False


COMPONENTS = {
    "csv": Component(
        "mosaik_csv",
        CSV,
        {"sim_start": "2016-01-01 00:00:00", "datafile": "sun.csv"},
        "Sun",
        sensor="DNI",
    ),
    "csv-writer": Component(
        "mosaik_csv_writer",
        {"python": "mosaik_csv_writer:CSVWriter"},
        {"start_date": "2016-01-01 00:00:00", "output_file": "out.csv"},
        "CSVWriter",
        {"buff_size": 2},
        stores=True,
    ),
    "hdf5": Component(
        "mosaik_hdf5",
        {"python": "mosaik_hdf5:MosaikHdf5"},
        {"step_size": HOUR, "duration": 8 * HOUR},
        "Database",
        {"filename": "out.hdf5"},
        stores=True,
    ),
    "web": Component(
        "mosaik_web",
        {"cmd": "mosaik-web -s 127.0.0.1:{port} %(addr)s"},
        {"start_date": "2016-01-01 00:00:00", "step_size": HOUR},
        "Topology",
        stores=True,
    ),
    "pandapower": Component(
        "mosaik_pandapower",
        {"python": "mosaik_pandapower.simulator:Pandapower"},
        {"step_size": HOUR, "mode": "pf"},
        "Grid",
        {"gridfile": "cigre_mv_pv_wind"},
        child="0-Load R1",
        sensor="p_mw",
        actuator=("p_mw", "Box(0, 1, ())", 0.5),
    ),
    "pv": Component(
        "mosaik_components.pv",
        {"python": "mosaik_components.pv.pvsimulator:PVSimulator"},
        {"start_date": "2016-06-01 12:00:00", "step_size": HOUR},
        "PV",
        {"latitude": 53.0, "area": 10.0, "efficiency": 0.2, "el_tilt": 30.0, "az_tilt": 0.0},
        sensor="P[MW]",
        source="DNI[W/m2]",
    ),
    "pysimmods": Component(
        "pysimmods",
        {"python": "pysimmods.mosaik_bridge.pysim_mosaik:PysimmodsSimulator"},
        {"step_size": HOUR, "start_date": "2016-06-01 12:00:00+0000"},
        "Battery",
        {
            "params": {
                "cap_kwh": 5.0,
                "p_charge_max_kw": 2.0,
                "p_discharge_max_kw": 2.0,
                "soc_min_percent": 5.0,
                "eta_pc": [-2.1, 102.1, 2.0],
                "sign_convention": "passive",
            },
            "inits": {"soc_percent": 50.0},
        },
        sensor="soc_percent",
        actuator=("p_set_mw", "Box(-0.002, 0.002, ())", 0.0),
    ),
}
RANDOM = "palaestrai_mosaik.agent.library.random_agent:RandomMuscle"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a CSV file, from which the commands of the components are found."""
    rows = [f"2016-01-01 {h // 4:02}:{h % 4 * 15:02}:00,{100 * h}" for h in range(20)]
    (tmp_path / "sun.csv").write_text("\n".join(["Sun", "Date,DNI", *rows]) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    return tmp_path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def by_document(component: Component, start: Mapping[str, str], folder: Path) -> list[float]:
    """Run a day's part as a run document; return what the sensor of the component (or battery) read."""
    name = "thing"
    simulators: dict[str, Any] = {
        "battery": {**BATTERY, "params": {"step_size": HOUR}},
        name: {**start, "params": dict(component.init)},
    }
    entities: list[dict[str, Any]] = [
        {"uid": "battery", "simulator": "battery", "model": "Battery"},
        {"uid": name, "simulator": name, "model": component.model, "params": dict(component.create)},
    ]
    connections: list[dict[str, Any]] = []
    if component.child is not None:
        entities.append({"uid": "child", "parent": name, "eid": component.child})
    if component.source is not None:
        simulators["sun"] = {
            **CSV,
            "params": {"sim_start": "2016-01-01 00:00:00", "datafile": str(folder / "sun.csv")},
        }
        entities.append({"uid": "sun", "simulator": "sun", "model": "Sun"})
        connections.append({"from": "sun", "to": name, "attributes": [["DNI", component.source]]})
    if component.stores:
        connections.append({"from": "battery", "to": name, "attributes": ["soc"]})
    seen = "child" if component.child is not None else name
    sensors = [{"uid": "soc", "entity": "battery", "attribute": "soc", "space": "Box(0, 1, ())"}]
    actuators = [{"entity": "battery", "attribute": "P_set", "space": "Box(-1, 1, ())", "value": 0.0}]
    if component.sensor is not None:
        sensors.append(
            {
                "uid": "seen",
                "entity": seen,
                "attribute": component.sensor,
                "space": "Box(-1000000, 1000000, ())",
            }
        )
    if component.actuator is not None:
        attribute, space, value = component.actuator
        actuators.append({"entity": seen, "attribute": attribute, "space": space, "value": value})
    world = {
        "step_size": HOUR,
        "end": 7 * HOUR,
        "simulators": simulators,
        "entities": entities,
        "connections": connections,
        "sensors": sensors,
        "actuators": actuators,
    }
    environment = "palaestrai_mosaik.environment.described:DescribedCoSimulation"
    acting = [f"world.{one['entity']}.{one['attribute']}" for one in actuators]
    agent = {"name": "agent", "muscle": {"name": RANDOM}, "sensors": ["world.soc"], "actuators": acting}
    ends = "palaestrai_mosaik.simulation.conditions:EnvironmentTerminationCondition"
    phase = {
        "environments": [{"environment": {"uid": "world", "name": environment, "params": world}}],
        "agents": [agent],
        "simulation": {
            "name": "palaestrai_mosaik.simulation:Vanilla",
            "conditions": [{"name": ends}],
        },
        "phase_config": {"mode": "test", "episodes": 1},
    }
    governor = "palaestrai_mosaik.simulation.conditions:VanillaRunGovernorTerminationCondition"
    document = {
        "uid": "component",
        "seed": 1,
        "version": "3.5",
        "schedule": [{"day": phase}],
        "run_config": {"condition": {"name": governor}},
    }
    with Store(folder / "store", create=True) as store:
        execute(from_mapping(document), store=store)
        states = store.environment_states("component")
    values: list[float] = states[f"reading.world.{'soc' if component.sensor is None else 'seen'}"].tolist()
    return values


def by_script(component: Component, start: Mapping[str, str], folder: Path) -> list[float]:
    """The same in a script."""
    config: Any = {"Battery": BATTERY, "Thing": dict(start), "Sun": CSV}
    with mosaik.World(config, skip_greetings=True, configure_logging=False) as world:
        battery = world.start("Battery", step_size=HOUR).Battery()
        thing = getattr(world.start("Thing", **component.init), component.model)(**component.create)
        if component.source is not None:
            sun = world.start("Sun", sim_start="2016-01-01 00:00:00", datafile=str(folder / "sun.csv")).Sun()
            world.connect(sun, thing, ("DNI", component.source))
        if component.stores:
            world.connect(battery, thing, "soc")
        if component.child is not None:
            (thing,) = [child for child in thing.children if child.eid == component.child]
        sensors: dict[Any, Any] = {battery: ["soc"]}
        actuators: dict[Any, Any] = {battery: {"P_set": "Box(-1, 1)"}}
        if component.sensor is not None:
            sensors[thing] = [component.sensor]
        if component.actuator is not None:
            attribute, space, value = component.actuator
            actuators[thing] = {attribute: (space, value)}
        agent = Agent("agent", RANDOM, sensors=sensors, actuators=actuators)
        with attach_agents(world, agent, step_size=HOUR) as agents:
            world.run(until=8 * HOUR, print_progress=False)
            states = agents.states()
    seen = f"reading.world.{battery.full_id}.soc"
    if component.sensor is not None:
        seen = f"reading.world.{thing.full_id}.{component.sensor}"
    values: list[float] = states[seen].tolist()
    return values


@pytest.mark.parametrize("way", [by_document, by_script])
@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_runs_unchanged(
    name: str, way: Callable[[Component, Mapping[str, str], Path], list[float]], here: Path
) -> None:
    component = COMPONENTS[name]
    pytest.importorskip(component.module)
    start = {kind: text.replace("{port}", str(free_port())) for kind, text in component.start.items()}
    if "cmd" in start and shutil.which(start["cmd"].split()[0]) is None:
        pytest.skip(f"there is no command {start['cmd']}")
    values = way(component, start, here)
    assert len(values) == 8
    if name == "csv":
        assert values == [100.0 * i for i in range(8)]
    elif name == "csv-writer":
        assert len((here / "out.csv").read_text().splitlines()) == 1 + 8
    elif name == "hdf5":
        import h5py

        with h5py.File(here / "out.hdf5") as file:
            (group,) = file["Series"].values()
            assert group["soc"][:].tolist() == pytest.approx(values)
    elif name == "pv":
        # more sun, more power; the first row of the file has none
        assert values[0] == 0.0 < values[1] < values[7]
    elif name != "web":
        assert len(set(values)) > 2
