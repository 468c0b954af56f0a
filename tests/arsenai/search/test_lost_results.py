"""Results of a search that are gone: they are missed, and made again without counting twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from arsenai.search.searches import (
    answered,
    generated,
    outcomes,
    pruning,
    settings,
    told,
    tuned,
    written,
)

from palaestrai_mosaik.arsenai.analysis.results import Results
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.design.load import load
from palaestrai_mosaik.arsenai.search import history_figure, search_result
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.merge import delete_runs

pytest.importorskip("optuna")


def journal():
    """Return the number of entries of the journal, except those that open it."""
    lines = Path("f/search/journal.log").read_text().splitlines()
    return sum(json.loads(line)["op_code"] != 0 for line in lines)


def digests(folder="f"):
    """Return what every run has recorded, also where it was stopped early, by the uid of its document."""
    with Store(f"{folder}/results", read_only=True) as store:
        runs = store.runs()
    complete = (Path(folder, "results/instances", run, "complete.json") for run in runs["run"])
    found = [json.loads(file.read_text()) for file in complete]
    return {uid: (one["status"], one["digests"]) for uid, one in zip(runs["document"], found, strict=True)}


@pytest.mark.parametrize("gone", [("results",), ("results", "jobs")])
@pytest.mark.parametrize("jobs", ["inline", 2])
def test_results_that_are_gone_are_missed_and_made_again(gone, jobs, capsys):
    tuned(pruning())
    before, recorded, of_journal, table = told(), digests(), journal(), settings()
    assert {"complete", "pruned"} == {one["state"] for one in table}
    ended = sum(int(one["runs"]) for one in table)
    for name in gone:
        shutil.rmtree(Path("f", name))
    data = answered(capsys, "status", "f")
    assert data["counts"]["lost"] == ended and "pruned" not in data["counts"]
    assert data["settings"] == {"lost": len(before)} and data["best"] is None
    assert data["search_over"] is False and data["not_collected"] == 0
    assert main(["status", "f"]) == 0
    said = capsys.readouterr().out
    assert f"results of {ended} runs are gone, so their settings count as not executed" in said
    assert "to make them again: arsenai resume f\n" in said and "the search is over" not in said
    with pytest.raises(StoreError, match="their results are gone; to make them again: arsenai resume"):
        Results("f").runs()

    executor = ["--executor", "inline"] if jobs == "inline" else ["-j", str(jobs)]
    assert main(["resume", "f", *executor]) == 0
    said = capsys.readouterr().out
    assert f"executed again, as their results were gone: {ended} runs" in said
    # the same runs gave the same values, those that were stopped early too; the journal has nothing new
    assert (told(), digests(), journal(), settings()) == (before, recorded, of_journal, table)
    data = answered(capsys, "status", "f")
    assert "lost" not in data["counts"] and data["search_over"] == "24 runs"
    capsys.readouterr()
    assert main(["resume", "f", "--executor", "inline"]) == 0
    assert "0 runs executed now" in capsys.readouterr().out


def test_what_was_deleted_of_a_store_is_made_again_alone(capsys):
    tuned(pruning(runs=12, prune="none", confirm=2))
    spec, before, best = load("f/design.yml"), outcomes(), search_result(load("f/design.yml"), Path("f")).best
    winner, lost = Path("f/search/winner.yml").read_bytes(), best[0].number
    with Store("f/results") as store:
        runs = store.runs()
        delete_runs(store, list(runs.loc[runs["document"] == f"valley-{lost}-r1", "run"]))
    data = answered(capsys, "status", "f")
    assert data["counts"] == {"finished": 11, "lost": 1}
    assert data["settings"] == {"complete": 5, "lost": 1} and data["best"]["setting"] != lost
    result = search_result(spec, Path("f"))
    assert "Results of 1 run are gone" in result.summary and lost not in [one.number for one in result.best]
    assert len(history_figure("f").axes) == 1
    assert main(["analyse", "f"]) == 0
    said = capsys.readouterr().out
    assert "12 runs (1 missing)" in said and "Results of 1 run are gone" in said
    assert main(["resume", "f", "--executor", "inline"]) == 0
    assert "1 run executed now" in capsys.readouterr().out
    assert outcomes() == before and search_result(spec, Path("f")).best == best
    assert Path("f/search/winner.yml").read_bytes() == winner


def test_a_larger_budget_goes_on_after_lost_results_were_made_again():
    tuned(pruning(runs=16), "whole")
    tuned(pruning(runs=8))
    shutil.rmtree("f/results")
    tuned(pruning(runs=16))
    assert told() == told("whole") and digests() == digests("whole")


def test_a_run_that_gives_something_else_than_before_is_named(capsys, caplog):
    tuned(pruning(runs=4, prune="none"))
    path = Path("f/search/journal.log")
    text = path.read_text()
    value = next(one["values"] for one in settings() if one["number"] == "0")
    first = json.loads(next(line for line in text.splitlines() if '"outcomes"' in line))
    was = first["user_attr"]["runs"][0]["outcomes"]["y"]
    assert value and repr(was) in text
    path.write_text(text.replace(f'"outcomes":{{"y":{was!r}}}', '"outcomes":{"y":1.5}'))
    shutil.rmtree("f/results")
    assert main(["resume", "f", "--executor", "inline"]) == 0
    assert (
        "run valley-0-r0 was executed again, and its result differs from the former one ({'y': 1.5}"
        in caplog.text
    )


def test_runs_of_another_store_are_not_those_of_this_one(capsys):
    tuned(pruning(runs=4, prune="none"), "f", "--store", "other")
    assert answered(capsys, "status", "f")["counts"] == {"lost": 4}
    assert answered(capsys, "status", "f", "--store", "other")["counts"] == {"finished": 4}


def test_documents_that_are_gone_are_missed_and_written_again_byte_for_byte(capsys):
    tuned(pruning(runs=8, prune="none", confirm=1))
    whole = generated()
    Path("f/runs/valley-1-r0.yml").unlink()
    Path("f/runs/valley-2-r1.yml").unlink()
    assert answered(capsys, "status", "f")["missing_documents"] == [
        "runs/valley-1-r0.yml",
        "runs/valley-2-r1.yml",
    ]
    assert main(["status", "f"]) == 0
    said = capsys.readouterr().out
    assert "2 run documents missing (runs/valley-1-r0.yml, runs/valley-2-r1.yml)" in said
    assert "arsenai resume f\n" in said
    assert main(["resume", "f", "--executor", "inline"]) == 0
    said = capsys.readouterr().out
    assert "written again, as they were missing or edited: runs/valley-1-r0.yml, runs/valley-2-r1.yml" in said
    assert "0 runs executed now" in said
    assert generated() == whole and DesignFolder.open("f").verify() == []
    assert main(["resume", "f", "--executor", "inline"]) == 0
    assert "written again" not in capsys.readouterr().out
    # the whole folder of the documents
    shutil.rmtree("f/runs")
    assert len(answered(capsys, "status", "f")["missing_documents"]) == 8
    assert main(["resume", "f", "--executor", "inline", "--quiet"]) == 0
    assert generated() == whole


@pytest.mark.parametrize("name", ["design.csv", "unit_sample.csv", "SHA256SUMS", "manifest.json"])
def test_tables_of_the_folder_that_are_gone_are_written_again(name, capsys):
    tuned(pruning(runs=8, prune="none"))
    whole = generated()
    Path("f", name).unlink()
    for command in ("status", "resume", "analyse", "report", "submit"):
        assert main([command, "f"]) == 2
        said = capsys.readouterr().err
        assert f"f/{name}: this part of the design's folder is missing" in said
        assert "to write it again: arsenai tune f/design.yml -o f" in said
    assert main(["tune", "f/design.yml", "-o", "f", "--executor", "inline", "--quiet"]) == 0
    assert generated() == whole


def test_a_folder_without_its_manifest_takes_no_other_search(capsys):
    tuned(pruning(runs=4, prune="none"))
    before = told()
    Path("f/manifest.json").unlink()
    assert main(["tune", written({**pruning(runs=4), "seed": 12}), "-o", "f"]) == 2
    assert "the folder holds another design: 'valley'" in capsys.readouterr().err
    # without the design's document, nobody knows whose journal it is
    Path("f/design.yml").unlink()
    assert main(["resume", "f"]) == 2
    assert "put a copy of the design's document back as design.yml" in capsys.readouterr().err
    shutil.copy(written(pruning(runs=4, prune="none")), "f/design.yml")
    assert main(["tune", "f/design.yml", "-o", "f", "--executor", "inline", "--quiet"]) == 0
    assert told() == before and answered(capsys, "status", "f")["counts"] == {"finished": 4}
