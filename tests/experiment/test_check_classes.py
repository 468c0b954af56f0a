"""Named classes exist, keep their topic's contract, and take the params they are given."""

from __future__ import annotations

import sys

import pytest

from palaestrai_mosaik.experiment import check_classes, loads

PARTS = """
from abc import ABC, abstractmethod

class World:
    def __init__(self, size=1, *, colour="red"): ...

class Free:
    def __init__(self, **params): ...

class Strict:
    def __init__(self, rate, momentum): ...

class Abstract(ABC):
    @abstractmethod
    def act(self): ...

class Positional:
    def __init__(self, rate, /): ...
"""


@pytest.fixture(autouse=True)
def parts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "check_parts.py").write_text(PARTS)
    yield
    sys.modules.pop("check_parts", None)


TEXT = """\
uid: u
seed: 1
version: "3.5"
schedule:
  - one:
      environments:
        - environment:
            uid: w
            name: check_parts:World
            params: {size: 2}
          reward: {name: "check_parts:Free", params: {anything: 1}}
      agents:
        - name: a
          muscle:
            name: check_parts:Free
          brain:
            name: check_parts:Strict
            params: {rate: 1, momentum: 2}
          sensors: []
          actuators: []
      simulation: {name: vanilla, conditions: [{name: "check_parts:Free"}]}
  - two:
run_config:
  condition: {name: "check_parts:Free"}
"""


def test_sound_classes() -> None:
    assert check_classes(loads(TEXT)) == []


@pytest.mark.parametrize(
    ("old", "new", "line", "path", "said"),
    [
        ("size: 2", "sise: 2", 10, "environment.params.sise", "did you mean 'size'?); allowed: size, colour"),
        ("check_parts:World", "check_parts:Wrld", 9, "environment.name", "did you mean 'World'"),
        ("rate: 1, ", "", 18, "brain.params", "needs the parameter 'rate'; found momentum"),
        ("name: check_parts:Free\n", "name: check_parts:Abstract\n", 15, "muscle.name", "does not implement act"),
        ("check_parts:Strict", "check_parts:Positional", 17, "brain.name", "by position only"),
        ('conditions: [{name: "check_parts:Free"', 'conditions: [{name: "nowhere:Free"', 21,
         "simulation.conditions.0.name", "there is no module 'nowhere'"),
        ('  condition: {name: "check_parts:Free"', '  condition: {name: "short"', 24,
         "run_config.condition.name", "'short' is no short name of a class for 'condition'"),
    ],
)  # fmt: skip
def test_each_fault_is_told_where_it_stands(old: str, new: str, line: int, path: str, said: str) -> None:
    assert old in TEXT
    problems = check_classes(loads(TEXT.replace(old, new), "run.yml"))
    hits = [p for p in problems if said in p.message]
    assert len(hits) == 1, problems  # once, though two phases have it
    assert hits[0].line == line
    assert hits[0].path.endswith(path)


def test_bases_by_topic() -> None:
    class Base:
        pass

    problems = check_classes(loads(TEXT), {"muscle": Base, "environment": object})
    (problem,) = problems
    assert problem.path == "schedule.0.one.agents.0.muscle.name"
    assert "is no muscle: it does not derive from" in problem.message
    assert ":Base" in problem.message


def test_constructors_that_do_not_tell_are_left_alone() -> None:
    text = TEXT.replace("name: check_parts:Strict", "name: builtins:dict")
    assert check_classes(loads(text)) == []
