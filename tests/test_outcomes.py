"""``--outcomes`` and ``--unrun``: each test runs in one of several environments, and only once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import outcomes
from support.mosaik_suite import needs_checkout

TESTS = Path(__file__).parent

MODULES = {
    "test_marked.py": """
        import os, pytest
        @pytest.mark.skipif("PART" not in os.environ, reason="there is no part")
        def test_with_part(): pass
        def test_without(): pass
        @pytest.mark.slow
        def test_long(): pass
    """,
    "test_module.py": """
        import os, pytest
        if "PART" not in os.environ:
            pytest.skip("there is no part", allow_module_level=True)
        def test_in_module(): pass
    """,
    "test_inside.py": """
        import os, pytest
        @pytest.mark.parametrize("number", [1, 2])
        def test_inside(number):
            if number == 2 and "PART" not in os.environ:
                pytest.skip("there is no part")
        @pytest.mark.xfail(reason="known")
        def test_known(): raise ValueError
        def test_fails(): raise ValueError
    """,
}


def run(folder: Path, *options: str, part: bool = False) -> str:
    """Run the modules; return pytest's last line."""
    for name, text in MODULES.items():
        lines = [line.removeprefix(" " * 8) for line in text.strip("\n").split("\n")]
        (folder / name).write_text("\n".join(lines))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--noconftest",
        "-p",
        "conftest",
        "-p",
        "no:cacheprovider",
    ]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    environment.pop("PYTEST_ADDOPTS", None)
    if part:
        environment["PART"] = "1"
    done = subprocess.run(
        [*command, *options], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return (done.stdout + done.stderr).strip().split("\n")[-1]


@pytest.mark.parametrize("processes", [[], ["-n", "2"]])
def test_what_was_skipped_runs_where_its_part_is_and_nothing_runs_twice(
    tmp_path: Path, processes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "outcomes.jsonl"
    options = ["--outcomes", str(file), *processes]
    assert "1 failed, 2 passed, 4 skipped, 1 xfailed" in run(tmp_path, *options)
    assert outcomes.main(str(file)) == 1
    told = capsys.readouterr().out
    assert "skipped everywhere: test_module.py: Skipped: there is no part" in told
    assert "4 tests have run, 4 were skipped everywhere" in told

    # ("2 skipped" without its part and without --slow would be told again)
    line = run(tmp_path, *options, "--unrun", "--slow", part=True)
    assert "4 passed" in line
    assert "skipped" not in line and "failed" not in line
    assert outcomes.main(str(file)) == 0
    assert "8 tests have run, 0 were skipped everywhere" in capsys.readouterr().out


def test_where_nothing_ran_something_is_wrong(tmp_path: Path) -> None:
    assert outcomes.main(str(tmp_path / "missing.jsonl")) == 1


def test_what_ran_before_must_be_known(tmp_path: Path) -> None:
    assert "--unrun needs --outcomes FILE" in run(tmp_path, "--unrun")


def test_what_no_environment_can_have_is_named_and_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (reason,) = outcomes.UNAVAILABLE
    skipped = {"test_a.py::test_theirs": f"Skipped: {reason}", "test_a.py::test_ours": "Skipped: no part"}
    file = tmp_path / "outcomes.jsonl"
    outcomes.Outcomes({"test_b.py::test_ran"}, skipped).append_to(file)
    assert outcomes.main(str(file)) == 1
    outcomes.Outcomes({"test_a.py::test_ours"}).append_to(file)
    assert outcomes.main(str(file)) == 0
    first, second = capsys.readouterr().out.split("1 tests have run")
    assert "cannot run here: test_a.py::test_theirs: mosaik's own tests" in first
    assert "skipped everywhere: test_a.py::test_ours" in first
    assert "skipped everywhere: test_a.py::test_theirs" not in first
    assert second.startswith(", 1 were skipped everywhere, 1 cannot run here")
    assert second.endswith("2 tests have run, 0 were skipped everywhere, 1 cannot run here\n")


def test_every_excuse_is_the_reason_of_a_test() -> None:
    """An excuse that nothing gives any more would excuse what comes later."""
    reasons = {mark.kwargs["reason"] for mark in (needs_checkout.mark,)}
    assert reasons == set(outcomes.UNAVAILABLE)
