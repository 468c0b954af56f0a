"""What goes together: combinations that are refused, and the known answers that say why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from SALib.analyze import fast as fast_analysis
from SALib.analyze import morris as morris_analysis
from SALib.analyze import sobol as sobol_analysis
from support.factors import design, levels, number

from palaestrai_mosaik.arsenai.design import from_mapping
from palaestrai_mosaik.arsenai.design.decode import decode
from palaestrai_mosaik.arsenai.design.methods import METHODS
from palaestrai_mosaik.arsenai.design.model import DesignSpec, OutcomeSpec
from palaestrai_mosaik.arsenai.design.rules import check_sampler, default_methods
from palaestrai_mosaik.arsenai.design.samplers import SAMPLERS, problem, sample
from palaestrai_mosaik.core.errors import DocumentError

X, Y = number("x"), number("y")
FREE = number("free", None, None, dist="normal", params={"mean": 0, "std": 1})
AGENT = levels("agent", "ppo", "sac", "idle")
SIZE = levels("size", 8, 16, 32, ordered=True)
SWITCH = levels("switch", False, True)
COUNT = number("count", 1, 4, kind="int")
UNEVEN = levels("uneven", 1, 2, weights=(0.75, 0.25))
HUGE = number("huge", 0, 10**12, kind="int")

SOUND = [
    design([X, AGENT, SIZE, COUNT, FREE], "sobol", 64, methods=["sobol", "pawn", "delta"]),
    design([X, AGENT], "sobol", 64, methods=["shapley"]),
    design([X, SIZE, COUNT], "morris", 10, {"levels": 6}),
    design([X, number("k", 1, 50, kind="int"), Y], "fast", 65, methods=["fast"]),
    design([X, Y, FREE], "finite_differences", 64, methods=["dgsm"]),
    design([X, AGENT, FREE], "lhs", 10, {"optimize": "maximin"}, constraints=["x < 0.5"]),
    design([X, FREE], "random", 10, constraints=["x < 0.5"], methods=["rbd_fast", "pawn", "delta"]),
    design([AGENT, SIZE, COUNT], constraints=["count < 3"], methods=["anova"]),
    design([UNEVEN, X], "lhs", 10),
    design([AGENT, HUGE], options={"levels": {"huge": 3}}),
    design([X, SWITCH, COUNT], "fractional_factorial", methods=["anova"]),
    design([X, SWITCH, COUNT], "plackett_burman", 12, {"foldover": True}),
    design([]),
]


@pytest.mark.parametrize("spec", SOUND, ids=lambda spec: spec.sampler.name)
def test_what_goes_together_is_taken(spec: DesignSpec) -> None:
    assert check_sampler(spec) == []
    assert len(sample(spec).unit) == SAMPLERS[spec.sampler.name].rows(spec)


REFUSED: list[tuple[DesignSpec, tuple[Any, ...], str]] = [
    (design([X], "sobel", 8), ("sampler",), "no sampler is called 'sobel' (did you mean 'sobol'?)"),
    (design([X], "sobol", 8, {"scrambel": True}), ("sampler", "scrambel"), "did you mean 'scramble'"),
    (design([X], "sobol", 8, {"scramble": 1}), ("sampler", "scramble"), "true or false, found the number 1"),
    (design([X], "lhs", 8, {"optimize": "cd"}), ("sampler", "optimize"), "one of none, maximin, discrepancy"),
    (design([X], "sobol"), ("sampler",), "needs n, the number of its base points"),
    (design([X], "sobol", 100), ("sampler", "n"), "found 100, the nearest are 64 and 128"),
    (design([X], "sobol", 1), ("sampler", "n"), "found 1, the nearest are 2 and 4"),
    (design([AGENT], "factorial", 10), ("sampler", "n"), "takes no n"),
    (design([X], "fast", 64), ("sampler", "n"), "larger than 4 M**2 = 64, found 64"),
    (
        design([X], "fast", 64, {"M": "4"}),
        ("sampler", "M"),
        "M must be a whole number of at least 1, found the string '4'",
    ),
    (design([X], "morris", 1), ("sampler", "n"), "at least 2 trajectories"),
    (design([X], "morris", 5, {"levels": 5}), ("sampler", "levels"), "an even number"),
    (design([X], "morris", 5, {"optimal": 5}), ("sampler", "optimal"), "n must be larger"),
    (design([X], "morris", 5, {"trajectories": 5}), ("sampler", "n"), "are the same; keep one"),
    (design([X], "lhs", 5000, {"optimize": "maximin"}), ("sampler", "optimize"), "n is at most 2,000"),
    (design([], "lhs", 5), ("sampler",), "the design has none"),
    (design([X]), ("sampler",), "sampler: {name: factorial, levels: {x: 3}}"),
    (design([X], options={"levels": 1}), ("sampler", "levels"), "at least 2"),
    (design([X], options={"levels": {"z": 3}}), ("sampler", "levels", "z"), "no factor is called 'z'"),
    (design([number(c) for c in "abc"], options={"levels": 200}), ("sampler",), "8,000,000 rows"),
    # two levels
    (design([X, AGENT], "fractional_factorial"), ("factors", "agent"), "agent has 3; keep two of them"),
    (design([X, AGENT], "plackett_burman"), ("factors", "agent"), "choose factorial or lhs"),
    (design([X] * 9, "plackett_burman", 8), ("sampler", "n"), "found 8, the nearest are 12 and 16"),
    (design([X, Y], "plackett_burman", 92), ("sampler", "n"), "found 92, the nearest are 88 and 96"),
    (
        design([X, Y], "fractional_factorial", None, {"generators": ["b=ac"]}),
        ("sampler", "generators"),
        "'b=ac': there is no factor 'c'; the 2 factors are a to b",
    ),
    (
        design([X, Y, COUNT], "fractional_factorial", None, {"generators": ["b=ca", "c=ab"]}),
        ("sampler", "generators"),
        "must be a product of factors that no generator sets",
    ),
    (
        design([X, Y, COUNT], "fractional_factorial", None, {"generators": "c=ab"}),
        ("sampler", "generators"),
        'such as "d=abc"',
    ),
    # weights that would be ignored
    *[
        (
            design([UNEVEN, X], name, None, options),
            ("factors", "uneven", "weights"),
            "choose lhs, random or sobol",
        )
        for name, options in [
            ("factorial", {"levels": 3}),
            ("plackett_burman", {}),
            ("fractional_factorial", {}),
        ]
    ],
    # more than any memory holds
    *[
        (
            design([X, Y], name, 10**12),
            ("sampler", "n"),
            "n must be at most 10,000,000, found the number 1000000",
        )
        for name in ("lhs", "random", "fast", "finite_differences", "morris")
    ],
    (
        design([X, Y], "random", 6_000_000),
        ("sampler",),
        "has at most 10,000,000 numbers; the largest n that fits",
    ),
    (design([X, Y], "random", 6_000_000), ("sampler",), "n that fits is 5,000,000"),
    (design([X, Y], "sobol", 2**20), ("sampler",), "the largest n that fits is 524,288"),
    (
        design([AGENT, HUGE], max_runs=10**12),
        ("sampler",),
        "huge has 1,000,000,000,001 values; tell how many",
    ),
    (design([X, Y], options={"levels": 10**12}), ("sampler", "levels"), "at most 1,000,000"),
    (
        design([X, Y, COUNT], options={"levels": 10**6}, max_runs=10**7),
        ("max_runs",),
        "makes 10,000,000 rows of 3 numbers",
    ),
    (design([X], "morris", 5, {"levels": 10**12}), ("sampler", "levels"), "an even number from 2 to 200"),
    (design([X], "morris", 5000, {"optimal": 5}), ("sampler", "optimal"), "n is at most 2,000"),
    # ends that do not exist
    *[
        (design([X, FREE], name, n, options), ("factors", "free"), "give it low and high")
        for name, n, options in [
            ("factorial", None, {"levels": 3}),
            ("morris", 4, {}),
            ("plackett_burman", None, {}),
            ("fractional_factorial", None, {}),
            ("sobol", 8, {"scramble": False}),
        ]
    ],
    # the order of levels
    (design([X, AGENT], "morris", 4), ("sampler",), "does not hold for agent: an elementary effect"),
    (design([X, AGENT], "fast", 65), ("sampler",), "the indices are too low"),
    (design([X, SIZE, COUNT], "fast", 65), ("sampler",), "does not hold for size and count"),
    (design([X, AGENT], "finite_differences", 8), ("sampler",), "no derivative"),
    (design([X, COUNT], "finite_differences", 8), ("sampler",), "choose sobol, whose indices hold for any"),
    (design([X, AGENT], "lhs", 8, methods=["rbd_fast"]), ("analysis", "methods", 0), "pawn and delta do"),
    # rows that must not be left out
    *[
        (design([X, Y], name, n, constraints=["x < y"]), ("constraints",), "choose lhs or random")
        for name, n in [
            ("sobol", 8),
            ("morris", 4),
            ("fast", 65),
            ("finite_differences", 8),
            ("plackett_burman", None),
            ("fractional_factorial", None),
        ]
    ],
    (design([X, Y], "sobol", 64, max_runs=100), ("max_runs",), "makes 384 rows and none can be left out"),
    (design([X, Y], "sobol", 64, max_runs=100), ("max_runs",), "the largest n that fits is 16"),
    (design([X, Y], "sobol", 64, max_runs=5), ("max_runs",), "even n: 1 has 6 rows"),
    (design([X, Y], "morris", 9, max_runs=16), ("max_runs",), "the largest n that fits is 5"),
    (
        design([X, Y], "morris", 9, {"optimal": 6}, max_runs=16),
        ("max_runs",),
        "largest optimal that fits is 5",
    ),
    (design([X, Y], "plackett_burman", max_runs=3), ("max_runs",), "raise it to 4"),
    # groups
    (design([X, Y], "lhs", 8, groups={"x": "g"}), ("groups",), "choose sobol, morris"),
    (design([X, Y], "sobol", 8, groups={"x": "g", "y": "g"}), ("groups",), "nothing to tell apart"),
    (design([X, Y, COUNT], "sobol", 8, groups={"x": "y"}), ("groups", "y"), "is a group and a factor"),
    (
        design([X, Y, COUNT], "sobol", 8, groups={"x": "g", "y": "g"}, methods=["pawn"]),
        ("analysis", "methods", 0),
        "gives no indices of groups; leave the groups out, or choose sobol, shapley",
    ),
    # methods
    (design([X], "lhs", 8, methods=["pwan"]), ("analysis", "methods", 0), "did you mean 'pawn'"),
    (
        design([X], "lhs", 8, methods=["pawn", "sobol"]),
        ("analysis", "methods", 1),
        "needs the blocks of Saltelli's sample (sobol); methods that fit lhs: rbd_fast, delta, pawn",
    ),
    (
        design([X, Y], "morris", 8, methods=["anova"]),
        ("analysis", "methods", 0),
        "methods that fit morris: morris",
    ),
    (
        design([X, Y], "sobol", 8, {"second_order": False}, methods=["shapley"]),
        ("analysis", "methods", 0),
        "needs second_order: true",
    ),
]


@pytest.mark.parametrize(
    ("spec", "place", "message"),
    REFUSED,
    ids=[f"{s.sampler.name}-{i}" for i, (s, _, _) in enumerate(REFUSED)],
)
def test_what_does_not_go_together_is_refused_with_a_reason(
    spec: DesignSpec, place: tuple[Any, ...], message: str
) -> None:
    found = check_sampler(spec)
    assert any(at == place and message in text for at, text in found), found


def test_loading_a_design_refuses_it_at_the_place() -> None:
    phase = {
        "environments": [{"environment": {"uid": "e", "name": "m:E", "params": {"a": 1, "b": 2}}}],
        "agents": [],
        "simulation": {"name": "vanilla"},
        "phase_config": {"mode": "train"},
    }
    where = "schedule.phase.environments.e.environment.params"
    with pytest.raises(DocumentError) as error:
        from_mapping(
            {
                "uid": "d",
                "seed": 1,
                "base": {"schedule": [{"phase": phase}]},
                "factors": [{"path": f"{where}.a", "low": 0, "high": 1}],
                "sampler": {"name": "sobol", "n": 100},
            }
        )
    assert [one.path for one in error.value.problems] == ["sampler.n"]


def test_every_sampler_has_its_methods() -> None:
    assert set(METHODS) == {
        "sobol", "shapley", "morris", "fast", "rbd_fast", "delta", "pawn", "dgsm", "anova"
    }  # fmt: skip
    assert {name for method in METHODS.values() for name in method.samplers} == {*SAMPLERS} - {"adaptive"}
    defaults = {
        "factorial": ("anova",),
        "fractional_factorial": ("anova",),
        "plackett_burman": ("anova",),
        "lhs": ("rbd_fast", "pawn"),
        "sobol": ("sobol", "shapley"),
        "morris": ("morris",),
        "fast": ("fast",),
        "finite_differences": ("dgsm",),
        "random": ("rbd_fast", "pawn"),
        "adaptive": (),
        "points": (),
    }
    assert {name: default_methods(design([X, Y], name, 8)) for name in SAMPLERS} == defaults
    assert default_methods(design([X, AGENT], "lhs", 1999)) == ("pawn",)
    assert default_methods(design([X, AGENT], "lhs", 2000)) == ("pawn", "delta")
    assert default_methods(design([number(c) for c in "abcdef"], "sobol", 8)) == ("sobol",)
    assert default_methods(design([])) == ()


# the known answers behind the rules: a in {0, 1, 3}, b in {0, 2}, y = a + b, var a : var b = 14 : 9

ORDERS = [(0, 1, 3), (1, 0, 3), (0, 3, 1)]


def outcome(spec: DesignSpec, unit: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.array([float(row["a"] + row["b"]) for row in decode(spec, unit)])


def additive(order: tuple[int, ...], sampler: str, n: int, **options: Any) -> DesignSpec:
    return design([levels("a", *order), levels("b", 0, 2)], sampler, n, options)


@pytest.mark.parametrize("order", ORDERS)
def test_sobol_indices_hold_for_nominal_factors_in_any_order(order: tuple[int, ...]) -> None:
    spec = additive(order, "sobol", 512)
    unit = sample(spec).unit
    found = sobol_analysis.analyze(problem(spec), outcome(spec, unit), num_resamples=2, seed=1)
    assert found["S1"] == pytest.approx([14 / 23, 9 / 23], abs=0.02)
    assert found["ST"] == pytest.approx([14 / 23, 9 / 23], abs=0.02)


@pytest.mark.filterwarnings("ignore:FAST confidence intervals")
def test_efast_is_biased_low_for_levels() -> None:
    spec = additive((1, 0, 3), "fast", 1025)
    unit = SAMPLERS["fast"].draw(spec).unit
    found = fast_analysis.analyze(problem(spec), outcome(spec, unit), num_resamples=2, seed=1)
    assert found["S1"][0] < 14 / 23 - 0.1 and found["S1"][1] < 9 / 23 - 0.03


def test_elementary_effects_depend_on_the_order_of_levels() -> None:
    means = []
    for order in ORDERS:
        spec = additive(order, "morris", 100, levels=6)
        unit = SAMPLERS["morris"].draw(spec).unit
        found = morris_analysis.analyze(
            problem(spec), unit, outcome(spec, unit), num_levels=6, num_resamples=2, seed=1
        )
        means.append(found["mu"][0])
    assert max(means) > 1.5 * min(means)


def test_a_known_answer_by_the_sobol_sample_of_continuous_factors() -> None:
    # Ishigami and Homma (1990): a = 7, b = 0.1
    spec = design([number(f"x{i}", -np.pi, np.pi) for i in (1, 2, 3)], "sobol", 1024)
    x = np.array([list(row.values()) for row in decode(spec, sample(spec).unit)])
    y = np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])
    found = sobol_analysis.analyze(problem(spec), y, num_resamples=2, seed=1)
    assert found["S1"] == pytest.approx([0.3139, 0.4424, 0], abs=0.05)
    assert found["ST"] == pytest.approx([0.5576, 0.4424, 0.2437], abs=0.05)
    assert found["S2"][0, 2] == pytest.approx(0.2437, abs=0.05)


OUTCOME = OutcomeSpec("y", "objective")


@pytest.mark.parametrize(
    ("sampler", "n", "options", "place", "message"),
    [
        ("adaptive", 20, {}, (), "adaptive needs condition, an expression over outcomes"),
        ("adaptive", 20, {"condition": "z > 1"}, ("condition",), "names 'z', which is no outcome"),
        ("adaptive", 20, {"condition": 3}, ("condition",), "condition must be an expression over outcomes"),
        ("adaptive", 9, {"condition": "y > 1"}, ("n",), "n must be at least 10, found 9"),
        ("adaptive", 20, {"until": 5, "condition": "y > 1"}, ("until",), "until must be a mapping"),
        ("adaptive", 20, {"batch": 0, "condition": "y > 1"}, ("batch",), "batch must be a whole number"),
        (
            *("adaptive", 20, {"condition": "y > 1", "until": {"interval": 0.1}}, ("until", "interval")),
            "unknown key 'interval' of until; allowed: overlap, rounds, max_n",
        ),
        (
            *("adaptive", 20, {"condition": "y > 1", "until": {"max_n": 19}}, ("until", "max_n")),
            "max_n is 19, and the first round has n = 20 already",
        ),
        ("sobol", 8, {"until": {}}, ("until",), "until needs interval"),
        ("sobol", 8, {"until": {"interval": 5}}, ("until", "interval"), "a number between 0 and 1, found"),
        (
            *("sobol", 8, {"until": {"intervall": 0.1}}, ("until", "intervall")),
            "unknown key 'intervall' of until (did you mean 'interval'?); allowed: interval, outcomes, max_n",
        ),
        (
            "sobol",
            8,
            {"until": {"interval": 0.1, "max_n": 24}},
            ("until", "max_n"),
            "max_n must be a power of two",
        ),
        (
            *("sobol", 8, {"until": {"interval": 0.1, "outcomes": ["Y"]}}, ("until", "outcomes")),
            "until names 'Y', which is no outcome (did you mean 'y'?); outcomes: y",
        ),
        (
            *("sobol", 8, {"until": {"interval": 0.1, "max_n": 2**29}}, ("until", "max_n")),
            "a sample has at most 10,000,000 numbers",
        ),
    ],
)
def test_what_is_wrong_with_rounds(sampler, n, options, place, message) -> None:
    spec = replace(design([X, Y], sampler, n, options), outcomes=(OUTCOME,))
    ((found, told),) = check_sampler(spec)
    assert found == ("sampler", *place)
    assert message in told


def test_rounds_and_a_maximum_of_rows_do_not_go_together() -> None:
    spec = design([X, Y], "sobol", 8, {"until": {"interval": 0.1}}, max_runs=100)
    ((place, message),) = check_sampler(spec)
    assert place == ("max_runs",) and "until: {max_n: ...}" in message
