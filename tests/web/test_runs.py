"""The view of all runs: what it shows is what the store has, also while runs go on, and for thousands of them."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import Browser
from support.live_runs import running, slow_document
from support.many_runs import insert_runs, objective_of, uid_of
from support.waiting import HANG

import palaestrai_mosaik as pm
from palaestrai_mosaik.store import EnvironmentRecord, Store
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.resources import ResourceError, Source

from .conftest import Serve

HOSTILE = "<script>window.planted=1</script><img src=x onerror=window.planted=1>"
#: the texts of the cells of the row that has a text, by the titles of their columns
ROW = """(text => { const row = [...document.querySelectorAll('table.window tbody tr')].find(
  one => one.textContent.includes(text)); if (!row) return null;
  const titles = [...document.querySelectorAll('table.window th')].map(one => one.textContent.replace(/ [▲▼]/, ''));
  return Object.fromEntries(titles.map((title, i) => [title, row.cells[i].textContent])); })"""
COUNT = "Number(document.querySelector('table.window')?.getAttribute('aria-rowcount'))"
FIRST = "document.querySelector('table.window tbody tr:not(.space)')?.cells[2].textContent"
MANY = 10_000


def row(browser: Browser, text: str, condition: str = "true") -> dict[str, str]:
    """Return the row that has ``text`` as soon as ``condition`` holds for it."""
    code = f"(row => row && ({condition}) ? row : null)({ROW}({json.dumps(text)}))"
    found: dict[str, str] = browser.wait(code)
    return found


def look(browser: Browser, start: str, view: str = "#/runs") -> None:
    browser.open(start)
    browser.open(start.split("?", maxsplit=1)[0] + view)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("many")
    insert_runs(folder, MANY, episodes=1)
    return Source(Store(folder, read_only=True))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("few")
    insert_runs(folder, 20)
    return Source(Store(folder, read_only=True))


def test_rows_are_those_of_the_store(few: Source) -> None:
    rows, runs = few.store.run_rows(), few.store.runs()
    for name in ("run", "document", "experiment", "status", "episodes", "steps"):
        assert rows[name].tolist() == runs[name].tolist()
    assert rows["ended"].sub(rows["started"]).tolist() == runs["duration"].tolist()
    for number, uid in enumerate(runs["run"]):
        outcomes = few.store.outcomes(uid, agent="defender")
        last = outcomes[outcomes["kind"] == "objective"].iloc[-1]
        one = rows.iloc[number]
        assert one["objective"] == last["mean"] == objective_of(number, last["phase"], 4)
        assert (one["phase"], one["phases"]) == (last["phase"], 2)
        assert one["episodes_planned"] == 10
    assert rows["error"][9] == "ValueError: bad value 9\nmore"
    assert few.store.run_rows([3, 5])["run"].tolist() == [uid_of(2), uid_of(4)]


def test_sparklines_are_the_objectives_of_the_first_agent(few: Source) -> None:
    found: Any = get(few, "sparklines", {"runs": f"{uid_of(0)},{uid_of(9)},unknown"})
    assert found == {
        uid_of(0): [objective_of(0, phase, episode) for phase in (0, 1) for episode in range(5)],
        uid_of(9): [objective_of(9, 0, episode) for episode in range(5)],
    }
    # five points for two phases: three of each, of two episodes
    curve = few.store.objective_curves([uid_of(0)], points=5)[uid_of(0)]
    assert curve[:3] == pytest.approx([0.05, 0.25, 0.4])
    assert len(curve) == 6
    with pytest.raises(ResourceError, match="runs: expected at most 200 runs, found 201"):
        get(few, "sparklines", {"runs": ",".join(map(str, range(201)))})


def test_columns_of_parameters_and_metrics(tmp_path: Path) -> None:
    insert_runs(tmp_path, 3)
    with Store(tmp_path) as store:
        source = Source(store)
        offered: Any = get(source, "runs/columns")
        # the documents differ in nothing
        assert offered["parameters"] == [] and offered["steps"] == ("mean", "sum")
        assert [metric["key"] for metric in offered["metrics"]][:2] == [
            "objective.attacker",
            "objective.defender",
        ]
        assert offered["metrics"][1] == {
            **{"key": "objective.defender", "kind": "objective", "agent": "defender", "name": ""},
            "folds": ("last", "best", "mean", "min"),
        }
        key = "objective.defender:best"
        values: Any = get(source, "runs/values", {"columns": f"{key},objective.defender"})
        assert (values["id"].tolist(), values["pending"]) == ([1, 2, 3], [])
        assert values["columns"][key].tolist() == [objective_of(number, 1, 4) for number in range(3)]
        some: Any = get(source, "runs/values", {"columns": key, "ids": "2,x"})
        assert (some["id"].tolist(), some["columns"][key].tolist()) == ([2], [objective_of(1, 1, 4)])
        for columns in ("", ",".join(f"c{n}" for n in range(51))):
            with pytest.raises(ResourceError, match="columns: expected 1 to 50 columns"):
                get(source, "runs/values", {"columns": columns})


@pytest.mark.parametrize("ids", ["9" * 30, "9" * 5000, "-1,x,²"])
def test_ids_that_no_run_can_have_select_none(tmp_path: Path, ids: str) -> None:
    insert_runs(tmp_path, 3)
    with Store(tmp_path) as store:
        values: Any = get(Source(store), "runs/values", {"columns": "objective.defender", "ids": f"{ids},2"})
        assert values["id"].tolist() == [2]


def test_names_of_columns_are_keys_of_addresses(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        for number in (1, 2):
            agent = {"name": "a, 50%", "muscle": {"params": {"k": number}}}
            store.begin_run(
                uid=f"u{number}",
                document={"schedule": [{"only": {"agents": [agent]}}]},
                **{"text": "", "hash": f"h{number}", "seed": 1, "version": "3.5"},
            ).finish("finished")
        (parameter,) = get(Source(store), "runs/columns")["parameters"]  # type: ignore[index]
        assert parameter == {
            **{"key": "agents.a%2C%2050%25.muscle.params.k", "path": "agents.a, 50%.muscle.params.k"},
            **{"runs": 2, "values": 2},
        }
        values: Any = get(Source(store), "runs/values", {"columns": parameter["key"]})
        assert values["columns"] == {parameter["key"]: [1, 2]}


def test_what_has_changed_is_asked_for_alone(tmp_path: Path) -> None:
    insert_runs(tmp_path, 3)
    with Store(tmp_path) as store:
        source = Source(store)
        first: Any = get(source, "runs")
        assert first["run"] == [uid_of(0), uid_of(1), uid_of(2)]
        again: Any = get(source, "runs", {"since": first["cursor"]})
        assert (again["run"], again["count"]) == ([], 3)
        recorder = store.begin_run(uid="new", document={}, text="", hash="new", seed=1, version="3.5")
        new: Any = get(source, "runs", {"since": first["cursor"]})
        assert (new["document"], new["status"]["texts"], new["count"]) == (["new"], ["running"], 4)
        # it is told of as long as it runs, and once more when it has ended
        assert get(source, "runs", {"since": new["cursor"]})["run"] == [recorder.uid]  # type: ignore[index]
        recorder.finish("finished")
        ended: Any = get(source, "runs", {"since": new["cursor"]})
        assert (ended["run"], ended["status"]["texts"]) == ([recorder.uid], ["finished"])
        assert get(source, "runs", {"since": ended["cursor"]})["run"] == []  # type: ignore[index]
        asked: Any = get(source, "runs", {"since": ended["cursor"], "ids": "2"})
        assert asked["run"] == [uid_of(1)]
        with pytest.raises(ResourceError, match="since: expected the cursor of an earlier answer"):
            get(source, "runs", {"since": "yesterday"})


def test_steps_of_a_long_episode_are_counted_before_it_ends(tmp_path: Path) -> None:
    grid = "palaestrai_mosaik.environment.grid.environment:GridEnvironment"
    phases = [
        {
            name: {
                "environments": [{"environment": {"uid": "e", "name": grid, "params": {"steps": 100}}}],
                "phase_config": {"episodes": 1, "workers": 1},
            }
        }
        for name in ("year", "again")
    ]
    with Store(tmp_path, create=True) as store:
        run = store.begin_run(
            uid="long", document={"schedule": phases}, text="", hash="long", seed=1, version="3.5"
        )
        number = store.run_ids([run.uid])[run.uid]
        assert store.paces([number]) == {}
        phase = run.begin_phase(
            *(0, "year"),
            mode="test",
            workers=1,
            episodes=1,
            controller="vanilla",
            environments=[EnvironmentRecord("e", grid)],
            agents=[],
        )
        before = store.paces([number])[number]
        assert before.steps == 0
        assert math.isnan(before.rate) and math.isnan(before.left)
        # the first state is the beginning, the others are after a step each
        for step in range(31):
            phase.environment("e").append(0, 0, step, step, np.empty(0), [], False, False, None)
        phase.mark()
        pace = store.paces([number])[number]
        assert pace.steps == 30
        assert pace.rate > 0
        # 70 steps here, and 100 in the next phase; time has passed since they were written
        assert 0 <= pace.left <= 170 / pace.rate
        assert store.paces([number], parts=False)[number].steps == 0
        told = {"steps": 100, "ticks": 100, "ended_by": "", "flow": "RESET", "agents": {}}
        phase.episode(0, 0, duration=0.5, **told)
        phase.mark()
        ended = store.paces([number])[number]
        assert ended.steps == 0
        assert ended.rate == pytest.approx(200)
        assert ended.left <= 0.5
        run.finish("interrupted")


def test_a_run_grows_in_its_row_until_it_is_killed(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with running(slow_document("growing", 3000), folder) as process:
        store = Store(folder, read_only=True)
        look(browser, serve(Source(store)))
        first = row(browser, "growing", "row.Episodes.match(/^[1-9]/) && row['Steps/s'] !== '\\u2013'")
        assert first["Status"] == "running"
        assert first["Phase"] == "phase_0 (1 of 1)"
        assert first["Episodes"].endswith(" of 3,000")
        # the reward counts the steps of the episode: 1 to 5
        assert first["Objective"].strip() == "3"
        assert first["Time left"] != "\u2013"
        done = int(first["Episodes"].split()[0].replace(",", ""))
        row(browser, "growing", f"parseInt(row.Episodes.replace(',', '')) > {done}")
        browser.wait("document.querySelector('table.window svg.spark')")
        process.send_signal(signal.SIGKILL)
        process.wait(HANG)
        # no other run has a time left
        assert "Time left" not in row(browser, "growing", "row.Status === 'lost'")
        runs = store.runs()
        assert runs["status"].tolist() == ["lost"]
        shown = row(browser, "growing")
        assert shown["Episodes"] == f"{runs['episodes'][0]:,} of 3,000"
        assert shown["Steps"] == f"{runs['steps'][0]:,}"
    assert browser.errors() == []


def test_ten_thousand_runs_are_listed_searched_and_sorted(
    browser: Browser, serve: Serve, many: Source
) -> None:
    look(browser, serve(many))
    browser.wait(f"{COUNT} === {MANY + 1}")
    # the newest are first; only rows in view are elements
    assert browser.wait(FIRST) == f"run-{MANY - 1}"
    assert browser.js("document.querySelectorAll('table.window tbody tr').length") < 100
    browser.js("document.querySelector('.scroll.window').scrollTop = 1e9")
    last = row(browser, uid_of(0)[:15])
    assert last["Document"] == "run-0"
    assert last["Objective"].strip() == f"{objective_of(0, 1, 0):.4g}"
    index = "[...document.querySelectorAll('table.window tbody tr')].at(-2).getAttribute('aria-rowindex')"
    assert browser.js(index) == str(MANY + 1)

    heading = "[...document.querySelectorAll('table.window th')].find(one => one.textContent.startsWith('Objective'))"
    browser.js(f"{heading}.querySelector('button').click()")
    assert browser.js(f"{heading}.getAttribute('aria-sort')") == "descending"
    rows = many.store.run_rows()
    best = rows["objective"].max()
    browser.js("document.querySelector('.scroll.window').scrollTop = 0")
    # of equal ones the newest is first
    newest = rows.loc[rows["objective"] == best, "document"].iloc[-1]
    # (the rows follow the scroll with the next frame)
    browser.wait(f"{FIRST} === '{newest}'")
    browser.js(f"{heading}.querySelector('button').click()")
    assert browser.js(f"{heading}.getAttribute('aria-sort')") == "ascending"
    worst = rows.loc[rows["objective"] == rows["objective"].min(), "document"].iloc[-1]
    browser.wait(f"{FIRST} === '{worst}'")

    search = "document.querySelector('input[type=search]')"
    browser.js(f"({search}.value = 'RUN-99 bad', {search}.dispatchEvent(new Event('input')))")
    wanted = [n for n in range(MANY) if n % 10 == 9 and str(n).startswith("99")]
    assert browser.wait(f"{COUNT} === {len(wanted) + 1}")
    assert row(browser, "run-99")["Error"].startswith("ValueError: bad value 99")
    browser.js(f"({search}.value = '', {search}.dispatchEvent(new Event('input')))")

    failed = "[...document.querySelectorAll('button.filter')].find(one => one.value === 'failed')"
    assert browser.js(f"{failed}.textContent") == "failed 1,000"
    browser.js(f"{failed}.click()")
    assert browser.js(f"{failed}.getAttribute('aria-pressed')") == "true"
    assert browser.wait(f"{COUNT} === 1001")
    browser.js(f"{failed}.click()")
    assert browser.errors() == []


def test_columns_without_a_value_are_hidden_and_the_others_fit(
    browser: Browser, serve: Serve, few: Source
) -> None:
    """Of the few runs, none is running: there is no time left; without the failed ones, there would be no error."""
    look(browser, serve(few))
    browser.wait(f"{COUNT} === 21")
    seen = "[...document.querySelectorAll('table.window th')].filter(one => one.checkVisibility()).map(one => one.innerText.trim())"
    titles: list[str] = browser.js(seen)
    assert "Time left" not in titles
    assert {"Experiment", "Error", "Started ▼", "Steps/s"} <= set(titles)
    # (all of a row is in the box, at the usual width of a small screen)
    assert browser.js("(box => box.scrollWidth <= box.clientWidth)(document.querySelector('.scroll.window'))")
    rows = "[...document.querySelectorAll('table.window tbody tr:not(.space)')]"
    assert set(browser.js(f"{rows}.map(one => one.cells.length)")) == {len(titles)}
    started = titles.index("Started ▼")
    assert browser.js(
        f"{rows}.map(one => one.cells[{started}]).every(one => one.scrollWidth <= one.clientWidth)"
    )
    assert browser.errors() == []


def test_the_keyboard_leads_through_the_rows(browser: Browser, serve: Serve, few: Source) -> None:
    from selenium.webdriver.common.keys import Keys

    look(browser, serve(few))
    browser.wait(f"{COUNT} === 21")
    browser.js("document.querySelector('table.window tbody a').focus()")

    def press(*keys: str) -> str:
        browser.driver.switch_to.active_element.send_keys(*keys)
        text: str = browser.js("document.activeElement.closest('tr').cells[2].textContent")
        return text

    assert press(Keys.ARROW_DOWN) == "run-18"
    assert press(Keys.END) == "run-0"
    assert press(Keys.ARROW_UP) == "run-1"
    assert press(Keys.HOME) == "run-19"
    # the two newest are selected with the space bar, and compared
    compare = "[...document.querySelectorAll('button')].find(one => one.textContent.startsWith('Compare'))"
    assert browser.js(f"{compare}.disabled")
    press(Keys.SPACE)
    press(Keys.ARROW_DOWN, Keys.SPACE)
    assert browser.js(f"{compare}.textContent") == "Compare 2 runs"
    browser.js(f"{compare}.click()")
    assert browser.js("location.hash") == f"#/compare/{uid_of(19)},{uid_of(18)}"


def test_hostile_names_are_text(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    document = json.loads(json.dumps(slow_document(HOSTILE, 1, seconds=0).canonical))
    document["schedule"][0]["phase_0"]["environments"][0]["environment"]["params"]["max_steps"] = 2
    pm.run(document, store=tmp_path, quiet=True)
    with Store(tmp_path) as store:
        uid = store.runs()["run"][0]
        failed = store.begin_run(uid=HOSTILE, document={}, text="", hash="h", seed=1, version="3.5")
        failed.finish("failed", ValueError(HOSTILE))
    with Store(tmp_path, read_only=True) as store:
        look(browser, serve(Source(store)))
        shown = row(browser, "ValueError")
        assert (shown["Document"], shown["Error"]) == (HOSTILE, f"ValueError: {HOSTILE}")
        assert row(browser, uid[:15])["Document"] == HOSTILE
        assert browser.js("window.planted") is None
        assert browser.errors() == []


def test_a_phone_shows_the_runs(browser: Browser, serve: Serve, few: Source) -> None:
    browser.resize(390, 800)
    try:
        look(browser, serve(few))
        browser.wait(f"{COUNT} === 21")
        assert browser.js("document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.resize(1280, 900)
