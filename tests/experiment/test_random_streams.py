"""``random_streams``: a phase names another one and draws its random numbers."""

from __future__ import annotations

from typing import Any

import pytest

from palaestrai_mosaik.core.errors import DocumentError, Problem
from palaestrai_mosaik.experiment import describe, from_mapping, json_schema


def with_phases(minimal: dict[str, Any], **streams: Any) -> dict[str, Any]:
    """Return the document with a phase for each name, after the first; a value that is no mapping is the key's."""
    for name, value in streams.items():
        body = value if isinstance(value, dict) else {"phase_config": {"random_streams": value}}
        minimal["schedule"].append({name: body})
    return minimal


def streams_of(data: dict[str, Any]) -> dict[str, str]:
    return {phase.name: phase.streams for phase in from_mapping(data).phases}


def problems_of(data: dict[str, Any]) -> tuple[Problem, ...]:
    with pytest.raises(DocumentError) as error:
        from_mapping(data)
    return error.value.problems


def test_a_phase_has_its_own_streams_or_those_of_the_phase_that_it_names(minimal) -> None:
    found = streams_of(with_phases(minimal, second=None, third="first", fourth="third"))
    assert found == {"first": "first", "second": "second", "third": "first", "fourth": "first"}


def test_it_may_name_a_later_phase(minimal) -> None:
    assert streams_of(with_phases(minimal, second="third", third=None))["second"] == "third"


def test_no_phase_inherits_it(minimal) -> None:
    data = with_phases(minimal, second="first", third={"phase_config": {"mode": "test"}}, fourth={})
    assert streams_of(data) == {"first": "first", "second": "first", "third": "third", "fourth": "fourth"}


def test_a_definition_may_hold_it(minimal) -> None:
    minimal["definitions"] = {"phase_config": {"same_days": {"random_streams": "first"}}}
    data = with_phases(minimal, second={"phase_config": "same_days"}, third={})
    assert streams_of(data) == {"first": "first", "second": "first", "third": "third"}


def test_it_cannot_be_the_default_of_all_phases(minimal) -> None:
    minimal["definitions"] = {"phase_config": {"random_streams": "first"}}
    (problem,) = problems_of(minimal)
    assert problem.path == "definitions.phase_config.random_streams"
    assert "belongs to one phase and cannot be the default of all" in problem.message


@pytest.mark.parametrize(
    ("streams", "expected"),
    [
        ({"second": "frist"}, {"second": "there is no phase 'frist' (did you mean 'first'?); phases: 'first', 'second'"}),
        ({"second": "second"}, {"second": "a phase has random streams of its own without this key; name another phase, "
                                          "not 'second'"}),
        ({"second": "third", "third": "second", "fourth": "third"},
         {"second": "the phases name each other: second -> third -> second; one of them draws its own streams",
          "third": "the phases name each other: third -> second -> third; one of them draws its own streams"}),
        ({"second": 0}, {"second": "must be a non-empty string, found the number 0"}),
        ({"second": "moon", "third": "second"}, {"second": "there is no phase 'moon'; phases: 'first', 'second', "
                                                            "'third'"}),
    ],
    ids=["unknown", "itself", "circle", "number", "chain"],
)  # fmt: skip
def test_what_cannot_be_meant_is_an_error(streams, expected, minimal) -> None:
    found = {problem.path: problem.message for problem in problems_of(with_phases(minimal, **streams))}
    names = ["first", *streams]
    assert set(found) == {f"schedule.{names.index(n)}.{n}.phase_config.random_streams" for n in expected}
    for name, message in expected.items():
        assert message in found[f"schedule.{names.index(name)}.{name}.phase_config.random_streams"]


def test_the_canonical_form_keeps_it_and_older_documents_keep_their_hash(minimal) -> None:
    plain = from_mapping(with_phases(minimal, second=None))
    assert "random_streams" not in str(plain.canonical)
    shared = from_mapping(with_phases(minimal, third="first", fourth=None))
    again = from_mapping(shared.canonical)
    assert again.hash == shared.hash
    assert [phase.streams for phase in again.phases] == ["first", "second", "first", "fourth"]
    minimal["schedule"][2]["third"]["phase_config"]["random_streams"] = None
    assert from_mapping(minimal).hash != shared.hash


def test_it_is_described_and_in_the_schema(minimal) -> None:
    text = describe(from_mapping(with_phases(minimal, second="first")))
    assert text.count("  random streams of phase 'first'\n") == 1
    assert "random_streams" in json_schema()["$defs"]["phase_config"]["properties"]


def test_phases_without_a_common_environment_are_warned_of(minimal) -> None:
    other = {"environments": [{"environment": {"uid": "moon", "name": "worlds:World"}}], "inherit": False,
             "agents": [{"name": "b", "muscle": "random", "sensors": ["moon.a"], "actuators": ["moon.b"]}],
             "phase_config": {"episodes": 1, "random_streams": "first"}}  # fmt: skip
    (warning,) = from_mapping(with_phases(minimal, second=other)).warnings
    assert warning.path == "schedule.1.second.phase_config.random_streams"
    assert (
        "no environment of phase 'second' ('moon') has the uid of one of phase 'first' ('world')"
        in warning.message
    )
