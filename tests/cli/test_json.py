"""``--json``: one document on standard output, and nothing else there."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.documents import WALK

from palaestrai_mosaik.cli import arsenai, main
from palaestrai_mosaik.core.errors import FAILED, FINISHED, UNSOUND, Problem
from palaestrai_mosaik.experiment.yaml_text import columns_of

DESIGN = """
uid: study
seed: 1
base: walk.yml
repetitions: 2
factors:
  slip: {path: schedule.train.environments.slippery_grid.environment.params.slip, levels: [0.0, 0.5], create: true}
outcomes:
  steps: {of: steps, episode: mean}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("walk.yml").write_text(WALK)
    Path("study.yml").write_text(DESIGN)
    return tmp_path


@pytest.fixture
def told(here: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Return what calls a command with ``--json`` and returns its document."""

    def call(line: str, code: int = FINISHED) -> Any:
        program, *arguments = line.split()
        found = {"arsenai": arsenai, "palaestrai-mosaik": main}[program].main([*arguments, "--json"])
        out, err = capsys.readouterr()
        assert found == code, err
        return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    return call


def with_json() -> set[str]:
    """Return the commands that have the option, by the first of their names."""
    found = set()
    for module in (main, arsenai):
        parser = module.parser()
        (commands,) = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
        names = {id(sub): name for name, sub in reversed(commands.choices.items())}
        for name, sub in commands.choices.items():
            if name == names[id(sub)] and any("--json" in action.option_strings for action in sub._actions):
                found.add(f"{parser.prog} {name}")
    return found


def test_runs_as_json(told: Callable[..., Any], here: Path) -> None:
    (run,) = told("palaestrai-mosaik start walk.yml")["runs"]
    assert (run["file"], run["document"], run["status"], run["error"]) == (
        "walk.yml",
        "walk",
        "finished",
        None,
    )
    assert run["store"] == str(here / "palaestrai-results")
    assert run["seconds"] > 0 and run["set_up_seconds"] > 0
    (phase,) = run["phases"]
    assert (phase["phase"], phase["episodes"]) == ("train", 2)

    (listed,) = told("palaestrai-mosaik list")
    assert (listed["run"], listed["document"], listed["status"]) == (run["run"], "walk", "finished")
    assert listed["steps"] == phase["steps"]

    (labelled,) = told("palaestrai-mosaik label latest --name first --tag a")
    assert labelled == {"run": run["run"], "name": "first", "tags": ["a"], "note": None}

    shown = told("palaestrai-mosaik show latest --steps 1")
    assert shown["run"]["run"] == run["run"]
    assert Path(shown["folder"]).is_dir()
    assert [one["name"] for one in shown["phases"]] == ["train"]
    assert sum(one["steps"] for one in shown["episodes"]) == phase["steps"]
    assert [(one["agent"], one["rows"], len(one["first"]), len(one["last"])) for one in shown["steps"]] == [
        ("walker", phase["steps"], 1, 1)
    ]
    assert {"walker", "slippery_grid"} <= {one["name"] for one in shown["streams"]}
    assert shown["warnings"] == shown["errors"] == shown["evaluations"] == []
    assert [one["body"] for one in told("palaestrai-mosaik show latest --body 0")["body_episodes"]["0"]] == [
        0,
        0,
    ]

    page = told("palaestrai-mosaik theatre latest -o walk.html")
    assert (page["run"], page["phases"], page["left_out"], page["thinned"]) == (run["run"], [], [], [])
    assert Path(page["file"]).stat().st_size == page["bytes"]
    page = told("palaestrai-mosaik theatre")
    assert (page["run"], page["runs"], page["file"]) == (None, [run["run"]], "runs.html")

    (resumed,) = told("palaestrai-mosaik resume walk.yml")["runs"]
    assert (resumed["run"], resumed["status"]) == (run["run"], "finished")

    verified = told("palaestrai-mosaik verify --all")
    assert [(one["run"], one["whole"], one["damage"]) for one in verified["runs"]] == [(run["run"], True, [])]
    next(Path("palaestrai-results").rglob("*.parquet")).write_bytes(b"")
    verified = told("palaestrai-mosaik verify --all", FAILED)
    assert verified["damaged"] == 1 and verified["runs"][0]["damage"]


def test_a_run_that_fails_is_in_the_answer(told: Callable[..., Any]) -> None:
    Path("walk.yml").write_text(
        WALK.replace("[slippery_grid]", "[{environment: {name: slippery_grid, uid: g}}]")
    )
    Path("other.yml").write_text(
        WALK.replace("muscle: random", "muscle: random, sensors: [slippery_grid.nothing]")
    )
    runs = told("palaestrai-mosaik start other.yml walk.yml", UNSOUND)["runs"]
    assert [run["status"] for run in runs] == ["not sound", "finished"]
    assert runs[0]["problems"][0]["line"] == 7


def test_the_world_as_json(told: Callable[..., Any]) -> None:
    world = told("palaestrai-mosaik graph walk.yml -o world.txt")
    assert Path("world.txt").exists()
    assert [one["simulator"] for one in world["simulators"]] == ["0-slippery_grid", "coordinator", "agent-0"]
    assert {"simulator": "agent-0", "entity": "walker"} in [one["target"] for one in world["connections"]]


def test_a_check_as_json_says_where(told: Callable[..., Any]) -> None:
    (found,) = told("palaestrai-mosaik check walk.yml")["documents"]
    assert found["sound"] and found["problems"] == [] and found["uid"] == "walk"
    assert found["phases"] == [
        {
            **{"name": "train", "mode": "train", "workers": 1, "episodes": 2},
            **{"environments": ["slippery_grid"], "agents": ["walker"]},
        }
    ]
    text = WALK.replace("muscle: random", "muscle: randm").replace("{episodes: 2}", "{episdes: 2}")
    Path("walk.yml").write_text(text)
    (found,) = told("palaestrai-mosaik check walk.yml", UNSOUND)["documents"]
    assert not found["sound"]
    places = [(one["file"], one["line"], one["column"], one["path"]) for one in found["problems"]]
    assert places == [
        ("walk.yml", 7, 29, "schedule.train.agents.0.muscle.name"),
        ("walk.yml", 8, 20, "schedule.train.phase_config.episdes"),
    ]
    assert "did you mean 'random'?" in found["problems"][0]["message"]
    Path("walk.yml").write_text("uid: walk\n  seed: 3\n")
    (problem,) = told("palaestrai-mosaik check walk.yml", UNSOUND)["documents"][0]["problems"]
    assert (problem["line"], problem["column"]) == (2, 7)


def test_designs_as_json(told: Callable[..., Any], here: Path) -> None:
    planned = told("arsenai plan study.yml")
    sizes = ("rows", "repetitions", "runs", "documents", "checked")
    assert [planned[name] for name in sizes] == [2, 2, 4, 4, 2]
    assert planned["sampler"] == {"name": "factorial", "n": None}
    assert [(one["factor"], one["levels"]) for one in planned["factors"]] == [("slip", ["0.0", "0.5"])]
    assert planned["estimate"]["seconds"] is None

    generated = told("arsenai generate study.yml -o study")
    assert generated["folder"] == "study" and generated["outcome"] == "new"
    assert (generated["rows"], generated["runs"]) == (2, 4)

    executed = told("arsenai run study --executor inline --rows 0")
    assert (executed["considered"], executed["finished"], executed["ended"]) == (2, 2, {"finished": 2})
    executed = told("arsenai resume study --executor inline")
    assert executed["before"] == {"finished": 2} and executed["failed"] == []
    assert told("arsenai status study")["counts"] == {"finished": 4}
    assert told("arsenai collect study")["collected"] == {}
    assert told("arsenai submit study --dry-run")["runs"] == []

    analysed = told("arsenai analyse study")
    assert (analysed["design"], analysed["runs"], analysed["missing"]) == ("study", 4, 0)
    assert [one["outcome"] for one in analysed["outcomes"]] == ["steps"]
    assert {row["factor"] for one in analysed["methods"] for row in one["indices"]} >= {"slip"}
    assert all(Path(file).exists() for file in analysed["files"])

    (compared,) = told("arsenai compare study --by slip")["comparisons"]
    assert [row["level"] for row in compared["levels"]] == ["0.0", "0.5"]
    assert len(compared["pairs"]) == 1

    reported = told("arsenai report study")
    assert Path(reported["page"]).exists() and list(reported["sentences"]) == ["steps"]
    assert reported["theatre"] == []
    reported = told("arsenai report study --theatre study-0-r0")
    assert [Path(file).is_file() for file in reported["theatre"]] == [True]

    page = told("arsenai theatre study")
    assert (page["design"], page["file"], len(page["runs"])) == ("study", "study.html", 4)
    assert Path(page["file"]).stat().st_size == page["bytes"]


def test_searches_as_json(told: Callable[..., Any]) -> None:
    pytest.importorskip("optuna")
    design = DESIGN.replace("repetitions: 2\n", "search: {sampler: random, budget: {runs: 2}}\n")
    Path("study.yml").write_text(design.replace("episode: mean}", "episode: mean, better: lower}"))
    found = told("arsenai tune study.yml -o search --executor inline")
    assert (found["settings"], found["settled"], found["ended_by"]) == ({"complete": 2}, 2, "2 runs")
    keys = {"setting", "factors", "outcomes", "fresh_seeds", "pruned", "recommended"}
    assert set(found["best"][0]) == keys
    assert told("arsenai status search")["settings"] == {"complete": 2}
    assert told("arsenai resume search --executor inline")["settled"] == 0
    assert len(told("arsenai analyse search")["search"]["history"]) == 2
    made = told("arsenai generate study.yml -o empty")
    assert (made["outcome"], made["rows"]) == ("new", 0)
    planned = told("arsenai submit empty --dry-run")
    assert planned["search"] == {
        "live_tasks": 0,
        "settings_left": 2,
        "ended_by": None,
        "retried": 0,
        "lost": 0,
        "not_read_back": None,
        "best": [],
    }
    found = told("arsenai status empty")
    assert (found["search_over"], found["confirm"], found["failed_tasks"]) == (False, None, None)
    assert told("arsenai collect empty")["confirm"] is None


def test_every_command_with_the_option_is_tested_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert with_json()
    assert [
        name for name in sorted(with_json()) if f'told("{name} ' not in text and f'told("{name}"' not in text
    ] == []


def test_errors_are_json_too(told: Callable[..., Any]) -> None:
    answer = told("palaestrai-mosaik show nothing", UNSOUND)
    assert answer["error"].startswith("there is no store at") and answer["problems"] == []
    Path("study.yml").write_text(DESIGN.replace("factors:", "factrs:"))
    answer = told("arsenai plan study.yml", UNSOUND)
    assert answer["error"] == "a document is not sound"
    assert (answer["problems"][0]["line"], answer["problems"][0]["column"]) == (6, 1)
    Path("study.yml").write_text(DESIGN)
    Path("walk.yml").write_text(WALK.replace("muscle: random", "muscle: randm"))
    for command in ("plan", "generate"):
        assert "randm" in str(told(f"arsenai {command} study.yml", UNSOUND)["problems"])


@pytest.mark.parametrize(
    ("text", "path", "line", "column"),
    [
        ("a: 1\nb: {c: [1, 2]}\n", "b.c.1", 2, 12),
        ("a: 1\nb: {c: [1, 2]}\n", "b.d", 2, 1),
        ("a:\n  - x: 1\n    y: 2\n", "a.0.y", 3, 5),
        ("a:\n  - x: 1\n    y: 2\n", "a.0", 2, 5),
        ("a: &m {x: 1}\nb: *m\n", "b", 2, 1),
        ("a.b: {c: 1}\n", "a.b.c", 1, 7),
        ("a: [\n", "", 2, 1),
        ("? [x]\n: 1\nb: 2\n", "b", 3, 1),
    ],
)
def test_columns(tmp_path: Path, text: str, path: str, line: int, column: int) -> None:
    file = tmp_path / "d.yml"
    file.write_text(text)
    assert columns_of([Problem("wrong", path, str(file), line)]) == [column]


def test_no_column_without_a_file_or_a_line(tmp_path: Path) -> None:
    problems = [Problem("wrong", "a", str(tmp_path / "none.yml"), 1), Problem("wrong")]
    assert columns_of(problems) == [None, None]
