"""Grids by name, their profiles, and the cache."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandapower as pp
import pandas as pd
import pytest

from palaestrai_mosaik.core.errors import SimulationError
from palaestrai_mosaik.environment.grid import network
from palaestrai_mosaik.environment.grid.network import cache_directory, load_grid
from palaestrai_mosaik.environment.grid.profiles import QUANTITIES, Assignment, Profiles


def test_profiles_equal_those_of_simbench() -> None:
    """simbench's own multiplication of profiles and powers is the oracle."""
    import simbench

    net = simbench.get_simbench_net("1-MV-rural--2-sw")
    expected = simbench.get_absolute_values(net, profiles_instead_of_study_cases=True)
    profiles = load_grid("simbench:1-MV-rural--2-sw").profiles
    assert profiles.steps == 35136
    for step in (0, 12345, 35135):
        values = profiles.at(step)
        for key, found in zip(
            [("load", "p_mw"), ("load", "q_mvar"), ("sgen", "p_mw"), ("storage", "p_mw"), ("gen", "p_mw")],
            values,
            strict=True,
        ):
            np.testing.assert_allclose(found, expected[key].iloc[step].to_numpy(), rtol=1e-12)


def small(columns: int = 2) -> Profiles:
    table = np.arange(6.0).reshape(3, 2)[:, :columns]
    one = Assignment(np.array([1, -1, 0]) if columns else np.array([-1] * 3), np.array([10.0, 7.0, 2.0]))
    none = Assignment(np.empty(0, dtype=np.int64), np.empty(0))
    return Profiles(
        table,
        {"load_p": one, "load_q": one, "sgen_p": none, "storage_p": none, "gen_p": none},
        datetime(2016, 1, 1),
    )


def test_profiles_by_hand() -> None:
    load_p, load_q, sgen_p, storage_p, gen_p = small().at(1)
    np.testing.assert_array_equal(load_p, [30.0, 7.0, 4.0])
    np.testing.assert_array_equal(load_q, load_p)
    assert len(sgen_p) == len(storage_p) == len(gen_p) == 0
    with pytest.raises(IndexError, match="steps 0 to 2, step 3"):
        small().at(3)


def test_constant_profiles_never_end() -> None:
    profiles = small(columns=0)
    assert profiles.steps is None
    np.testing.assert_array_equal(profiles.at(10**6)[0], [10.0, 7.0, 2.0])


def test_dates() -> None:
    profiles = small()
    assert profiles.date_of(2) == datetime(2016, 1, 1, 0, 30)
    assert profiles.step_of(datetime(2016, 1, 1, 0, 15)) == 1
    for date, text in ((datetime(2016, 1, 1, 0, 7), "multiple of 900"), (datetime(2016, 1, 1, 1), "outside")):
        with pytest.raises(ValueError, match=text):
            profiles.step_of(date)


def test_cigre_has_daily_profiles_up_to_its_peaks() -> None:
    from pandapower.networks import create_cigre_network_mv

    peak = create_cigre_network_mv().load.p_mw.sum()
    grid = load_grid("cigre_mv")
    loads = np.array([grid.profiles.at(step)[0] for step in range(35136)])
    assert 0.5 * peak < loads.sum(axis=1).max() <= peak
    np.testing.assert_allclose(loads.max(axis=0), grid.net.load.p_mw, rtol=1e-12)
    sgens = np.array([grid.profiles.at(step)[2] for step in range(96 * 180, 96 * 181)])
    is_pv = (grid.net.sgen.type == "PV").to_numpy()
    assert np.all(sgens[0, is_pv] < 1e-4)
    assert np.all(sgens[48, is_pv] > 0.1 * grid.net.sgen.p_mw[is_pv])


def test_taps_of_simbench_work() -> None:
    trafo = load_grid("simbench:1-MV-rural--2-sw").net.trafo
    assert trafo.tap_changer_type.tolist() == ["Ratio", "Ratio"]


def test_pandapower_file_with_and_without_profiles(tmp_path: Path, two_bus_net: Any) -> None:
    pp.to_json(two_bus_net, tmp_path / "plain.json")
    grid = load_grid(str(tmp_path / "plain.json"))
    assert grid.profiles.steps is None
    assert [v.tolist() for v in grid.profiles.at(5)] == [[2.0], [0.5], [1.0], [0.0], []]
    two_bus_net["profiles"] = {
        "load": pd.DataFrame({"H_pload": [0.1, 0.2], "H_qload": [0.3, 0.4]}),
        "renewables": pd.DataFrame({"PV": [0.0, 1.0]}),
    }
    two_bus_net.load["profile"], two_bus_net.sgen["profile"] = "H", "PV"
    pp.to_json(two_bus_net, tmp_path / "profiles.json")
    profiles = load_grid(str(tmp_path / "profiles.json")).profiles
    assert profiles.steps == 2
    assert [v.tolist() for v in profiles.at(1)] == [[0.4], [0.2], [1.0], [0.0], []]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cigre_mw", r"unknown grid 'cigre_mw' \(did you mean 'cigre_mv'\?\)"),
        ("simbench:1-MV-rural--2-sv", r"did you mean '1-MV-rural--2-sw'"),
        ("nowhere.json", "there is no file 'nowhere.json'"),
    ],
)
def test_unknown_names(name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAESTRAI_MOSAIK_CACHE", str(tmp_path))
    with pytest.raises(SimulationError, match=text):
        load_grid(name)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_net(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("[1, 2")
    with pytest.raises(SimulationError, match="cannot be read as a pandapower net"):
        load_grid(str(path))


def test_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PALAESTRAI_MOSAIK_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "own"
    monkeypatch.delenv("PALAESTRAI_MOSAIK_CACHE")
    assert cache_directory() == tmp_path / "xdg" / "palaestrai_mosaik"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "palaestrai_mosaik"


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, two_bus_net: Any) -> list[int]:
    """A cache of its own, and a grid ``cigre_mv`` that is quick to build; counts its builds."""
    monkeypatch.setenv("PALAESTRAI_MOSAIK_CACHE", str(tmp_path / "cache"))
    builds: list[int] = []

    def build() -> network.Grid:
        builds.append(1)
        two_bus_net.load["p_mw"] = 1.0 / 3.0
        return network.Grid("cigre_mv", two_bus_net, small())

    monkeypatch.setattr(network, "_cigre_mv", build)
    return builds


def test_a_cached_grid_is_the_same_to_the_last_bit(cached: list[int], tmp_path: Path) -> None:
    first, second = load_grid("cigre_mv"), load_grid("cigre_mv")
    assert len(cached) == 1
    assert first.net.load.p_mw[0] == second.net.load.p_mw[0]
    for quantity in QUANTITIES:
        np.testing.assert_array_equal(
            first.profiles.assignments[quantity].factors, second.profiles.assignments[quantity].factors
        )
    np.testing.assert_array_equal(first.profiles.table, second.profiles.table)
    assert [p.suffix for p in (tmp_path / "cache").iterdir()] == [".npz"]
    first.net.load["p_mw"] = 9.0
    assert second.net.load.p_mw[0] == load_grid("cigre_mv").net.load.p_mw[0] != 9.0


def test_a_kept_grid_is_nobody_elses(cached: list[int]) -> None:
    first = load_grid("cigre_mv")
    first.net.bus["vn_kv"] = -1.0
    first.net.load.drop(first.net.load.index, inplace=True)
    with pytest.raises(ValueError, match="read-only"):
        first.profiles.table[:] = 0.0
    second = load_grid("cigre_mv")
    network._kept.clear()
    anew = load_grid("cigre_mv")
    assert (second.net.bus.vn_kv > 0).all() and len(second.net.load)
    assert pp.to_json(second.net) == pp.to_json(anew.net)
    assert second.profiles.table is not anew.profiles.table


def test_few_grids_are_kept(cached: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_KEPT", 1)
    load_grid("cigre_mv")
    monkeypatch.setattr(network, "version", lambda package: "another")
    load_grid("cigre_mv")
    assert len(network._kept) == 1


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "other"])
def test_a_damaged_cache_is_rebuilt(cached: list[int], tmp_path: Path, damage: str) -> None:
    expected = load_grid("cigre_mv").profiles.table
    (path,) = (tmp_path / "cache").iterdir()
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 0xFF
    path.write_bytes({"empty": b"", "cut": data[:-100], "flipped": data, "other": b"not a cache"}[damage])
    np.testing.assert_array_equal(load_grid("cigre_mv").profiles.table, expected)
    assert len(cached) == 2
    load_grid("cigre_mv")
    assert len(cached) == 2


def test_without_a_writable_cache(cached: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PALAESTRAI_MOSAIK_CACHE", str(tmp_path / "file" / "below"))
    assert load_grid("cigre_mv").profiles.steps == 3
    load_grid("cigre_mv")
    assert len(cached) == 2
