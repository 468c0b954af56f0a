"""``palaestrai-mosaik new``: what it writes works as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palaestrai_mosaik.cli import arsenai
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import FINISHED, UNSOUND


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", ["run", "agent", "environment"])
def test_an_example_runs_as_it_is_written(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"example_{kind}"
    assert main(["new", kind, name]) == FINISHED
    assert capsys.readouterr().out.endswith(f"next: palaestrai-mosaik start {name}.yml\n")
    assert main(["check", f"{name}.yml"]) == FINISHED
    assert main(["start", f"{name}.yml", "--store", "results"]) == FINISHED
    assert "finished" in capsys.readouterr().out


def test_a_design_can_be_generated_and_executed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "design", "example_design"]) == FINISHED
    for command in (["generate", "example_design.yml"], ["run", "--executor", "inline"]):
        assert arsenai.main(command) == FINISHED
    assert "8 of 8 runs finished" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["run", "design"])
def test_the_first_line_leads_to_a_schema_that_the_example_fits(kind: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed (extra 'test')")
    import yaml

    assert main(["new", kind, "example"]) == FINISHED
    text = Path("example.yml").read_text(encoding="utf-8")
    schema = json.loads(Path(text.splitlines()[0].partition("$schema=")[2]).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(text))


def test_no_file_is_replaced_and_nothing_is_left_half_written(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text("kept")
    assert main(["new", "agent", "mine"]) == UNSOUND
    assert "mine.py exists; nothing was written" in capsys.readouterr().err
    assert [one.name for one in Path().iterdir()] == ["mine.py"]


@pytest.mark.parametrize("name", ["2x", "My", "a-b", "class", "../x", ""])
def test_a_name_must_be_one_of_a_module(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "run", name]) == UNSOUND
    assert "cannot be the name of a module" in capsys.readouterr().err
    assert not list(Path().iterdir())
