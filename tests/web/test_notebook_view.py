"""What a notebook shows of runs, stores and designs."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.browser import Browser
from support.small_grid import small_grid_document

import palaestrai_mosaik as pm
from palaestrai_mosaik.analysis import Results
from palaestrai_mosaik.design import Design
from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.execution import Settings, run_folder

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


def test_results_of_a_design_show_states_and_outcomes(tmp_path: Path) -> None:
    design = tmp_path / "design.yml"
    design.write_text(
        """
uid: two
seed: 1
base:
  uid: walk
  seed: 7
  schedule:
    train:
      environments: [slippery_grid]
      agents: [{name: walker, muscle: random}]
      phase_config: {episodes: 1}
factors:
  episodes: {path: schedule.train.phase_config.episodes, levels: [1, 2]}
sampler: factorial
outcomes: {length: {of: steps, step: sum}}
"""
    )
    folder = Design.load(design).generate(tmp_path / "folder")
    waiting = Results(folder)._repr_html_()
    assert "has the design been run?" in waiting
    run_folder(folder, settings=Settings(executor="inline"))
    shown = Results(folder)._repr_html_()
    assert "finished" in shown and "Outcomes" in shown
