"""Paths into run documents: parsed, looked up, changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment.paths import Changes, Path, quoted

DOCUMENT: dict[str, Any] = {
    "schedule": [
        {
            "phase_0": {
                "environments": [
                    {"environment": {"uid": "grid", "name": "g:Grid", "params": {"size": 3, 4: "four"}}},
                    {"environment": {"uid": "sky", "name": "w:Sky"}, "reward": None},
                ],
                "agents": [
                    {
                        "name": "a.b",
                        "muscle": {"name": "m:M", "params": {"gain": 1.0}},
                        "sensors": ["x", "y"],
                    },
                    {"name": "twin"},
                    {"name": "twin"},
                ],
                "simulation": {"conditions": [{"name": "c.d:End", "params": {"n": 1}}]},
            }
        },
        {"phase_1": None},
    ]
}
P = "schedule.phase_0"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{P}.environments.grid.environment.params.size", 3),
        (f"{P}.environments.grid.environment.params.4", "four"),
        ('schedule[0].phase_0.agents."a.b".muscle.params.gain', 1.0),
        (f'{P}.agents."a.b".sensors[1]', "y"),
        (f"{P}.agents[2].name", "twin"),
        (f'{P}.simulation.conditions."c.d:End".params.n', 1),
        ("schedule.phase_1", None),
        (f"{P}.environments.sky.reward", None),
    ],
)
def test_a_path_selects_exactly_one_thing(path: str, value: Any) -> None:
    found = Path.parse(path).find(DOCUMENT)
    assert found.fault is None
    node: Any = DOCUMENT
    for key in found.keys:
        node = node[key]
    assert node == value


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("shedule", "the document has no key 'shedule' (did you mean 'schedule'?); keys: schedule"),
        (
            "schedule.phase_2",
            "schedule has no item 'phase_2' (did you mean 'phase_1'?); items: phase_0, phase_1",
        ),
        (f"{P}.agents.twin", "has 2 items 'twin' ([1], [2]); select one by its index"),
        (f"{P}.agents[3]", "agents has no [3]: it has 3 items"),
        (f'{P}.agents."a.b".sensors.x', "is a list of 2 items without names; select one by its index, [0]"),
        (f"{P}.environments.grid.params", "has no key 'params'; keys: environment"),
        (f'{P}.agents."a.b".muscle.params.gian', "has no key 'gian' (did you mean 'gain'?); keys: gain"),
        (f'{P}.agents."a.b".muscle.params.gain.x', "is the number 1.0, which has no part 'x'"),
        ("schedule.phase_1.agents", "is nothing (null), which has no part 'agents'"),
        (f"{P}[0]", "is a mapping, [0] needs a list; keys: environments, agents, simulation"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_ends(path: str, fault: str) -> None:
    found = Path.parse(path).find(DOCUMENT)
    assert found.fault is not None
    assert fault in found.fault


@pytest.mark.parametrize("muscle", ["m:M", {"name": "m:M"}, {"name": "m:M", "params": None}])
def test_create_makes_the_params_of_a_class(muscle: object) -> None:
    document = {"agents": [{"name": "a", "muscle": muscle}]}
    changes = Changes()
    for key, value in (("gain", 1.0), ("bias", 2.0)):
        path = Path.parse(f"agents.a.muscle.params.{key}")
        assert path.find(document).fault is not None
        changes.set(path.find(document, create=True).keys, value)
    made = {"name": "m:M", "params": {"gain": 1.0, "bias": 2.0}}
    assert changes.applied(document) == {"agents": [{"name": "a", "muscle": made}]}
    assert Path.parse("agents.a.params.gain.x").find(document, create=True).fault is not None


def test_create_makes_the_last_key_only() -> None:
    new = Path.parse(f'{P}.agents."a.b".muscle.params.new')
    assert new.find(DOCUMENT).fault is not None
    assert new.find(DOCUMENT, create=True).fault is None
    assert Path.parse(f"{P}.agents[1].muscle.params.new").find(DOCUMENT, create=True).fault is not None
    assert Path.parse("schedule.phase_1.agents").find(DOCUMENT, create=True).fault is not None


@pytest.mark.parametrize(
    "path",
    ["", ".", "a.", ".a", "a..b", "a[", "a[x]", "a[-1]", 'a."b', 'a"b"', "a]b", "a[0]b", '"a"b', 'a."\\x"'],
)
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(DocumentError, match="is not understood"):
        Path.parse(path)


@given(st.lists(st.text(min_size=1) | st.integers(0, 99), min_size=1, max_size=6))
def test_any_way_can_be_written_as_a_path(parts: list[str | int]) -> None:
    assert Path.parse(quoted(parts)).parts == tuple(parts)


def test_changes_copy_what_they_touch_and_share_the_rest() -> None:
    first, second = {"deep": [1, 2], "other": {}}, {"kept": [3]}
    document = {"a": [first, second], "b": second}
    changes = Changes()
    changes.set(("a", 0, "deep", 1), "new")
    changes.set(("c",), None)
    changed = changes.applied(document)
    assert changed == {"a": [{"deep": [1, "new"], "other": {}}, {"kept": [3]}], "b": {"kept": [3]}, "c": None}
    assert document == {"a": [{"deep": [1, 2], "other": {}}, {"kept": [3]}], "b": {"kept": [3]}}
    assert changed["b"] is second
    assert changed["a"][0]["other"] is first["other"]
