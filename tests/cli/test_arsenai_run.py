"""What ``arsenai run``, ``resume`` and ``status`` take and tell."""

from __future__ import annotations

import dataclasses
import json

import pytest
from arsenai.execution.folders import make_folder

from palaestrai_mosaik.arsenai.design.vocabulary import EXECUTION
from palaestrai_mosaik.arsenai.execution import Settings
from palaestrai_mosaik.arsenai.execution.executor import classes_to_preload
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.core.errors import DocumentError, ExecutionError

INLINE = ("--executor", "inline")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def called(capsys, *arguments):
    """Return the exit code of a command, and what it has printed."""
    code = main(arguments)
    return code, *capsys.readouterr()


def test_the_only_design_folder_is_meant(here, capsys):
    code, out, err = called(capsys, "run", *INLINE)
    assert (code, out) == (2, "")
    assert "there is no design folder here or in _outputs" in err
    make_folder(here / "_outputs" / "one", ["well", "well"])
    code, out, err = called(capsys, "run", *INLINE, "--rows", "0")
    assert code == 0
    assert out.splitlines()[-2:] == ["1 of 1 run finished", "next: arsenai analyse _outputs/one"]
    make_folder(here / "two", ["well", "well"])
    code, out, err = called(capsys, "status")
    assert code == 2
    assert "name one: _outputs/one, two" in err


def test_failures_are_listed_with_their_factors(here, capsys):
    make_folder(here / "f", ["raise", "well", "raise"], repetitions=2)
    code, out, _ = called(capsys, "run", "f", *INLINE)
    assert code == 1
    lines = out.splitlines()
    assert lines[0].startswith("runs: 4 failed, 2 finished, in ")
    assert lines[1:3] == ["failed:", lines[2]]
    assert [line.split()[0] for line in lines[3:7]] == [f"doing-{i}-r{j}" for i in (0, 2) for j in (0, 1)]
    assert [line.split()[1] for line in lines[3:7]] == [*["doing=raise-0"] * 2, *["doing=raise-2"] * 2]
    assert "ValueError: number 2 has had enough" in lines[6]
    assert lines[6].endswith("f/jobs/doing-2-r1.log")
    assert lines[7:] == ["2 of 6 runs finished", "to go on: arsenai resume f"]

    # what failed is left out, and said to be
    code, out, _ = called(capsys, "run", "f", *INLINE)
    assert code == 1
    assert "left out: 2 runs that finished before" in out
    assert "left out: 4 runs that failed before" in out
    _, out, _ = called(capsys, "resume", "f", *INLINE, "--rows", "2", "--failed")
    assert "runs: 2 failed" in out


def test_status_tells_people_and_programs(here, capsys):
    make_folder(here / "f", ["raise", "well", "well"])
    main(["run", "f", *INLINE, "--rows", "0-1"])
    capsys.readouterr()
    code, out, err = called(capsys, "status", "f", "--json")
    told = json.loads(out)
    assert (code, told["design"], told["runs"], told["documents"]) == (0, "doing", 3, 3)
    assert told["counts"] == {"waiting": 1, "finished": 1, "failed": 1}
    (failed,) = told["failed"]
    assert failed["run"] == "doing-0-r0"
    assert failed["error"] == "ValueError: number 0 has had enough"
    assert told["running"] == []
    assert told["seconds_left"] == pytest.approx(told["seconds_per_run"] / told["processes"])
    code, out, err = called(capsys, "status", "f")
    assert (code, err) == (0, "")
    assert "ValueError: number 0 has had enough" in out
    assert out.splitlines()[0].endswith(": 3 runs, of which")


def test_another_store_is_another_place_for_results(here, capsys):
    make_folder(here / "f", ["well", "well"])
    assert main(["run", "f", *INLINE, "--store", "elsewhere"]) == 0
    assert "next: arsenai analyse f --store elsewhere" in capsys.readouterr().out
    assert (here / "elsewhere" / "store.db").exists()
    assert not (here / "f" / "results").exists()
    assert main(["status", "f", "--store", "elsewhere", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"finished": 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rows", "0-7"), "the design has no row 7: it has rows 0 to 1"),
        (("--rows", "0-99999999999999"), "the design has no row 99999999999999"),
    ],
)
def test_rows_that_there_are_not(here, capsys, arguments, message):
    make_folder(here / "f", ["well", "well"])
    code, out, err = called(capsys, "run", "f", *INLINE, *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_the_design_says_how_unless_the_command_does(here):
    assert Settings.of({"jobs": 3, "timeout": 60}, jobs=None, timeout=0) == Settings(jobs=3, timeout=0)
    with pytest.raises(DocumentError, match=r"'jbos' in execution \(did you mean 'jobs'\?\)"):
        make_folder(here / "g", ["well", "well"], jbos=3)


def test_a_design_may_say_all_that_there_is_to_execution():
    assert {field.name for field in dataclasses.fields(Settings)} == set(EXECUTION.keys)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"jobs": 0}, "jobs must be an integer of at least 1, found the number 0"),
        ({"jobs": True}, "jobs must be an integer"),
        ({"runs_per_process": 1.5}, "runs_per_process must be an integer"),
        ({"timeout": -1}, "timeout must be 0 or a number of seconds, found the number -1"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"checkpoint_every": None}, "checkpoint_every must be"),
        ({"executor": "slrum"}, "executor is the string 'slrum' .did you mean 'slurm'"),
        ({"fail_fast": 1}, "fail_fast must be"),
    ],
)
def test_settings_that_mean_nothing(given, message):
    with pytest.raises(ExecutionError, match=message):
        Settings(**given)


def test_only_classes_of_this_package_that_start_fast_are_prepared():
    grid = {"name": "palaestrai_mosaik.environment.grid.environment:GridEnvironment"}
    design = {
        "base": [
            {"name": "palaestrai.agent:DummyMuscle"},
            {"name": "palaestrai_mosaik.agent.library.sb3:SB3Brain"},
        ],
        "x": {"environment": {**grid, "params": {"steps": 3}}},
        "again": [{**grid, "params": {"steps": 3}}, {**grid, "params": {"steps": 4}}],
        "y": (
            {"name": "mine.of:Environment"},
            {"name": "palaestrai_mosaik.agent.filters:NormFilter", "params": None},
        ),
        "z": {"name": "palaestrai_mosaik.cli.main:main"},
        # by their short names
        "short": {
            "environments": [{"environment": {"name": "grid", "params": {"steps": 5}}}],
            "agents": [{"name": "grid", "brain": {"name": "ppo"}, "filters": [{"name": "delay"}]}],
        },
    }
    where = "palaestrai_mosaik.environment.grid.environment"
    assert classes_to_preload(design) == [
        ("palaestrai_mosaik.agent.filters", "DelayFilter", {}),
        ("palaestrai_mosaik.agent.filters", "NormFilter", {}),
        ("palaestrai_mosaik.agent.library.dummy", "DummyMuscle", {}),
        (where, "GridEnvironment", {"steps": 3}),
        (where, "GridEnvironment", {"steps": 4}),
        (where, "GridEnvironment", {"steps": 5}),
    ]
