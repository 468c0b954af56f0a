"""No test fails because a machine is slow: limits of time in tests end a hang."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest
from support.limits import REASON, limits

TESTS = Path(__file__).parents[1]
#: programs that no test executes
PROGRAMS = ("benchmarks/", "data/", "peer/make_")


def test_limits_are_hang_or_have_a_reason() -> None:
    found = {
        name: lines
        for path in TESTS.rglob("*.py")
        if not (name := path.relative_to(TESTS).as_posix()).startswith(PROGRAMS)
        if (lines := limits(path.read_text(encoding="utf-8")))
    }
    assert found == {}, f"use HANG of support.waiting, or write a comment with {REASON!r} and why it is right"


def test_examples_have_no_deadline_and_no_test_says_so() -> None:
    assert hypothesis.settings().deadline is None
    assert hypothesis.HealthCheck.too_slow in hypothesis.settings().suppress_health_check
    here = Path(__file__).resolve()
    texts = [path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py") if path.resolve() != here]
    assert not [
        text for text in texts if "deadline=" in text or "suppress_health_check=[HealthCheck.f" in text
    ]


@pytest.mark.parametrize(
    "line",
    [
        "subprocess.run(command, timeout=60)",
        "process.wait(10)",
        "process.wait(timeout=2 * 60)",
        "out, err = process.communicate(timeout=0.5)",
        "thread.join(5)",
        "until(lambda: ready, 30)",
        "until(lambda: ready, seconds=30)",
        "browser.wait('code', 30)",
        "WebDriverWait(driver, 30).until(condition)",
        "with urllib.request.urlopen(address, timeout=9) as answer: pass",
        "gone = psutil.wait_procs(processes, 5)[1] == []",
        "end = time.monotonic() + 60",
        "end, asked = time.monotonic() + 60, 0",
        "assert time.monotonic() - started < 8",
        "assert 20 > time.perf_counter() - started",
        "SOON = 15\nprocess.wait(SOON)",
        "def wait_for(condition, seconds=60): pass",
        "def start(*, timeout: float = 30.0): pass",
        "async def start(timeout=30.0): pass",
        "def test():\n    # a machine takes a second\n    process.wait(10)",
        f"# {REASON} of another line\n\nprocess.wait(10)",
    ],
)
def test_a_number_is_found(line: str) -> None:
    assert limits(line) == [len(line.splitlines())]


@pytest.mark.parametrize(
    "line",
    [
        "process.communicate(timeout=HANG)",
        "end = time.monotonic() + HANG",
        "assert time.monotonic() - started < HANG",
        "until(lambda: count == 3)",
        "until(lambda: count == 3, 2 * HANG)",
        "while not stop.wait(0.003): pass",
        "connection = sqlite3.connect(path, timeout=0)",
        "', '.join(names)",
        "time.sleep(0.5)",
        "assert len(found) < 8",
        f"run(timeout=3)  # {REASON} it hangs for an hour",
        f"# {REASON} it hangs for an hour\nrun(\n    timeout=3,\n)",
        f"run(\n    timeout=3,  # {REASON} it hangs for an hour\n)",
    ],
)
def test_what_depends_on_no_machine_is_not_found(line: str) -> None:
    assert limits(line) == []
