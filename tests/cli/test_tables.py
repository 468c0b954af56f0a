"""Tables, numbers and durations for people."""

import math
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.cli.output import duration, first_line, number, table, text
from palaestrai_mosaik.core.printing import count
from palaestrai_mosaik.store.query.runs import short_ids


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.000169123, "0.00016912"),
        (0.0, "0"),
        (4.5, "4.5"),
        (1.02834567, "1.0283"),
        (0.22766123, "0.22766"),
        (-1.11784, "-1.1178"),
        (20274.68, "20,275"),
        (1234567.8, "1,234,568"),
        (3.2e-7, "3.2e-07"),
        (6.02214e23, "6.022e+23"),
        (math.inf, "inf"),
        (math.nan, "-"),
    ],
)
def test_numbers_have_sensible_digits(value, shown):
    assert number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.412, "0.41 s"),
        (12.34, "12.3 s"),
        (59.97, "1 min 00 s"),
        (192.0, "3 min 12 s"),
        (7505.0, "2 h 05 min"),
        (200000.0, "2 d 07 h"),
        (None, "-"),
        (math.nan, "-"),
    ],
)
def test_durations_have_two_units_at_most(seconds, shown):
    assert duration(seconds) == shown


@pytest.mark.parametrize("nothing", [None, math.nan, pd.NA, pd.NaT])
def test_nothing_is_a_dash(nothing):
    assert text(nothing) == "-"


def test_numbers_of_numpy_and_truth_values_are_cells():
    assert [text(v) for v in (np.int64(35136), np.float64(0.5), True)] == ["35,136", "0.5", "True"]


def test_times_are_local():
    moment = datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC)
    assert text(moment) == f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def test_tables_align_numbers_right_and_text_left_and_drop_empty_columns():
    shown = table(
        ("name", "steps", "error", "mean"), [("a", 5, None, 0.25), ("long one", 12000, None, None)], "  "
    )
    assert shown == ("  name       steps  mean\n  a              5  0.25\n  long one  12,000     -")


def test_text_is_cut_to_one_short_line():
    assert first_line("ValueError: no\nmore", 60) == "ValueError: no"
    assert first_line("abcdefghij", 8) == "abcde..."


def test_counts_have_their_plural():
    assert [count(n, "step") for n in (0, 1, 2000)] == ["0 steps", "1 step", "2,000 steps"]


@settings(max_examples=50)
@given(st.sets(st.text("012", min_size=8, max_size=8), min_size=1, max_size=12), st.integers(1, 8))
def test_short_ids_are_unique_beginnings(uids, least):
    short = short_ids(sorted(uids), least)
    for uid, beginning in short.items():
        assert uid.startswith(beginning)
        assert len(beginning) >= least
        assert [other for other in uids if other.startswith(beginning)] == [uid]
        # and no longer than it must be
        shorter = beginning[:-1]
        assert len(beginning) == least or len([o for o in uids if o.startswith(shorter)]) > 1
