"""Tables, numbers and durations for people."""

import math
from datetime import UTC, datetime
from fnmatch import fnmatchcase

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.terminals import terminal

from palaestrai_mosaik.cli.output import (
    Options,
    duration,
    first_line,
    number,
    say,
    table,
    text,
    using,
    wrapped,
)
from palaestrai_mosaik.core.printing import by_pattern, count, counted_by_pattern, display_width, shorten_word
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


HEADERS = ("run", "document", "status", "steps", "error")
ROWS = [
    (
        "20260131T120005",
        "agents_of_a_long_study_0012",
        "failed",
        1200,
        "ValueError: no voltage at bus 12 (of the grid)",
    ),
    ("20260131T120006", "short", "finished", 5, None),
]


def fitted(monkeypatch: pytest.MonkeyPatch, columns: int, *, wide: bool = False) -> list[str]:
    """Return the lines of a table of runs on a terminal, with colours removed."""
    monkeypatch.setenv("NO_COLOR", "1")
    with terminal(monkeypatch, columns) as got, using(Options(wide=wide)):
        say(table(HEADERS, ROWS, statuses="status", leaving=("steps", "error"), whole=("run", "status")))
    return got().replace("\r\n", "\n").splitlines()


def test_a_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fitted(monkeypatch, 80) == [
        "run              document                  status    steps  error",
        "20260131T120005  agents_of_a_*_study_0012  failed    1,200  ValueError: no vo...",
        "20260131T120006  short                     finished      5  -",
    ]


def test_columns_leave_by_their_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fitted(monkeypatch, 60) == [
        "run              document                     status",
        "20260131T120005  agents_of_a_long_study_0012  failed",
        "20260131T120006  short                        finished",
        "no room for steps, error (--wide shows all)",
    ]
    # the id stays whole, and the status
    assert fitted(monkeypatch, 40)[:2] == [
        "run              document       status",
        "20260131T120005  agents*y_0012  failed",
    ]


def test_a_wide_table_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = table(HEADERS, ROWS)
    assert "agents_of_a_long_study_0012" in whole and "(of the grid)" in whole
    assert "\n".join(fitted(monkeypatch, 40, wide=True)) == whole


def test_a_text_loses_its_parentheses_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, 40) as got:
        say(
            table(
                ("phase", "ended by"),
                [("a phase", "all episodes done (VanillaRunGovernor)")],
                whole=("phase",),
            )
        )
    assert got().splitlines()[1] == "a phase  all episodes done"


@given(st.integers(20, 120), st.lists(st.text("ab c", min_size=1, max_size=60), min_size=1, max_size=6))
def test_no_line_is_wider_than_the_terminal(columns: int, names: list[str]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch, terminal(monkeypatch, columns) as got:
        say(table([f"c{i}" for i in range(len(names))], [names]))
    assert max(map(len, got().split("\r\n"))) <= columns


def test_a_name_is_shortened_to_a_pattern_that_matches_it() -> None:
    for width in range(3, 12):
        pattern = shorten_word("study_0012", width)
        assert len(pattern) <= width or pattern == "study_0012"
        assert fnmatchcase("study_0012", pattern)
    assert shorten_word("study_0012", 7) == "stu*012"


def test_names_that_differ_only_in_numbers_are_counted() -> None:
    names = [
        f"grid.{kind}-{i}.{value}" for kind, value in (("sgen", "vm_pu"), ("bus", "va2")) for i in range(9)
    ]
    assert counted_by_pattern([*names, "grid.trafo-0.loading"]) == (
        "grid.sgen-*.vm_pu: 9, grid.bus-*.va2: 9, grid.trafo-0.loading"
    )
    # a number that all have stays
    assert by_pattern(["a1.b2", "a1.b3"]) == {"a1.b*": ["a1.b2", "a1.b3"]}
    assert counted_by_pattern(["x1", "1x", "x", "x12"], 2) == "x*: 2, 1x, ..."
    assert counted_by_pattern([]) == ""


@given(st.lists(st.text("a1.2-", min_size=1, max_size=8), unique=True))
def test_patterns_match_their_names(names: list[str]) -> None:
    groups = by_pattern(names)
    assert sorted(name for members in groups.values() for name in members) == sorted(names)
    assert all(fnmatchcase(name, pattern) for pattern, members in groups.items() for name in members)


def test_long_lines_are_broken_at_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, 30) as got:
        say(wrapped("  versions of the packages that were used", 4), wrapped("folder /" + "a" * 40, 4))
    assert got().split("\r\n") == [
        "  versions of the packages",
        "    that were used",
        "folder /" + "a" * 40,
        "",
    ]


@pytest.mark.parametrize("width", [*range(1, 31), 80])
def test_tables_of_any_text_fit_any_terminal(width, monkeypatch):
    monkeypatch.setattr("palaestrai_mosaik.cli.output.output_width", lambda *, error=False: width)
    headers = ["run", "steps", "steps", "name", "error"]
    rows = [
        ["r1", 1, 2, "漢字" * 10, "漢字 (and more) " * 3],
        ["r2", math.nan, None, "name", "e\u0301 " * 20],
    ]
    # a column may be named twice
    lines = table(headers, rows, leaving=("error", 1, "steps")).split("\n")
    assert len(lines) == 3
    assert [line[:2] for line in lines] == ["ru", "r1", "r2"]
    assert all(display_width(line) <= max(width, 3) for line in lines)


def test_wide_characters_are_aligned(monkeypatch):
    monkeypatch.setattr("palaestrai_mosaik.cli.output.output_width", lambda *, error=False: None)
    assert table(["a", "b"], [["漢字", 1], ["x", 2]]) == "a     b\n漢字  1\nx     2"
    assert display_width("e\u0301") == 1
