"""Lists of starts: dates, rows and periods from which episodes take their beginning."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.environment.grid.episode_starts import start_rows
from palaestrai_mosaik.environment.grid.profiles import QUANTITIES, Assignment, Profiles

pytest.importorskip("pandapower", reason="the extra 'grid' is not installed")

DAY = 96


def profiles(days: int = 10) -> Profiles:
    """Profiles of ``days`` days from 1 March 2016 on."""
    one = Assignment(np.zeros(1, dtype=np.int64), np.ones(1))
    return Profiles(np.ones((days * DAY, 1)), dict.fromkeys(QUANTITIES, one), datetime(2016, 3, 1))


@pytest.mark.parametrize(
    ("start", "rows"),
    [
        (7, [7]),
        ("2016-03-02", [96]),
        (date(2016, 3, 2), [96]),
        ("2016-03-02T06:00", [96 + 24]),
        ([], None),
        ([96, "2016-03-01", 96], [96, 0, 96]),
        ([{"from": "2016-03-02", "to": "2016-03-04"}], [96, 192, 288]),
        ([{"from": date(2016, 3, 1), "to": date(2016, 3, 6), "every": 2}, 5], [0, 192, 384, 5]),
        # the period ends between two starts; the time of day is that of the first
        ([{"from": "2016-03-01T12:00", "to": "2016-03-04", "every": 2}], [48, 48 + 192]),
        # the last day belongs to it, whatever the time of day
        ([{"from": "2016-03-01T12:00", "to": "2016-03-03"}], [48, 48 + 96, 48 + 192]),
        ([{"from": "2016-03-01T12:00", "to": date(2016, 3, 1)}], [48]),
    ],
)
def test_rows_of_starts(start: Any, rows: list[int] | None) -> None:
    if rows is None:
        with pytest.raises(DocumentError, match="start: an empty list"):
            start_rows(start, profiles())
    else:
        assert start_rows(start, profiles()) == rows


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (960, "start.1: no episode starts from row 960: the profiles have rows 0 to 959"),
        ("2016-04-01", "start.1: .*outside the profiles"),
        (True, "start.1: True is neither a date nor a row"),
        (1.5, "start.1: 1.5 is neither"),
        ({"from": "2016-03-01"}, "start.1: a period needs a date 'to', not None"),
        ({"form": "2016-03-01", "to": "2016-03-02"}, "unknown key 'form' .did you mean 'from'"),
        ({"from": "2016-03-02", "to": "2016-03-01"}, "before it begins"),
        ({"from": "2016-03-01", "to": "2016-03-02", "every": 0}, "every: 0 is not a whole number"),
        ({"from": "2016-03-08", "to": "2016-03-12"}, "outside the profiles"),
    ],
)
def test_starts_that_there_are_not(entry: Any, text: str) -> None:
    with pytest.raises(DocumentError, match=text):
        start_rows([0, entry], profiles())


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (None, "start: None is neither a date nor a row"),
        (3.5, "start: 3.5 is neither a date nor a row"),
        ({"from": "2016-03-01", "to": "2016-03-02"}, "start: a period stands in a list"),
    ],
)
def test_what_is_no_start_at_all(start: Any, text: str) -> None:
    with pytest.raises(DocumentError, match=text):
        start_rows(start, profiles())


def test_all_wrong_starts_are_named_at_once() -> None:
    with pytest.raises(DocumentError) as caught:
        start_rows([-1, 0, "soon"], profiles())
    assert [problem.path for problem in caught.value.problems] == ["start.0", "start.2"]


def environment(**params: Any) -> Any:
    from palaestrai_mosaik.environment.grid import GridEnvironment

    made = GridEnvironment("cigre_mv", **params)
    made.setup()
    made.rng = np.random.default_rng(0)
    return made


def first_rows(made: Any, episodes: int) -> list[int]:
    rows = []
    for made.episode in range(episodes):
        made.reset()
        rows.append(made.plan().simulators[0].factory().start)
    return rows


def test_episodes_take_one_start_after_the_other() -> None:
    starts = [{"from": "2016-05-01", "to": "2016-05-05", "every": 2}, 0]
    made = environment(start=starts, episode_starts="sequential")
    first = 121 * DAY
    rows = [first, first + 2 * DAY, first + 4 * DAY, 0]
    assert first_rows(made, 6) == rows + rows[:2]
    assert made.setup().start == datetime(2016, 5, 1)


def test_episodes_draw_their_start() -> None:
    made = environment(start=[0, 500, 1000], episode_starts="random")
    rows = first_rows(made, 60)
    assert set(rows) == {0, 500, 1000}
    made.rng = np.random.default_rng(0)
    assert first_rows(made, 60) == rows


def test_a_list_needs_a_way_to_choose() -> None:
    with pytest.raises(
        DocumentError, match=r"episode_starts: a list of starts .* needs 'sequential' or 'random'"
    ):
        environment(start=[0, 96])


def test_every_start_leaves_room_for_an_episode() -> None:
    with pytest.raises(DocumentError, match="steps: 96 steps of 900 s from row 35100 need 96 rows"):
        environment(start=[35100, 0], episode_starts="random")
