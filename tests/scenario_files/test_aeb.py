"""The cases of agents x environments x bodies: what each scenario does, tick by tick.

Each story is a diagram and the trace that it demands, worked out by hand from the rules of the
parts: the hall counts its steps and rewards with the count modulo its length; who walks on the
lake goes one cell to the right with 2, to the left with 0, and stays with 1 and 3; a dummy muscle
sets what its brain has said last, a dummy brain says one more than that. Events of one tick
stand together; environments of one tick have no order among each other, so theirs are compared
as a set, and everything else in order. In braces: the bodies that one call of a muscle was about.

Source of the cases: the seed "AEB Design" of SLM Lab.
"""

from __future__ import annotations

from itertools import takewhile

import pytest
from support.traces import scenario, trace

from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

SCHEDULERS = ["direct", "mosaik"]

BASE = """
    t          0              1              2              3
    hall     resets          step           step        step, ends
              |           ^  |           ^  |           ^  |
    walker   acts -------/   acts ------/   acts ------/   closes its row

t=0
    hall resets
    walker.0.0 sees 0 sets 0
t=1
    hall steps to 1 with nothing
    walker learns 1 from walker.0.0, says 1
    walker.0.0 sees 1 sets 1
t=2
    hall steps to 2 with 0=1
    walker learns 2 from walker.0.0, says 2
    walker.0.0 sees 2 sets 2
t=3
    hall steps to 3 with 0=2
    walker learns 0 from walker.0.0 at the end, says 3
"""

# where they begin is drawn: what the run's seed gives is 1, 1, 2, then 0, 0, 1
BATCH = """
    The lake is a row of the cells 0 to 2 and the goal, 3. Every body goes to the right.

    t          0    1    2    3    4    5    6
    lake.0     1    2    3*   0    1    2    3*
    lake.1     1    2    3*   1    2    3*
    lake.2     2    3*   0    1    2    3*

    *: the goal; the body's row is closed, it does not act, and with the next tick it begins anew.

t=0
    lake.{0 1 2} begins at 1 | 1 | 2
    walker.0.{0 1 2} sees 1 | 1 | 2 sets 2 | 2 | 2
t=1
    lake.{0 1 2} steps to 2 | 2 | 3 with 2 | 2 | 2
    walker learns 1 from walker.0.2 at the end, says None
    walker learns 0 from walker.0.0, says None
    walker learns 0 from walker.0.1, says None
    walker.0.{0 1} sees 2 | 2 sets 2 | 2
t=2
    lake.{0 1} steps to 3 | 3 with 2 | 2
    lake.{2} begins at 0
    walker learns 1 from walker.0.0 at the end, says None
    walker learns 1 from walker.0.1 at the end, says None
    walker.0.{2} sees 0 sets 2
t=3
    lake.{2} steps to 1 with 2
    lake.{0 1} begins at 0 | 1
    walker learns 0 from walker.0.2, says None
    walker.0.{0 1 2} sees 0 | 1 | 1 sets 2 | 2 | 2
t=4
    lake.{0 1 2} steps to 1 | 2 | 2 with 2 | 2 | 2
    walker learns 0 from walker.0.0, says None
    walker learns 0 from walker.0.1, says None
    walker learns 0 from walker.0.2, says None
    walker.0.{0 1 2} sees 1 | 2 | 2 sets 2 | 2 | 2
t=5
    lake.{0 1 2} steps to 2 | 3 | 3 with 2 | 2 | 2
    walker learns 1 from walker.0.1 at the end, says None
    walker learns 1 from walker.0.2 at the end, says None
    walker learns 0 from walker.0.0, says None
    walker.0.{0} sees 2 sets 2
t=6
    lake.{0} steps to 3 with 2
    lake.{1 2} begins at 2 | 1
    walker learns 1 from walker.0.0 at the end, says None
"""

# the second phase draws 0, 0, 2, then 0, then 0, 1, then 2, then 0
BATCH_IN_TURNS = """
    An agent that is alone has every turn.

    t          0    1    2    3    4    5    6    7
    lake.0     0    1    2    3*   0    1    2    3*
    lake.1     0    1    2    3*   1    2    3*   0
    lake.2     2    3*   0    1    2    3*   2    3*

t=0
    lake.{0 1 2} begins at 0 | 0 | 2
    walker.0.{0 1 2} sees 0 | 0 | 2 sets 2 | 2 | 2
t=1
    lake.{0 1 2} steps to 1 | 1 | 3 with 2 | 2 | 2
    walker learns 1 from walker.0.2 at the end, says None
    walker learns 0 from walker.0.0, says None
    walker learns 0 from walker.0.1, says None
    walker.0.{0 1} sees 1 | 1 sets 2 | 2
t=2
    lake.{0 1} steps to 2 | 2 with 2 | 2
    lake.{2} begins at 0
    walker learns 0 from walker.0.0, says None
    walker learns 0 from walker.0.1, says None
    walker.0.{0 1 2} sees 2 | 2 | 0 sets 2 | 2 | 2
t=3
    lake.{0 1 2} steps to 3 | 3 | 1 with 2 | 2 | 2
    walker learns 1 from walker.0.0 at the end, says None
    walker learns 1 from walker.0.1 at the end, says None
    walker learns 0 from walker.0.2, says None
    walker.0.{2} sees 1 sets 2
t=4
    lake.{2} steps to 2 with 2
    lake.{0 1} begins at 0 | 1
    walker learns 0 from walker.0.2, says None
    walker.0.{0 1 2} sees 0 | 1 | 2 sets 2 | 2 | 2
t=5
    lake.{0 1 2} steps to 1 | 2 | 3 with 2 | 2 | 2
    walker learns 1 from walker.0.2 at the end, says None
    walker learns 0 from walker.0.0, says None
    walker learns 0 from walker.0.1, says None
    walker.0.{0 1} sees 1 | 2 sets 2 | 2
t=6
    lake.{0 1} steps to 2 | 3 with 2 | 2
    lake.{2} begins at 2
    walker learns 1 from walker.0.1 at the end, says None
    walker learns 0 from walker.0.0, says None
    walker.0.{0 2} sees 2 | 2 sets 2 | 2
t=7
    lake.{0 2} steps to 3 | 3 with 2 | 2
    lake.{1} begins at 0
    walker learns 1 from walker.0.0 at the end, says None
    walker learns 1 from walker.0.2 at the end, says None
"""

SELF_PLAY = """
    payoff     0    1    2  (right)         t          0        1        2        3
      0        2   -1    0                  game     begins    round    round    round, ends
      1       -1    1    3                  left       0        1        0
    (left)                                  right      0        1        2
                                            payoff              2        1        0

    Both say what their one brain has said last: left modulo 2, right modulo 3.

t=0
    game.{0} begins at 3 2
    player.0.0 sees 3 sets 0
    player.0.1 sees 2 sets 0
t=1
    game.{0} steps to 0 0 with 0 0
    player learns 2 from player.0.0, says 1
    player learns -2 from player.0.1, says 1
    player.0.0 sees 0 sets 1
    player.0.1 sees 0 sets 1
t=2
    game.{0} steps to 1 1 with 1 1
    player learns 1 from player.0.0, says 2
    player learns -1 from player.0.1, says 2
    player.0.0 sees 1 sets 0
    player.0.1 sees 1 sets 2
t=3
    game.{0} steps to 2 0 with 0 2
    player learns 0 from player.0.0 at the end, says 3
    player learns -0 from player.0.1 at the end, says 3
"""

ONE_EACH = """
    t          0              1              2              3
    hall     resets          step           step        step, ends
    north     acts           acts           acts           closes
    south     acts           acts           acts           closes

t=0
    hall resets
    north.0.0 sees 0 sets 0
    south.0.0 sees 0 sets 50
t=1
    hall steps to 1 with 9=50
    north learns 1 from north.0.0, says 1
    north.0.0 sees 1 sets 1
    south.0.0 sees 1 sets 50
t=2
    hall steps to 2 with 0=1 9=50
    north learns 2 from north.0.0, says 2
    north.0.0 sees 2 sets 2
    south.0.0 sees 2 sets 50
t=3
    hall steps to 3 with 0=2 9=50
    north learns 0 from north.0.0 at the end, says 3
"""

ONE_EACH_IN_TURNS = """
    t          0              1              2              3
    hall     resets          step           step        step, ends
    north     acts           closes         acts           closes
    south                    acts           closes

t=0
    hall resets
    north.0.0 sees 0 sets 0
t=1
    hall steps to 1 with nothing
    north learns 1 from north.0.0, says 1
    south.0.0 sees 1 sets 50
t=2
    hall steps to 2 with 9=50
    north.0.0 sees 2 sets 1
t=3
    hall steps to 3 with 0=1 9=50
    north learns 0 from north.0.0 at the end, says 2
"""

SEVERAL_EACH = """
    As above, with two bodies of each agent: north in 1 and 2, south in 7 and 8.

t=0
    hall resets
    north.0.0 sees 0 sets 0
    north.0.1 sees 0 sets 0
    south.0.0 sees 0 sets 50
    south.0.1 sees 0 sets 50
t=1
    hall steps to 1 with 7=50 8=50
    north learns 1 from north.0.0, says 1
    north learns 1 from north.0.1, says 1
    north.0.0 sees 1 sets 1
    north.0.1 sees 1 sets 1
    south.0.0 sees 1 sets 50
    south.0.1 sees 1 sets 50
t=2
    hall steps to 2 with 1=1 2=1 7=50 8=50
    north learns 2 from north.0.0, says 2
    north learns 2 from north.0.1, says 2
    north.0.0 sees 2 sets 2
    north.0.1 sees 2 sets 2
    south.0.0 sees 2 sets 50
    south.0.1 sees 2 sets 50
t=3
    hall steps to 3 with 1=2 2=2 7=50 8=50
    north learns 0 from north.0.0 at the end, says 3
    north learns 0 from north.0.1 at the end, says 3
"""

SEVERAL_EACH_IN_TURNS = """
    A turn is that of an agent: all its bodies act.

t=0
    hall resets
    north.0.0 sees 0 sets 0
    north.0.1 sees 0 sets 0
t=1
    hall steps to 1 with nothing
    north learns 1 from north.0.0, says 1
    north learns 1 from north.0.1, says 1
    south.0.0 sees 1 sets 50
    south.0.1 sees 1 sets 50
t=2
    hall steps to 2 with 7=50 8=50
    north.0.0 sees 2 sets 1
    north.0.1 sees 2 sets 1
t=3
    hall steps to 3 with 1=1 2=1 7=50 8=50
    north learns 0 from north.0.0 at the end, says 2
    north learns 0 from north.0.1 at the end, says 2
"""

MULTI_ENVIRONMENT = """
    t          0              1              2              3              4
    hall     resets                         step                       step, ends
    lake       0              1           2, ends        0, anew           1
    legs      acts                          acts                          closes
    fins      acts           acts          closes          acts           closes

    The hall ends for the first time at 4, the lake has done so at 2: the episode is over.

t=0
    hall resets
    lake.{0} begins at 0
    walker.0.0 sees 0 0 sets 0 0
    walker.0.{1} sees 0 sets 2
t=1
    lake.{0} steps to 1 with 2
    walker learns 0 from walker.0.1, says None
    walker.0.{1} sees 1 sets 2
t=2
    lake.{0} steps to 2 with 2
    hall steps to 1 with nothing
    walker learns 1 from walker.0.1 at the end, says None
    walker learns 1 from walker.0.0, says 1
    walker.0.0 sees 1 1 sets 1 1
t=3
    lake.{0} begins at 0
    walker.0.{1} sees 0 sets 2
t=4
    lake.{0} steps to 1 with 2
    hall steps to 2 with 0=1 1=1
    walker learns 0 from walker.0.0 at the end, says 2
    walker learns 0 from walker.0.1 at the end, says None
"""

MULTI_ENVIRONMENT_IN_TURNS = """
    The next turn comes when both environments have been stepped since the last one, here at every
    second tick. At 2 the lake has ended, so that only the legs act; at 4 it is where 0, what holds until
    somebody acts, has taken it.

t=0
    hall resets
    lake.{0} begins at 0
    walker.0.0 sees 0 0 sets 0 0
    walker.0.{1} sees 0 sets 2
t=1
    lake.{0} steps to 1 with 2
    walker learns 0 from walker.0.1, says None
t=2
    lake.{0} steps to 2 with 2
    hall steps to 1 with nothing
    walker learns 1 from walker.0.0, says 1
    walker.0.0 sees 1 1 sets 1 1
t=3
    lake.{0} begins at 0
t=4
    lake.{0} steps to 0 with 0
    hall steps to 2 with 0=1 1=1
    walker learns 0 from walker.0.0 at the end, says 2
"""

FULL = """
    t                    0         1         2         3         4
    hall               resets     step   step, ends  anew       step
    lake.0, lake.1       0         1         2       3, end    0, anew
    lake.2               0         0         0         1       1, cut off after 4 steps
    walker.0, walker.1  acts      acts      acts     close                   (on the lake)
    walker.2            acts      acts     closes     acts     closes        (in the hall)
    guide.0             acts      acts      acts      acts     closes        (on the lake)
    guide.1, guide.2    acts      acts      close     act      close         (in the hall)

    At 4 everybody's environment has ended: the hall at 2, lake.0 and lake.1 at 3, lake.2 at 4.

t=0
    hall resets
    lake.{0 1 2} begins at 0 | 0 | 0
    walker.0.{0 1} sees 0 | 0 sets 2 | 2
    walker.0.2 sees 0 sets 2
    guide.0.{0} sees 0 sets 0
    guide.0.1 sees 0 sets 0
    guide.0.2 sees 0 sets 0
t=1
    lake.{0 1 2} steps to 1 | 1 | 0 with 2 | 2 | 0
    hall steps to 1 with 0=2
    walker learns 0 from walker.0.0, says None
    walker learns 0 from walker.0.1, says None
    walker learns 1 from walker.0.2, says None
    guide learns 0 from guide.0.0, says 1
    guide learns 1 from guide.0.1, says 1
    guide learns 1 from guide.0.2, says 1
    walker.0.{0 1} sees 1 | 1 sets 2 | 2
    walker.0.2 sees 1 sets 2
    guide.0.{0} sees 0 sets 1
    guide.0.1 sees 1 sets 1
    guide.0.2 sees 1 sets 1
t=2
    hall steps to 2 with 0=2 1=1 2=1
    lake.{0 1 2} steps to 2 | 2 | 0 with 2 | 2 | 1
    walker learns 0 from walker.0.2 at the end, says None
    guide learns 0 from guide.0.1 at the end, says 2
    guide learns 0 from guide.0.2 at the end, says 2
    walker learns 0 from walker.0.0, says None
    walker learns 0 from walker.0.1, says None
    guide learns 0 from guide.0.0, says 2
    walker.0.{0 1} sees 2 | 2 sets 2 | 2
    guide.0.{0} sees 0 sets 2
t=3
    lake.{0 1 2} steps to 3 | 3 | 1 with 2 | 2 | 2
    hall resets
    walker learns 1 from walker.0.0 at the end, says None
    walker learns 1 from walker.0.1 at the end, says None
    guide learns 0 from guide.0.0, says 3
    walker.0.2 sees 0 sets 2
    guide.0.{0} sees 1 sets 3
    guide.0.1 sees 0 sets 3
    guide.0.2 sees 0 sets 3
t=4
    hall steps to 1 with 0=2 1=3 2=3
    lake.{2} steps to 1 with 3
    lake.{0 1} begins at 0 | 0
    walker learns 1 from walker.0.2 at the end, says None
    guide learns 0 from guide.0.0 at the end, says 4
    guide learns 1 from guide.0.1 at the end, says 4
    guide learns 1 from guide.0.2 at the end, says 4
"""

FULL_IN_TURNS = """
    t                    0         1         2         3         4
    hall               resets     step   step, ends  anew       step
    lake.0, lake.1       0         1         2       3, end    0, anew
    lake.2               0         0         0         0       0, cut off after 4 steps
    walker              acts                acts (on the lake)
    guide                         acts                acts

t=0
    hall resets
    lake.{0 1 2} begins at 0 | 0 | 0
    walker.0.{0 1} sees 0 | 0 sets 2 | 2
    walker.0.2 sees 0 sets 2
t=1
    lake.{0 1 2} steps to 1 | 1 | 0 with 2 | 2 | 0
    hall steps to 1 with 0=2
    walker learns 0 from walker.0.0, says None
    walker learns 0 from walker.0.1, says None
    walker learns 1 from walker.0.2, says None
    guide.0.{0} sees 0 sets 0
    guide.0.1 sees 1 sets 0
    guide.0.2 sees 1 sets 0
t=2
    hall steps to 2 with 0=2
    lake.{0 1 2} steps to 2 | 2 | 0 with 2 | 2 | 0
    guide learns 0 from guide.0.1 at the end, says 1
    guide learns 0 from guide.0.2 at the end, says 1
    guide learns 0 from guide.0.0, says 1
    walker.0.{0 1} sees 2 | 2 sets 2 | 2
t=3
    lake.{0 1 2} steps to 3 | 3 | 0 with 2 | 2 | 0
    hall resets
    walker learns 1 from walker.0.0 at the end, says None
    walker learns 1 from walker.0.1 at the end, says None
    guide.0.{0} sees 0 sets 1
    guide.0.1 sees 0 sets 1
    guide.0.2 sees 0 sets 1
t=4
    hall steps to 1 with 1=1 2=1
    lake.{2} steps to 0 with 1
    lake.{0 1} begins at 0 | 0
    guide learns 0 from guide.0.0 at the end, says 2
    guide learns 1 from guide.0.1 at the end, says 2
    guide learns 1 from guide.0.2 at the end, says 2
"""

#: an agent that is alone has every turn
STORIES = {
    ("aeb_base", "vanilla"): BASE,
    ("aeb_base", "in_turns"): BASE,
    ("aeb_batch", "vanilla"): BATCH,
    ("aeb_batch", "in_turns"): BATCH_IN_TURNS,
    ("aeb_self_play", "vanilla"): SELF_PLAY,
    ("aeb_self_play", "in_turns"): SELF_PLAY,
    ("aeb_multi_agent", "one_body_each"): ONE_EACH,
    ("aeb_multi_agent", "one_body_each_in_turns"): ONE_EACH_IN_TURNS,
    ("aeb_multi_agent", "several_each"): SEVERAL_EACH,
    ("aeb_multi_agent", "several_each_in_turns"): SEVERAL_EACH_IN_TURNS,
    ("aeb_multi_environment", "vanilla"): MULTI_ENVIRONMENT,
    ("aeb_multi_environment", "in_turns"): MULTI_ENVIRONMENT_IN_TURNS,
    ("aeb_full", "vanilla"): FULL,
    ("aeb_full", "in_turns"): FULL_IN_TURNS,
}


def ticks(story: str) -> list[list[str]]:
    """Return the events that a story demands, tick by tick."""
    _, *parts = story.split("\nt=")
    return [[line.strip() for line in part.splitlines()[1:] if line.strip()] for part in parts]


def is_of_an_environment(event: str) -> bool:
    return any(word in event for word in (" resets", " begins at ", " steps to "))


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path, create=True) as store:
        yield store


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize(("name", "phase"), STORIES)
def test_story(name, phase, scheduler, monkeypatch):
    log = trace(monkeypatch)
    execute(scenario(name, phase, scheduler=scheduler, episodes=1))
    position = 0
    for tick in ticks(STORIES[name, phase]):
        happened = log[position : position + len(tick)]
        position += len(tick)
        steps = sum(1 for _ in takewhile(is_of_an_environment, tick))
        assert sorted(happened[:steps]) == sorted(tick[:steps])
        # mosaik lets agents of one tick act in either order
        order = sorted if scheduler == "mosaik" else list
        assert order(happened[steps:]) == order(tick[steps:])
    assert log[position:] == []


def test_every_row_has_its_place_among_agents_environments_and_bodies(store):
    """By hand, from the trace of ``aeb_full``: time, number of the environment's episode, reward, and flags."""
    run = execute(scenario("aeb_full", "vanilla", episodes=1), store=store).instance
    columns = ["time", "environment_episode", "step", "objective", "terminated", "truncated"]
    found = {
        (a, e, b): store.steps(run, agent=a, environment=e, body=b)[columns].to_numpy().tolist()
        for a, e, bodies in (("walker", "lake", (0, 1)), ("walker", "hall", (2,)),
                             ("guide", "lake", (0,)), ("guide", "hall", (1, 2)))
        for b in bodies
    }  # fmt: skip
    in_the_hall = store.steps(run, environment="hall")
    to_the_goal = [
        [0, 0, 0, 0.0, False, False], [1, 0, 1, 0.0, False, False], [2, 0, 2, 1.0, True, False],
    ]  # fmt: skip
    guest = [[0, 0, 0, 1.0, False, False], [1, 0, 1, 0.0, True, False], [3, 1, 2, 1.0, False, True]]
    assert found == {
        ("walker", "lake", 0): to_the_goal,
        ("walker", "lake", 1): to_the_goal,
        ("walker", "hall", 2): guest,
        ("guide", "lake", 0): [[t, 0, t, 0.0, False, t == 3] for t in range(4)],
        ("guide", "hall", 1): guest,
        ("guide", "hall", 2): guest,
    }
    assert sorted(zip(in_the_hall["agent"], in_the_hall["body"], strict=True)) == sorted(
        [("walker", 2)] * 3 + [("guide", 1)] * 3 + [("guide", 2)] * 3
    )


def test_one_agent_learns_two_tasks_of_different_sizes(store):
    """Three observations and four, a real number and a choice of two: eight bodies each, and one brain."""
    run = execute(scenario("aeb_multi_task", "train"), store=store).instance
    for environment, readings, bodies in (("pendulum", 3, range(8)), ("cart", 4, range(8, 16))):
        rows = store.steps(run, agent="learner", environment=environment)
        assert sum(column.startswith("reading.") for column in rows) == readings
        assert sorted(rows["body"].unique()) == list(bodies)
        chosen = set(rows[f"setpoint.{environment}.{{body}}.action"])
        assert (chosen == {0, 1}) == (environment == "cart")
