"""The commands as processes: light start, Ctrl-C, closed pipes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.processes import Program
from support.waiting import HANG

from palaestrai_mosaik.store import Store

ROOT = Path(__file__).parents[2]
DUMMY = ROOT / "scenarios" / "dummy.yml"
COMMAND = [sys.executable, "-m", "palaestrai_mosaik"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def run(*arguments, **options):
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
        env=ENVIRONMENT,
        **options,
    )


def test_a_run_is_a_process_that_ends_well(tmp_path):
    ended = run("start", str(DUMMY), "--store", str(tmp_path / "s"), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "run 'dummy': finished" in ended.stdout
    assert "\x1b" not in ended.stdout + ended.stderr  # no colours where there is no terminal


def test_asking_for_the_version_imports_nothing_heavy():
    code = (
        "import sys; from palaestrai_mosaik.cli.main import main; main(['--version']); "
        "print(*{'numpy', 'mosaik', 'pandas', 'sqlalchemy', 'yaml', 'matplotlib'} & set(sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
        timeout=HANG,
    )
    assert ended.stdout.split("\n")[1] == ""


def test_a_run_imports_neither_pandas_nor_matplotlib(tmp_path):
    # they are for looking at results, and take longer to import than a short run takes
    code = (
        f"import sys; from palaestrai_mosaik.cli.main import main; main(['start', {str(DUMMY)!r}, '--quiet']); "
        "print(*{'pandas', 'matplotlib'} & set(sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
        timeout=HANG,
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split("\n")[-2] == ""


def test_ctrl_c_keeps_what_was_recorded(tmp_path):
    document = tmp_path / "long.yml"
    document.write_text(DUMMY.read_text().replace("episodes: 3}", "episodes: 1000000}"))
    arguments = [*COMMAND, "start", str(document), "--store", str(tmp_path / "s")]
    with Program(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        first = process.stderr.readline()  # the first phase has begun
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANG)
    assert first.startswith("phase train")
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted" in err
    assert "run 'dummy': interrupted in" in out
    with Store(tmp_path / "s", create=False) as store:
        (row,) = store.runs().itertuples()
        steps = store.steps("latest", agent="evil_attacker")
        episodes = store.episodes("latest", agent="evil_attacker")
    assert row.status == "interrupted"
    assert f"palaestrai-mosaik show {row.run}" in err
    assert len(steps) == episodes["steps"].sum() > 10
    assert (steps["reading.myenv.5"] == steps["step"]).all()


def test_ctrl_c_ends_all_runs_of_a_command(tmp_path):
    document = tmp_path / "long.yml"
    document.write_text(DUMMY.read_text().replace("episodes: 3}", "episodes: 1000000}"))
    arguments = [*COMMAND, "start", str(document), str(DUMMY), "--no-store"]
    with Program(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=HANG)
    assert process.returncode == 130
    assert err.rstrip().endswith("0 of 2 runs finished")


@pytest.mark.parametrize("arguments", [["schema"], ["check", str(DUMMY)], ["--help"]])
def test_a_closed_pipe_is_no_error(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [*COMMAND, *arguments],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=ENVIRONMENT,
        timeout=HANG,
    )
    os.close(writer)
    assert ended.stderr == ""


def test_arsenai_is_a_command():
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from palaestrai_mosaik.cli.arsenai import main; sys.exit(main())",
            "run",
        ],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
        timeout=HANG,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
