"""Curves of agents with several bodies: the mean over them, and a band from the lowest to the highest."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.browser import Browser

import palaestrai_mosaik as pm
from palaestrai_mosaik.plot.series import by_member, mean_over_bodies
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.web.data import curves, get
from palaestrai_mosaik.web.data.curves import BodyOutcomes
from palaestrai_mosaik.web.resources import Source
from palaestrai_mosaik.web.theatre import run_page

from .conftest import Serve
from .test_overview import choose_fold

SLIPS = {"schedule.vanilla.environments.lake.environment.params.slip": 0.6}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A store with a run whose agent has three bodies, which slip differently."""
    folder = tmp_path_factory.mktemp("store")
    pm.run("scenarios/aeb_batch.yml", store=folder, quiet=True, overrides=SLIPS)
    return Source(Store(folder, read_only=True))


def by_hand(source: Source, how: str) -> pd.DataFrame:
    """Return the mean or sum of each body's objective in each episode of the first phase, bodies in columns."""
    steps = source.store.steps("latest", "vanilla", "walker", columns=["objective"])
    return steps.groupby(["episode", "body"])["objective"].agg(how).unstack("body")


def objective(source: Source) -> Any:
    answer: Any = get(source, "run/latest/curves")
    return next(one for one in answer["curves"] if one["phase"] == 0 and one["kind"] == "objective")


def test_bodies_are_a_mean_with_a_band(source: Source) -> None:
    curve = objective(source)
    for fold, low, high in (("mean", "low", "high"), ("sum", "sum_low", "sum_high")):
        values = by_hand(source, fold)
        assert values.shape == (4, 3)
        assert (values.max(axis=1) > values.min(axis=1)).any(), "bodies that differ"
        np.testing.assert_allclose(curve[fold], values.mean(axis=1))
        np.testing.assert_allclose(curve[low], values.min(axis=1))
        np.testing.assert_allclose(curve[high], values.max(axis=1))
    assert curve["over"] == "bodies"


def test_bodies_that_have_not_been_read_are_not_waited_for(source: Source) -> None:
    fresh = Source(Store(source.store.directory, read_only=True))
    first: Any = get(fresh, "run/latest/curves", {"bands": "0"})
    assert first["unread"] and not any(one["over"] for one in first["curves"])
    then: Any = get(fresh, "run/latest/curves", {"known": first["version"]})
    assert not then["unread"] and all(one["over"] for one in then["curves"])
    again: Any = get(fresh, "run/latest/curves", {"bands": "0"})
    assert not again["unread"] and all(one["over"] for one in again["curves"])
    fresh.close()


def test_the_overview_draws_the_band_and_lists_it(browser: Browser, serve: Serve, source: Source) -> None:
    start = serve(source)
    browser.open(start)
    browser.open(start.split("?")[0] + "#/run/latest")
    _check(browser, source)


def test_one_file_has_the_band(browser: Browser, source: Source, tmp_path: Path) -> None:
    browser.open(run_page(source.store, "latest").save(tmp_path / "run.html").absolute().as_uri())
    _check(browser, source)


def _check(browser: Browser, source: Source) -> None:
    figure = "[...document.querySelectorAll('figure')].find((one) => one.innerText.startsWith('Objective'))"
    browser.wait(f"{figure}?.querySelector('canvas') && {figure}.textContent.includes('band')")
    # rewards of Gymnasium accumulate: the page opens with the return
    assert browser.js("document.querySelector('select').value") == "sum"
    choose_fold(browser, "mean")
    axis = f"echarts.getInstanceByDom({figure}.querySelector('.chart')).getOption().yAxis[0].name"
    browser.wait(f"{axis} === 'mean of an episode'")
    caption = browser.js(f"{figure}.querySelector('figcaption').textContent")
    assert caption == "Objective (mean over bodies; band: lowest to highest)"
    drawn = browser.js(
        f"echarts.getInstanceByDom({figure}.querySelector('.chart')).getOption().series"
        ".filter((one) => one.areaStyle).map((one) => one.data)"
    )
    values = by_hand(source, "mean")
    heights = [row[1] for row in drawn[0][:4]]
    np.testing.assert_allclose(heights, values.max(axis=1) - values.min(axis=1), rtol=1e-5)
    browser.driver.execute_script(f"{figure}.querySelector('details').open = true")
    browser.wait(f"{figure}.querySelector('tbody tr')")
    cells = browser.js(f"[...{figure}.querySelector('tbody tr').cells].map((one) => one.textContent)")
    assert [float(cells[-2]), float(cells[-1])] == pytest.approx(
        [values.iloc[0].min(), values.iloc[0].max()], rel=1e-5
    )
    # both folds have one
    choose_fold(browser, "sum")
    browser.wait(f"/highest sum/.test({figure}.querySelector('thead').textContent)")
    assert browser.errors() == []


def test_the_pointer_says_the_band(browser: Browser, serve: Serve, source: Source) -> None:
    start = serve(source)
    browser.open(start)
    browser.open(start.split("?")[0] + "#/run/latest?fold=mean")
    figure = "[...document.querySelectorAll('figure')].find((one) => one.innerText.startsWith('Objective'))"
    browser.wait(f"{figure}?.querySelector('canvas') && {figure}.textContent.includes('band')")
    said = browser.js(
        f"(() => {{ const one = echarts.getInstanceByDom({figure}.querySelector('.chart'));"
        " const { tooltip, series } = one.getOption();"
        " return tooltip[0].formatter([{ value: series[0].data[0] }]); })()"
    )
    values = by_hand(source, "mean").iloc[0]
    found = re.fullmatch(r"vanilla, episode 0\nwalker: (\S+) \((\S+) to (\S+)\)", said)
    assert found is not None, said
    shown = [float(text) for text in found.groups()]
    assert shown == pytest.approx([values.mean(), values.min(), values.max()], rel=1e-3)


def test_an_episode_whose_bodies_are_not_read_yet_has_no_band(source: Source) -> None:
    store = source.store
    uid = store.find_run("latest")
    outcomes = store.outcomes(uid, evaluation=None)
    rows = BodyOutcomes().look(store, uid, 1, lambda: True)
    assert rows is not None
    early = by_member(mean_over_bodies(store, uid, outcomes), rows[rows["episode"] < 3])
    last = early[(early["phase"] == 0) & (early["episode"] == 3) & (early["kind"] == "objective")]
    assert last["body"].tolist() == [-1]
    whole = outcomes[
        (outcomes["phase"] == 0) & (outcomes["episode"] == 3) & (outcomes["kind"] == "objective")
    ]
    assert last["sum"].item() == pytest.approx(whole["sum"].item() / 3)
    assert sorted(early[(early["phase"] == 0) & (early["episode"] == 2)]["body"].unique()) == [0, 1, 2]


def test_a_comparison_has_the_sums_of_the_overview(source: Source) -> None:
    by_body = by_hand(source, "sum")
    compared: Any = get(source, "compare", {"runs": source.store.find_run("latest")})
    row = next(one for one in compared["outcomes"] if (one["phase"], one["kind"]) == ("vanilla", "objective"))
    assert row["sum"] == pytest.approx([by_body.to_numpy().mean()])
    assert row["last_sum"] == pytest.approx([by_body.iloc[-1].mean()])
    assert row["last_sum"][0] == pytest.approx(objective(source)["sum"][-1])
    unread: Any = get(
        Source(Store(source.store.directory, read_only=True)), "run/latest/curves", {"bands": "0"}
    )
    whole = next(one for one in unread["curves"] if one["phase"] == 0 and one["kind"] == "objective")
    assert whole["sum"] == pytest.approx(objective(source)["sum"])


def test_a_run_that_goes_on_is_not_read_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def slow(store: object, uid: str) -> None:
        read.append(uid)
        time.sleep(0.05)

    monkeypatch.setattr(curves, "_read", slow)
    known, store = BodyOutcomes(), Any
    known.look(store, "a", 1, lambda: True)  # type: ignore[arg-type]
    known.look(store, "a", 2, lambda: True)  # type: ignore[arg-type]
    assert len(read) == known.version == 1
    # one that has ended is read to its end, and then no more
    known.look(store, "a", 2, lambda: False)  # type: ignore[arg-type]
    known.look(store, "a", 2, lambda: False)  # type: ignore[arg-type]
    assert len(read) == known.version == 2
