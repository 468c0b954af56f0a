"""Every promise of the page about security names the tests that hold it, and they are there."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from support.documents import agent, document, environment, named, phase

from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import ContractError, StoreError
from palaestrai_mosaik.environment.replay import SessionPoolEnvironment
from palaestrai_mosaik.interop.palaestrai.results.database import informations, plain

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
_COMMENT = re.compile(r"<!-- (?P<kind>held|not a promise)(?:: (?P<rest>[^>]*))? -->")


def parts_of(text: str) -> list[tuple[str, str | None, str]]:
    """Return each paragraph, item and row with the kind and the content of the comment that closes it."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    text = re.sub(r"^<!-- not run.*-->$", "", text, flags=re.M)
    parts: list[tuple[str, str | None, str]] = []
    said: list[str] = []

    def close(kind: str | None = None, rest: str = "") -> None:
        if said:
            parts.append((" ".join(said), kind, rest))
            said.clear()

    for line in text.splitlines():
        comment = _COMMENT.search(line)
        bare = _COMMENT.sub("", line).strip()
        if re.match(r"^(- |\| )", bare):
            close()
        if bare.startswith("#") or not bare or re.fullmatch(r"[|:\- ]+", bare):
            if not comment:
                close()
        elif bare.startswith("| ") and bare.split(" | ")[0] in ("| what", "| file"):
            continue  # the head of a table
        else:
            said.append(bare)
        if comment:
            assert said, f"a comment that belongs to nothing: {line}"
            close(comment["kind"], comment["rest"] or "")
    close()
    return parts


def names_in(rest: str) -> list[str]:
    return [one.strip() for one in rest.split(",")]


def is_there(test: str) -> bool:
    file, _, name = test.partition("::")
    path = ROOT / "tests" / file
    if not (path.is_file() and name.startswith("test_")):
        return False
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_promise_names_tests_that_are_there() -> None:
    promises = 0
    for said, kind, rest in parts_of(PAGE.read_text(encoding="utf-8")):
        if re.match(r"^\| `[\w/]+\.py` \|", said):
            continue  # the table of uses, which has a test of its own
        assert kind is not None, f"neither held by a test nor said to be no promise: {said}"
        if kind == "held":
            promises += 1
            assert [one for one in names_in(rest) if not is_there(one)] == [], said
    assert promises >= 30


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("# A\n\nSo it is.\n<!-- held: a.py::test_a -->\n", [("So it is.", "held", "a.py::test_a")]),
        ("So it is.\nAnd so.\n\nMore.", [("So it is. And so.", None, ""), ("More.", None, "")]),
        ("- one\n  <!-- not a promise -->\n- two", [("- one", "not a promise", ""), ("- two", None, "")]),
        ("| what | how |\n|---|---|\n| a | b <!-- held: x --> |", [("| a | b  |", "held", "x")]),
        ("```bash\nnothing\n```\n", []),
    ],
)
def test_what_has_no_test_is_found(text, parts) -> None:
    assert parts_of(text) == parts


@pytest.mark.parametrize(
    "test", ["a.py::test_a", "docs/test_docs.py::no", "docs/test_security_promises.py::is_there"]
)
def test_what_is_not_there_is_found(test) -> None:
    assert not is_there(test)


# --- promises that no other file holds ------------------------------------------------------------

_PLANTED = (
    "from palaestrai_mosaik.agent.library.dummy import DummyMuscle\nclass Muscle(DummyMuscle):\n    pass\n"
)


def test_looking_at_results_runs_nothing_that_they_name(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    planted = tmp_path / "planted_parts.py"
    planted.write_text(_PLANTED)
    text = document(phase([environment(max_iter=2)], [agent(muscle=named("planted_parts:Muscle"))]))
    (tmp_path / "run.yml").write_text(yaml.safe_dump(text.canonical))
    assert main(["start", "run.yml", "--store", "store"]) == 0
    del sys.modules["planted_parts"]
    planted.write_text("import os\nos.mkdir('exploded')\n")
    for command in (
        ["list"],
        ["show", "latest"],
        ["plot", "latest", "--output", "plot.svg"],
        ["export", "latest", "exported"],
    ):
        assert main([*command, "--store", "store"]) == 0, capsys.readouterr()
        assert "planted_parts" not in sys.modules
    assert not (tmp_path / "exploded").exists()
    assert main(["check", "run.yml"]) != 0
    assert (tmp_path / "exploded").exists(), "who makes what it names runs it, so the test above can fail"


class Bomb:
    """Leaves a folder behind when it is unpickled."""

    def __init__(self, folder: str):
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (self.folder,)


def test_recordings_are_read_without_pickles(tmp_path) -> None:
    bomb = np.empty((2, 3), dtype=object)
    bomb[:] = Bomb(str(tmp_path / "exploded"))
    sound = {"observations": np.ones((2, 3, 1)), "actions": np.ones((2, 3)), "rewards": np.ones((2, 3))}
    for name in sound:
        np.savez(tmp_path / "pool.npz", **{**sound, name: bomb})  # type: ignore[arg-type]
        with pytest.raises(ContractError):
            SessionPoolEnvironment(source={"npz": str(tmp_path / "pool.npz")}).check_sessions()
            SessionPoolEnvironment(source={"npz": str(tmp_path / "pool.npz")}).setup()
    assert not (tmp_path / "exploded").exists()
    with np.load(tmp_path / "pool.npz", allow_pickle=True) as opened:
        opened["rewards"]
    assert (tmp_path / "exploded").exists(), "numpy can be told to read them, so the test above can fail"


@pytest.mark.parametrize(
    "evil",
    [
        {"py/object": "subprocess.Popen", "py/state": {"args": ["touch", "exploded"]}},
        {"py/reduce": [{"py/function": "os.mkdir"}, {"py/tuple": ["exploded"]}]},
        {"py/type": "planted_module.X"},
        {"py/repr": "os/os.mkdir('exploded')"},
    ],
)
def test_json_of_palaestrai_makes_nothing(evil, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "planted_module.py").write_text("import os\nos.mkdir('exploded')\n")
    for text in (json.dumps([evil]), json.dumps({"a": evil})):
        for read in (informations, plain):
            try:
                read(text)
            except StoreError:
                continue
    assert not (tmp_path / "exploded").exists() and "planted_module" not in sys.modules
