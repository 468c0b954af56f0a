"""The commands of ``palaestrai-mosaik`` and ``arsenai``, called in this process."""

import json
import re
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
import yaml

from palaestrai_mosaik import __version__
from palaestrai_mosaik.cli import arsenai
from palaestrai_mosaik.cli.common import index_ranges, moment
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.store import Store

ROOT = Path(__file__).parents[2]
DUMMY = ROOT / "scenarios" / "dummy.yml"

RAISING_MUSCLE = """
from palaestrai_mosaik.agent import Muscle

class Raising(Muscle):
    steps = 0

    def propose_actions(self, sensors, actuators_available):
        self.steps += 1
        if self.steps > 4:
            raise ValueError("cannot think of anything")
        for actuator in actuators_available:
            actuator.value = 1
        return actuators_available, None

class OutOfSpace(Raising):
    def propose_actions(self, sensors, actuators_available):
        for actuator in actuators_available:
            actuator.value = 1000
        return actuators_available, None
"""


def dummy_with(path, **replaced):
    """Write the dummy document with some text replaced, and return its path."""
    text = DUMMY.read_text()
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return str(path)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with one run of the dummy document."""
    location = tmp_path_factory.mktemp("cli") / "store"
    assert main(["start", str(DUMMY), "--store", str(location), "--quiet"]) == 0
    return location


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """An empty working directory, with a module of failing muscles."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    Path("failing_muscles.py").write_text(RAISING_MUSCLE)
    yield tmp_path
    sys.modules.pop("failing_muscles", None)


def rows_of(output, title):
    """Return the cells of the rows below the section ``title``, up to an empty line."""
    lines = output.split("\n")
    start = lines.index(title) + 2
    end = lines.index("", start) if "" in lines[start:] else len(lines)
    return [re.split(r"\s{2,}", line.strip()) for line in lines[start:end]]


def test_start_tells_what_happened_where_the_results_are_and_what_is_next(workplace, capsys):
    assert main(["start", str(DUMMY)]) == 0
    out, err = capsys.readouterr()
    with Store("palaestrai-results", create=False) as opened:
        uid = opened.find_run("latest")
    seconds = r"(\d+\.\d\d) s"
    took, setting_up = re.match(
        rf"run 'dummy': finished in {seconds}, after {seconds} of set-up\n", out
    ).groups()
    train, test = [line.split() for line in out.split("\n") if line.startswith(("  train", "  test"))]
    assert train[:3] == ["train", "3", "30"]
    assert test[:3] == ["test", "1", "10"]
    # four and a half is the mean of 1, 2, ..., 9, 0; taking turns, one agent gets 1, 3, ..., 9
    assert train[4:7] == ["all", "episodes", "done"]
    assert train[8:] == ["mighty_defender", "4.5,", "evil_attacker", "4.5"]
    assert test[8:] == ["mighty_defender", "5,", "evil_attacker", "4"]
    assert f"instance {uid}, results in {workplace / 'palaestrai-results'}" in out
    assert out.endswith(f"next: palaestrai-mosaik show {uid}\n")
    # the run is recorded within the time of the command, rounded
    assert main(["show", uid]) == 0
    recorded = re.search(rf", took {seconds}\n", capsys.readouterr().out)[1]
    assert 0 < float(recorded) <= float(took) + float(setting_up) + 0.02
    assert "phase train: 1 worker, 3 episodes" in err


def test_the_next_command_names_a_store_that_is_not_the_usual_one(workplace, capsys, monkeypatch):
    assert main(["start", str(DUMMY), "--store", "elsewhere"]) == 0
    out = capsys.readouterr().out
    assert out.rstrip().endswith(" --store elsewhere")
    monkeypatch.setenv("PALAESTRAI_MOSAIK_STORE", "elsewhere")
    assert main(out.split("next: palaestrai-mosaik ")[1].split()) == 0
    assert main(["start", str(DUMMY)]) == 0
    assert "--store" not in capsys.readouterr().out.rpartition("next:")[2]
    assert not Path("palaestrai-results").exists()


def test_nothing_is_written_without_a_store(workplace, capsys):
    before = sorted(Path().iterdir())
    assert main(["start", str(DUMMY), "--no-store"]) == 0
    assert "instance" not in capsys.readouterr().out
    assert sorted(Path().iterdir()) == before


def test_start_reports_all_problems_of_all_documents_and_runs_none(workplace, capsys):
    one = dummy_with(
        workplace / "one.yml", **{"seed: 42": "seed: no", "max_iter: 10": "max_iter: 10, max_iter: 1"}
    )
    other = dummy_with(workplace / "other.yml", **{"mode: test": "mode: tets"})
    assert main(["start", one, str(DUMMY), other]) == 2
    out, err = capsys.readouterr()
    lines = err.rstrip().split("\n")
    assert out == ""
    assert [line.split(":")[0] for line in lines] == [one, one, other]
    assert "seed" in lines[0] + lines[1]
    assert "max_iter" in lines[0] + lines[1]
    assert "did you mean 'test'?" in err
    assert not Path("palaestrai-results").exists()


def test_what_only_environments_know_is_found_before_anything_runs(workplace, capsys):
    path = dummy_with(workplace / "run.yml", **{"sensors: [myenv.0,": "sensors: [myenv.00,"})
    assert main(["start", path]) == 2
    err = capsys.readouterr().err
    assert re.match(rf"{re.escape(path)}:\d+: .*no sensor 'myenv.00'.*myenv.0", err)
    with Store("palaestrai-results", create=False) as opened:
        assert opened.runs().empty


def test_a_raising_muscle_gives_exit_code_1_and_its_traceback(workplace, capsys):
    path = dummy_with(
        workplace / "run.yml",
        **{"muscle: dummy": "muscle: failing_muscles:Raising"},
    )
    assert main(["start", path]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    with Store("palaestrai-results", create=False) as opened:
        (uid, status) = opened.runs().loc[0, ["run", "status"]]
        (error,) = opened.errors(uid).itertuples()
    assert status == "failed"
    assert error.kind == "ValueError"
    assert "in propose_actions" in error.traceback
    told = err[err.index("Traceback") :].split("\n")
    # from the user's own code on, without the frames of the engine above it
    assert "failing_muscles.py" in told[1]
    assert "simulation/" not in "".join(told[1:])
    assert "ValueError: cannot think of anything" in told
    assert f"run 'dummy' ({path}) failed: ValueError: cannot think of anything" in err
    assert err.rstrip().endswith(f"see: palaestrai-mosaik show {uid}")
    assert main(["show", uid]) == 0
    shown = capsys.readouterr().out
    assert "status    failed" in shown
    assert "ValueError: cannot think of anything" in shown
    assert main(["list"]) == 0
    assert "ValueError: cannot think of anything" in capsys.readouterr().out


def test_our_own_errors_are_one_line_without_a_traceback(workplace, capsys):
    path = dummy_with(
        workplace / "run.yml",
        **{"muscle: dummy": "muscle: failing_muscles:OutOfSpace"},
    )
    assert main(["start", path, "--quiet"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "myenv.0" in err
    assert "1000" in err
    assert "Discrete(100)" in err


def test_a_failed_run_does_not_keep_the_next_one_from_running(workplace, capsys):
    bad = dummy_with(
        workplace / "bad.yml",
        **{"muscle: dummy": "muscle: failing_muscles:Raising"},
    )
    assert main(["start", bad, str(DUMMY)]) == 1
    out, err = capsys.readouterr()
    assert "run 'dummy': finished" in out
    assert err.rstrip().endswith("1 of 2 runs finished")


def test_check_prints_the_cascaded_phases(capsys):
    assert main(["check", str(DUMMY)]) == 0
    out, err = capsys.readouterr()
    assert "phase 1 'test': test, 1 worker, 1 episode" in out
    assert out.rstrip().endswith(f"{DUMMY}: sound")
    assert err == ""


def test_check_leaves_environments_alone_if_told_so(workplace, capsys):
    path = dummy_with(workplace / "run.yml", **{"sensors: [myenv.0,": "sensors: [myenv.00,"})
    assert main(["check", path]) == 2
    err = capsys.readouterr().err
    assert "no sensor 'myenv.00'" in err
    assert err.rstrip().endswith("1 problem")
    assert main(["check", path, "--no-environments"]) == 0
    assert "environments not checked" in capsys.readouterr().out


def test_check_still_imports_classes_without_environments(workplace, capsys):
    path = dummy_with(workplace / "run.yml", **{"objective: dummy": "objective: dumy"})
    assert main(["check", path, "--no-environments"]) == 2
    assert "did you mean 'dummy'?" in capsys.readouterr().err


def test_warnings_go_to_standard_error(workplace, capsys):
    path = dummy_with(workplace / "run.yml", **{"seed: 42": 'seed: 42\nversion: "3.4"'})
    assert main(["check", path]) == 0
    assert re.search(r"^warning: .*3\.4", capsys.readouterr().err, re.MULTILINE)


def test_the_schema_is_a_schema_that_the_dummy_document_keeps(capsys):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed (extra 'test')")
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    document = yaml.safe_load(DUMMY.read_text())
    assert list(validator(schema).iter_errors(document)) == []
    document["seed"] = "many"
    assert list(validator(schema).iter_errors(document))


def test_list_has_a_line_per_run_the_newest_last(store, tmp_path, capsys):
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    other = dummy_with(tmp_path / "other.yml", **{"uid: dummy": "uid: another one"})
    assert main(["start", other, "--store", str(copy), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["list", "--store", str(copy)]) == 0
    header, first, second = capsys.readouterr().out.rstrip().split("\n")
    assert header.split() == [
        "run",
        "document",
        "status",
        "started",
        "duration",
        "phases",
        "episodes",
        "steps",
        "objective",
        "of",
    ]
    assert re.match(r"20\d{6}T\d{6}\S*  dummy        finished  20\d\d-", first)
    assert re.search(r"  another one  finished .* 2 +4 +40 +5 +mean of mighty_defender$", second)
    # the short id that is shown is enough to find the run
    assert main(["show", second.split()[0], "--store", str(copy)]) == 0
    assert "another one" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 days", timedelta(days=2)),
        ("1day", timedelta(days=1)),
        ("90 min", timedelta(minutes=90)),
        ("90 minutes ago", timedelta(minutes=90)),
        ("1.5h", timedelta(hours=1.5)),
        ("3 w", timedelta(weeks=3)),
        ("30 seconds", timedelta(seconds=30)),
    ],
)
def test_a_time_may_be_how_long_ago(text, expected):
    assert abs(datetime.now(UTC) - moment(text) - expected) < timedelta(seconds=5)


def test_a_time_may_be_a_date():
    assert moment("2026-01-31") == datetime(2026, 1, 31).astimezone()
    assert moment("2026-01-31 12:30+02:00") == datetime(2026, 1, 31, 10, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2 moons", "2 m", "days", "-1 day", "2026-13-01", "9" * 20 + " d"]
)
def test_what_is_no_time_is_refused_with_what_is_one(text, capsys):
    assert main(["list", f"--since={text}"]) == 2
    assert "write a date (2026-01-31 or '2026-01-31 12:00') or how long ago" in capsys.readouterr().err


def test_list_since(store, capsys):
    for since, runs in (("1 hour", 1), ("0 s", 0), ("2100-01-01", 0)):
        assert main(["list", "--store", str(store), "--since", since, "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)) == runs
    assert main(["list", "--store", str(store), "--since", "0 s"]) == 0
    assert capsys.readouterr().out.startswith("no such runs in ")


def test_an_empty_store_has_no_runs(tmp_path, capsys):
    Store(tmp_path / "empty", create=True).close()
    assert main(["list", "--store", str(tmp_path / "empty")]) == 0
    assert capsys.readouterr().out == f"no runs in {tmp_path / 'empty'}\n"


def test_show_has_phases_episodes_and_outcomes(store, capsys):
    assert main(["show", "dummy", "--store", str(store)]) == 0
    out = capsys.readouterr().out
    assert rows_of(out, "phases") == [
        ["0", "train", "train", "vanilla", "1", "3 of 3", "30", "all episodes done (VanillaRunGovernor)"],
        ["1", "test", "test", "taking_turns", "1", "1 of 1", "10", "all episodes done (VanillaRunGovernor)"],
    ]
    ended = "environment ended (Environment)"
    assert rows_of(out, "episodes of phase 1 'test'") == [
        ["0", "10", ended, "mighty_defender", "5", "25", "1", "9", "5"],
        ["evil_attacker", "4", "20", "0", "8", "4"],
    ]
    assert len(rows_of(out, "episodes of phase 0 'train'")) == 6
    with Store(store, create=False) as opened:
        streams = opened.streams("dummy")
    digest = streams.loc[streams["name"] == "myenv", "digest"].iloc[0]
    assert digest[:16] in out


def test_show_can_be_narrowed_to_a_phase_and_an_agent(store, capsys):
    arguments = ["show", "dummy", "--phase", "test", "--agent", "evil_attacker", "--store", str(store)]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "mighty_defender" not in out.partition("recorded")[0]
    assert "phase 0" not in out
    assert [row[3] for row in rows_of(out, "episodes of phase 1 'test'")] == ["evil_attacker"]


def test_show_steps_shows_the_first_and_last_ones(store, capsys):
    assert main(["show", "dummy", "--phase", "0", "--steps", "2", "--store", str(store)]) == 0
    out = capsys.readouterr().out
    section = out.split("steps of agent 'evil_attacker' in phase 0 'train' (30 rows)\n")[1].split("\n\n")[0]
    rows = {line.split("  ")[1].strip(): line.split()[-5:] for line in section.split("\n")}
    assert rows["episode"] == ["0", "0", "...", "2", "2"]
    assert rows["time"] == ["0", "1", "...", "8", "9"]
    assert rows["reading.myenv.5"] == ["0", "1", "...", "8", "9"]
    assert rows["objective"] == ["1", "2", "...", "9", "0"]


def test_many_episodes_are_cut_in_the_middle(workplace, capsys):
    path = dummy_with(workplace / "run.yml", **{"episodes: 3}": "episodes: 20}"})
    assert main(["start", path, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["show", "latest", "--phase", "0", "--agent", "evil_attacker"]) == 0
    rows = rows_of(capsys.readouterr().out, "episodes of phase 0 'train'")
    assert [row[0] for row in rows[:6]] == list("012345")
    assert rows[6] == ["... 8 more episodes"]
    assert [row[0] for row in rows[7:]] == ["14", "15", "16", "17", "18", "19"]


def test_evaluations_say_after_how_many_training_episodes_they_ran(workplace, capsys):
    changed = {"episodes: 3}": "episodes: 30, evaluate_every: 2}"}
    assert main(["start", dummy_with(workplace / "run.yml", **changed), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["show", "latest", "--phase", "0", "--agent", "evil_attacker"]) == 0
    out = capsys.readouterr().out
    rows = rows_of(out, "evaluations of phase 0 'train'")
    assert [row[:3] for row in rows[:2]] == [["0", "2", "10"], ["1", "4", "10"]]
    assert rows[6] == ["... 3 more episodes"] and rows[-1][:2] == ["14", "30"]
    assert out.count("after episodes") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "dumny"], "did you mean 'dummy'?"),
        (["show", "dummy", "--phase", "trian"], "did you mean 'train'?"),
        (["show", "dummy", "--agent", "evil_attaker"], "did you mean 'evil_attacker'?"),
        (["plot", "dummy", "--episode", "7", "--sensors", "*"], "it has 0 to 0"),
        (
            ["plot", "dummy", "--sensors", "myenv.zero", "--output", "x.png"],
            "has nothing that matches 'myenv.zero'",
        ),
        (["plot", "dummy", "--output", "x.gif"], "must end with .png, .svg, .pdf"),
        (["plot", "dummy", "--limits", "0,1"], "--limits has no meaning for a plot without --sensors"),
        (["plot", "dummy", "--learning", "--no-limits"], "--no-limits has no meaning for --learning"),
        (["plot", "dummy", "--sensors", "*", "--limits", "0,1", "0,2"], "must be one pair, found 2 pairs"),
        (["export", "nothing", "there"], "has no run 'nothing'"),
    ],
)
def test_wrong_names_are_one_line_with_what_there_is(store, workplace, capsys, arguments, said):
    assert main([*arguments, "--store", str(store)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("palaestrai-mosaik: ")
    assert said in err
    assert err.count("\n") == 1


def test_commands_that_read_do_not_make_a_store(workplace, capsys):
    for command in (["list"], ["show", "latest"], ["plot", "latest"], ["export", "latest", "there"]):
        assert main(command) == 2
        assert "there is no store at" in capsys.readouterr().err
    assert sorted(p.name for p in Path().iterdir()) == ["failing_muscles.py"]


@pytest.mark.parametrize(
    "arguments", [[], ["strat"], ["start"], ["show"], ["start", "x", "--store", "a", "--no-store"]]
)
def test_wrong_usage_is_exit_code_2(arguments, capsys):
    assert main(arguments) == 2
    assert "usage: palaestrai-mosaik" in capsys.readouterr().err


def test_export_writes_what_pandas_reads(store, workplace, capsys):
    assert main(["export", "dummy", "there", "--format", "csv", "--store", str(store)]) == 0
    assert re.search(r"\d+ files, [\d.]+ (bytes|kB), in there$", capsys.readouterr().out.rstrip())
    frame = pd.read_csv("there/trajectories/phase-0/agent-evil_attacker.csv")
    assert frame["reading.myenv.5"].tolist() == [*range(10)] * 3
    assert main(["export", "dummy", "there", "--store", str(store)]) == 2
    assert "not empty" in capsys.readouterr().err


def test_plot_prints_the_name_of_its_picture(store, workplace, capsys):
    assert main(["plot", "dummy", "--store", str(store)]) == 0
    path = Path(capsys.readouterr().out.rstrip("\n"))
    assert re.fullmatch(r"dummy-20\d{6}T\d{6}\.png", str(path))
    assert path.read_bytes().startswith(b"\x89PNG")
    for fold, title in (("sum", "Sum of the objective in each"), ("mean", "Mean of the objective in each")):
        assert main(["plot", "dummy", "--objective", fold, "--output", "x.svg", "--store", str(store)]) == 0
        assert title in Path("x.svg").read_text()


@pytest.mark.parametrize("wrong", ["1.1", "1.1,0.9", ",", "a,b", "nan,1", "0,inf", "1,2,3"])
def test_limits_that_are_none_are_wrong_usage(capsys, wrong):
    assert main(["plot", "dummy", "--sensors", "*", "--limits", wrong]) == 2
    assert f"must be LOW,HIGH such as 0.9,1.1, or one of the two such as ,80, not '{wrong}'" in (
        capsys.readouterr().err
    )


def test_limits_are_drawn_or_not(store, workplace, capsys):
    def drawn(*options):
        arguments = ["plot", "dummy", "--sensors", "myenv.?", "--output", "x.svg", "--store", str(store)]
        assert main([*arguments, *options]) == 0
        text = Path("x.svg").read_text()
        # matplotlib draws text as paths, and leaves the text in a comment
        return [name for name in re.findall("<!-- (.*?) -->", text) if re.match("limit|bound", name)]

    assert drawn() == ["bounds 0 and 10"]
    assert drawn("--limits", "2,8") == ["limits 2 and 8"]
    assert drawn("--limits", ",8") == ["limit 8"]
    assert drawn("--limits=-1,8") == ["limits -1 and 8"]
    assert drawn("--no-limits") == []


def test_graph_prints_or_draws(workplace, capsys):
    assert main(["graph", str(DUMMY)]) == 0
    text = capsys.readouterr().out
    assert "--> agent-1.evil_attacker" in text
    assert main(["graph", str(DUMMY), "--output", "world.txt"]) == 0
    assert Path("world.txt").read_text() == text
    assert main(["graph", str(DUMMY), "--phase", "test", "--output", "world.svg"]) == 0
    assert ElementTree.parse("world.svg").getroot().tag.endswith("svg")
    assert main(["graph", str(DUMMY), "--phase", "tset"]) == 2
    assert "did you mean 'test'?" in capsys.readouterr().err


def test_graph_says_what_the_document_names_wrongly(workplace, capsys):
    path = dummy_with(workplace / "run.yml", **{"sensors: [myenv.0,": "sensors: [myenv.00,"})
    assert main(["graph", path]) == 2
    assert re.match(rf"{re.escape(path)}:\d+: .*no sensor 'myenv.00'", capsys.readouterr().err)


def test_version_and_help(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"palaestrai-mosaik {__version__}\n"
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for command in ("start", "check", "schema", "list", "show", "plot", "export", "graph"):
        assert re.search(rf"^ +{command} ", out, re.MULTILINE)


def test_arsenai_has_a_version_and_help(capsys):
    assert arsenai.main(["--version"]) == 0
    assert capsys.readouterr().out == f"arsenai {__version__}\n"
    assert arsenai.main(["--help"]) == 0
    out = capsys.readouterr().out
    commands = ("plan", "generate", "schema", "run", "resume", "status", "analyse", "compare", "report")
    for command in commands:
        assert re.search(rf"^ +{command} ", out, re.MULTILINE)


@pytest.mark.parametrize(("text", "numbers"), [("3", [3]), ("0-2,7", [0, 1, 2, 7]), (" 4 , 6-6", [4, 6])])
def test_rows_are_numbers_and_ranges(text, numbers):
    assert [number for part in index_ranges(text) for number in part] == numbers


@pytest.mark.parametrize("text", ["", "a", "3-1", "-1", "1-", "1,,2", "1-2-3"])
def test_rows_that_are_none_are_refused(text, capsys):
    assert arsenai.main(["run", "folder", f"--rows={text}"]) == 2
    assert "is no number and no range such as 0-9" in capsys.readouterr().err
