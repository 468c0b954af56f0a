"""The grid's rewards, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from palaestrai_mosaik.core.errors import ContractError, DocumentError
from palaestrai_mosaik.environment.environment import EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.environment.grid import GridReward
from palaestrai_mosaik.environment.grid.rewards import _TERMS, gauss
from palaestrai_mosaik.types import Box, SensorInformation

UIDS = (
    "grid.converged",
    "bus-0.vm_pu",
    "bus-3.vm_pu",
    "bus-7.vm_pu",
    "bus-8.vm_pu",
    "line-0.loading",
    "line-1.loading",
    "trafo-0.loading",
    "ext_grid-0.p_mw",
    "ext_grid-1.p_mw",
    "ext_grid-0.q_mvar",
    "ext_grid-1.q_mvar",
    "storage-0.soc",
)
READINGS = (1, 1.0, 1.06, 0.93, 0.0, 50.0, 130.0, 90.0, 3.0, -6.0, 4.0, 8.0, 0.5)


def baseline(uids: Any = UIDS) -> EnvironmentBaseline:
    return EnvironmentBaseline([SensorInformation(0.0, Box(-np.inf, np.inf, shape=()), u) for u in uids], [])


def rewards(readings: Any = READINGS, **params: Any) -> dict[str, float]:
    reward = GridReward(**params)
    declared = reward.setup(baseline())
    values = reward(EnvironmentState(np.array(readings, dtype=float)))
    assert all(r.space.contains(float(v)) for r, v in zip(declared, values, strict=True))
    return dict(zip((r.uid for r in declared), values, strict=True))


def bell(voltage: float) -> float:
    return math.exp(-((voltage - 1) ** 2) / (2 * 0.032**2))


@pytest.mark.parametrize(
    ("term", "value"),
    [
        ("voltage_band", 3 / 4),
        ("voltage_band_count", 3),
        ("voltage_excess", 0.01 + 0.02 + 0.95),
        ("voltage_deviation", (0.06**2 + 0.07**2 + 1.0) / 4),
        ("line_loading", 1.3),
        ("line_overload", 0.3),
        ("trafo_loading", 0.9),
        ("trafo_overload", 0.0),
        ("ext_grid_exchange", 5.0 + 10.0),
        # 3 of 4 buses energised, 2 of 3 branches not overloaded
        ("defender", (bell(2.99 / 4) + (1 + bell(1.06) + bell(0.93) + bell(0.0)) / 4 + 5 / 7) / 3),
        ("attacker", 1 - (bell(2.99 / 4) + (1 + bell(1.06) + bell(0.93) + bell(0.0)) / 4 + 5 / 7) / 3),
    ],
)
def test_terms_by_hand(term: str, value: float) -> None:
    assert rewards(terms=[term]) == {term: pytest.approx(value, abs=1e-12)}


def test_every_term_is_tested_by_hand() -> None:
    (mark,) = test_terms_by_hand.pytestmark  # type: ignore[attr-defined]
    assert {term for term, _ in mark.args[1]} == set(_TERMS)


def test_gauss() -> None:
    assert gauss(1.0) == 1.0
    assert gauss([0.968, 1.032]) == pytest.approx([math.exp(-0.5)] * 2)
    assert gauss(1.05) == pytest.approx(0.29502, abs=1e-5)


def test_a_perfect_grid() -> None:
    found = rewards((1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0))
    assert found == {"defender": 1.0, "attacker": 0.0}


def test_every_state_is_looked_at_anew() -> None:
    reward = GridReward()
    reward.setup(baseline())
    first = reward(EnvironmentState(np.array(READINGS, dtype=float)))
    second = reward(EnvironmentState(np.array((1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0), dtype=float)))
    assert first[0] < 1.0
    assert second.tolist() == [1.0, 0.0]


def test_weights_and_total() -> None:
    found = rewards(terms={"line_overload": -2.0, "voltage_band_count": -0.5}, total="cost")
    assert list(found) == ["line_overload", "voltage_band_count", "cost"]
    assert found["cost"] == pytest.approx(-2.0 * 0.3 - 0.5 * 3)


def test_another_band() -> None:
    assert rewards(terms=["voltage_band_count"], band_low=0.9, band_high=1.1) == {"voltage_band_count": 1}


@settings(max_examples=50)
@given(arrays(float, 4, elements=st.floats(0, 2)), arrays(float, 3, elements=st.floats(0, 300)))
def test_defender_and_attacker_are_zero_sum(voltage: Any, loading: Any) -> None:
    found = rewards([1, *voltage, *loading, 0, 0, 0, 0, 0])
    assert found["defender"] + found["attacker"] == pytest.approx(1.0)
    assert 0.0 <= found["defender"] <= 1.0
    better = rewards([1, *(1 + (voltage - 1) / 2), *(loading / 2), 0, 0, 0, 0, 0])
    assert better["defender"] >= found["defender"] - 1e-12


def test_missing_sensors() -> None:
    with pytest.raises(ContractError, match=r"'defender' needs the sensors bus\.vm_pu"):
        GridReward().setup(baseline([u for u in UIDS if not u.startswith("bus")]))


def test_sensors_in_any_order() -> None:
    """Places are found by uid: readings and uids shuffled alike give the same rewards."""
    order = np.random.default_rng(0).permutation(len(UIDS))
    reward = GridReward(terms=list(_TERMS))
    reward.setup(baseline([UIDS[i] for i in order]))
    shuffled = reward(EnvironmentState(np.array(READINGS, dtype=float)[order]))
    np.testing.assert_allclose(shuffled, list(rewards(terms=list(_TERMS)).values()))


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"terms": ["defnder"]}, "did you mean 'defender'"),
        ({"terms": []}, "at least one"),
        ({"total": "defender"}, "needs a name of its own"),
        ({"band_low": 1.1}, "not below"),
    ],
)
def test_wrong_parameters(params: Any, text: str) -> None:
    with pytest.raises(DocumentError, match=text):
        GridReward(**params)
