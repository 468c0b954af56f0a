"""What ``arsenai submit`` and ``cancel`` take and tell, on a real Slurm and without one."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from arsenai.execution.folders import make_folder, statuses
from arsenai.execution.slurm_cluster import needs_slurm, slurm_jobs  # noqa: F401
from support.waiting import until

from palaestrai_mosaik.arsenai.execution import SubmitSummary
from palaestrai_mosaik.arsenai.execution.cluster.scheduler import TaskState
from palaestrai_mosaik.arsenai.execution.cluster.slurm import Slurm
from palaestrai_mosaik.arsenai.execution.cluster.submission import Array, Submission, Submissions, TaskRun
from palaestrai_mosaik.arsenai.execution.job import now
from palaestrai_mosaik.cli import execution
from palaestrai_mosaik.cli.arsenai import main


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def no_slurm(monkeypatch, tmp_path):
    """Hide the commands of Slurm, wherever they are."""
    monkeypatch.setenv("PATH", str(tmp_path))


def test_a_dry_run_writes_the_script_and_tells_what_is_known(here, no_slurm, capsys):
    folder = make_folder(here / "f", ["well"] * 7, slurm={"partition": "short", "cpus": 2}).path
    jobs = folder / "jobs"
    jobs.mkdir()
    for number in range(3):
        (jobs / f"earlier-{number}.json").write_text(json.dumps({"status": "finished", "seconds": 40.0}))
    call = ["submit", "f", "--dry-run", "--runs-per-task", "3", "--time", "3", "--partition", "long"]
    call += ["--directive=--constraint=fast", "--prologue", "module load a", "--prologue", "true"]
    assert main(call) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "script     f/submit.sbatch; nothing was submitted"
    assert out[1].startswith("queue      7 runs in 3 tasks; the maximum size of job arrays is unknown: ")
    assert out[2:] == [
        "tasks      3 runs each, 2 at a time, on 2 cores",
        "time       1 min 20 s for a task: 40.0 s per run (median of 3 earlier); as many tasks at a time as the "
        "cluster has room for",
        # two tasks of 80 s and one of 40 s, on two cores
        "hours      0.11111 of a core",
        "warning: 2 runs fit into the time limit 3 of a task, not 3: give more time, fewer runs per task, or "
        "--requeue",
        "results    unknown: execute some runs first",
    ]
    script = (folder / "submit.sbatch").read_text()
    for line in ("#SBATCH --time=3", "#SBATCH --cpus-per-task=2", "#SBATCH --constraint=fast"):
        assert f"\n{line}\n" in script
    assert re.search(r"^#SBATCH --partition=\W?long\W?$", script, re.MULTILINE)
    assert "\nmodule load a\ntrue\n" in script
    assert not (folder / "submissions").exists()
    assert main(["submit", "f", "--dry-run", "--seconds-per-run", "10", "--rows", "0-1", "--cpus", "1"]) == 0
    assert "10.0 s per run (as given)" in capsys.readouterr().out


def submitted_as(folder, **keys):
    """Write down a submission of all runs of the folder, as if Slurm had taken it."""
    submissions = Submissions(folder.path)
    runs = [TaskRun(run.uid, run.hash, run.file) for run in folder.documents]
    submission = Submission(1, "slurm", "doing-1", now(), 1, len(runs), arrays=(Array("7", 0, 1),), **keys)
    submissions.begin(submission, [runs])
    (folder.path / "jobs").mkdir(exist_ok=True)
    return submissions


@pytest.mark.parametrize(("limit", "again"), [(60.0, None), (None, None), (60.0, 5.0)])
def test_resume_keeps_the_limits_of_the_submission(here, limit, again, monkeypatch):
    # no matter of speed: nothing is executed
    folder = make_folder(here / "f", ["well", "well"], timeout=7)
    submitted_as(folder, timeout=limit, runs_per_process=3, checkpoint_every=9.0)
    planned = []

    def plan(_, *, settings, **others):
        planned.append((settings.timeout or None, settings.runs_per_process, settings.checkpoint_every))
        return SubmitSummary(None, (), 2, {})

    monkeypatch.setattr(execution, "submit_missing", plan)
    assert main(["resume", "f", *(() if again is None else ("--timeout", str(again)))]) == 0
    assert planned == [(again or limit, 3, 9.0)]


def test_resume_to_slurm_refuses_what_needs_somebody_who_waits(here, no_slurm, capsys):
    submitted_as(make_folder(here / "f", ["well", "well"]))
    assert main(["resume", "f", "--fail-fast"]) == 2
    assert "--executor slurm waits" in capsys.readouterr().err


def test_a_design_is_not_replaced_while_a_cluster_may_have_its_runs(here, no_slurm, capsys, monkeypatch):
    folder = make_folder(here / "f", ["well", "well"])
    submissions = submitted_as(folder)
    other = yaml.safe_load((folder.path / "design.yml").read_text()) | {"seed": 6}
    (here / "other.yml").write_text(yaml.safe_dump(other))
    generate = ["generate", "other.yml", "--output", "f", "--force"]
    before = (folder.path / "SHA256SUMS").read_bytes()
    # nobody answers
    assert main(generate) == 2
    assert "it is unknown whether a cluster has runs of its design" in capsys.readouterr().err
    with monkeypatch.context() as patched:
        patched.setattr(Slurm, "task_states", lambda self, submission: {0: TaskState.QUEUED})
        assert main(generate) == 2
        assert (
            "a cluster, or a process, still has 2 runs of the design in it (doing-0-r0, doing-1-r0)"
            in capsys.readouterr().err
        )
    assert (folder.path / "SHA256SUMS").read_bytes() == before
    # the same design may be put back, another one may come once the tasks have ended
    assert main(["generate", "f/design.yml", "--output", "f", "--force"]) == 0
    submissions.note_ended(1, {0: TaskState.CANCELLED.value})
    assert main(generate) == 0
    assert (folder.path / "SHA256SUMS").read_bytes() != before


def test_what_cannot_be_submitted_is_told_before_anything_happens(here, no_slurm, capsys):
    folder = make_folder(here / "f", ["well", "well"]).path
    for option, message in (
        (("--time", "1h"), "slurm: time must be a time as Slurm takes it"),
        (("--partition", "a\n#SBATCH --wrap=x"), "slurm: partition must be a name on one line"),
        (("--directive=--array=0-9",), "cannot hold --array: arsenai writes it itself"),
        (("--requeue", "-1"), "slurm: requeue must be an integer of at least 0"),
        (("--allow-modules", "os;"), "allow_modules[0] must hold names of modules"),
        (("--rows", "7"), "the design has no row 7: it has rows 0 to 1"),
        ((), "the commands of Slurm are needed"),
    ):
        assert main(["submit", "f", *option]) == 2
        assert message in capsys.readouterr().err
    assert not list(folder.glob("submissions/*.json"))
    assert main(["submit", "f", "--dry-run", "--runs-per-task", "2", "--allow-modules", "execution"]) == 0
    assert "2 runs in 1 task. It was" in (folder / "submit.sbatch").read_text()
    assert main(["collect", "f", "--store", "my store"]) == 0
    assert capsys.readouterr().out.endswith("\nnext: arsenai analyse f --store 'my store'\n")
    assert main(["cancel", "f"]) == 0
    assert capsys.readouterr().out == "nothing to cancel: Slurm has no job of this folder\n"


def test_the_users_file_says_what_the_command_does_not(here, no_slurm, monkeypatch, capsys):
    make_folder(here / "f", ["well", "well"])
    (here / "config.yml").write_text("store: elsewhere\nexecution: {slurm: {partition: night, time: 50}}\n")
    monkeypatch.setenv("PALAESTRAI_MOSAIK_CONFIG", str(here / "config.yml"))
    assert main(["submit", "f", "--dry-run", "--time", "40"]) == 0
    script = (here / "f" / "submit.sbatch").read_text()
    assert "night" in script
    assert "#SBATCH --time=40\n" in script
    assert main(["run", "f", "--executor", "inline", "--quiet"]) == 0
    assert (here / "elsewhere" / "store.db").exists()
    assert not (here / "f" / "results").exists()
    (here / "config.yml").write_text("execution: {jbos: 3}\n")
    assert main(["run", "f"]) == 2
    assert "config.yml:1: execution.jbos: unknown key 'jbos'" in capsys.readouterr().err


@needs_slurm
def test_submit_and_cancel(here, slurm_jobs, capsys):  # noqa: F811
    folder = make_folder(here / "a folder", ["slow"] * 3, steps=10_000).path
    assert main(["submit", "a folder", "--runs-per-task", "2"]) == 0
    out = capsys.readouterr().out.splitlines()
    (submission,) = Submissions(folder).all()
    # the documents' own modules, which nobody has limited
    assert (submission.allow_modules, submission.limited) == (("arsenai.execution.parts",), False)
    job = submission.arrays[0].job
    assert out == [
        f"submission 1: 3 runs in 2 tasks, job {job} ({submission.name})",
        "script     a folder/submit.sbatch",
        "output     a folder/submissions/0001",
        "next: arsenai status 'a folder'",
        "      arsenai collect 'a folder'",
    ]
    # what Slurm has is not submitted again
    assert main(["submit", "a folder", "--again"]) == 0
    assert "nothing to submit\nnext: arsenai status 'a folder'\n" in capsys.readouterr().out
    until(lambda: list((folder / "jobs").glob("*.running")))
    assert main(["cancel", "a folder"]) == 0
    told = re.match(rf"cancelled job {job}: (\d) running tasks?, (\d) queued\n", capsys.readouterr().out)
    assert told
    assert int(told[1]) + int(told[2]) == 2
    until(lambda: main(["cancel", "a folder"]) == 0 and "nothing to cancel" in capsys.readouterr().out)
    assert set(statuses(folder)) <= {"interrupted", "cancelled"}
    assert len(Submissions(folder).numbers()) == 1
