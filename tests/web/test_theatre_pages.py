"""Pages in one file but those of a single run's grid: its times and record, runs compared, a store, a design."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import Browser
from support.documents import walks
from support.small_grid import HOSTILE, small_grid_document

import palaestrai_mosaik as pm
from palaestrai_mosaik.arsenai.design import Design, DesignFolder
from palaestrai_mosaik.arsenai.execution import Settings, run_folder
from palaestrai_mosaik.cli import arsenai
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.web import theatre
from palaestrai_mosaik.web.theatre import comparison_page, run_page, store_page

NETWORK = (
    "performance.getEntriesByType('resource').filter((r) => !r.name.startsWith('data:')"
    " && !r.name.startsWith('blob:')).length"
)
STUDY = walks(1, 2, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two runs of a small grid, which differ in their steps, and one that failed."""
    folder = tmp_path_factory.mktemp("store")
    pm.run(small_grid_document("small", steps=6), store=folder, quiet=True)
    pm.run(small_grid_document("longer", steps=9), store=folder, quiet=True)
    failing = small_grid_document("failing")
    failing["schedule"][0]["calm"]["environments"][0]["environment"]["params"]["steps"] = "many"
    with pytest.raises(TypeError):
        pm.run(failing, store=folder, quiet=True)
    return folder


@pytest.fixture(scope="module")
def design(tmp_path_factory: pytest.TempPathFactory) -> DesignFolder:
    path = tmp_path_factory.mktemp("design")
    (path / "design.yml").write_text(STUDY)
    folder = Design.load(path / "design.yml").generate(path / "walks")
    run_folder(folder, settings=Settings(executor="inline"))
    return folder


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Any]:
    """Open a page as a file; nothing of it comes over a network, and nothing is wrong with it in the end."""

    def open_file(page: pm.Page, fragment: str = "") -> Browser:
        browser.open(page.save(tmp_path / "page.html").absolute().as_uri() + fragment)
        browser.wait("document.querySelector('h1')")
        return browser

    yield open_file
    assert browser.js(NETWORK) == 0
    assert browser.js("window.planted") is None
    assert browser.errors() == []


def cells(browser: Browser, table: str) -> list[list[str]]:
    """Return the texts of a table that has a caption which begins so."""
    find = f"[...document.querySelectorAll('table')].find((one) => one.caption?.textContent.startsWith({table!r}))"
    browser.wait(find)
    found: list[list[str]] = browser.js(
        f"[...{find}.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((one) => one.textContent))"
    )
    return found


def follow(browser: Browser, text: str) -> None:
    """Click the link with this text."""
    find = f"[...document.querySelectorAll('a')].find((one) => one.textContent === {text!r})"
    browser.wait(find)
    browser.driver.execute_script(f"{find}.click()")


# a run


def test_the_file_has_the_columns_over_time(show: Any, folder: Path) -> None:
    with Store(folder, read_only=True) as store:
        browser = show(run_page(store, "small"))
        expected = {
            phase: store.environment_states("small", phase, "net")["reading.net.bus-4.vm_pu"].to_numpy()
            for phase in ("calm", "high")
        }
    follow(browser, "Time")
    browser.wait("document.querySelectorAll('.time-panels canvas').length === 3")
    titles = browser.js("[...document.querySelectorAll('.time-panels h2')].map((one) => one.textContent)")
    assert titles[0] == "net.bus-*.vm_pu" and titles[1].startswith("setpoint.") and titles[2] == "objective"

    def drawn() -> dict[str, list[float]]:
        series = browser.js(
            "echarts.getInstanceByDom(document.querySelector('.time-panels .chart')).getOption().series"
            ".filter((one) => one.name.includes('bus-4')).map((one) => [one.name, one.data.map((row) => row[1])])"
        )
        return dict(series)

    (line,) = drawn().values()
    np.testing.assert_allclose(line, expected["high"], rtol=1e-6)
    # laid over one another, as the server does
    browser.js("document.getElementById('phase-0').click()")
    browser.wait(
        "echarts.getInstanceByDom(document.querySelector('.time-panels .chart')).getOption().series"
        ".filter((one) => one.name.includes('bus-4')).length === 2"
    )
    both = drawn()
    assert [name.split(" · ")[0] for name in both] == ["calm", "high"]
    for (name, values), phase in zip(both.items(), ("calm", "high"), strict=True):
        np.testing.assert_allclose(values, expected[phase], rtol=1e-6, err_msg=name)
    limits = browser.js(
        "echarts.getInstanceByDom(document.querySelector('.time-panels .chart')).getOption().series"
        ".filter((one) => one.id.startsWith('limit')).map((one) => one.name)"
    )
    assert set(limits) <= {"limit 0.95", "limit 1.05"} and limits


def test_the_file_has_the_record_without_the_machine(show: Any, folder: Path) -> None:
    with Store(folder, read_only=True) as store:
        page = run_page(store, "failing")
        text = store.document_text("failing")
        digest = store.streams("small")["digest"].dropna().iloc[0]
        browser = show(page)
        follow(browser, "Record")
        browser.wait("document.querySelector('pre.traceback')")
        assert "TypeError" in browser.js("document.querySelector('pre.traceback').textContent")
        shown = browser.js("document.querySelector('pre.document').textContent")
        assert shown.split() == text.split()
        whole = browser.js("document.querySelector('main').textContent")
        assert "palaestrai-mosaik start FILE" in whole
        terms = browser.js("[...document.querySelectorAll('dt')].map((one) => one.textContent)")
        assert "packages" in terms and "hash" in terms and not {"host", "process"} & set(terms)
        # (the log and a traceback name what they name)
        assert str(folder) not in browser.js("document.querySelector('dl').closest('.card').textContent")
        browser = show(run_page(store, "small"))
        follow(browser, "Record")
        browser.wait(f"document.querySelector('main').textContent.includes({digest[:16]!r})")


def test_a_long_log_is_not_in_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from palaestrai_mosaik.web import carried as run_parts
    from palaestrai_mosaik.web.carried import Carried
    from palaestrai_mosaik.web.resources import Source

    def carried(store: Store) -> set[str]:
        found = Carried(Source(store))
        run_parts.add_record(found, store.find_run("failing"))
        return {path.split("/")[-1] for path in found.resources}

    with Store(folder, read_only=True) as store:
        assert carried(store) >= {"record", "log"}
        monkeypatch.setattr(run_parts, "_LOG", 1)
        assert "log" not in carried(store)


# several runs


def test_a_comparison_has_curves_outcomes_and_differences(show: Any, folder: Path) -> None:
    with Store(folder, read_only=True) as store:
        page = comparison_page(store, ["small", "longer"])
        browser = show(page)
        uids = [store.find_run(run) for run in ("small", "longer")]
        assert page.runs == tuple(uids) and page.phases == ("calm", "high") and page.left_out == ()
        found = {(row[0], row[2]): row[3:] for row in cells(browser, "The mean of an episode")}
        for run, place in (("small", 0), ("longer", 1)):
            names = store.phases(run).set_index("phase")["name"]
            rows = store.outcomes(run).assign(phase=lambda one, names=names: one["phase"].map(names))
            for row in rows.itertuples():
                what = "objective" if row.kind == "objective" else f"reward {row.name}"
                said = found[row.phase, what][place].split(" ")[0]
                assert (said == "\u2013") == np.isnan(row.mean)
                if not np.isnan(row.mean):
                    assert float(said) == pytest.approx(row.mean, rel=1e-3, abs=1e-9)
        differences = cells(browser, "Differences of the documents")
        assert ["uid", '"small"', '"longer"'] in differences
        assert [row[1:] for row in differences if row[0].endswith("params.steps")] == [["6", "9"]] * 2
        assert browser.js("document.querySelectorAll('figure canvas').length") > 0
        # both runs can be opened, and their grids go in step
        follow(browser, "Their grids side by side, in step")
        browser.wait("document.querySelectorAll('.topology').length === 2")
        follow(browser, "Comparison")
        follow(browser, uids[1])
        browser.wait("document.querySelector('h1')?.textContent === 'longer finished'")


def test_a_difference_to_the_first_run_is_in_brackets(show: Any, tmp_path: Path) -> None:
    for seed in (1, 2):
        pm.run("scenarios/dummy.yml", store=tmp_path / "s", quiet=True, overrides={"seed": seed})
    with Store(tmp_path / "s", read_only=True) as store:
        runs = store.runs()["run"].tolist()
        browser = show(pm.view(store, *runs))
        outcomes = [store.outcomes(run) for run in runs]
        names = store.phases(runs[0]).set_index("phase")["name"]
        rows = cells(browser, "The mean of an episode")
        assert rows
        for phase, agent, what, *values in rows:
            if what != "objective":
                continue
            own = [
                one[
                    (one["phase"].map(names) == phase)
                    & (one["agent"] == agent)
                    & (one["kind"] == "objective")
                ]
                for one in outcomes
            ]
            all_episodes = [one["mean"].mean() for one in own]
            last = [one.loc[one["episode"] == one["episode"].max(), "mean"].mean() for one in own]
            shown = [float(text.split(" ")[0]) for text in values]
            assert shown == pytest.approx([*all_episodes, *last], rel=1e-3)
            change = values[1].partition(" (")[2].rstrip(")") or "0"
            assert float(change) == pytest.approx(all_episodes[1] - all_episodes[0], rel=1e-2, abs=1e-9)


def test_the_command_compares_lists_or_shows_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    store = ["--store", str(folder)]
    assert main(["theatre", "small", "longer", *store]) == 0
    assert main(["theatre", *store, "--json"]) == 0
    told = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert Path("comparison.html").is_file() and told["file"] == "runs.html"
    assert told["run"] is None and len(told["runs"]) == 3
    assert main(["theatre", "small", "longer", "--phase", "calm", *store]) == 2
    assert "--phase, --episode and --beside go with a single RUN" in capsys.readouterr().err
    assert main(["theatre", "longer", "longer", *store]) == 2
    assert "'longer' and 'longer' are one run" in capsys.readouterr().err
    assert main(["theatre", "small", "smal", *store]) == 2
    assert "did you mean" in capsys.readouterr().err


# a store


def test_a_store_is_a_list_whose_newest_runs_open(show: Any, folder: Path) -> None:
    with Store(folder, read_only=True) as store:
        page = store_page(store)
        started = store.runs().set_index("document")["started"]
    assert len(page.runs) == 3 and page.left_out == ()
    browser = show(page)
    browser.wait("document.querySelectorAll('tbody tr svg.spark, tbody tr a').length >= 3")
    # times to the second, though other numbers have seven digits
    titles = browser.js("[...document.querySelectorAll('tbody td [title]')].map((one) => one.title)")
    assert any(f"{started['small']:%M:%S}" in title for title in titles)
    assert browser.js("document.querySelectorAll('tbody input').length") == 0
    browser.driver.execute_script(
        "[...document.querySelectorAll('tbody a')].find((one) => one.closest('tr').textContent.includes('longer')).click()"
    )
    browser.wait("document.querySelector('h1')?.textContent === 'longer finished'")
    browser.wait("document.querySelector('.grid .card table')")
    follow(browser, "All runs")
    browser.wait("document.querySelector('h1')?.textContent === 'Runs'")


def test_runs_beyond_the_limit_are_listed_and_not_linked(
    show: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(theatre, "_MOST_OVERVIEWS", 1)
    with Store(folder, read_only=True) as store:
        page = store_page(store)
    assert len(page.runs) == 1 and len(page.left_out) == 2
    browser = show(page)
    browser.wait("document.querySelectorAll('tbody tr[aria-rowindex]').length === 3")
    assert browser.js("document.querySelectorAll('tbody a').length") == 1


# a design


def test_a_design_is_a_file_whose_best_and_worst_runs_open(
    show: Any, design: DesignFolder, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "design.html"
    assert arsenai.main(["theatre", str(design.path), "-o", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["design"], told["bytes"], len(told["runs"])) == ("walks", file.stat().st_size, 3)
    page = design.view()
    assert page.html == file.read_text(encoding="utf-8"), "the same data give the same file"
    browser = show(page)
    browser.wait("document.querySelectorAll('[role=gridcell]').length === 3")
    browser.wait("document.querySelectorAll('figure canvas').length >= 2")
    links = browser.js("[...document.querySelectorAll('.design-selected a')].map((one) => one.textContent)")
    assert len(links) == 3
    follow(browser, links[0])
    browser.wait("document.querySelector('h1')?.textContent.endsWith('finished')")
    follow(browser, "Design")
    browser.wait("document.querySelector('h1')?.textContent === 'walks'")


def test_the_best_and_worst_runs_come_first() -> None:
    facts = {"cells": np.arange(6)}
    states = {
        "changed": {
            "run": np.arange(6),
            "instance": ["a", "b", "c", "d", "e", None],
            "errors": [[4, "failed", "log"]],
        }
    }
    outcomes = {"outcomes": [{"better": "higher", "values": np.array([1.0, 4.0, 2.0, 3.0, np.nan, np.nan])}]}
    assert theatre._extreme_runs(facts, states, outcomes) == ["b", "a", "d", "c", "e"]
    outcomes["outcomes"][0]["better"] = "lower"
    assert theatre._extreme_runs(facts, states, outcomes)[:2] == ["a", "b"]


def test_a_design_that_was_not_run_shows_what_waits(show: Any, tmp_path: Path) -> None:
    (tmp_path / "design.yml").write_text(STUDY)
    folder = Design.load(tmp_path / "design.yml").generate(tmp_path / "walks")
    browser = show(folder.view())
    browser.wait("document.querySelectorAll('[role=gridcell]').length === 3")
    assert "No run has finished yet" in browser.js("document.querySelector('main').textContent")


def test_names_in_files_are_text(folder: Path) -> None:
    with Store(folder, read_only=True) as store:
        for page in (comparison_page(store, ["small", "longer"]), store_page(store)):
            assert HOSTILE not in page.html
