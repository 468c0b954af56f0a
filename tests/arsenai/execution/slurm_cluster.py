"""The Slurm that tests use: what ``tests/services/slurm.sh up`` has started.

A test module takes the mark and the fixture from here::

    from arsenai.execution.slurm_cluster import needs_slurm, slurm_jobs  # noqa: F401

    pytestmark = needs_slurm

    def test_something(slurm_jobs, tmp_path): ...
"""

from __future__ import annotations

import getpass
import os
import subprocess

import pytest

#: holds the path of the slurm.conf of a Slurm that tests may use
VARIABLE = "PALAESTRAI_MOSAIK_TEST_SLURM"

needs_slurm = pytest.mark.skipif(
    not os.environ.get(VARIABLE),
    reason=f"no Slurm: {VARIABLE} names no slurm.conf (tests/services/slurm.sh up DIRECTORY prints one)",
)


@pytest.fixture
def slurm_jobs(tmp_path, monkeypatch):
    """Let Slurm's tools and all processes of a test use the tests' Slurm; yield a list of job names.

    What is left at the end of the jobs of these names, and of those of the submissions in folders
    below ``tmp_path``, is cancelled.
    """
    monkeypatch.setenv("SLURM_CONF", os.environ[VARIABLE])
    names: list[str] = []
    yield names
    from palaestrai_mosaik.arsenai.execution.cluster.submission import Submission
    from palaestrai_mosaik.core.errors import ExecutionError

    for file in tmp_path.rglob("submissions/[0-9]*[0-9].json"):
        try:
            names.append(Submission.read(file).name)
        except ExecutionError:  # a test that damages it looks after its jobs itself
            continue
    for name in names:
        subprocess.run(["scancel", "--quiet", f"--user={getpass.getuser()}", f"--name={name}"], check=True)


def output_of(folder):
    """Return all that the tasks of a folder have printed, for the message of a test that fails."""
    logs = sorted(folder.glob("submissions/[0-9]*/*.log"))
    return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')}" for log in logs)
