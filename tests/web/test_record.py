"""The tab of a run's record: document, failure with its place, warnings, log, digests, and the world."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.browser import Browser

import palaestrai_mosaik as pm
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.log import LogFile
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.data.record import marks, picture, visible
from palaestrai_mosaik.web.page import single_file
from palaestrai_mosaik.web.resources import Source

from .conftest import Serve

NASTY = "<script>window.planted=1</script><img src=x onerror=window.planted=1>"
MODULE = f'''
import logging
from palaestrai_mosaik.agent.library.dummy import DummyMuscle

class Tired(DummyMuscle):
    def propose_actions(self, sensors, actuators_available):
        logging.getLogger(__name__).warning("so tired %s", "{NASTY}")
        raise ValueError("\\x1b[31menough of {NASTY}")
'''


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    """A store with a run that finished, and one whose second agent failed; its document names hostile things."""
    folder = tmp_path_factory.mktemp("record")
    (folder / "tired_muscles.py").write_text(MODULE)
    store = folder / "store"
    pm.run("scenarios/dummy.yml", store=store, quiet=True)
    document = yaml.safe_load(Path("scenarios/dummy.yml").read_text())
    document["uid"] = f"bad {NASTY}"
    document["schedule"][0]["train"]["agents"][1]["muscle"] = "tired_muscles:Tired"
    text = yaml.safe_dump(document, sort_keys=False)
    path = folder / "bad.yml"
    path.write_text(text)
    sys.path.insert(0, str(folder))
    try:
        with pytest.raises(ValueError, match="enough of"):
            pm.run(path, store=store, quiet=True)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("tired_muscles", None)
    with Store(store, read_only=True) as opened:
        yield Source(opened)


def lines_with(source: Source, *texts: str) -> list[int]:
    """Return the first line of the failed run's document that has each text, after the one before."""
    lines = source.store.document_text("latest").splitlines()
    found: list[int] = []
    for text in texts:
        found.append(next(i + 1 for i, line in enumerate(lines) if text in line))
    return found


# what the page is sent


def test_a_failure_is_located_in_the_document(source: Source) -> None:
    record: Any = get(source, "run/latest/record")
    (failure,) = record["failures"]
    muscle, agent = lines_with(source, "tired_muscles:Tired", "evil_attacker")
    assert failure["marks"] == [
        {"line": muscle, "what": "tired_muscles:Tired"},
        {"line": agent, "what": "agent 'evil_attacker'"},
    ]
    assert failure["message"] == f"\\x1b[31menough of {NASTY}", "escapes of terminals are written out"
    assert failure["traceback"].rstrip().endswith("raised in agent 'evil_attacker'")


def test_digests_packages_and_hash_are_those_of_the_store(source: Source) -> None:
    record: Any = get(source, "run/dummy/record")
    streams = source.store.streams("dummy")
    streams = streams[streams["kind"] != "wall"]
    assert [one["digest"] for one in record["streams"]] == streams["digest"].tolist()
    run = source.store.runs().iloc[0]
    assert (record["facts"]["hash"], record["facts"]["seed"]) == (run["hash"], 42)
    assert record["packages"] == run["packages"]
    assert "\n".join(record["document"]) == Path("scenarios/dummy.yml").read_text().rstrip("\n")


def test_the_command_executes_the_document_again(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from palaestrai_mosaik.cli.main import main

    record: Any = get(source, "run/dummy/record")
    export, start = (command.split() for command in record["again"].split(" && "))
    store = source.store.directory
    assert export[-2:] == start[-2:] == ["--store", str(store)]
    monkeypatch.chdir(tmp_path)
    again = tmp_path / "again"
    assert main([*export[1:], "--quiet"]) == 0
    assert main([*start[1:-1], str(again), "--quiet"]) == 0
    with Store(again, read_only=True) as opened:
        assert opened.streams("latest")["digest"].dropna().tolist() == (
            source.store.streams("dummy")["digest"].dropna().tolist()
        )


def test_the_log_is_read_on_from_where_it_ended(tmp_path: Path) -> None:
    with Store(tmp_path / "store", create=True) as opened:
        run = opened.begin_run(uid="log", document={}, text="", hash="log", seed=1, version="3.5")
        here = Source(opened)
        assert get(here, "run/log/log") == {"text": "", "next": 0}
        file = LogFile(opened.instance_directory(run.uid))
        file.write("one\x1b[2J\nhalf ")
        first: Any = get(here, "run/log/log")
        assert first["text"] == "one\\x1b[2J\n"
        file.write("a line\n")
        assert get(here, "run/log/log", {"from": str(first["next"])})["text"] == "half a line\n"  # type: ignore[index]
        file.close()
        run.finish("finished")


def test_a_class_of_a_short_name_has_its_line() -> None:
    text = "schedule:\n  - p:\n      agents:\n        - name: a\n          muscle: {name: constant}\n          brain: dummy\n"
    said = '  File "/lib/palaestrai_mosaik/agent/library/constant.py", line 57, in _flat\nActionError: no'
    assert [(one.line, one.what) for one in marks(text, said)] == [(5, "constant")]


DOCUMENT = """\
uid: d
schedule:
  - first:
      environments:
        - environment: {uid: grid, name: "my.parts:Grid"}
      agents:
        - name: a
          muscle: my.parts:Muscle
          sensors: [grid.x, grid.y]
        - name: b
          brain: {name: "my.other:Brain"}
  - second:
      agents:
        - name: a
          load: {}
"""


@pytest.mark.parametrize(
    ("said", "phase", "expected"),
    [
        ("agent 'a' did it", 0, [(7, "agent 'a'")]),
        ("agent 'a' did it", 1, [(14, "agent 'a'")]),
        ("agent 'b' did it", 1, [(10, "agent 'b'")]),
        (
            "environment 'grid': sensor 'grid.y' is NaN",
            0,
            [(9, "sensor 'grid.y'"), (5, "environment 'grid'")],
        ),
        ("run.yml:9: schedule.0.first.agents.0.sensors: no", 0, [(9, "schedule.0.first.agents.0.sensors")]),
        ('  File "/x/my/other.py", line 3, in f\nValueError', 0, [(11, "my.other:Brain")]),
        (
            "  File \"/x/my/parts.py\", line 3, in f\nraised in agent 'a'",
            1,
            [(8, "my.parts:Muscle"), (14, "agent 'a'")],
        ),
        ("nothing that is known: agent 'c', 'a'", 0, []),
    ],
)
def test_lines_of_what_a_failure_names(said: str, phase: int, expected: list[tuple[int, str]]) -> None:
    found = marks(DOCUMENT, said, phase)
    assert [(one.line, one.what) for one in found] == expected


def test_a_text_that_cannot_be_read_has_no_marks() -> None:
    assert marks("a: [", "agent 'a'") == []
    assert marks("", "agent 'a'") == []


def test_entities_of_a_model_are_grouped_and_boxes_stand_in_the_order_of_steps() -> None:
    def end(simulator: str, entity: str) -> dict[str, str]:
        return {"simulator": simulator, "entity": entity}

    def entities(model: str, count: int) -> list[dict[str, str]]:
        return [{"entity": f"{model}-{i}", "model": model} for i in range(count)]

    def flow(source: dict[str, str], target: dict[str, str], shifted: bool = False) -> dict[str, Any]:
        return {"source": source, "target": target, "data": "p", "time_shifted": shifted, "values": None}

    world = {
        "simulators": [
            {"simulator": "grid", "what": "environment 'grid', my:Grid", "entities": entities("Bus", 300)},
            {"simulator": "agents", "what": "agent 'a', my:Muscle", "entities": entities("Agent", 2)},
        ],
        "connections": [
            *(flow(end("grid", f"Bus-{i}"), end("agents", "Agent-1")) for i in range(300)),
            flow(end("agents", "Agent-0"), end("grid", "Bus-7"), True),
        ],
    }
    drawn = picture(world)
    assert [(box["rank"], box["rows"]) for box in drawn["boxes"]] == [
        (0, ["Bus x 300 (Bus-0, ..., Bus-299)"]),
        (1, ["Agent-0 [Agent]", "Agent-1 [Agent]"]),
    ]
    assert drawn["arrows"] == [
        {"source": [0, 0], "target": [1, 1], "time_shifted": False, "label": "p (300 connections)"},
        {"source": [1, 0], "target": [0, 0], "time_shifted": True, "label": "p to 1 of 300"},
    ]
    # a few connected entities among many are drawn by themselves
    world["connections"] = world["connections"][5:7]
    drawn = picture(world)
    assert drawn["boxes"][0]["rows"] == ["Bus-5 [Bus]", "Bus-6 [Bus]", "298 other Bus (Bus-0, ..., Bus-299)"]
    assert [one["source"] for one in drawn["arrows"]] == [[0, 0], [0, 1]]
    # what others have recorded may go round in circles
    world["connections"] += [flow(end("agents", "Agent-0"), end("grid", "Bus-0"))]
    assert {box["rank"] for box in picture(world)["boxes"]} <= {0, 1}


def test_texts_have_no_escapes() -> None:
    assert visible({"a\x1b": ["\x9b1m", 2, None]}) == {"a\\x1b": ["\\x9b1m", 2, None]}


# what the page shows


def open_record(browser: Browser, start: str, run: str = "latest") -> None:
    browser.open(start)
    browser.open(f"{start.split('?', maxsplit=1)[0]}#/run/{run}/record")
    browser.wait("document.querySelector('.record svg.world') && document.querySelector('pre.log span')")


def test_a_failed_run_shows_traceback_and_place(browser: Browser, serve: Serve, source: Source) -> None:
    open_record(browser, serve(source))
    muscle, agent = lines_with(source, "tired_muscles:Tired", "evil_attacker")
    marked = "[...document.querySelectorAll('.line.marked')].map((one) => [Number(one.dataset.line), one.textContent.trim()])"
    assert browser.js(marked) == [[agent, "- name: evil_attacker"], [muscle, "muscle: tired_muscles:Tired"]]
    traceback = browser.js("document.querySelector('pre.traceback').textContent")
    expected = source.store.errors("latest").iloc[0]["traceback"].replace("\x1b", "\\x1b")
    assert traceback == expected
    browser.js("document.querySelector('.record .card button').click()")
    assert browser.wait("document.activeElement.dataset.line") == str(muscle)
    place = "(() => { const r = document.activeElement.getBoundingClientRect(); return r.top > 0 && r.bottom < innerHeight; })()"
    assert browser.js(place)
    assert browser.js("window.planted") is None
    assert browser.errors() == []


def test_the_log_can_be_filtered(browser: Browser, serve: Serve, source: Source) -> None:
    open_record(browser, serve(source))
    text = "document.querySelector('pre.log').textContent"
    whole = browser.js(text)
    assert whole == source.store.log("latest").replace("\x1b", "\\x1b")
    assert f"so tired {NASTY}" in whole
    choose = "(() => { const s = document.getElementById('level'); s.value = arguments[0]; s.dispatchEvent(new Event('change')); })()"
    browser.js(choose, "2")
    warnings = browser.js(text)
    assert "so tired" in warnings
    assert " INFO " not in warnings
    browser.js(choose, "3")
    errors = browser.js(text)
    assert "the run failed" in errors
    assert "Traceback" in errors, "further lines belong to their entry"
    assert " WARNING " not in errors
    assert browser.js("window.planted") is None


def test_the_world_is_a_picture_and_tables(browser: Browser, serve: Serve, source: Source) -> None:
    open_record(browser, serve(source), "dummy")
    world = source.store.world("dummy")
    assert world is not None
    names = browser.js("[...document.querySelectorAll('svg.world text.name')].map((one) => one.textContent)")
    assert sorted(names) == sorted(one["simulator"] for one in world["simulators"])
    ways = browser.js(
        "[...document.querySelectorAll('svg.world > path > title')].map((one) => one.textContent)"
    )
    assert len(ways) == 5
    assert "agent-0 to 0-myenv: setpoints (arrives at the next step)" in ways
    tables = browser.js(
        "[...document.querySelectorAll('[aria-label=World] table')].map((one) => one.tBodies[0].rows.length)"
    )
    assert tables == [len(world["simulators"]), len(world["connections"])]
    packages = browser.js("document.querySelector('.record dl').textContent")
    assert source.store.runs().iloc[0]["hash"] in packages
    assert browser.errors() == []


def test_the_page_fits_a_phone(browser: Browser, serve: Serve, source: Source) -> None:
    browser.resize(390, 800)
    try:
        open_record(browser, serve(source))
        assert browser.js("document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.resize(1280, 900)


def test_the_log_of_a_running_run_is_followed(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    with Store(tmp_path / "store", create=True) as opened:
        run = opened.begin_run(uid="live", document={}, text="uid: live\n", hash="l", seed=1, version="3.5")
        file = LogFile(opened.instance_directory(run.uid))
        file.write("2026-01-01T00:00:00.000Z INFO a: first\n")
        start = serve(Source(opened))
        browser.open(start)
        browser.open(f"{start.split('?', maxsplit=1)[0]}#/run/live/record")
        text = "document.querySelector('pre.log')?.textContent"
        browser.wait(f"{text} === '2026-01-01T00:00:00.000Z INFO a: first\\n'")
        run.warning("something is odd")
        file.write("2026-01-01T00:00:01.000Z ERROR b: second\n  and more\n")
        browser.wait(f"{text}.endsWith('b: second\\n  and more\\n')")
        browser.wait("document.querySelector('.record').textContent.includes('something is odd')")
        assert browser.js("[...document.querySelectorAll('pre.log span')].map((one) => one.className)") == [
            "INFO",
            "ERROR",
        ]
        file.close()
        run.finish("failed", ValueError("at last"))
        browser.wait("document.querySelector('.record').textContent.includes('ValueError: at last')")
        assert browser.errors() == []


def test_one_file_has_the_record(browser: Browser, source: Source, tmp_path: Path) -> None:
    names = ["run/dummy", "run/dummy/record", "run/dummy/log", "run/dummy/world"]
    page = tmp_path / "run.html"
    page.write_text(single_file("A run", "#/run/dummy/record", {name: get(source, name) for name in names}))
    browser.open(page.as_uri())
    browser.wait("document.querySelector('svg.world') && document.querySelector('pre.log span')")
    assert browser.js("document.querySelectorAll('pre.document .line').length") == len(
        Path("scenarios/dummy.yml").read_text().splitlines()
    )
    assert browser.errors() == []
