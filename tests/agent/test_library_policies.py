"""Policies with few weights: by hand, their spaces, and what they refuse."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.agent.library.policies import (
    DensePolicy,
    Perceptron,
    Policy,
    PolicyOptions,
    Scaling,
    SharedPolicy,
)
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types import Box, Discrete, Space
from palaestrai_mosaik.types.vectors import Layout

VOLTAGE, ANY, SHARE = Box(0.0, 2.0, shape=()), Box(-np.inf, np.inf, shape=()), Box(0.0, 1.0, shape=())


def layout(**spaces: Space) -> Layout:
    """Channels named by keyword; ``__`` stands for a dot, ``_`` for a dash."""
    return Layout([uid.replace("__", ".").replace("_", "-") for uid in spaces], list(spaces.values()))


def act(policy: Policy, weights: Any, readings: Any) -> Any:
    """Return the set-points of the only body."""
    return policy.setpoints(np.array([weights]), np.array([readings]), np.array([0]))[0]


def test_a_perceptron_by_hand() -> None:
    network = Perceptron(2, [1], 2)
    assert network.size == (2 + 1) * 1 + (1 + 1) * 2
    weights = np.array([0.5, -1.0, 0.25, 2.0, -3.0, 0.1, 0.2])
    hidden = np.tanh(0.5 * 1.0 - 1.0 * 2.0 + 0.25)
    assert network(weights[np.newaxis], np.array([[[1.0, 2.0]]])) == pytest.approx(
        np.array([[[2.0 * hidden + 0.1, -3.0 * hidden + 0.2]]])
    )


def test_scaling_by_space_and_pattern() -> None:
    seen = layout(g__a_1__vm=VOLTAGE, g__a_2__vm=VOLTAGE, g__x=ANY, g__soc=SHARE)
    center, width = Scaling().of(seen)
    assert (center.tolist(), width.tolist()) == ([1.0, 1.0, 0.0, 0.5], [1.0, 1.0, 1.0, 0.5])
    center, width = Scaling({"g.*.vm": [1.0, 0.05], "g.a-2.*": [0.9, 0.1], "g.x": [5, 2]}).of(seen)
    assert (center.tolist(), width.tolist()) == ([1.0, 0.9, 5.0, 0.5], [0.05, 0.1, 2.0, 0.5])


@pytest.mark.parametrize(
    ("patterns", "text"),
    [
        ({"g.vn": [0.0, 1.0]}, "scales: 'g.vn' fits no sensor of the agent .did you mean 'g.vm'"),
        ({"g.vm": [0.0, 0.0]}, "needs .center, width., the width positive"),
        ({"g.vm": [0.0]}, "needs .center, width."),
        ({"g.vm": [np.nan, 1.0]}, "needs .center, width."),
        ({"g.vm": 2}, "needs .center, width., the width positive, not 2"),
        ({"g.vm": ["a", "b"]}, "needs .center, width."),
    ],
)
def test_scales_that_cannot_be(patterns: Any, text: str) -> None:
    with pytest.raises(ContractError, match=text):
        Scaling(patterns).of(layout(g__vm=VOLTAGE))


def test_whole_numbers_in_scales_mean_the_same() -> None:
    signatures = {grid_policy(scaling=Scaling({"*.vm": pair}))[0].signature for pair in ([1, 2], (1.0, 2.0))}
    assert len(signatures) == 1


@pytest.mark.parametrize("options", [{}, {"increments": True}, {"feedback": True}])
def test_a_reading_of_nan_is_named(options: dict[str, Any]) -> None:
    pair = Box(-1.0, 1.0, shape=(2,))
    policy = DensePolicy(layout(x=ANY, p=pair, y=ANY), layout(q=SHARE), PolicyOptions(**options))
    with pytest.raises(ContractError, match="needs all readings, but 'p' gave NaN"):
        act(policy, np.ones(policy.size), np.array([0.0, 0.0, np.nan, np.nan]))
    assert np.isfinite(act(policy, np.ones(policy.size), np.zeros(4))).all()


def test_a_dense_policy_by_hand() -> None:
    policy = DensePolicy(
        layout(x=ANY, y=SHARE), layout(q=Box(-4.0, 2.0, shape=())), PolicyOptions(feedback=True)
    )
    # x, y as -1 ... 1, last set-point as -1 ... 1, constant
    weights = np.array([0.25, 0.5, 0.5, -0.1])
    first = 0.25 * 1.0 + 0.5 * -1.0 + 0.5 * 0.0 - 0.1
    assert act(policy, weights, np.array([1.0, 0.0])) == pytest.approx([-4.0 + 6.0 * (first + 1.0) / 2.0])
    second = 0.25 * 1.0 + 0.5 * -1.0 + 0.5 * first - 0.1
    assert act(policy, weights, np.array([1.0, 0.0])) == pytest.approx([-4.0 + 6.0 * (second + 1.0) / 2.0])
    policy.reset()
    assert act(policy, weights, np.array([1.0, 0.0])) == pytest.approx([-4.0 + 6.0 * (first + 1.0) / 2.0])
    assert act(policy, weights, np.array([100.0, 0.0])).tolist() == [2.0]


def test_increments_add_up() -> None:
    policy = DensePolicy(layout(x=ANY), layout(q=Box(-2.0, 2.0, shape=())), PolicyOptions(increments=True))
    weights = np.array([0.5, 0.1])
    found = [act(policy, weights, np.array([x]))[0] for x in (1.0, 0.0, 1.0, -0.4)]
    # 0.6, 0.7, 1.3 cut to 1, 0.9 of 2
    assert found == pytest.approx([1.2, 1.4, 2.0, 1.8])
    policy.reset()
    assert act(policy, weights, np.array([0.0])) == pytest.approx([0.2])


def test_discrete_actuators_have_parts_of_equal_width() -> None:
    policy = DensePolicy(layout(x=ANY), layout(tap=Discrete(4, start=-2)), PolicyOptions())
    inputs = np.linspace(-1.2, 1.2, 1201)
    taps = np.array([act(policy, np.array([1.0, 0.0]), np.array([x]))[0] for x in inputs])
    assert set(taps) == {-2.0, -1.0, 0.0, 1.0}
    for tap, low in zip((-1, 0, 1), (-0.5, 0.0, 0.5), strict=True):
        assert inputs[taps == tap].min() == pytest.approx(low, abs=0.003)


def grid_policy(
    devices: tuple[int, ...] = (3, 12), reverse: bool = False, **options: Any
) -> tuple[Policy, list[str]]:
    """A shared policy of inverters ``devices`` and one storage; also the uids of its sensors."""
    seen: dict[str, Space] = {f"g__sgen_{i}__vm": VOLTAGE for i in devices}
    seen |= {"g__storage_0__soc": SHARE}
    if reverse:
        seen = dict(reversed(seen.items()))
    set_: dict[str, Space] = {f"g__sgen_{i}__q": Box(-float(i), float(i), shape=()) for i in devices}
    set_ |= {"g__storage_0__p": Box(-1.0, 1.0, shape=())}
    sensors = layout(**seen)
    return SharedPolicy(sensors, layout(**set_), PolicyOptions(**options)), list(sensors.uids)


def test_a_shared_policy_by_hand() -> None:
    policy, _ = grid_policy(scaling=Scaling({"*.vm": [1.0, 0.1]}), context=["g.sgen-*.vm"], feedback=True)
    # inverters: own voltage, own last q, mean voltage, constant; the storage likewise
    q, p = [-0.5, 0.25, -0.25, 0.125], [1.0, 0.5, -0.5, 0.0]
    weights = np.array(q + p)
    assert policy.size == 8
    readings = np.array([1.05, 1.02, 0.75])
    mean = (0.5 + 0.2) / 2
    first = [-0.5 * v - 0.25 * mean + 0.125 for v in (0.5, 0.2)]
    storage = 1.0 * 0.5 - 0.5 * mean
    assert act(policy, weights, readings) == pytest.approx([3 * first[0], 12 * first[1], storage])
    second = [f + 0.25 * f for f in first]
    assert act(policy, weights, readings) == pytest.approx([3 * second[0], 12 * second[1], 1.5 * storage])


def test_the_order_of_channels_does_not_matter() -> None:
    options: dict[str, Any] = {"hidden": [3], "context": ["*.vm"], "feedback": True}
    one, uids = grid_policy(**options)
    other, other_uids = grid_policy(reverse=True, **options)
    assert one.signature == other.signature and one.size == other.size
    rng = np.random.default_rng(0)
    weights, values = rng.normal(size=one.size), dict(zip(uids, (1.05, 1.02, 0.75), strict=True))
    for _ in range(2):
        found = [
            act(p, weights, np.array([values[u] for u in us])) for p, us in ((one, uids), (other, other_uids))
        ]
        assert found[0] == pytest.approx(found[1])


def test_weights_fit_any_number_of_devices() -> None:
    few, _ = grid_policy((3, 12))
    many, _ = grid_policy((1, 2, 3, 77))
    assert (few.signature, few.size) == (many.signature, many.size)
    for options in (
        {"feedback": True},
        {"increments": True},
        {"hidden": [1]},
        {"scaling": Scaling({"*.vm": [1, 2]})},
    ):
        assert grid_policy((3, 12), **options)[0].signature != few.signature
    assert json.loads(few.signature)["kinds"] == {
        "g.sgen-#": [["vm"], ["q"]],
        "g.storage-#": [["soc"], ["p"]],
    }


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1e6))
@settings(max_examples=60)
def test_set_points_lie_in_their_spaces(seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    acting = layout(
        a__q=Box(-0.1, 0.3, shape=()), a__tap=Discrete(5, start=-9), a__pair=Box(1.0, 3.0, shape=(2,))
    )
    for make in (DensePolicy, SharedPolicy):
        policy = make(layout(a__x=ANY, a__y=SHARE), acting, PolicyOptions(hidden=[2], feedback=True))
        for _ in range(3):
            flat = act(policy, rng.normal(size=policy.size) * size, rng.normal(size=2) * size)
            acting.check(flat)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: DensePolicy(layout(x=ANY), layout(q=ANY), PolicyOptions()),
            "needs actuators with bounds, but 'q'",
        ),
        (
            lambda: DensePolicy(layout(x=ANY), layout(q=SHARE), PolicyOptions(hidden=[0])),
            "hidden: .0. are not sizes",
        ),
        (
            lambda: DensePolicy(layout(x=ANY), layout(q=SHARE), PolicyOptions(context=["x"])),
            "context: a dense policy has none",
        ),
        (
            lambda: SharedPolicy(layout(g__bus_1__vm=VOLTAGE), layout(g__sgen_1__q=SHARE), PolicyOptions()),
            "'g.bus-1.vm' belongs to no device that the agent sets",
        ),
        (
            lambda: SharedPolicy(
                layout(g__s_1__v=VOLTAGE), layout(g__s_1__q=SHARE, g__s_2__q=SHARE), PolicyOptions()
            ),
            "same sensors for all devices 'g.s-#', but 'g.s-1' has v and 'g.s-2' has none",
        ),
        (lambda: grid_policy(context=["g.bus-*"]), "context: 'g.bus-.' fits no sensor"),
    ],
)
def test_policies_that_cannot_be(make: Any, text: str) -> None:
    with pytest.raises(ContractError, match=text):
        make()


def grid_of(*starts: str) -> tuple[Layout, Layout]:
    devices = [f"{start}.sgen-{i}" for start in starts for i in range(3)]
    seen, moved = Box(0.0, 2.0, shape=()), Box(-1.0, 1.0, shape=())
    return (
        Layout([f"{device}.vm_pu" for device in devices], [seen] * len(devices)),
        Layout([f"{device}.q_mvar" for device in devices], [moved] * len(devices)),
    )


def test_the_number_of_an_incarnation_does_not_count() -> None:
    """One policy for a grid alone and for each of a batch; names with a number, or {body}, fit all of them."""
    for start in ("grid", "grid.{body}", "grid.7"):
        options = PolicyOptions(
            scaling=Scaling({f"{start}.sgen-1.vm_pu": [1.0, 0.5]}), context=[f"{start}.sgen-2.*"]
        )
        made = [SharedPolicy(*grid_of(own), options) for own in ("grid", "grid.0", "grid.7")]
        assert len({policy.signature for policy in made}) == 1
        assert all(policy._width.tolist() == [1, 0.5, 1] for policy in made)
        assert all(policy._context[0].tolist() == [2] for policy in made)
    # but it tells devices apart where an agent has several of them
    sensors, actuators = grid_of("grid.3", "grid.4")
    assert '"grid.#.sgen-#"' in SharedPolicy(sensors, actuators, PolicyOptions()).signature
    assert Scaling({"grid.3.*": [1, 2]}).of(sensors)[1].tolist() == [2, 2, 2, 1, 1, 1]
    two = Scaling({"grid.0.*": [1, 2], "grid.1.*": [1, 3]})
    for body in range(2):
        with pytest.raises(ContractError, match=r"'grid.0.\*' and 'grid.1.\*' are one name"):
            two.of(grid_of(f"grid.{body}")[0])
