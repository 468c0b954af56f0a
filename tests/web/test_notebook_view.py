"""What a notebook shows of runs, stores and designs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.browser import Browser
from support.small_grid import small_grid_document

import palaestrai_mosaik as pm
from palaestrai_mosaik.arsenai.analysis import Results
from palaestrai_mosaik.arsenai.design import Design
from palaestrai_mosaik.arsenai.execution import Settings, run_folder
from palaestrai_mosaik.core.errors import DocumentError, StoreError

HOSTILE = "<script>window.planted=1</script>"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pm.RecordedRun:
    return pm.run(small_grid_document(), store=tmp_path_factory.mktemp("store"), quiet=True)


def test_a_cell_shows_the_page_of_a_run(browser: Browser, run: pm.RecordedRun, tmp_path: Path) -> None:
    view = run.view(beside="high", height=600)
    cell = tmp_path / "cell.html"
    cell.write_text(f"<!DOCTYPE html><html><body>{view._repr_html_()}</body></html>", encoding="utf-8")
    browser.open(cell.as_uri())
    frame = browser.driver.find_element("css selector", "iframe")
    assert (frame.size["height"], frame.get_attribute("sandbox")) == (600, "allow-scripts")
    browser.driver.switch_to.frame(frame)
    try:
        browser.wait("document.querySelectorAll('.topology .node[fill]').length === 10")
        # a link leads to a view of the page in the frame, not to what is around it
        browser.driver.execute_script("document.querySelector('nav.tabs a[href$=\"/grid\"]').click()")
        browser.wait("document.querySelectorAll('.topology .node[fill]').length === 5")
        assert browser.js("document.querySelector('h1').textContent") == "small finished"
    finally:
        browser.driver.switch_to.default_content()
    assert browser.errors() == []


def test_a_view_is_saved_as_a_file(run: pm.RecordedRun, tmp_path: Path) -> None:
    view = pm.view(run.store, "latest", phases=["calm"])
    assert view.save(tmp_path / "run.html") == tmp_path / "run.html"
    assert (tmp_path / "run.html").read_text(encoding="utf-8") == view.html
    assert view.phases == ("calm",)
    assert repr(view).startswith(f"<Page of {run.instance}: ")


def test_a_view_of_nothing_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nothing"):
        pm.view(tmp_path / "nothing")


def test_a_store_shows_its_newest_runs(tmp_path: Path) -> None:
    for seed in range(12):
        document = {**small_grid_document(steps=1), "seed": seed, "uid": f"run-{seed}"}
        document["schedule"] = document["schedule"][:1]
        pm.run(document, store=tmp_path, quiet=True)
    with pm.Store(tmp_path) as store:
        shown = store._repr_html_()
    assert "the newest 10 of 12" in shown
    assert shown.index("run-11") < shown.index("run-2<") and "run-1<" not in shown
    assert "<script" not in shown


def test_a_store_shows_names_as_text(tmp_path: Path) -> None:
    document = {**small_grid_document(steps=1), "uid": HOSTILE}
    pm.run(document, store=tmp_path, quiet=True)
    with pm.Store(tmp_path) as store:
        assert HOSTILE not in store._repr_html_()


@pytest.fixture(scope="module")
def design(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A design document whose names are hostile."""
    path = tmp_path_factory.mktemp("design") / "design.yml"
    document = {
        "uid": f"two {HOSTILE}",
        "seed": 1,
        "output": str(path.parent / "designs"),
        "base": {
            "uid": "walk",
            "seed": 7,
            "schedule": {
                "train": {
                    "environments": ["slippery_grid"],
                    "agents": [{"name": "walker", "muscle": "random"}],
                    "phase_config": {"episodes": 1},
                }
            },
        },
        "factors": {
            HOSTILE: {
                "path": "schedule.train.phase_config.episodes",
                "levels": [1, 2],
                "labels": [HOSTILE, "two"],
            }
        },
        "sampler": "factorial",
        "outcomes": {"length": {"of": "steps", "step": "sum", "better": "higher"}},
    }
    path.write_text(json.dumps(document))
    return path


def test_a_design_its_folder_and_its_results_show_themselves(browser: Browser, design: Path) -> None:
    loaded = Design.load(design)
    shown = loaded._repr_html_()
    assert "factorial" in shown and "length (higher is better)" in shown and "two" in shown
    with pytest.raises(DocumentError, match="not the folder of a generated design"):
        loaded.view()
    folder = loaded.generate()
    assert "2 rows, 2 runs" in folder._repr_html_()
    waiting = Results(folder)._repr_html_()
    assert "has the design been run?" in waiting
    run_folder(folder, settings=Settings(executor="inline"))
    results = Results(folder)
    assert "finished" in results._repr_html_() and "Outcomes" in results._repr_html_()
    pages = [loaded.view(), folder.view(), results.view(), pm.view(folder.path), pm.view(results)]
    assert {page.html for page in pages} == {pages[0].html}
    for one in (loaded, folder, results, pages[0]):
        assert HOSTILE not in one._repr_html_()
    browser.open(pages[0].save(design.with_name("page.html")).as_uri())
    browser.wait("document.querySelectorAll('[role=gridcell]').length === 2")
    browser.wait("document.querySelectorAll('figure canvas').length >= 2")
    assert browser.js("window.planted") is None
    assert browser.errors() == []


def test_a_cell_shows_the_design_in_a_frame(browser: Browser, design: Path, tmp_path: Path) -> None:
    folder = Design.load(design).generate(tmp_path / "folder")
    cell = tmp_path / "cell.html"
    cell.write_text(
        f"<!DOCTYPE html><html><body>{folder.view()._repr_html_()}</body></html>", encoding="utf-8"
    )
    browser.open(cell.as_uri())
    browser.driver.switch_to.frame(browser.driver.find_element("css selector", "iframe"))
    try:
        browser.wait("document.querySelectorAll('[role=gridcell]').length === 2")
    finally:
        browser.driver.switch_to.default_content()
    assert browser.js("window.planted") is None
    assert browser.errors() == []


def test_a_store_and_its_runs_are_viewed_by_methods(run: pm.RecordedRun) -> None:
    store = run.store
    assert store.view() == pm.view(store) == pm.view(store.directory)
    assert store.view("latest", height=500).height == 500
    assert store.view("latest").html == run.view().html == pm.view(run).html
    with pytest.raises(StoreError, match="name one run"):
        pm.view(store, phases=["calm"])
    with pytest.raises(StoreError, match="pass the store"):
        pm.view(run, "latest")
    with pytest.raises(StoreError, match="did you mean 'small'"):
        store.view("smal")


def test_runs_show_names_as_text(tmp_path: Path) -> None:
    document = {**small_grid_document(steps=1), "uid": HOSTILE}
    document["schedule"] = [{HOSTILE: next(iter(document["schedule"][0].values()))}]
    run = pm.run(document, store=tmp_path, quiet=True)
    assert "&lt;script&gt;" in run._repr_html_()
    page = run.view()
    for shown in (run._repr_html_(), page._repr_html_(), pm.Page(HOSTILE, HOSTILE)._repr_html_()):
        assert HOSTILE not in shown
    run.close()
