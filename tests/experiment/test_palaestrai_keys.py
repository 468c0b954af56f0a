"""What palaestrAI does otherwise with a document that was written for it is said, with its line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment import class_names, classes, from_mapping, load, loads
from palaestrai_mosaik.experiment.load import as_document

DOCUMENT = """\
uid: old
seed: 1
version: "3.5"
schedule:
  - training:
      environments:
        - environment: {uid: one, name: "w:W", params: {}}
        - environment: {uid: two, name: "w:W", params: {}}
      agents:
        - &a {name: a, load: {}, muscle: {name: "m:M"}, brain: {name: "b:B"}, sensors: [one.x], actuators: [two.y]}
        - {name: b, muscle: {name: "m:M"}, sensors: [one.x], actuators: [one.z]}
      simulation: {name: "palaestrai.simulation:Vanilla", conditions: []}
      phase_config: {mode: test, worker: 2, episodes: 1_000, evaluate_every: 0, store_raw_actuators: true}
  - testing:
      environments:
        - environment: {uid: one, name: "w:W", params: {}}
      agents: [*a]
      phase_config: {episodes: 1}
  - again:
run_config:
  condition: {name: "palaestrai.experiment:MaxEpisodesTerminationCondition", params: {}}
"""


def hints(text: str) -> list[tuple[int | None, str]]:
    return [(warning.line, warning.message) for warning in loads(text).warnings]


def notes(text: str) -> list[tuple[int | None, str]]:
    return [(note.line, note.message) for note in loads(text).notes]


def test_each_difference_is_told_once_where_it_is_written():
    assert hints(DOCUMENT) == [
        (10, "'load' has no effect in the first phase: there is none before it"),
        (
            13,
            "'store_raw_actuators' has no effect here: palaestrAI 3.5 reads it and does nothing with it, either; the "
            "set-points that reach the environment are recorded, those that filters have not changed yet are not",
        ),
    ]
    # the cascade is as palaestrAI's specification has it
    assert notes(DOCUMENT) == [
        (
            15,
            "environments of phase 'training' that are not listed here go on: 'two'; in palaestrAI, they would not. For "
            "that, write 'inherit: false' in the phase, and all that it shall have",
        ),
        (
            17,
            "agents of phase 'training' that are not listed here go on: 'b'; in palaestrAI, they would not. For that, "
            "write 'inherit: false' in the phase, and all that it shall have",
        ),
        (18, "'mode' of phase 'training', test, goes on here; palaestrAI would take train mode"),
        (18, "'workers' of phase 'training', 2, goes on here; palaestrAI would take 1 worker"),
    ]


def test_parameters_of_filters_that_do_nothing_are_told():
    filters = (
        'filters: [{name: "palaestrai.agent:MergeStepsFilter", params: {steps: 2, merge_actuators: true}}, '
        '{name: "palaestrai.agent:NormFilter", params: {batch_size: 8}}], '
    )
    told = hints(DOCUMENT.replace("&a {name: a, ", "&a {name: a, " + filters))
    assert (
        10,
        "'batch_size' has no effect: mean and deviation are here those of all readings so far",
    ) in told
    assert [line for line, message in told if "'merge_actuators' has no effect" in message] == [10]


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("load: {}", f"load: {{{key}: {value}}}", key)
        for key, value in {
            "mode": "train",
            "strict": "true",
            "repeat": "3",
            "sensors": "[one.x]",
            "actuators": "[one.x]",
        }.items()
    ]
    + [('brain: {name: "b:B"}', 'brain: {name: "b:B", uid: other}', "uid")],
)
def test_what_palaestrai_passes_over_is_told_and_changes_nothing(old: str, new: str, key: str):
    assert DOCUMENT.count(old) == 1
    changed = DOCUMENT.replace(old, new)
    assert loads(changed).hash == loads(DOCUMENT).hash
    told = [
        (line, message) for line, message in hints(changed) if message.startswith(f"{key!r} has no effect")
    ]
    assert {line for line, _ in told} == {10}
    assert "palaestrAI passes over it" in told[0][1]


def test_a_document_of_ours_is_not_compared_with_palaestrai():
    ours = DOCUMENT.replace("palaestrai.simulation:Vanilla", "palaestrai_mosaik.simulation:Vanilla")
    assert [line for line, _ in hints(ours)] == [10, 13]
    assert notes(ours) == []


def test_a_file_without_uid_is_called_like_the_file(tmp_path: Path) -> None:
    nameless = DOCUMENT.replace(re.search(r"^uid:.*\n", DOCUMENT, re.MULTILINE)[0], "")
    path = tmp_path / "my run.yml"
    for text in (nameless, "uid:\n" + nameless):
        path.write_text(text)
        document = load(path)
        assert document.uid == document.canonical["uid"] == "my run"
        assert [one.message for one in document.warnings if one.path == "uid"] == [
            "the document has no 'uid', which identifies its results: that of its file, 'my run', is taken"
        ]
        assert as_document(document, {"seed": 7}).uid == "my run"
        with pytest.raises(DocumentError, match="uid"):
            loads(text)
    with pytest.raises(DocumentError, match="the document needs the key 'uid', which is missing"):
        from_mapping({key: value for key, value in yaml.safe_load(DOCUMENT).items() if key != "uid"})


def test_a_load_before_the_first_phase_is_passed_over_there_only():
    document = loads(DOCUMENT)
    assert [phase.agents[0].load for phase in document.phases] == [None, {}, {}]
    assert [phase.episodes for phase in document.phases] == [1000, 1, 1]
    again = from_mapping(document.canonical)
    assert again.hash == document.hash
    assert [phase.agents[0].load for phase in again.phases] == [None, {}, {}]


@pytest.mark.parametrize("module", ["", ".mosaik_environment", ".mp", ".mp.mosaik_environment"])
def test_names_of_palaestrais_mosaik_package_are_ours(module: str):
    def named(name: str) -> Any:
        return loads(DOCUMENT.replace('"w:W"', f'"{name}"')).hash

    ours = "palaestrai_mosaik.environment.mosaik_environment:MosaikEnvironment"
    assert class_names.canonical_name(f"palaestrai_mosaik{module}:MosaikEnvironment") == ours
    assert named(f"palaestrai_mosaik{module}:MosaikEnvironment") == named(ours)


def test_a_class_that_has_moved_keeps_the_name_that_documents_have() -> None:
    for name, place in class_names.MOVED.items():
        assert class_names.canonical_name(name) == class_names.canonical_name(place) == name
        found = classes.resolve(name, "environment")
        assert f"{found.__module__}:{found.__qualname__}" == place
        assert classes.resolve(place, "environment") is found
