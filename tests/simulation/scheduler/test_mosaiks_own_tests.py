"""mosaik's own tests pass with our scheduler, in this process and with simulators in others.

They are in mosaik's repository and nowhere else, so they run where a checkout of it is at hand: its folder is
what ``PALAESTRAI_MOSAIK_TEST_MOSAIK`` holds. What runs them is tried here on small tests of our own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.mosaik_suite import CHECKOUT, needs_checkout, outcomes

MOSAIK = os.environ.get(CHECKOUT, "")

SCENARIOS = "tests/scenarios"
#: modules that run a world or talk to a simulator in another process
MODULES = (
    "test_mosaik.py",
    "test_scenario.py",
    "test_scheduler.py",
    "test_simmanager.py",
    "test_basic_simulators.py",
)
#: scenarios that cannot pass with simulators in other processes, whatever the scheduler
NOT_REMOTE = {
    # JSON makes texts of the numbers that are keys of a parameter
    "tests/scenarios/test_dictionary_as_output.py",
}


def passed(found: dict[str, str]) -> set[str]:
    return {test for test, outcome in found.items() if outcome == "passed"}


def lost(theirs: dict[str, str], ours: dict[str, str]) -> dict[str, str]:
    """Return the tests that pass with mosaik's scheduler alone, with what they say with ours."""
    return {test: ours.get(test, "not run") for test in sorted(passed(theirs) - passed(ours))}


@pytest.fixture(scope="module")
def theirs() -> dict[str, str]:
    """What becomes of the scenarios with mosaik's own scheduler."""
    found = outcomes(Path(MOSAIK), SCENARIOS, scheduler="mosaik")
    assert len(passed(found)) > 70
    return found


@needs_checkout
@pytest.mark.parametrize("scheduler", ["direct", "general"])
def test_scenarios_that_pass_with_mosaiks_scheduler_pass_with_ours(
    scheduler: str, theirs: dict[str, str]
) -> None:
    assert lost(theirs, outcomes(Path(MOSAIK), SCENARIOS, scheduler=scheduler)) == {}


@needs_checkout
def test_scenarios_pass_with_simulators_in_other_processes(theirs: dict[str, str]) -> None:
    """The measure is what passes in this process: mosaik's own scheduler fails in some of them.

    (tests/simulation/scheduler/test_remote.py has the reason.)
    """
    here = {test: outcome for test, outcome in theirs.items() if test.partition("::")[0] not in NOT_REMOTE}
    assert lost(here, outcomes(Path(MOSAIK), SCENARIOS, scheduler="general", simulators="remote")) == {}


@needs_checkout
@pytest.mark.parametrize("module", MODULES)
def test_modules_that_pass_with_mosaiks_scheduler_pass_with_ours(module: str) -> None:
    test = f"tests/{module}"
    if not (Path(MOSAIK) / test).exists():
        pytest.skip(f"this checkout of mosaik has no {test}")
    found = outcomes(Path(MOSAIK), test, scheduler="mosaik")
    assert passed(found)
    assert lost(found, outcomes(Path(MOSAIK), test)) == {}


#: a checkout in small
CHECKOUT_IN_SMALL = {
    "mosaik/__init__.py": "raise ImportError('the package of the checkout instead of the installed one')\n",
    "tests/__init__.py": "",
    "tests/one.py": """
import os
import mosaik_api_v3

class One(mosaik_api_v3.Simulator):
    def __init__(self):
        super().__init__({"models": {"A": {"public": True, "params": [], "attrs": ["pid"]}}})
    def init(self, sid, time_resolution=1.0):
        return self.meta
    def create(self, num, model):
        return [{"eid": "0", "type": model}]
    def step(self, time, inputs, max_advance):
        return time + 1
    def get_data(self, outputs):
        return {"0": {"pid": os.getpid()}}
""",
    "tests/test_small.py": """
import asyncio, os
import mosaik, mosaik.scheduler, mosaik.tiered_time
import pytest

def run(until=2, **how):
    world = mosaik.World({"One": {"python": "tests.one:One"}}, skip_greetings=True)
    try:
        entity = world.start("One").A()
        pid = world.get_data([entity], "pid")[entity]["pid"]
        world.run(until=until, print_progress=False, **how)
        return pid
    finally:
        world.shutdown()

def test_a_world_runs():
    assert run()

def test_in_this_process():
    assert run() == os.getpid()

def test_mosaiks_scheduler(monkeypatch):
    seen = []
    monkeypatch.setattr(mosaik.scheduler, "get_max_advance", lambda *arguments: seen.append(1) or 1)
    run()
    assert seen

async def test_a_coroutine():
    await asyncio.sleep(0)
    assert mosaik.tiered_time.TieredInterval
    raise ValueError("first line\\nlast line")

def test_the_general_form_is_in_charge():
    import palaestrai_mosaik.simulation.scheduler.general as general
    seen, position = [], general.GeneralSchedule._position
    general.GeneralSchedule._position = lambda self, runner: seen.append(1) or position(self, runner)
    try:
        world = mosaik.World({"One": {"python": "tests.one:One"}}, skip_greetings=True, debug=True)
        world.start("One").A()
        world.run(until=3, print_progress=False)
    finally:
        general.GeneralSchedule._position = position
    world.assert_graph("One-0~0 One-0~1\\nOne-0~1 One-0~2")
    assert seen

def test_skipped():
    pytest.skip("why")

@pytest.fixture
def ends_badly():
    yield
    raise KeyError("at its end")

def test_teardown(ends_badly):
    pass
""",
    "tests/test_broken.py": "import there_is_no_such_module\n",
    "tests/test_handed_over.py": """
import asyncio
import mosaik, mosaik.scheduler
from tests.test_small import run

def test_sim_process():
    asyncio.run(mosaik.scheduler.sim_process(None, None, 1, None, False, True, None))
""",
}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    for name, text in CHECKOUT_IN_SMALL.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


SMALL = "tests/test_small.py::"


def test_what_becomes_of_tests_is_reported_in_full(checkout: Path) -> None:
    found = outcomes(checkout, "tests", scheduler="mosaik")
    handed_over = found.pop("tests/test_handed_over.py::test_sim_process")
    assert "object has no attribute 'started'" in handed_over
    assert found.pop(SMALL + "test_teardown") == "KeyError: 'at its end'"
    assert "No module named 'there_is_no_such_module'" in found.pop("tests/test_broken.py")
    assert found == {
        SMALL + "test_a_world_runs": "passed",
        SMALL + "test_in_this_process": "passed",
        SMALL + "test_mosaiks_scheduler": "passed",
        SMALL + "test_a_coroutine": "ValueError: first line ... last line",
        SMALL + "test_the_general_form_is_in_charge": "assert []",
        SMALL + "test_skipped": "skipped",
    }
    assert sorted(path.name for path in (checkout / "tests").iterdir()) == [
        "__init__.py",
        "one.py",
        "test_broken.py",
        "test_handed_over.py",
        "test_small.py",
    ]


@pytest.mark.parametrize(("scheduler", "general"), [("direct", "assert []"), ("general", "passed")])
def test_ours_is_what_runs_and_mosaiks_own_may_not(checkout: Path, scheduler: str, general: str) -> None:
    found = outcomes(checkout, "tests/test_small.py", "tests/test_handed_over.py", scheduler=scheduler)
    assert found[SMALL + "test_the_general_form_is_in_charge"] == general
    assert found[SMALL + "test_a_world_runs"] == found[SMALL + "test_in_this_process"] == "passed"
    assert "assert []" in found[SMALL + "test_mosaiks_scheduler"]
    assert found["tests/test_handed_over.py::test_sim_process"] == (
        "AssertionError: mosaik's own scheduler has run"
    )


@pytest.mark.parametrize("scheduler", ["direct", "mosaik"])
def test_every_simulator_can_be_started_in_another_process(checkout: Path, scheduler: str) -> None:
    found = outcomes(checkout, "tests/test_small.py", scheduler=scheduler, simulators="remote")
    assert found[SMALL + "test_a_world_runs"] == "passed"
    assert "os.getpid" in found[SMALL + "test_in_this_process"]


def test_a_checkout_without_tests_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="tests"):
        outcomes(tmp_path, SCENARIOS)
    (tmp_path / "tests").mkdir()
    with pytest.raises(RuntimeError, match="file or directory not found: tests/scenarios"):
        outcomes(tmp_path, SCENARIOS)
