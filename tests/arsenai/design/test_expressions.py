"""Expressions over factors: what they mean, and that nothing else can be written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.factors import refused

from palaestrai_mosaik.arsenai.design.expressions import Expression
from palaestrai_mosaik.arsenai.design.model import INACTIVE, Choice, Factor
from palaestrai_mosaik.core.errors import DocumentError

PPO = {"name": "ppo:Brain"}
ALGORITHM = Factor("algorithm", "levels", "p", levels=(PPO, {"name": "sac:Brain"}), labels=("ppo", "sac"))
SIZE = Factor("size", "levels", "q", levels=(1, 2, "1"), labels=("one", "2", "text"))
AGENTS = Factor(
    "phase_0.agents", "levels", choice=Choice(0, "agents"), levels=(["a"], ["a", "b"]), labels=("a", "a+b")
)
FACTORS = (
    Factor("low", "float", "l"),
    Factor("high", "float", "h"),
    Factor("lambda", "float", "x"),
    Factor("my gain", "float", "y"),
    ALGORITHM,
    SIZE,
    AGENTS,
)
VALUES: dict[str, Any] = {
    "low": 1.0,
    "high": 3,
    "lambda": 0.5,
    "my gain": -2,
    "algorithm": PPO,
    "size": 2,
    "phase_0.agents": "a+b",
}


def holds(text: str, inactive: bool = False, **changed: Any) -> bool:
    return Expression.parse(text, FACTORS).evaluate({**VALUES, **changed}, inactive)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("low < high", True),
        ("0 < low <= 1 < high < 3", False),
        ("low + 2 == high and not low > high", True),
        ("high ** 2 - 3 * low // 2 % 2 == 8", True),
        ("high / 2 == 1.5 or low / 0 > 1", True),
        ("-low < +low", True),
        ('factor["lambda"] < 1 and factor["my gain"] < 0', True),
        ('abs(factor["my gain"]) == 2 and max(low, high) == 3 and min([low, high]) == 1', True),
        ('phase_0.agents == "a+b"', True),
        ('phase_0.agents in ["a"]', False),
        ('"b" in phase_0.agents', True),
        ('algorithm == "ppo"', True),
        ('algorithm != "ppo"', False),
        ('algorithm in ("sac", "ppo")', True),
        ('algorithm not in {"sac"}', True),
        ("size == 2", True),
        ('size == "2"', True),
        ("size < 3", True),
        ('size == "one"', False),
        ("low == True", False),
    ],
)
def test_expressions(text: str, expected: bool) -> None:
    assert holds(text) is expected


def test_a_level_equals_its_value_and_its_label_and_no_other_level() -> None:
    assert holds('size == "one"', size=1)
    assert holds("size == 1", size=1)
    assert not holds("size == 1", size="1")
    assert holds('size == "text"', size="1")
    assert holds('size == "1"', size="1")
    assert holds('algorithm == "sac"', algorithm={"name": "sac:Brain"})
    assert holds('algorithm == "sac"', algorithm="sac")


def test_inactive_factors_leave_open_what_depends_on_them() -> None:
    for inactive in (True, False):
        assert holds("low < high", inactive, low=INACTIVE) is inactive
        assert holds("not low < high", inactive, low=INACTIVE) is inactive
        assert holds("low < high or high == 3", inactive, low=INACTIVE) is True
        assert holds("high == 3 or low < high", inactive, low=INACTIVE) is True
        assert holds("low < high and high == 2", inactive, low=INACTIVE) is False
        assert holds("low < high and high == 3", inactive, low=INACTIVE) is inactive
        assert holds("low != 1", inactive, low=INACTIVE) is inactive


def test_the_names_of_an_expression() -> None:
    text = 'phase_0.agents == "a" or factor["my gain"] < high < factor["my gain"]'
    assert Expression.parse(text, FACTORS).names == ("phase_0.agents", "my gain", "high")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lo < 1", "names 'lo', which is no factor (did you mean 'low'?); factors: low, high"),
        ("phase_0.agent == 'a'", "did you mean 'phase_0.agents'?"),
        (
            'algorithm == "pppo"',
            "with 'pppo', which is none of its levels (did you mean 'ppo'?); levels: ppo, sac",
        ),
        ('"sad" == algorithm', "none of its levels (did you mean 'sac'?)"),
        ('algorithm in ["ppo", "sad"]', "none of its levels (did you mean 'sac'?)"),
        ("lambda < 1", 'A name that is none of Python\'s is written factor["name"]'),
        ("low = 1", "is not understood"),
        ("low <", "is not understood"),
        ("", "is not understood"),
        ("low.real < 1", "names 'low.real', which is no factor"),
        ("low[0] < 1", "may not hold 'low[0]'"),
        ("(low).__class__ == 1", "names 'low.__class__'"),
        ("__import__('os')", "may not hold \"__import__('os')\""),
        ("[x for x in [1]]", "may not hold"),
        ("(lambda: 1)() == 1", "may not hold"),
        ("low if high else 1", "may not hold"),
        ("f'{low}' == 1", "may not hold"),
        ("low is high", "may not hold"),
        ("low @ high == 1", "may not hold"),
        ("~high == 1", "may not hold"),
        ("b'x' == low", "may not hold"),
        ("1j == low", "may not hold"),
        ("{1: 2} == low", "may not hold"),
        ("max(*[low]) == 1", "may not hold"),
        ("max(low, key=abs) == 1", "may not hold"),
        ("max() == low", "gives max 0 values"),
        ("max(low) == low", "gives max one value; it takes several"),
        ("abs(low, high) == 1", "gives abs 2 values"),
        ("low == " + "1" * 2000, "has 2007 characters; at most 1000 are read"),
        ("(" * 300 + "low" + ")" * 300 + " < 1", "the expression"),
        ("low == " + "-" * 900 + "1", "the expression"),
    ],
)
def test_what_is_no_expression_is_refused(text: str, message: str) -> None:
    assert message in str(refused(lambda: Expression.parse(text, FACTORS).evaluate(VALUES)))


@pytest.mark.parametrize(
    "text",
    [
        "2 ** 100 < low",
        "9 ** 60 ** 60 < low",
        "10.0 ** 64 ** 64 < low",
        "(0 - 1) ** 0.5 < low",
        "low / (high - 3) < 1",
        'low < "a"',
        "algorithm < 1",
        'phase_0.agents * 2 == "aa"',
        "low in high",
        "low in phase_0.agents",
        "True + low < 3",
    ],
)
def test_what_cannot_be_computed_is_an_error_that_gives_the_values(text: str) -> None:
    with pytest.raises(DocumentError, match="cannot be computed for"):
        Expression.parse(text, FACTORS).evaluate(VALUES)


@given(
    st.lists(
        st.sampled_from(
            [
                "low",
                "high",
                "algorithm",
                ".",
                "[",
                "]",
                "(",
                ")",
                "'",
                '"',
                "**",
                "*",
                "//",
                "%",
                "+",
                "-",
                "<",
                "==",
                "in",
                "not",
                "and",
                "or",
                ",",
                "9999999",
                "1e308",
                "abs",
                "max",
                "'ppo'",
                "factor",
                "__class__",
                "lambda",
                ":",
                "if",
                "else",
                "for",
            ]
        ),
        max_size=14,
    ).map(" ".join)
    | st.text(max_size=30)
)
def test_any_text_is_an_expression_with_a_truth_value_or_an_error(text: str) -> None:
    try:
        assert isinstance(Expression.parse(text, FACTORS).evaluate(VALUES), bool)
    except DocumentError as error:
        assert "the expression" in str(error)


def test_names_may_be_given_without_factors() -> None:
    assert Expression.parse("a < b", ["a", "b"]).evaluate({"a": 1, "b": 2})
