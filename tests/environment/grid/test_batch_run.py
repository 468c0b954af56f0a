"""A whole run with bodies in a batched grid: what each of them lives through alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

SCENARIO = Path(__file__).parents[3] / "scenarios" / "rural_batch.yml"


def document() -> dict[str, Any]:
    return yaml.safe_load(SCENARIO.read_text(encoding="utf-8"))


def rows(store: Store, phase: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    return store.steps("latest", phase=phase, agent="controller"), store.environment_states(
        "latest", phase=phase
    )


def columns(frame: pd.DataFrame, part: str) -> np.ndarray:
    return frame[[column for column in frame if part in column]].to_numpy()


def test_the_scenario_has_its_known_effects_and_each_body_does_what_it_does_alone(tmp_path: Path) -> None:
    batched = document()
    alone = document()
    (entry,) = alone["schedule"][0]["passive"]["environments"]
    params = entry["environment"]["params"]
    entry["environment"]["name"] = "palaestrai_mosaik.environment.grid:GridEnvironment"
    for name in ("batch", "spread"):
        del params[name]
    number = 7
    params["start"] = 96 * 5 * number
    entry["reward"] = {
        "name": "palaestrai_mosaik.environment.grid:GridReward",
        "params": params.pop("rewards"),
    }
    (agent,) = alone["schedule"][0]["passive"]["agents"]
    del agent["bodies"]
    agent |= {"sensors": ["grid.sgen-*.vm_pu"], "actuators": ["grid.sgen-*.q_mvar"]}
    with Store(tmp_path / "batched", create=True) as many, Store(tmp_path / "alone", create=True) as one:
        execute(from_mapping(batched), store=many)
        execute(from_mapping(alone), store=one)
        outside = {}
        for phase in ("passive", "droop", "integrating"):
            steps, states = rows(many, phase)
            assert len(steps) == 64 * 95
            assert len(states) == 64 * 96
            voltages = columns(states, ".bus-")
            outside[phase] = float(((voltages < 0.95) | (voltages > 1.05)).mean())
            expected_steps, expected_states = rows(one, phase)
            steps, states = steps[steps["body"] == number], states[states["incarnation"] == number]
            for frame, expected, parts in (
                (steps, expected_steps, (".vm_pu", ".q_mvar", "objective")),
                (states, expected_states, (".vm_pu", ".converged")),
            ):
                for part in parts:
                    found, right = columns(frame, part), columns(expected, part)
                    assert found.size
                    np.testing.assert_allclose(found, right, rtol=0.0, atol=1e-8)
    # the share of buses and states outside of 0.95 to 1.05
    assert outside["passive"] > 0.02
    assert outside["droop"] < outside["passive"] / 10
    # only in the first states, before anybody has acted
    assert outside["integrating"] < 2e-4
