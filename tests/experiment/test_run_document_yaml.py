"""The YAML layer: YAML 1.2 scalars, anchors, duplicate keys, hostile and broken texts."""

from __future__ import annotations

import math
import sys

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment import dumps, load, loads, yaml_text
from palaestrai_mosaik.experiment.yaml_text import read


def value_of(text: str):
    return read(f"x: {text}", "t").value["x"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-5", 1e-5),
        ("1.e3", 1000.0),
        (".5", 0.5),
        ("-1E+2", -100.0),
        ("0o17", 15),
        ("0x1F", 31),
        ("010", 10),
        ("+7", 7),
        ("1_000", 1000),
        ("-12_345_678.5", -12345678.5),
        ("1000_000", 1000000),
        ("1_0.5", 10.5),
        ("1_000e2", 1e5),
        ("2_0e-3", 0.02),
        ("1_", 1),
        ("0.1_0", 0.1),
        ("0b1_1", 3),
        ("-0x1F", -31),
        ("_1", "_1"),
        ("0b_", "0b_"),
        ("0b2", "0b2"),
        (".5e1", 5.0),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("on", "on"),
        ("yes", "yes"),
        ("No", "No"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("'1'", "1"),
        ('"true"', "true"),
        ("!!str 5", "5"),
        ("!!float 5", 5.0),
        ("1.2.3", "1.2.3"),
        ("-", [None]),
        ("e5", "e5"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, expected: object) -> None:
    if text == "-":
        text = "\n- "
    value = value_of(text)
    assert value == expected
    assert type(value) is type(expected)


def test_nan_is_read() -> None:
    assert math.isnan(value_of(".nan"))


@pytest.mark.parametrize("text", ["1e999", "9" * 5000, "!!int x", "!!bool 3"])
def test_impossible_scalars_are_problems(text: str) -> None:
    assert len(read(f"x: {text}", "t").problems) == 1


def test_anchors_merge_keys_and_alias_as_key() -> None:
    text = """\
base: &base {a: 1, b: 2}
more: &more {b: 3, c: 4}
name: &name key
one: {<<: *base, b: 9}
two:
  <<: [*base, *more]
  *name : 5
"""
    value = read(text, "t").value
    assert value["one"] == {"b": 9, "a": 1}
    assert value["two"] == {"key": 5, "a": 1, "b": 2, "c": 4}


@settings(max_examples=80)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(10**20), 10**20)
        | st.floats(allow_nan=False)
        | st.text(st.characters(codec="utf-8"), max_size=8)
        | st.sampled_from(
            ["1e-5", "on", "<<", "0o7", "2020-01-01", "null", "=", "1_0", ".inf", "1e999", "- a"]
        ),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text("abc<~1.", max_size=3), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_what_is_written_reads_back(data: object) -> None:
    reading = read(dumps({"data": data}), "t")
    assert reading.problems == []
    assert repr(reading.value) == repr({"data": data})


def test_same_data_as_pyyaml_where_both_versions_of_yaml_agree() -> None:
    text = 'a: &x\n  b: [1, 2.5, "q", {c: null}]\n  d: |\n    block\n    text\ne:\n  - *x\n  - >-\n    folded\n    text\n'
    text += "? long key\n: [true, false]\n"
    assert read(text, "t").value == yaml.safe_load(text)


def test_lines_of_keys_items_aliases_and_dotted_keys() -> None:
    text = "a:\n  - x\n  -\n    b.c: &n\n      d: 1\ne: *n\n"
    lines = read(text, "t").lines
    assert dict(lines) == {"a": 1, "a.0": 2, "a.1": 4, "a.1.b.c": 4, "a.1.b.c.d": 5, "e": 6, "e.d": 5}
    assert lines["a.1.b.c.d"] == 5
    assert len(lines) == 7
    assert "a.7" not in lines
    assert lines.nearest(("a", 1, "b.c", "nothing")) == 4


def test_duplicate_keys_tell_both_lines(text: str, problems) -> None:
    (problem,) = problems(text + "seed: 2\n")
    assert (problem.line, problem.path) == (16, "seed")
    assert "first in line 2" in problem.message


def test_merge_key_twice_and_merge_of_a_scalar() -> None:
    reading = read("a: &a {x: 1}\nb: {<<: *a, <<: *a}\nc: {<<: 3}\n", "t")
    assert [line for _, _, line in reading.problems] == [2, 3]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("uid: a\nx:\n\ty: 1\n", 3, "a tab stands in the indentation"),
        ("uid: 'a\n", 2, "not valid YAML"),
        ("uid: @a\n", 1, "put the text in quotes"),
        ("uid: a: b\n", 1, "mapping values are not allowed"),
        ("uid: \x07\n", 1, "U+0007"),
        ("uid: \ud800\n", 1, "U+D800"),
        ("", None, "empty"),
        ("# only a comment\n", None, "empty"),
        ("- a\n- b\n", 1, "a run document is a mapping"),
        ("just text\n", 1, "a run document is a mapping"),
        ("a: 1\n---\nb: 1\n", 2, "second document"),
        ("a: &a [*a]\n", 1, "inside its own anchor"),
        ("a: *nowhere\n", 1, "no anchor '&nowhere'"),
        ("a: !!python/object/apply:os.system ['true']\n", 1, "plain data"),
        ("a: !!binary aGk=\n", 1, "plain data"),
        ("? {a: 1}\n: 2\n", 1, "cannot be a key"),
    ],
)
def test_broken_texts_get_one_clear_answer(text: str, line: int | None, said: str, problems) -> None:
    found = problems(text)
    assert any(said in problem.message and problem.line == line for problem in found), found


def test_alias_bombs_and_deep_nesting_are_refused(problems) -> None:
    # expanded, the first alone would fill the memory
    laughs = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(12)
    )
    merges = "a0: &a0 {x: 1}\n" + "".join(f"a{i + 1}: &a{i + 1} {{l: *a{i}, r: *a{i}}}\n" for i in range(80))
    chain = "a0: &a0 [1]\n" + "".join(f"a{i + 1}: &a{i + 1} [*a{i}]\n" for i in range(5000))
    for bomb, said in (
        (laughs, "expand to more than"),
        (merges, "expand to more than"),
        (chain, "inside one another"),
        ("a: " + "[" * 500_000, "inside one another"),
        ("a: " + "{a: " * 200_000, "inside one another"),
    ):
        (problem,) = problems(bomb)
        assert said in problem.message


def test_cascade_bomb_is_refused(text: str, problems) -> None:
    # few bytes a phase, yet every phase inherits a thousand values
    listed = "world.a" + "".join(f", world.s{i}" for i in range(1000))
    bomb = text.replace("world.a", listed).replace("run_config", "  - p0:\nrun_config", 1)
    bomb = bomb.replace("  - p0:\n", "".join(f"  - p{i}:\n" for i in range(1100)))
    (problem,) = problems(bomb)
    assert "inherit more than" in problem.message
    assert problems(text.replace("run_config", "  - p0:\n  - p1:\nrun_config", 1)) == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("uid: ä".encode("utf-16"), "UTF-16"),
        ("uid: a".encode("utf-16-le"), "zero bytes"),
        ("uid: a".encode("utf-32"), "UTF-32"),
        ("x: 1\nuid: grün\n".encode("latin-1"), "not UTF-8: byte 0xfc ('ü' in Latin-1)"),
        (b"\x7fELF\x02\x00\x00", "binary"),
        (b"", "empty"),
    ],
)
def test_wrong_encodings(data: bytes, said: str, tmp_path) -> None:
    path = tmp_path / "run.yml"
    path.write_bytes(data)
    with pytest.raises(DocumentError) as error:
        load(path)
    (problem,) = error.value.problems
    assert said in problem.message
    assert problem.file == str(path)
    if "latin" in said.lower():
        assert problem.line == 2


def test_byte_order_mark_of_utf_8_is_no_fault(text: str, tmp_path) -> None:
    path = tmp_path / "run.yml"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert load(path).hash == loads(text).hash == loads("\ufeff" + text).hash


def test_missing_file_directory_and_too_large_file(tmp_path, monkeypatch) -> None:
    (tmp_path / "experiment.yml").write_text("a: 1")
    for path, said in (
        (tmp_path / "experimnet.yml", "did you mean 'experiment.yml'"),
        (tmp_path, "cannot be read"),
    ):
        with pytest.raises(DocumentError, match=said):
            load(path)
    monkeypatch.setattr(sys.modules["palaestrai_mosaik.experiment.load"], "MAX_BYTES", 3)
    with pytest.raises(DocumentError, match="at most 3 are read"):
        load(tmp_path / "experiment.yml")


def test_the_reader_works_without_libyaml(text: str, monkeypatch) -> None:
    monkeypatch.setattr(yaml_text, "Loader", yaml.SafeLoader)
    document = loads(text)
    monkeypatch.undo()
    assert document.hash == loads(text).hash
    assert dict(document.lines) == dict(loads(text).lines)
