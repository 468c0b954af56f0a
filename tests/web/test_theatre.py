"""A run as one file: what it has, and that a browser shows it without a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import Browser
from support.small_grid import HOSTILE, small_grid_document

import palaestrai_mosaik as pm
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.web import carried
from palaestrai_mosaik.web.theatre import MotionChoice, run_page

from .test_grid import STEP, choose, drawn_voltages, lines, set_state
from .test_overview import rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    pm.run(small_grid_document(), store=folder, quiet=True)
    return folder


def voltages(folder: Path, phase: str) -> np.ndarray[Any, Any]:
    with Store(folder, read_only=True) as store:
        states = store.environment_states("small", phase, "net")
    return states[[f"reading.net.bus-{k}.vm_pu" for k in range(5)]].to_numpy()


def test_the_file_shows_the_grid_in_motion_without_a_network(
    browser: Browser, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.html"
    code = main(["theatre", "small", "-o", str(file), "--beside", "high", "--store", str(folder), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert code == 0
    assert told["phases"] == ["calm", "high"] and told["left_out"] == told["thinned"] == []
    assert told["bytes"] == file.stat().st_size
    browser.open(file.as_uri())
    browser.wait("document.querySelectorAll('.topology .node[fill]').length === 10")
    assert browser.js("document.querySelector('h1').textContent") == "small finished"
    for state in (0, 6, 12):
        set_state(browser, state)
        for side, phase in enumerate(("calm", "high")):
            for value, wanted in zip(
                drawn_voltages(browser, side), voltages(folder, phase)[state], strict=True
            ):
                if wanted == 0:
                    assert value is None
                else:
                    assert value == pytest.approx(np.clip(wanted, 0.9, 1.1), abs=STEP)
    set_state(browser, 6)
    assert lines(browser)["line-2"] == "edge off"
    choose(browser, "Beside it", "")
    browser.wait("document.querySelectorAll('.topology').length === 1")
    # the numbers are those of the store, to seven digits
    set_state(browser, 8)
    browser.js("document.querySelector('details.values summary').click()")
    rows = "[...document.querySelector('details.values table').querySelectorAll('tbody tr')]"
    browser.wait(f"{rows}.length === 5")
    shown = browser.js(f"{rows}.map((row) => Number(row.children[1].textContent))")
    assert shown == pytest.approx(voltages(folder, "calm")[8].tolist(), rel=1e-5)
    assert (
        browser.js(
            "performance.getEntriesByType('resource').filter((r) => !r.name.startsWith('data:')"
            " && !r.name.startsWith('blob:')).length"
        )
        == 0
    )
    assert browser.js("window.planted") is None
    assert browser.errors() == []


def test_the_same_run_gives_the_same_file(folder: Path) -> None:
    with Store(folder, read_only=True) as store:
        first, again = run_page(store, "small"), run_page(store, "small")
    assert first == again
    assert HOSTILE not in first.html  # (names are in packed data alone)


def test_a_phase_is_left_out_rather_than_making_the_file_large(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(folder, read_only=True) as store:
        monkeypatch.setattr(carried, "SIZE", 1)
        small = run_page(store, "small")
        assert (small.phases, small.left_out) == (("calm",), ("high",))
        # what is named is never left out
        assert run_page(store, "small", MotionChoice(["high", 0])).phases == ("calm", "high")
        assert run_page(store, "small", MotionChoice(beside="high")).phases == ("high",)
        monkeypatch.setattr(carried, "_MOST_VALUES", 50)
        assert run_page(store, "small", MotionChoice(["high"])).thinned == ("high",)


def test_the_episode_is_the_newest_the_worst_or_a_number(tmp_path: Path) -> None:
    document = small_grid_document()
    document["schedule"] = document["schedule"][:1]
    document["schedule"][0]["calm"]["phase_config"]["episodes"] = 2
    pm.run(document, store=tmp_path, quiet=True)
    with Store(tmp_path, read_only=True) as store:
        newest = run_page(store, "small")
        # both episodes have the same voltages: the first of the worst ones is meant
        assert (
            run_page(store, "small", MotionChoice(episode="worst"))
            == run_page(store, "small", MotionChoice(episode=0))
            != newest
        )
        assert run_page(store, "small", MotionChoice(episode=1)) == newest
        with pytest.raises(StoreError, match="no episode 7; it has: 0, 1"):
            run_page(store, "small", MotionChoice(episode=7))
        with pytest.raises(
            StoreError, match=r"no phase 'clam' with a topology or frames \(did you mean 'calm'\?\)"
        ):
            run_page(store, "small", MotionChoice(["clam"]))


def test_a_run_without_a_topology_has_its_head_and_curves(
    browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pm.run("scenarios/dummy.yml", store=tmp_path / "store", quiet=True)
    file = tmp_path / "run.html"
    assert main(["theatre", "latest", "-o", str(file), "--store", str(tmp_path / "store")]) == 0
    assert "has recorded neither a topology nor frames" in capsys.readouterr().err
    browser.open(file.as_uri())
    assert browser.wait("document.querySelector('h1')?.textContent") == "dummy finished"
    with Store(tmp_path / "store", read_only=True) as store:
        outcomes, names = store.outcomes("latest"), store.phases("latest")["name"]
    expected = {
        (names[row.phase], row.agent, row.episode): row.mean
        for row in outcomes[outcomes["kind"] == "objective"].itertuples()
    }
    found = {
        (phase, agent, int(episode)): float(mean)
        for phase, agent, kind, episode, mean, _ in rows(browser, "Objective")
        if kind == "episode"
    }
    assert found == pytest.approx(expected, rel=1e-5)
    assert browser.js("[...document.querySelectorAll('nav.tabs a')].map((one) => one.textContent)") == [
        *("Overview", "Time", "Record")
    ]
    assert browser.errors() == []


def test_the_file_is_named_after_the_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["theatre", "small", "--phase", "calm", "--store", str(folder)]) == 0
    (file,) = tmp_path.glob("small-*.html")
    assert file.name in capsys.readouterr().out
