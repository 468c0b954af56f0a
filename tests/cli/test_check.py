"""``palaestrai-mosaik check``: one round shows all mistakes, those in users' own classes among them."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.documents import (
    AGENT_OBJECTIVE,
    MAX_EPISODES,
    VANILLA_RUN,
    agent,
    document,
    environment,
    named,
    phase,
)

from palaestrai_mosaik.agent import Brain, Muscle, Objective
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.experiment import dumps
from palaestrai_mosaik.runner import execute

#: the first phase of documents
ONE = "schedule.0.one"
CROSS_ENTROPY = "palaestrai_mosaik.agent.library.cross_entropy"


class Picky(Muscle):
    """Refuses some parameters when it is made, others when it is set up."""

    def __init__(self, size: int = 1, late: int = 1):
        if size < 1:
            raise ValueError("size must be positive")
        self.late = late

    def setup(self) -> None:
        if self.late < 1:
            raise ValueError("late must be positive")

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        return actuators_available, None


class PickyBrain(Brain):
    def setup(self) -> None:
        if len(self.sensors) < 2:
            raise RuntimeError("two sensors are needed")

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        return None


class OnlyKnownRewards(Objective):
    def __init__(self, reward: str = "dummy_reward"):
        self.reward = reward

    def setup(self, reward_names: Any) -> None:
        if self.reward not in reward_names:
            raise ValueError(f"no reward {self.reward!r}; there are: {', '.join(reward_names)}")

    def internal_reward(self, memory: Any) -> float:
        return 0.0


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that checks a document; it returns the lines on standard error and the exit code."""

    def checked(data: dict[str, Any]) -> tuple[list[str], int]:
        (tmp_path / "run.yml").write_text(dumps(data))
        code = main(["check", str(tmp_path / "run.yml")])
        return capsys.readouterr().err.splitlines(), code

    return checked


def own(name: str, *sensors: int, **parts: Any) -> dict[str, Any]:
    given = agent(name, brain=None, **parts)
    given["sensors"] = [f"myenv.{i}" for i in sensors or (0,)]
    given["actuators"] = [f"myenv.{ord(name) - ord('a')}"]
    return given


def plain(*agents: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a document with these agents as plain data, as a user would write it."""
    return {**yaml.safe_load(document(phase(agents=[own("a")])).text), **changes} | (
        {"schedule": [{"one": phase(agents=list(agents))}]} if agents else {}
    )


def test_one_round_shows_mistakes_of_all_kinds(check: Any) -> None:
    data = plain(
        own("a", muscle=named("palaestrai_mosaik.agent.library.dummy:DumyMuscle")),
        own("b", 77),
        own("c", muscle=named(f"{__name__}:Picky", size=0)),
        own("d", muscle=named(f"{__name__}:Picky", late=0)),
    )
    data["sede"] = 4
    data["schedule"][0]["one"]["phase_config"]["episods"] = 2
    lines, code = check(data)
    assert code == 2 and lines[-1].endswith(": 6 problems")
    for said in (
        "unknown key 'sede'",
        "unknown key 'episods'",
        "has no class 'DumyMuscle' (did you mean 'DummyMuscle'?)",
        "no sensor 'myenv.77' (did you mean 'myenv.7'?)",
        f"agents.2.muscle: muscle '{__name__}:Picky' cannot be made: ValueError: size must be positive",
        "agents.3: agent 'd' cannot be set up: ValueError: late must be positive",
    ):
        assert sum(said in line for line in lines) == 1, said


def test_no_mistake_is_reported_for_what_follows_from_another(check: Any) -> None:
    # an environment that cannot be made offers no sensors; an agent without its muscle has none either
    data = plain(own("a", 88), {**own("b"), "muscle": {"params": {}}})
    data["schedule"][0]["one"]["environments"] = [environment(max_itr=3)]
    data["run_config"] = {"condition": named("no.such:Condition")}
    del data["schedule"][0]["one"]["phase_config"]["episodes"]
    lines, code = check(data)
    assert code == 2 and len(lines) == 4, lines
    assert "takes no parameter 'max_itr' (did you mean 'max_iter'?)" in lines[0]
    assert "needs the key 'name'" in lines[1] and "agents.1.muscle" in lines[1]
    assert "no.such" in lines[2]


class Misspelt(Picky):
    def prepare_modle(self) -> None:
        """Never called."""


def changed(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return the document with another value at ``path``; ``None`` takes the key away."""
    data = copy.deepcopy(data)
    *way, last = (int(key) if key.isdecimal() else key for key in path.split("."))
    at: Any = data
    for key in way:
        at = at[key]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return data


#: mistakes and slips that have nothing to do with one another: where, what instead, what is said of it
APART: list[tuple[str, Any, str]] = [
    ("seed", -1, "-1 is a seed as any other"),
    (f"{ONE}.agents.0.muscle", named(f"{__name__}:Pciky"), "no class 'Pciky'"),
    (f"{ONE}.agents.1.muscle", {"nmae": "dummy"}, "unknown key 'nmae'"),
    (f"{ONE}.agents.0.sensors.0", "myenv.77", "no sensor 'myenv.77'"),
    (f"{ONE}.agents.0.sensors.1", 5, "sensors must be a non-empty string, found the number 5"),
    (f"{ONE}.agents.1.sensors.0", "myenw.1", "'myenw.1' must start with"),
    (f"{ONE}.agents.1.actuators.0", "myenv.78", "no actuator 'myenv.78'"),
    (f"{ONE}.agents.3.sensors.0", "second.79", "no sensor 'second.79'"),
    (f"{ONE}.agents.0.filters.0.params.low", 3, "takes no parameter 'low'"),
    (f"{ONE}.agents.1.filters.0", 3, "an entry of filters must be a name"),
    (f"{ONE}.agents.0.brain.params.elites", 99, "1 < elites <= population"),
    (f"{ONE}.agents.0.objective.params.rewrad", "all", "takes no parameter 'rewrad'"),
    (f"{ONE}.agents.2.muscle", named(f"{__name__}:Misspelt"), "did you mean 'prepare_model'?"),
    (f"{ONE}.agents.2.snapshots", {"best": True}, "'snapshots' has no effect"),
    (f"{ONE}.environments.2.environment.name", "no.such:Place", "no.such"),
    (f"{ONE}.environments.1.reward", "no.such:Reward", "no.such"),
    (
        "run_config.conditions.1.params",
        {"abc": {"phase_avg3": 1.0}},
        "there is no agent 'abc'",
    ),
    ("run_config.conditions.0.params.most", 3, "takes no parameter 'most'"),
    ("run_config.conditions.2", 3, "must be a name"),
    (f"{ONE}.simulation.name", "vanila", "'vanila'"),
    ("schedule.1.two.phase_config.mode", "tset", "'tset'"),
    ("schedule.1.two.agents.0.sensors.0", "myenv.80", "no sensor 'myenv.80'"),
]


def apart() -> dict[str, Any]:
    """Return a sound document in which all of these mistakes can be made."""
    filters = named("norm")
    first = {**own("a", 0, 1), "brain": named(f"{CROSS_ENTROPY}:CrossEntropyBrain", elites=2, population=4)}
    first |= {
        "objective": named(f"{__name__}:OnlyKnownRewards", reward="myenv.Dummy Reward"),
        "filters": [filters],
    }
    fourth = {**own("d"), "sensors": ["second.0"], "actuators": ["second.0"]}
    agents = [first, own("b", filters=[dict(filters, params={})]), own("c"), fourth]
    data = plain()
    one = phase([environment(), environment("second"), environment("third")], agents)
    data["schedule"] = [{"one": one}, {"two": {"phase_config": {"mode": "test"}, "agents": [own("a")]}}]
    conditions = [named(MAX_EPISODES), named(AGENT_OBJECTIVE), named(VANILLA_RUN)]
    conditions[1]["params"] = {"a": {"phase_avg3": 1.0}}
    return {**data, "run_config": {"conditions": conditions}}


def test_no_mistake_hides_another(check: Any) -> None:
    def told(data: dict[str, Any]) -> set[str]:
        # without lines, which move, and the last one, which counts problems
        lines = check(data)[0]
        return {re.sub(r":\d+: ", ": ", line) for line in lines if not re.search(r": \d+ problems?$", line)}

    assert told(apart()) == set()
    together, each = apart(), set()
    for path, value, said in APART:
        alone = told(changed(apart(), path, value))
        assert any(said in line for line in alone), (said, alone)
        each |= alone
        together = changed(together, path, value)
    assert told(together) == each


def test_brains_and_objectives_are_set_up(check: Any) -> None:
    brain = {**own("a"), "brain": named(f"{__name__}:PickyBrain")}
    objective = own("b", objective=named(f"{__name__}:OnlyKnownRewards", reward="dummy_rewrad"))
    elites = {**own("c"), "brain": named(f"{CROSS_ENTROPY}:CrossEntropyBrain", elites=9, population=4)}
    lines, code = check(plain(brain, objective, elites))
    assert code == 2 and lines[-1].endswith(": 3 problems")
    assert "agent 'a' cannot be set up: RuntimeError: two sensors are needed" in lines[0]
    assert "agent 'b' cannot be set up: ValueError: no reward 'dummy_rewrad'" in lines[1]
    assert "brain" in lines[2] and "1 < elites <= population" in lines[2]
    brain["sensors"] = ["myenv.0", "myenv.1"]
    assert check(plain(brain))[1] == 0


def test_checking_changes_nothing(check: Any) -> None:
    doc = document(phase())
    before = execute(doc)
    assert check(yaml.safe_load(doc.text)) == ([], 0)
    after = execute(doc)
    assert [one.steps for one in after.phases] == [one.steps for one in before.phases]


def later(**second: Any) -> dict[str, Any]:
    data = plain(own("a"), own("b"))
    data["schedule"].append({"two": second})
    return data


def test_a_misspelt_agent_of_a_later_phase_is_one_mistake(check: Any) -> None:
    lines, code = check(later(agents=[{"name": "aa", "sensors": ["myenv.3"]}]))
    assert code == 2 and len(lines) == 2
    assert "agent 'aa' is new in phase 'two' (did you mean 'a'?)" in lines[0]
    assert "needs 'muscle'" in lines[0] and lines[0].endswith("too")
    # one that is no neighbour of another name lacks its keys as before
    lines, _ = check(later(agents=[{"name": "newcomer", "sensors": ["myenv.3"]}]))
    assert any("needs the key 'muscle'" in line for line in lines)


def test_slips_are_warned_of(check: Any) -> None:
    slips = later(environments=[environment("myenw")], phase_config={"workers": 5000})
    lines, code = check({**slips, "seed": -1})
    assert code == 0 and all(line.startswith("warning: ") for line in lines)
    assert "-1 is a seed as any other" in lines[0]
    assert "environment 'myenw' is new in phase 'two' (did you mean 'myenv'?)" in lines[1]
    assert "5000 workers are as many processes" in lines[2]
    assert check(later(phase_config={"workers": 2})) == ([], 0)


def test_the_cascade_of_the_specification_is_a_note_for_those_who_ask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = phase(agents=[agent("a"), agent("b", 5)], controller="palaestrai.simulation:Vanilla")
    path = tmp_path / "run.yml"
    path.write_text(document(first, {"agents": [{"name": "a"}]}).text)
    for options, said in (([], False), (["--verbose"], True)):
        assert main(["check", str(path), *options]) == 0
        told = capsys.readouterr().err
        assert ("note: " in told and "in palaestrAI, they would not" in told) == said
        assert "warning" not in told


def test_nothing_is_made_of_a_document_with_modules_that_are_not_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = own("b", muscle=named(f"{__name__}:Picky", size=0))
    (tmp_path / "run.yml").write_text(dumps(plain(own("a", muscle=named("os:system")), made)))
    allowed = __name__.partition(".")[0]
    assert main(["check", str(tmp_path / "run.yml"), "--allow-modules", allowed]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "'os' is not allowed" in lines[0]
