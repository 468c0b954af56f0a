"""What the learning scenarios are for, at a hundredth of their price: hours in place of quarters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from palaestrai_mosaik.experiment import loads
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

pytest.importorskip("pandapower", reason="the extra 'grid' is not installed")

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def text_of(name: str) -> str:
    return (SCENARIOS / f"{name}.yml").read_text()


def reduced(name: str, **numbers: int) -> str:
    """The scenario with days of 24 steps, tests of 6 days, and other ``numbers`` of its learners."""
    text = text_of(name).replace("steps: 96", "steps: 24\n              step: 3600")
    text = text.replace("every: 12", "every: 60").replace("episodes: 31", "episodes: 6")
    for key, number in numbers.items():
        text, found = re.subn(rf"\b{key}: \d+\b", f"{key}: {number}", text)
        assert found
    return text


def test_the_learned_controller_keeps_the_band_on_days_that_it_has_not_seen(tmp_path: Path) -> None:
    text = reduced("rural_learn", population=12, elites=4, noise_generations=5).replace("480", "120")
    with Store(tmp_path, create=True) as store:
        assert not execute(loads(text), store=store).warnings
        episodes = store.episodes("latest").groupby("name")["reward.grid.voltage_band_mean"].mean()
    assert episodes["passive"] > 0.01
    assert episodes["learned"] < episodes["passive"] / 4


@pytest.mark.parametrize("name", ["rural_learn", "semiurb_learn", "rural_attack_learn", "rural_arl"])
def test_training_and_test_days_differ(name: str) -> None:
    from palaestrai_mosaik.environment.grid import load_grid
    from palaestrai_mosaik.environment.grid.episode_starts import start_rows

    days: dict[str, set[int]] = {}
    for phase in loads(text_of(name)).phases:
        (spec,) = phase.environments
        rows = start_rows(spec.params["start"], load_grid(spec.params["grid"]).profiles)
        assert all(row % 96 == 0 for row in rows) and spec.params["steps"] == 96
        days.setdefault(phase.mode.value, set()).update(rows)
    assert (len(days["train"]), len(days["test"])) == (183, 31)
    assert not days["train"] & days["test"]
