"""Every run document in ``scenarios/`` is sound and runs; known effects on the grids."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.documents import extras_of
from support.learning import digests

from palaestrai_mosaik.experiment import RunDocument, loads
from palaestrai_mosaik.runner import execute, inspect
from palaestrai_mosaik.store import Store

SCENARIOS = Path(__file__).parents[2] / "scenarios"
NAMES = sorted(path.stem for path in SCENARIOS.glob("*.yml"))
#: those that are one of a day but for their length
LONGER = [name for name in NAMES if name.endswith(("_week", "_year"))]

#: buses of the grid, and inverters of the attacker
GRIDS = {"rural": (99, 40), "semiurb": (122, 26)}


def text_of(name: str) -> str:
    return (SCENARIOS / f"{name}.yml").read_text()


def shortened(text: str) -> str:
    """A year or a week is a matter of one number, and so is learning; here a few hours are enough."""
    for key, value in (("steps", 12), ("population", 2), ("elites", 2), ("evaluate_every", 1)):
        text = re.sub(rf"\b{key}: \d+", f"{key}: {value}", text)
    return re.sub(r"\bepisodes: \d\d+", "episodes: 2", text)


def by_mosaik(document: RunDocument) -> RunDocument:
    """Return the document with mosaik's own scheduler in all phases."""
    phases = (
        replace(phase, simulation=replace(phase.simulation, scheduler="mosaik")) for phase in document.phases
    )
    return replace(document, phases=tuple(phases))


def outside(store: Store, phase: str) -> float:
    """Return the share of states in which some bus is outside of 0.95 to 1.05."""
    states = store.environment_states("latest", phase=phase)
    voltages = states[[c for c in states if c.startswith("reading.grid.bus-")]]
    return float(((voltages < 0.95) | (voltages > 1.05)).any(axis=1).mean())


def test_there_are_scenarios():
    assert {"dummy", "cigre_mv_day", "rural_day", "rural_week", "rural_year", "semiurb_year"} <= set(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LONGER])
def test_a_scenario_runs_alike_with_both_schedulers(name, tmp_path):
    document = loads(shortened(text_of(name)), f"{name}.yml")
    if "grid" in extras_of(document):
        pytest.importorskip("pandapower", reason="the extra 'grid' is not installed")
    if "rl" in extras_of(document):
        pytest.importorskip("stable_baselines3", reason="the extra 'rl' is not installed")
    assert not document.warnings
    assert inspect(document) == []
    with Store(tmp_path, create=True) as store:
        result = execute(document, store=store)
        assert not result.warnings
        assert len(result.phases) == len(document.phases)
        assert all(phase.steps >= 10 for phase in result.phases)
        direct = digests(store)
        execute(by_mosaik(document), store=store)
        assert digests(store) == direct


@pytest.mark.parametrize("name", LONGER)
def test_a_longer_scenario_is_that_of_a_day(name):
    """So what runs for a day runs for a year."""

    def but_for_its_length(name):
        kept = [line for line in text_of(name).splitlines() if not re.match(r"#|uid:| *(start|steps):", line)]
        return "\n".join(kept)

    assert but_for_its_length(name) == but_for_its_length(re.sub("_[a-z]+$", "_day", name))
    pytest.importorskip("pandapower", reason="the extra 'grid' is not installed")
    document = loads(text_of(name), f"{name}.yml")
    assert not document.warnings
    assert inspect(document) == []


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith("_year")])
def test_a_year_is_35136_states(name):
    assert "steps: 35136" in text_of(name)


@pytest.mark.parametrize("grid", GRIDS)
def test_known_effects_on_a_week(grid, tmp_path):
    pytest.importorskip("pandapower", reason="the extra 'grid' is not installed")
    # the damped droop, and the plain one beside it
    plain = (
        "  - plain_droop:\n      agents:\n        - name: defender\n          muscle:\n"
        "            name: palaestrai_mosaik.agent.library.voltage_control:DroopController\n"
        "            params: {damping: 1.0}\n  - controller:\n"
    )
    text = text_of(f"{grid}_week").replace("  - controller:\n", plain)
    document = loads(text)
    with Store(tmp_path, create=True) as store:
        execute(document, store=store)
        share = {phase.name: outside(store, phase.name) for phase in document.phases}
        objective = store.episodes("latest").groupby(["name", "agent"])["objective_mean"].mean()
        columns = store.environment_states("latest", phase="passive").columns
        setpoints = store.steps("latest", phase="attacker", agent="attacker").columns
    assert sum(c.startswith("reading.grid.bus-") for c in columns) == GRIDS[grid][0]
    assert sum(c.startswith("setpoint.") for c in setpoints) == GRIDS[grid][1]
    assert share["passive"] > (0.25 if grid == "rural" else 0.01)
    assert share["droop"] < share["passive"] / 10
    assert share["plain_droop"] > 0.5
    # at the first state nobody has acted yet
    assert share["controller"] <= 1 / 672
    assert share["controller_in_turns"] <= 1 / 672
    assert share["attacker"] > 0.99
    assert share["both"] < 0.05
    assert share["both_in_turns"] < 0.05
    assert (
        objective["controller", "defender"]
        > objective["droop", "defender"]
        > objective["passive", "defender"]
    )
    assert (
        objective["attacker", "attacker"] > objective["passive", "attacker"] > objective["both", "attacker"]
    )
