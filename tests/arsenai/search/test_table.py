"""Nobody trusts the table of a search that is old or missing: what it says stands in the journal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from arsenai.execution.folders import environment_now
from arsenai.search.searches import GATED, answered, pruning, search_design, tuned

from palaestrai_mosaik.arsenai.analysis.results import Results
from palaestrai_mosaik.arsenai.design import settings
from palaestrai_mosaik.arsenai.design.load import load
from palaestrai_mosaik.arsenai.design.settings import read_journal, read_table
from palaestrai_mosaik.arsenai.search import search_result
from palaestrai_mosaik.arsenai.search.search import open_search
from palaestrai_mosaik.arsenai.search.settings import Trials
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.core.errors import ExecutionError

pytest.importorskip("optuna")

TABLE = Path("f/search/settings.csv")


def of_optuna():
    """Return the settings of the journal as Optuna reads it."""
    journal = open_search(load("f/design.yml"), Path("f"))
    return Trials.of(journal).records()


def front():
    """Return a search with two objectives."""
    objectives = {"y": {"of": "reward.y", "step": "mean", "better": "lower"}}
    objectives["length"] = {"of": "steps", "better": "higher"}
    search = {"sampler": "random", "budget": {"runs": 6}, "objectives": ["y", "length"]}
    return search_design(search=search, outcomes=objectives)


def retried():
    """Execute a search of which settings fail, and try them again."""
    search = {"sampler": "random", "budget": {"runs": 4}}
    design = search_design(muscle=GATED, steps=4, search=search)
    tuned(design, code=1)
    Path("mended").touch()
    tuned(design, "f", "--retry-failed")


@pytest.mark.parametrize("search", [lambda: tuned(pruning()), lambda: tuned(front()), retried])
def test_the_journal_is_read_as_optuna_reads_it(search):
    search()
    records = list(read_journal(Path("f")).settings)
    assert records == of_optuna() == read_table(Path("f"))
    assert len({record.state for record in records}) > len(records) // 20


@pytest.mark.parametrize("table", [None, 0, 3])
def test_an_old_table_changes_nothing(table, capsys):
    """The table is missing, or has no more than ``table`` settings."""
    tuned(pruning())
    spec = load("f/design.yml")
    before, result, runs = (
        answered(capsys, "status", "f"),
        search_result(spec, Path("f")),
        Results("f").runs(),
    )
    assert {"complete", "pruned"} == set(before["settings"]) and "skipped" in before["counts"]
    lines = TABLE.read_text().splitlines(keepends=True)
    if table is None:
        TABLE.unlink()
    else:
        # as it was when the last of these settings was executed
        old = [line.replace(",complete,", ",running,").replace(",pruned,", ",running,") for line in lines]
        TABLE.write_text("".join(old[: table + 1]))
    assert answered(capsys, "status", "f") == before
    assert search_result(spec, Path("f")) == result
    assert Results("f").runs().equals(runs)
    # the next execution makes it again
    assert main(["resume", "f", "--executor", "inline", "--quiet"]) == 0
    assert TABLE.read_text() == "".join(lines)


def test_status_needs_no_optuna(capsys):
    tuned(pruning(8))
    before = answered(capsys, "status", "f")
    TABLE.unlink()
    code = (
        "import sys; sys.modules['optuna'] = None\n"
        "from palaestrai_mosaik.cli.arsenai import main; sys.exit(main(['status', 'f', '--json']))"
    )
    call = [sys.executable, "-c", code]
    ended = subprocess.run(call, capture_output=True, text=True, env=environment_now(), check=True)
    assert {**json.loads(ended.stdout), "search_over": before["search_over"]} == before


def test_settings_that_the_folder_does_not_have_yet_are_left_out_of_the_best():
    tuned(pruning(6))
    old = {
        name: Path("f", name).read_bytes()
        for name in ("design.csv", "unit_sample.csv", "SHA256SUMS", "manifest.json")
    }
    rows = len(read_journal(Path("f")).settings)
    tuned(pruning(12))
    for name, data in old.items():
        Path("f", name).write_bytes(data)
    found = search_result(load("f/design.yml"), Path("f"))
    assert found.best and all(one.number < rows for one in found.best)


def entries():
    """Return the lines of a journal with a pruned and a complete setting."""
    time = "2026-11-28T12:00:00+00:00"
    setting = {"unit": [0.5], "name": [], "first": 0, "hash": "h", "values": "v", "rejected": 0}
    setting |= {"worker": "here", "asked": time}
    run = {"run": "r", "instance": "i", "status": "finished", "steps": 4, "started": time, "ended": time}
    of = {"op_code": 8, "trial_id": 0}
    return [
        {"op_code": 0, "study_name": "valley", "directions": [1]},
        {"op_code": 4, "study_id": 0, "datetime_start": time},
        {**of, "user_attr": {"setting": setting}},
        {"op_code": 7, "trial_id": 0, "step": 0, "intermediate_value": 1.0},
        {**of, "user_attr": {"runs": [{**run, "outcomes": {"y": 1.0}, "reports": 1}]}},
        {**of, "user_attr": {"stopped": {"report": 0, "value": 1.0}, "reason": "r", "retries": 0}},
        {"op_code": 6, "trial_id": 0, "state": 1, "values": [1.0], "datetime_complete": time},
        {"op_code": 2, "study_id": 0, "user_attr": {"retry": {"0": time}}},
    ]


def journal_of(lines):
    file = Path("f/search/journal.log")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return file


@pytest.mark.parametrize(
    ("number", "keys", "value"),
    [
        (0, (), []),
        (0, ("op_code",), 1),
        (0, ("directions",), None),
        (1, ("datetime_start",), "yesterday"),
        (1, ("datetime_start",), "0001-01-01"),
        (2, ("user_attr",), [1]),
        (2, ("trial_id",), -1),
        (2, ("user_attr", "setting"), "0"),
        (2, ("user_attr", "setting", "first"), "zero"),
        (2, ("user_attr", "setting", "unit"), [float("inf")]),
        (3, ("step",), 0.5),
        (3, ("intermediate_value",), float("nan")),
        (4, ("user_attr", "runs"), 7),
        (4, ("user_attr", "runs", 0, "steps"), 10**30),
        (4, ("user_attr", "runs", 0, "started"), "2026-11-28"),
        (4, ("user_attr", "runs", 0, "outcomes"), {"y": "one"}),
        (5, ("user_attr", "stopped"), {"report": "last"}),
        (5, ("user_attr", "retries"), "0"),
        (6, ("state",), 9),
        (6, ("values",), [float("inf")]),
        (6, ("values",), [1.0, 2.0]),
        (6, ("values",), None),
        (7, ("user_attr", "retry"), {"first": ""}),
    ],
    ids=str,
)
def test_a_line_of_a_wrong_shape_is_named_with_its_file_and_number(number, keys, value, monkeypatch):
    monkeypatch.setattr(settings, "_PAUSES", ())
    lines = entries()
    journal_of(lines)
    assert [setting.state for setting in read_journal(Path("f")).settings] == ["retried"]
    changed = lines[number]
    for key in keys[:-1]:
        changed = changed[key]
    if keys:
        changed[keys[-1]] = value
    else:
        lines[number] = value
    journal_of(lines)
    with pytest.raises(
        ExecutionError, match=rf"journal\.log:{number + 1}: this line of the search's journal is damaged"
    ):
        read_journal(Path("f"))


def test_commands_name_a_line_of_a_wrong_shape(capsys):
    tuned(pruning(4))
    journal = Path("f/search/journal.log")
    text = journal.read_text()
    assert '"steps":4' in text
    number = 1 + next(n for n, line in enumerate(text.splitlines()) if '"steps":4' in line)
    journal.write_text(text.replace('"steps":4', '"steps":"4"', 1))
    for command in ("status", "analyse", "resume"):
        assert main([command, "f"]) == 2
        said = capsys.readouterr().err
        assert f"journal.log:{number}: this line" in said and "Traceback" not in said


def test_a_line_that_is_being_written_is_read_again(monkeypatch):
    """Over NFS, a reader may see the new size of a file before its content."""
    file = journal_of(entries())
    whole = file.read_bytes()
    half = whole[:-20] + b"\0" * 19 + b"\n"
    file.write_bytes(half)
    monkeypatch.setattr(settings.time, "sleep", lambda seconds: file.write_bytes(whole))
    assert [setting.state for setting in read_journal(Path("f")).settings] == ["retried"]
    monkeypatch.setattr(settings.time, "sleep", lambda seconds: None)
    file.write_bytes(half)
    with pytest.raises(ExecutionError, match=r"journal\.log:8: "):
        read_journal(Path("f"))
    # an unfinished line is no damage
    file.write_bytes(whole[:-20])
    assert [setting.state for setting in read_journal(Path("f")).settings] == ["complete"]
