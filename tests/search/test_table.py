"""Nobody trusts the table of a search that is old or missing: what it says stands in the journal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from execution.folders import environment_now
from search.searches import GATED, search_design, tuned

from palaestrai_mosaik.analysis.results import Results
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.design.load import load
from palaestrai_mosaik.design.search_journal import read_settings, record_of
from palaestrai_mosaik.design.settings_table import read_table
from palaestrai_mosaik.search import search_result
from palaestrai_mosaik.search.retries import marked_settings
from palaestrai_mosaik.search.search import open_search

pytest.importorskip("optuna")

TABLE = Path("f/search/settings.csv")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pruning(runs=24):
    search = {"sampler": "random", "budget": {"runs": runs}, "seeds_per_setting": 2, "prune": "median"}
    return search_design(search=search, episodes=4, noise=0.3)


def status(capsys):
    capsys.readouterr()
    assert main(["status", "f", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def of_optuna():
    """Return the settings of the journal as Optuna reads it."""
    journal = open_search(load("f/design.yml"), Path("f"))
    return [record_of(trial, marked_settings(journal)) for trial in journal.trials()]


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
    records = read_settings(Path("f"))
    assert records == of_optuna() == read_table(Path("f"))
    assert len({record.state for record in records}) > len(records) // 20


@pytest.mark.parametrize("table", [None, 0, 3])
def test_an_old_table_changes_nothing(table, capsys):
    """The table is missing, or has no more than ``table`` settings."""
    tuned(pruning())
    spec = load("f/design.yml")
    before, result, runs = status(capsys), search_result(spec, Path("f")), Results("f").runs()
    assert {"complete", "pruned"} == set(before["settings"]) and "skipped" in before["counts"]
    lines = TABLE.read_text().splitlines(keepends=True)
    if table is None:
        TABLE.unlink()
    else:
        # as it was when the last of these settings was executed
        old = [line.replace(",complete,", ",running,").replace(",pruned,", ",running,") for line in lines]
        TABLE.write_text("".join(old[: table + 1]))
    assert status(capsys) == before
    assert search_result(spec, Path("f")) == result
    assert Results("f").runs().equals(runs)
    # the next execution makes it again
    assert main(["resume", "f", "--executor", "inline", "--quiet"]) == 0
    assert TABLE.read_text() == "".join(lines)


def test_status_needs_no_optuna(capsys):
    tuned(pruning(8))
    before = status(capsys)
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
    rows = len(read_settings(Path("f")))
    tuned(pruning(12))
    for name, data in old.items():
        Path("f", name).write_bytes(data)
    found = search_result(load("f/design.yml"), Path("f"))
    assert found.best and all(one.number < rows for one in found.best)
