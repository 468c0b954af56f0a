"""The page of a search: it follows while other processes add settings, and shows the best so far."""

from __future__ import annotations

import csv
import json
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from arsenai.search.searches import GATED, search_design, start, tuned, written
from support.browser import Browser
from support.waiting import HANG, until

from palaestrai_mosaik.arsenai.design.folder import RESULTS, DesignFolder
from palaestrai_mosaik.arsenai.execution import run_states
from palaestrai_mosaik.core.errors import DocumentError, ExecutionError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.merge import delete_runs
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.web.actions import perform
from palaestrai_mosaik.web.data import design as design_resources
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.data.design import watch
from palaestrai_mosaik.web.resources import ResourceError, Source
from palaestrai_mosaik.web.workplace import Workplace

from .conftest import Serve

pytest.importorskip("optuna")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(folder: Path) -> list[dict[str, str]]:
    with open(folder / "search/settings.csv", encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def rows_of(browser: Browser, place: str) -> list[dict[str, str]]:
    """Return the rows of the first table below ``place``, by their titles."""
    return browser.rows(f"document.querySelector('{place} table')")


def cells(browser: Browser) -> list[str]:
    found: list[str] = browser.js("[...document.querySelectorAll('[role=gridcell]')].map(e => e.ariaLabel)")
    return found


def test_the_page_follows_a_search_of_another_process(browser: Browser, serve: Serve) -> None:
    """The page is open before the first run; rows, states, outcomes and the best so far come without a reload."""
    search = {
        "sampler": "tpe",
        "budget": {"runs": 40},
        "seeds_per_setting": 2,
        "prune": "median",
        "confirm": 2,
    }
    # a muscle that takes its time: the search goes on while the page is looked at
    name = written(search_design(search=search, episodes=4, steps=2, noise=0.5, muscle=SLOW))
    Path("slow_muscle.py").write_text(_SLOW, encoding="utf-8")
    process = start("tune", name, "-o", "f", "--quiet", "--executor", "inline")
    try:
        until(lambda: Path("f/manifest.json").exists())
        source = Source(StoreLocation(str(Path("f", RESULTS))), DesignFolder.open("f"))
        assert source.folder is not None
        begun = len(source.folder.runs)
        assert begun < 8
        browser.resize(1280, 900)
        browser.open(serve(source))
        count = "document.querySelectorAll('[role=gridcell]').length"
        browser.js("window.opened = true")
        # rows are added, and each has its cells
        first = browser.wait(f"{count} > {begun} && {count}")
        browser.wait(f"{count} > {first}")
        assert process.poll() is None, "the search was over too soon"
        # the best so far grows, and so does the table of what has finished
        line = (
            "echarts.getInstanceByDom(document.querySelector('.design-search figure .chart'))"
            ".getModel().getSeriesByIndex(0).getRawData()"
        )
        points = browser.wait(f"document.querySelector('.design-search figure canvas') && {line}.count()")
        browser.wait(f"{line}.count() > {points}")
        assert process.wait(HANG) == 0
        told = settings(Path("f"))
        browser.wait(f"{count} === {2 * len(told)}")
        with Store(Path("f", RESULTS), read_only=True) as store:
            states = run_states(DesignFolder.open("f"), store).runs
        expected = sorted(
            f"row {one.planned.row}, repetition {one.planned.repetition}: {one.status}" for one in states
        )
        wanted = json.dumps(expected)
        browser.wait(
            "JSON.stringify([...document.querySelectorAll('[role=gridcell]')].map(e => e.ariaLabel).sort())"
            f" === JSON.stringify({wanted})"
        )
        assert {"pruned", "finished"} <= {text.rpartition(": ")[2] for text in cells(browser)}
        _check_settings(browser, told, line)
        assert browser.js("window.opened"), "the page was loaded again"
        assert browser.errors() == []
    finally:
        process.kill()
        process.communicate()


def _check_settings(browser: Browser, told: list[dict[str, str]], line: str) -> None:
    """Compare what the page says of the settings with their table, once the search is over."""
    # settings by state, and the best of them
    counts = Counter(one["state"] for one in told)
    # (the page asks for them apart from the cells of the runs)
    for tile, state in (("settings", "complete"), ("settings-pruned", "pruned")):
        shown = f"document.querySelector('[data-tile={tile}] b')?.textContent"
        browser.wait(f"{shown} === '{counts[state]}'")
    least = min(float(one["values"]) for one in told if one["state"] == "complete")
    shown = browser.js("document.querySelector('[data-tile=best] b').textContent")
    assert float(shown.replace(",", "")) == pytest.approx(least, rel=1e-5)
    drawn = browser.js(f"Array.from({{length: {line}.count()}}, (_, i) => {line}.get('y', i))")
    assert drawn[-1] == pytest.approx(least) and drawn == sorted(drawn, reverse=True)
    assert len(drawn) == counts["complete"]
    # the figures over fresh seeds come when they are there
    browser.wait("document.querySelector('.design-best')?.textContent.split('(n=2)').length === 4")
    assert "trust these" in browser.js("document.querySelector('.design-best').textContent")
    assert all("(n=2)" in row["y, fresh seeds"] for row in rows_of(browser, ".design-best"))
    browser.js("document.querySelector('.design-search details.settings').open = true")
    browser.wait("document.querySelector('.design-search details.settings table')")
    listed = rows_of(browser, ".design-search details.settings")
    assert [row["State"] for row in listed] == [one["state"] for one in reversed(told)]


SLOW = "slow_muscle:SlowMuscle"
_SLOW = """
import time

from palaestrai_mosaik.agent.library.idle import IdleMuscle


class SlowMuscle(IdleMuscle):
    def propose_actions(self, sensors, actuators_available):
        time.sleep(0.02)
        return super().propose_actions(sensors, actuators_available)
"""


def growing(budget: int) -> Path:
    tuned(search_design(search={"budget": {"runs": budget}}), "f")
    return Path("f").resolve()


def test_settings_that_are_tried_again_say_so(browser: Browser, serve: Serve) -> None:
    search = {"sampler": "random", "budget": {"runs": 3}}
    design = search_design(muscle=GATED, steps=4, search=search)
    tuned(design, code=1)
    source = Source(Store("f/results", read_only=True), DesignFolder.open("f"))
    browser.open(serve(source))
    tiles = "Object.fromEntries([...document.querySelectorAll('.design-search [data-tile]')].map(e => [e.dataset.tile, e.querySelector('b').textContent]))"
    browser.wait(f"{tiles}['settings-failed'] === '3'")
    Path("mended").touch()
    tuned(design, "f", "--retry-failed")
    # (settings are marked before they are executed again, and the page may look in between)
    browser.wait(f"{tiles}['settings'] === '3'")
    assert browser.js(f"{tiles}['settings-retried']") == "3"
    assert browser.js(f"{tiles}['settings-failed']") is None
    assert browser.js(f"{tiles}['runs']").startswith("3")
    browser.js("document.querySelector('.design-search details.settings').open = true")
    browser.wait("document.querySelectorAll('.design-search details.settings tbody tr').length === 6")
    remarks = {row["Setting"]: row["Remark"] for row in rows_of(browser, ".design-search details.settings")}
    assert remarks["3"] == "tries setting 0 again" and remarks["0"].endswith("tried again as setting 3")
    assert browser.errors() == []
    source.store.close()


def test_the_button_tries_failed_settings_again(here: Path) -> None:
    tuned(search_design(muscle=GATED, steps=4, search={"sampler": "random", "budget": {"runs": 2}}), code=1)
    location = StoreLocation(str(here / "f" / RESULTS))
    source = Source(location, DesignFolder.open("f"), Workplace(location))
    Path("mended").touch()
    perform(source, "design/resume", {})
    until(lambda: source.workplace is not None and source.workplace.started()[0].code is not None)
    assert source.workplace is not None
    (one,) = source.workplace.started()
    assert one.code == 0, one.printed()
    assert [setting["state"] for setting in settings(Path("f"))] == ["retried"] * 2 + ["complete"] * 2
    source.close()


def test_rows_that_a_search_adds_are_taken_in() -> None:
    path = growing(3)
    source = Source(Store(path / RESULTS, read_only=True), DesignFolder.open(path))
    before: Any = get(source, "design")
    states: Any = get(source, "design/states")
    search: Any = get(source, "design/search")
    assert before["rows"] == states["rows"] == 3 == len(search["settings"]["number"])
    growing(7)
    watch(source)._looked = -1e9  # (as if a second had gone by)
    after: Any = get(source, "design/states", {"since": str(states["version"])})
    assert (after["rows"], after["problems"]) == (7, [])
    assert np_list(after["changed"]["run"]) == [3, 4, 5, 6]
    added: Any = get(source, "design/rows", {"from": "3"})
    whole: Any = get(source, "design")
    assert np_list(before["cells"]) + np_list(added["cells"]) == np_list(whole["cells"])
    assert before["runs"]["uid"] + added["runs"]["uid"] == whole["runs"]["uid"]
    for i, factor in enumerate(whole["factors"]):
        assert np_list(before["factors"][i]["values"]) + np_list(added["values"][i]) == np_list(
            factor["values"]
        )
    outcomes: Any = get(source, "design/outcomes")
    told = [float(one["values"]) for one in settings(path)]
    assert np_list(outcomes["outcomes"][0]["values"]) == pytest.approx(told)
    now: Any = get(source, "design/search", {"since": search["version"]})
    assert np_list(now["history"]["value"]) == pytest.approx(told)
    assert now["budget"] == {"runs": 7}
    assert now["best"][0]["values"]["y"] == min(told)
    assert get(source, "design/search", {"since": now["version"]}) == {
        "version": now["version"],
        "unchanged": True,
    }
    source.store.close()


def np_list(values: Any) -> list[Any]:
    return list(values.tolist())


def test_outcomes_of_a_search_stand_in_their_cells() -> None:
    """Rows that were pruned have no outcome, and those behind them keep theirs."""
    search = {"sampler": "random", "budget": {"runs": 24}, "seeds_per_setting": 2, "prune": "median"}
    told = tuned(search_design(search=search, episodes=3, noise=0.2))
    assert "pruned" in {one["state"] for one in told[:-1]}
    source = Source(Store("f/results", read_only=True), DesignFolder.open("f"))
    found: Any = get(source, "design/outcomes")
    values = found["outcomes"][0]["values"].reshape(len(told), 2).mean(axis=1)
    for one, value in zip(told, values, strict=True):
        if one["state"] == "complete":
            assert value == pytest.approx(float(one["values"]))
        else:
            assert math.isnan(value)
    source.store.close()


def test_a_poll_reads_nothing_where_no_file_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    path = growing(5)
    source = Source(Store(path / RESULTS, read_only=True), DesignFolder.open(path))
    get(source, "design/states")
    get(source, "design/search")
    watch(source)._cost = 0.0
    watch(source)._looked -= 2.0  # (a folder that does not change is looked at every ten seconds)
    opened: list[str] = []
    from palaestrai_mosaik.core import files

    read, stream = files.open_read, files.open_text
    monkeypatch.setattr(
        files, "open_read", lambda file, **more: opened.append(str(file)) or read(file, **more)
    )
    monkeypatch.setattr(
        files, "open_text", lambda file, **more: opened.append(str(file)) or stream(file, **more)
    )
    get(source, "design/states")
    get(source, "design/search")
    assert opened == []
    os.utime(path / "search/journal.log", ns=(1, 1))
    get(source, "design/states")
    get(source, "design/search")
    assert str(path / "search/journal.log") in opened
    # the manifest is as it was: no table and no document is read again
    assert not [file for file in opened if file.endswith(("design.csv", "design.yml")) or "/runs/" in file]
    source.store.close()


def test_a_page_that_was_open_before_the_store_is_told_of_all_runs() -> None:
    path = growing(2)
    source = Source(StoreLocation(str(path / "elsewhere")), DesignFolder.open(path))
    first: Any = get(source, "design/states")
    assert first["version"] > 0
    os.rename(path / RESULTS, path / "elsewhere")
    source._looked = -1e9
    now: Any = get(source, "design/states", {"since": str(first["version"])})
    assert np_list(now["changed"]["run"]) == [0, 1]
    assert all(now["changed"]["instance"])
    source.close()


def test_a_folder_that_was_exchanged_is_named() -> None:
    path = growing(2)
    folder = DesignFolder.open(path)
    assert folder.refreshed() is folder
    source = Source(Store(path / RESULTS, read_only=True), folder)
    get(source, "design/states")
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    manifest["design"]["hash"] = "0" * 64
    (path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(DocumentError, match="another design since it was opened"):
        folder.refreshed()
    watch(source)._looked = -1e9
    problems: Any = get(source, "design/states")["problems"]  # type: ignore[index]
    assert problems and "generated again" in problems[0]
    source.store.close()


def test_a_design_without_a_search_says_so(tmp_path: Path) -> None:
    from palaestrai_mosaik.arsenai.design.design import Design

    design = search_design()
    del design["search"]
    design["sampler"] = {"name": "lhs", "n": 2}
    folder = Design.from_mapping(design).generate(tmp_path / "plain")
    source = Source(StoreLocation(str(folder.path / RESULTS)), folder)
    assert get(source, "design")["search"] is False  # type: ignore[index]
    with pytest.raises(ResourceError, match="this design has no search"):
        get(source, "design/search")
    source.close()


def test_one_file_shows_the_search(browser: Browser, tmp_path: Path) -> None:
    path = growing(4)
    folder = DesignFolder.open(path)
    page = folder.view().save(tmp_path / "search.html")
    browser.open(page.as_uri())
    browser.wait("document.querySelector('.design-search figure canvas')")
    assert browser.js("document.querySelectorAll('[role=gridcell]').length") == 4
    assert browser.js("document.querySelector('[data-tile=settings] b').textContent") == "4"
    assert browser.errors() == []
    # the same search, the same bytes
    assert folder.view().html == page.read_text(encoding="utf-8")


def test_settings_that_have_lost_results_are_called_so(here: Path) -> None:
    tuned(search_design(search={"sampler": "random", "budget": {"runs": 3}}))
    with Store(here / "f" / RESULTS) as store:
        runs = store.runs()
        delete_runs(store, list(runs.loc[runs["document"] == "valley-1-r0", "run"]))
    source = Source(Store(here / "f" / RESULTS, read_only=True), DesignFolder.open("f"))
    found: Any = get(source, "design/search")
    assert (found["counts"]["complete"], found["counts"]["lost"]) == (2, 1)
    assert found["states"][found["settings"]["state"][1]] == "lost"
    assert 1 not in [one["number"] for one in found["best"]]
    source.close()


def test_a_damaged_journal_is_an_error_until_it_is_mended(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the folder is read again only after a change of its files
    monkeypatch.setattr(design_resources, "_UNCHANGED", math.inf)
    monkeypatch.setattr(design_resources, "_CHANGING", 0.0)
    monkeypatch.setattr(design_resources, "_SHARE", 0.0)
    tuned(search_design(search={"sampler": "random", "budget": {"runs": 3}}))
    source = Source(Store(here / "f" / RESULTS, read_only=True), DesignFolder.open("f"))
    get(source, "design/states")
    journal = here / "f/search/journal.log"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b"garbage\n")
    for _ in range(2):
        with pytest.raises(ExecutionError, match="is damaged"):
            get(source, "design/states")
    journal.write_bytes(whole)
    get(source, "design/states")
    source.close()


def test_the_page_follows_the_journal_and_not_the_table(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # the folder is read again only after a change of its files
    monkeypatch.setattr(design_resources, "_UNCHANGED", math.inf)
    tuned(search_design(search={"sampler": "random", "budget": {"runs": 3}}))
    journal = here / "f/search/journal.log"
    whole = journal.read_bytes()
    last = max(n for n, line in enumerate(whole.splitlines()) if b'"runs"' in line)
    journal.write_bytes(b"".join(whole.splitlines(keepends=True)[:last]))
    source = Source(Store(here / "f" / RESULTS, read_only=True), DesignFolder.open("f"))
    counts: Any = lambda: get(source, "design/search")["counts"]  # noqa: E731
    assert (counts()["complete"], counts()["running"]) == (2, 1)
    journal.write_bytes(whole)
    until(lambda: counts()["complete"] == 3)
    source.close()
