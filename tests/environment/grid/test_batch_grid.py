"""Many copies of a grid at once: known answers, independence of each other, starts, failures."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandapower as pp
import pytest

from palaestrai_mosaik.core.errors import DocumentError, PowerFlowError
from palaestrai_mosaik.environment.batch import BatchStepper
from palaestrai_mosaik.environment.environment import EnvironmentState
from palaestrai_mosaik.environment.grid import BatchGridEnvironment, GridEnvironment, GridReward, load_grid
from palaestrai_mosaik.environment.grid.batch_power_flow import BatchPowerFlow
from palaestrai_mosaik.environment.grid.fast_power_flow import FastPowerFlow
from palaestrai_mosaik.environment.grid.profiles import QUANTITIES, Assignment, Profiles
from palaestrai_mosaik.testing import check_batch_environment

RURAL = "simbench:1-MV-rural--2-sw"


def stepper_of(**params: Any) -> tuple[BatchStepper, dict[str, int], dict[str, int]]:
    """Return what steps a batch, and the places of sensors and actuators by uid."""
    environment = BatchGridEnvironment(**params)
    environment.uid = "grid"
    baseline = environment.setup()
    environment.rngs = [np.random.default_rng([7, environment.first + k]) for k in range(environment.batch)]
    sensors = {sensor.uid: i for i, sensor in enumerate(baseline.sensors)}
    actuators = {actuator.uid: i for i, actuator in enumerate(baseline.actuators)}
    return BatchStepper(environment), sensors, actuators


def seen_alone(run_plan: Any, ticks: int, setpoints: np.ndarray, **params: Any) -> np.ndarray:
    """Return the readings (ticks, sensors) of one grid by itself; ``setpoints`` (ticks, actuators)."""
    environment = GridEnvironment(**params)
    environment.setup()
    environment.reset()
    plan = environment.plan()
    names = {(port.entity, port.attribute): port.size for port in plan.actuators}

    def given(row: np.ndarray) -> dict[str, np.ndarray]:
        vectors = {f"{e}.{a}": np.full(size, np.nan) for (e, a), size in names.items()}
        for port, value in zip(plan.actuators, row, strict=True):
            vectors[f"{port.entity}.{port.attribute}"][port.index] = value
        return vectors

    nothing = given(np.full(len(plan.actuators), np.nan))
    trace = run_plan(environment, ticks, nothing, lambda time, _: given(setpoints[time]))
    return np.array(
        [
            [np.atleast_1d(seen[f"{p.entity}.{p.attribute}"])[p.index or 0] for p in plan.sensors]
            for seen in trace
        ]
    )


@pytest.mark.parametrize(
    ("grid", "actuators"),
    [("cigre_mv", ["sgen.q_mvar", "load.scaling"]), (RURAL, ["sgen.q_mvar", "storage.p_mw"])],
)
def test_a_day_of_each_is_what_it_is_alone(grid: str, actuators: list[str], run_plan: Any) -> None:
    batch, spread, ticks = 3, 60, 96
    stepper, sensors, setters = stepper_of(
        grid=grid, batch=batch, start="2016-01-20", spread=spread, steps=ticks, actuators=actuators
    )
    baseline = stepper.environment.setup()
    assert baseline.actuators[0].value is None
    low, high = (
        np.array([getattr(a.space, side)[0] for a in baseline.actuators])
        for side in ("flat_low", "flat_high")
    )
    chosen = np.random.default_rng(1).uniform(0.5 * low, 0.5 * high, (ticks, batch, len(setters)))
    # nobody has set all that there is
    chosen[:, 1, ::3] = np.nan
    chosen[0] = np.nan
    idle = stepper.environment.get_idle_actions()[0]
    found = [stepper.reset().readings]
    for t in range(ticks - 1):
        found.append(stepper.step(np.where(np.isnan(chosen[t]), idle, chosen[t])).readings)
    scales = np.array([1.0 if uid.endswith(("vm_pu", "soc")) else 100.0 for uid in sensors])
    for k in range(batch):
        row = 96 * (19 + k * spread)
        alone = seen_alone(run_plan, ticks, chosen[:, k], grid=grid, start=row, actuators=actuators)
        difference = np.abs(np.array(found)[:, k] - alone) / scales
        assert difference.max() < 1e-9, list(sensors)[int(difference.max(axis=0).argmax())]
        assert np.ptp(alone, axis=0).max() > 0.1
    # and pandapower's
    net, profiles = load_grid(grid).net, load_grid(grid).profiles
    for table in (net.load, net.sgen, net.storage):
        table["scaling"] = 1.0
    for t, k in ((17, 0), (50, 2)):
        reading = {uid: found[t][k, place] for uid, place in sensors.items()}
        load_q = profiles.at(96 * (19 + k * spread) + t)[1]
        scaling = (
            [chosen[t - 1, k, setters[f"load-{i}.scaling"]] for i in net.load.index]
            if "load-0.scaling" in setters
            else 1.0
        )
        net.load["p_mw"] = [reading[f"load-{i}.p_mw"] for i in net.load.index]
        net.load["q_mvar"] = load_q * scaling
        net.sgen["p_mw"] = [reading[f"sgen-{i}.p_mw"] for i in net.sgen.index]
        net.sgen["q_mvar"] = [reading[f"sgen-{i}.q_mvar"] for i in net.sgen.index]
        net.storage["p_mw"] = [reading[f"storage-{i}.p_mw"] for i in net.storage.index]
        pp.runpp(net, tolerance_mva=1e-10, numba=False)
        for table, column, group in (
            (net.res_bus, "vm_pu", "bus-{}.vm_pu"),
            (net.res_line, "loading_percent", "line-{}.loading"),
            (net.res_trafo, "loading_percent", "trafo-{}.loading"),
            (net.res_ext_grid, "p_mw", "ext_grid-{}.p_mw"),
            (net.res_ext_grid, "q_mvar", "ext_grid-{}.q_mvar"),
        ):
            ours = [reading[group.format(i)] for i in table.index]
            assert np.abs(table[column].to_numpy() - ours).max() < 1e-7


def test_one_of_many_is_to_the_last_bit_what_it_is_in_a_batch_of_one() -> None:
    """Also where others end, begin again on other days, and have no solution."""
    params: dict[str, Any] = {
        "grid": "cigre_mv", "start": 0, "steps": 9, "episode_starts": "random",
        "actuators": ["sgen.q_mvar", "load.scaling", "line.in_service"],
        "rewards": {"terms": {"defender": 1.0, "voltage_excess": -2.0, "line_loading": 0.5}, "total": "sum"},
    }  # fmt: skip
    batch, ticks = 37, 24
    stepper, _, setters = stepper_of(batch=batch, **params)
    chosen = np.empty((ticks, batch, len(setters)))
    rng = np.random.default_rng(3)
    for uid, place in setters.items():
        if uid.startswith("line"):
            chosen[:, :, place] = 1.0
            chosen[10:14, ::5, place] = rng.random((4, 8)) < 0.9
        else:
            chosen[:, :, place] = rng.uniform(-0.5, 0.5, (ticks, batch)) + (1.0 if "load" in uid else 0.0)
    loads = [place for uid, place in setters.items() if uid.startswith("load")]
    chosen[5, 3::7, loads[0] : loads[-1] + 1] = 60.0  # nothing solves that
    many = [stepper.reset()]
    many += [stepper.step(chosen[t], resets=True) for t in range(ticks)]
    ended = sum(state.terminated + state.truncated for state in many)
    assert ended.min() >= 2
    assert len(set(ended.tolist())) > 1
    for k in (0, 5, 31, 32, 36, 3):
        alone, _, _ = stepper_of(batch=1, first=k, **params)
        states = [alone.reset()]
        states += [alone.step(chosen[t, k : k + 1], resets=True) for t in range(ticks)]
        for one, other in zip(states, many, strict=True):
            for name in ("readings", "rewards", "terminated", "truncated"):
                assert getattr(one, name).tobytes() == getattr(other, name)[k : k + 1].tobytes()


def test_it_conforms() -> None:
    """A rural grid with switching and storages; its incarnations draw their days."""
    check_batch_environment(
        partial(
            BatchGridEnvironment, RURAL, episode_starts="random", steps=5, sensors=["bus", "storage"],
            actuators=["sgen.q_mvar", "storage.p_mw"], rewards={"terms": ["attacker", "voltage_excess"]},
        ),
        batch=3, steps=12,
    )  # fmt: skip


@pytest.fixture
def heavy(two_bus_net: Any, tmp_path: Path) -> str:
    """20 MW at the end of a line that carries 28: without a solution when doubled."""
    two_bus_net.load["p_mw"] = 20.0
    pp.to_json(two_bus_net, str(tmp_path / "heavy.json"))
    return str(tmp_path / "heavy.json")


def test_a_power_flow_without_a_solution_ends_its_own_incarnation(heavy: str, run_plan: Any) -> None:
    params: dict[str, Any] = {"grid": heavy, "actuators": ["load"], "steps": 8}
    stepper, sensors, _ = stepper_of(batch=3, rewards={"terms": ["voltage_deviation"]}, **params)
    chosen = np.array([[1.0], [1.0], [1.0]])
    stepper.reset()
    before = stepper.step(chosen)
    assert not before.terminated.any()
    chosen[1] = 2.0
    state = stepper.step(chosen)
    assert state.terminated.tolist() == [False, True, False]
    assert state.readings[:, sensors["grid.converged"]].tolist() == [1.0, 0.0, 1.0]
    alone = seen_alone(run_plan, 3, np.array([[1.0], [2.0], [2.0]]), **params)
    assert np.abs(state.readings[1] - alone[2]).max() < 1e-9
    # as all readings, that of the last solved state
    assert state.readings[1, sensors["load-0.p_mw"]] == 20.0
    voltage = sensors["bus-1.vm_pu"]
    assert state.readings[1, voltage] == before.readings[1, voltage] < 1.0
    assert state.rewards[1] == before.rewards[1] > 0.0
    # it stays; the others go on
    chosen[:] = 0.5
    later = stepper.step(chosen)
    assert later.readings[1].tobytes() == state.readings[1].tobytes()
    assert later.terminated.tolist() == [False, True, False]
    assert later.readings[0, voltage] > state.readings[0, voltage]
    # or it begins again
    begun = stepper.step(chosen, resets=True)
    assert begun.terminated.tolist() == [False] * 3
    assert begun.readings[1, sensors["load-0.p_mw"]] == 20.0
    strict, _, _ = stepper_of(batch=2, on_divergence="fail", **params)
    strict.reset()
    with pytest.raises(PowerFlowError, match=r"grid\.1, row 1: the power flow did not converge"):
        strict.step(np.array([[1.0], [2.0]]))


def test_other_topologies_and_generators_are_what_they_are_alone(run_plan: Any, tmp_path: Path) -> None:
    """A moved tap, a line out, and a net with a voltage-controlled bus, which only Newton solves."""
    net = load_grid("cigre_mv").net
    pp.create_gen(net, 5, p_mw=0.5, vm_pu=1.0)
    pp.to_json(net, str(tmp_path / "generator.json"))
    for grid, switched in (
        (RURAL, ["trafo-0.tap_pos", "line-3.in_service"]),
        (str(tmp_path / "generator.json"), []),
    ):
        params: dict[str, Any] = {"grid": grid, "steps": 7, "start": 30}
        if switched:
            params |= {"actuators": ["trafo.tap_pos", "line.in_service"], "sensors": ["bus", "ext_grid"]}
        stepper, sensors, setters = stepper_of(batch=3, **params)
        idle = stepper.environment.get_idle_actions()[0]
        chosen = np.repeat(np.repeat(idle[None], 3, axis=0)[None], 7, axis=0)
        for k, uid in enumerate(switched):
            chosen[2:5, k, setters[uid]] -= 1.0
        states = [stepper.reset()]
        states += [stepper.step(chosen[t]) for t in range(6)]
        for k in range(3):
            alone = seen_alone(run_plan, 7, chosen[:, k], **params)
            assert np.abs(np.array([state.readings[k] for state in states]) - alone).max() < 1e-7
        if switched:
            bus = sensors["bus-50.vm_pu"]
            assert abs(states[4].readings[0, bus] - states[4].readings[2, bus]) > 1e-3
            assert states[6].readings[0, bus] == pytest.approx(states[6].readings[2, bus], abs=1e-9)


def test_rewards_are_those_of_one_grid() -> None:
    terms = [
        "voltage_band", "voltage_band_count", "voltage_excess", "voltage_deviation", "line_loading",
        "line_overload", "trafo_loading", "trafo_overload", "ext_grid_exchange", "defender", "attacker",
    ]  # fmt: skip
    params = {"terms": {name: i - 4.5 for i, name in enumerate(terms)}, "total": "sum", "band_high": 1.02}
    stepper, _, setters = stepper_of(
        grid="cigre_mv", batch=4, spread=50, actuators=["sgen", "load"], rewards=params
    )
    one = GridReward(**params)
    names = [reward.uid for reward in one.setup(GridEnvironment("cigre_mv").setup())]
    assert names == [*terms, "sum"]
    assert stepper.environment.reward_names == names
    stepper.reset()
    state = stepper.step(np.linspace(0.0, 1.9, 4)[:, None] * np.ones(len(setters)))
    expected = [one(EnvironmentState(readings)) for readings in state.readings]
    np.testing.assert_allclose(state.rewards, expected, rtol=1e-13, atol=1e-15)
    assert (np.ptp(state.rewards, axis=0) > 0.0).sum() >= 7


def test_where_episodes_begin() -> None:
    def rows(episode: int = 0, **params: Any) -> list[int]:
        stepper, _, _ = stepper_of(grid="cigre_mv", sensors=[], actuators=[], steps=4, **params)
        stepper.environment.episode = episode
        stepper.reset()
        return stepper.states[0].tolist()

    days = [{"from": "2016-01-02", "to": "2016-01-04"}]
    assert rows(batch=3, start="2016-01-11", spread=7) == [960, 960 + 7 * 96, 960 + 14 * 96]
    assert rows(batch=2, first=1, start="2016-01-11", spread=7) == [960 + 7 * 96, 960 + 14 * 96]
    assert rows(batch=5, start=days) == [96, 192, 288, 96, 192]
    assert rows(1, batch=5, start=days) == [96, 192, 288, 96, 192]
    assert rows(1, batch=5, start=days, episode_starts="sequential") == [192, 288, 96, 192, 288]
    drawn = rows(batch=40, start=days, episode_starts="random")
    assert set(drawn) == {96, 192, 288}
    assert drawn[30:] == rows(batch=10, first=30, start=days, episode_starts="random")
    anywhere = rows(batch=40, episode_starts="random")
    assert len(set(anywhere)) > 35
    assert max(anywhere) < 35136 - 3


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"episode_starts": "sequentiel"}, "did you mean 'sequential'"),
        ({"episode_starts": "sequential"}, "needs a list of starts"),
        ({"start": [0], "spread": 1}, "'spread' goes with one fixed start"),
        ({"steps": 1}, "1 is not a whole number of at least 2"),
        ({"batch": 9, "start": "2016-12-20", "spread": 2}, r"leave 0 of 35136"),
        ({"step": 1000}, "not a multiple of the profiles' resolution"),
        ({"sensors": ["buss"]}, "did you mean 'bus'"),
        ({"initial_soc": 1.5}, "not between 0 and 1"),
    ],
)
def test_parameters_are_checked(params: dict[str, Any], message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        stepper_of(grid="cigre_mv", **params)


def test_a_net_that_only_pandapower_solves_is_refused(two_bus_net: Any, tmp_path: Path) -> None:
    two_bus_net.load["const_z_p_percent"] = 50.0
    pp.to_json(two_bus_net, str(tmp_path / "zip.json"))
    with pytest.raises(
        DocumentError, match=r"cannot be solved many at a time .*ZIP.*GridEnvironment solves it"
    ):
        stepper_of(grid=str(tmp_path / "zip.json"))


def test_many_rows_of_profiles_are_those_of_one_to_the_last_bit() -> None:
    flow = BatchPowerFlow(FastPowerFlow(load_grid("cigre_mv").net))
    sizes = [
        part.stop - part.start for part in (flow.loads, flow.loads, flow.sgens, flow.storages, flow.gens)
    ]
    rng = np.random.default_rng(3)
    date = datetime(2016, 1, 1)

    def profiles(columns: int) -> Profiles:
        return Profiles(
            rng.uniform(size=(7, columns)),
            {
                # some have no profile: column -1
                name: Assignment(rng.integers(-1, columns, size), rng.uniform(size=size))
                for name, size in zip(QUANTITIES, sizes, strict=True)
            },
            date,
        )

    for columns, rows in ((3, [6, 0, 4, 4]), (0, [0, 1000])):
        table = profiles(columns)
        p, q = flow.follow(table, np.array(rows))
        for i, row in enumerate(rows):
            load_p, load_q, sgen_p, storage_p, gen_p = table.at(row)
            assert p[i].tobytes() == np.concatenate([load_p, sgen_p, storage_p, gen_p]).tobytes()
            assert q[i].tobytes() == np.concatenate([load_q, flow.own_q[len(load_q) :]]).tobytes()
    for row in (7, -1):
        with pytest.raises(IndexError, match="no such row"):
            flow.follow(profiles(3), np.array([0, row]))
