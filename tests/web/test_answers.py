"""What the server computes for an answer: statements of SQL, and answers about finished runs that it remembers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from support import records

import palaestrai_mosaik as pm
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.web import answers as answers_module
from palaestrai_mosaik.web.answers import Answers
from palaestrai_mosaik.web.data import curves as curves_module
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.resources import Source

#: four phases with two agents and an environment each
DOCUMENT = """\
uid: four
seed: 3
schedule:
  - one:
      environments: [{environment: {name: dummy, uid: grid}}]
      agents:
        - {name: a, muscle: random, sensors: [grid.0], actuators: [grid.0]}
        - {name: b, muscle: dummy, sensors: [grid.1], actuators: [grid.1]}
      phase_config: {episodes: 2}
  - two: {}
  - three: {}
  - four: {}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    folder = tmp_path_factory.mktemp("answers") / "results"
    pm.run(yaml.safe_load(DOCUMENT), store=folder)
    with Store(folder, read_only=True) as store:
        yield Source(store)


def statements(source: Source, path: str, query: dict[str, str] | None = None) -> list[str]:
    """Return the statements that an answer takes, without those that begin transactions."""
    made: list[str] = []

    def listen(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
        if not statement.startswith("BEGIN"):
            made.append(statement)

    engine = source.store.database.engine
    sa.event.listen(engine, "before_cursor_execute", listen)
    try:
        get(source, path, query)
    finally:
        sa.event.remove(engine, "before_cursor_execute", listen)
    return made


@pytest.mark.parametrize(
    ("view", "query"),
    [("time", {}), ("series", {}), ("series", {"phases": "0,1,2,3"}), ("curves", {}), ("agent", {})],
)
def test_a_view_takes_few_statements_whatever_the_number_of_phases(
    source: Source, view: str, query: dict[str, str]
) -> None:
    run = source.store.find_run("latest")
    made = statements(source, f"run/{run}/{view}", query)
    assert len(made) <= 18
    repeated = {text for text in made if made.count(text) > 1}
    assert not repeated


def test_what_is_remembered_is_what_is_read(source: Source) -> None:
    """Each query gives the same within an answer as alone, and callers cannot change what others get."""
    store = source.store
    run = store.find_run("latest")
    queries = [
        lambda phase: store.bodies(run, phase),
        lambda phase: store.agents(run, phase),
        lambda phase: store.environments(run, phase),
        lambda phase: store.channels(run, phase),
        lambda phase: store.streams(run, phase),
    ]
    for query in queries:
        alone = [query(phase) for phase in (None, 0, 3, "two")]
        with store.remembering():
            for _ in range(2):
                for phase, expected in zip((None, 0, 3, "two"), alone, strict=True):
                    frame = query(phase)
                    assert frame.to_dict("list") == expected.to_dict("list")
                    frame["phase"] = 99


def test_another_answer_reads_again(tmp_path: Path) -> None:
    with Store(tmp_path / "s", create=True) as store:
        records.record_small_run(store)
        with store.remembering():
            first = store.find_run("latest")
            later = records.record_small_run(store)
            assert store.find_run("latest") == first
        assert store.find_run("latest") == later != first


class Counted:
    """Counts the resources that are computed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.paths: list[str] = []

        def counted(source: Source, path: str, query: Any = None) -> object:
            self.paths.append(path)
            return get(source, path, query)

        monkeypatch.setattr(answers_module, "get", counted)


def test_a_finished_run_is_computed_once(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, answers = Counted(monkeypatch), Answers(source, "page")
    run = source.store.find_run("latest")
    plain = answers.get(f"run/{run}/time", {})
    packed = answers.get(f"run/{run}/time", {}, packed=True)
    assert plain.content is not None and packed.content is not None
    # the same content in two forms has two strong tags
    assert plain.tag != packed.tag and not plain.tag.startswith("W/")
    unpacked = gzip.decompress(packed.content) if packed.packed else packed.content
    assert unpacked == plain.content
    assert answers.get(f"run/{run}/time", {}) == plain
    assert answers.get("run/latest/time", {}) == plain
    assert answers.get("run/four/time", {}, tags=[plain.tag]) == (plain.tag, None, False)
    assert len(counted.paths) == 2
    # another server with the same files computes nothing for a browser that has the answer
    assert Answers(source, "page").get(f"run/{run}/time", {}, tags=[plain.tag]).content is None
    assert len(counted.paths) == 2
    other = answers.get(f"run/{run}/series", {"phases": "1"})
    assert other.tag != answers.get(f"run/{run}/series", {"phases": "2"}).tag
    assert Answers(source, "other page").get(f"run/{run}/time", {}).tag != plain.tag


def test_what_can_change_is_computed_each_time(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, answers = Counted(monkeypatch), Answers(source, "page")
    for path in ("runs", "run/latest", "run/latest/record", "run/latest/log", "store"):
        first = answers.get(path, {})
        answers.get(path, {})
        assert counted.paths == [path, path], path
        counted.paths.clear()
        if path != "runs":
            assert answers.get(path, {}, tags=[first.tag]).content is None
            counted.paths.clear()


@pytest.mark.parametrize("status", ["running", "failed", "interrupted"])
def test_a_run_that_can_be_resumed_is_computed_each_time(
    tmp_path: Path, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "results"
    pm.run(yaml.safe_load(DOCUMENT), store=folder)
    with Store(folder) as store:
        run = store.find_run("latest")
        with store.database.writing() as session:
            session.execute(sa.text("UPDATE instances SET status = :status"), {"status": status})
        counted, answers = Counted(monkeypatch), Answers(Source(store), "page")
        first, again = (answers.get(f"run/{run}/time", {}) for _ in range(2))
        assert first == again and len(counted.paths) == 2


def test_answers_that_were_not_used_for_longest_are_dropped(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(Answers(source, "").get("run/latest/series", {"phases": "0"}).content or b"")
    counted, answers = Counted(monkeypatch), Answers(source, "", memory=4 * size + size // 2)
    for phase in ("0", "1", "2", "3"):
        answers.get("run/latest/series", {"phases": phase})
    answers.get("run/latest/series", {"phases": "0"})
    assert len(counted.paths) == 4
    answers.get("run/latest/series", {"phases": "0,1"})
    answers.get("run/latest/series", {"phases": "3"})
    assert len(counted.paths) <= 6
    # an answer that would take more than a quarter is not kept
    small = Answers(source, "", memory=2 * size)
    for _ in range(2):
        assert json.loads(small.get("run/latest/series", {"phases": "0"}).content or b"")
    assert counted.paths[-2:] == ["run/latest/series"] * 2


def test_live_curves_take_a_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After curves that took a second, a page that polls gets the next ones ten seconds later, or when the run ends."""
    now, running = 100.0, True
    monkeypatch.setattr(curves_module.time, "monotonic", lambda: now)
    monkeypatch.setattr(curves_module, "is_running", lambda store, uid: running)
    with Store(tmp_path / "s", create=True) as store:
        uid = records.record_small_run(store)

        def asked(**query: str) -> Any:
            return get(Source(store), f"run/{uid}/curves", query)

        assert asked()["curves"]
        curves_module.outcomes_of_bodies(store, uid).drawing = 1.0
        now = 109.9
        early = asked(known="older")
        assert early["curves"] is None and early["version"] == "older" and len(early["phases"]) == 1
        running = False
        assert asked(known="older")["curves"]
        running = True
        curves_module.outcomes_of_bodies(store, uid).drawing = 1.0
        # a page without curves gets them at once
        assert asked()["curves"]
        curves_module.outcomes_of_bodies(store, uid).drawing = 1.0
        now = 119.8
        assert asked(known="older")["curves"] is None
        now = 120.0
        assert asked(known="older")["curves"]
