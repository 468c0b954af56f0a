"""A design that grows, on a real Slurm: submitted round by round, or waited for."""

from __future__ import annotations

import pytest
from arsenai.execution.folders import statuses
from arsenai.execution.slurm_cluster import needs_slurm, output_of, slurm_jobs
from arsenai.search.growing import contents, executed, ishigami_design, written
from support.waiting import until

from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.cli.arsenai import main

pytestmark = needs_slurm

# (a fixture)
__all__ = ["slurm_jobs"]

#: two rounds, of 10 and of 20 runs
SAMPLER = {"name": "sobol", "n": 2, "second_order": False, "until": {"interval": 0.01, "max_n": 4}}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_each_submission_is_a_round(slurm_jobs, tmp_path, capsys):
    locally = executed(ishigami_design(sampler=SAMPLER), "local")
    folder = tmp_path / "cluster"
    assert main(["generate", written(ishigami_design(sampler=SAMPLER)), "-o", "cluster", "--quiet"]) == 0
    options = ("--runs-per-task", "20", "--time", "10")
    for runs in (10, 10):
        capsys.readouterr()
        assert main(["submit", "cluster", *options]) == 0
        assert f"{runs} runs in 1 task" in capsys.readouterr().out
        until(lambda: set(statuses(folder)) == {"finished"})
    assert len(statuses(folder)) == 20, output_of(folder)
    # what has finished is collected, and there is nothing more to submit
    assert main(["submit", "cluster", *options]) == 0
    out = capsys.readouterr().out
    assert "n has reached 4 (max_n)" in out and "nothing to submit" in out
    assert DesignFolder.open(folder).rounds == DesignFolder.open(locally).rounds
    assert contents(folder) == contents(locally)


def test_run_waits_for_all_rounds(slurm_jobs, tmp_path, capsys):
    assert main(["generate", written(ishigami_design(sampler=SAMPLER)), "-o", "f", "--quiet"]) == 0
    assert main(["run", "f", "--executor", "slurm"]) == 0
    assert "20 of 20 runs finished" in capsys.readouterr().out
    assert DesignFolder.open("f").rounds.ended == "n has reached 4 (max_n)"
