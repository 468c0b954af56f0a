"""The condition that ends phases by evaluations: every rule by hand, and against the document."""

from __future__ import annotations

import math
import pickle
from types import SimpleNamespace

import pytest
from support.documents import (
    ENVIRONMENT_ENDS,
    VANILLA_RUN,
    agent,
    document,
    environment,
    named,
    phase,
)

from palaestrai_mosaik.core.errors import ContractError, DocumentError
from palaestrai_mosaik.experiment.class_names import canonical_name
from palaestrai_mosaik.experiment.conditions import AgentRules, PlateauRule, SuccessRule, read_rules
from palaestrai_mosaik.runner import inspect
from palaestrai_mosaik.simulation.conditions import EvaluationView, TerminationCondition
from palaestrai_mosaik.simulation.evaluation import AgentEvaluationObjectiveTerminationCondition
from palaestrai_mosaik.testing import ConformanceError, check_termination_condition
from palaestrai_mosaik.types import Mode, SimulationFlowControl

NAME = "palaestrai_mosaik.simulation.evaluation:AgentEvaluationObjectiveTerminationCondition"
NAN = math.nan


def success(**keys):
    return {"metric": "objective", "threshold": 1.0, "direction": "greater_equal", "consecutive": 1,
            "min_evaluations": 1, **keys}  # fmt: skip


def plateau(**keys):
    return {"metric": "objective", "direction": "maximize", "min_delta": 0.5, "patience": 2,
            "min_evaluations": 1, "window": 1, **keys}  # fmt: skip


def view(number, metrics):
    return EvaluationView(Mode.TRAIN, 1, None, list(metrics), number, [], metrics)


def told(condition, *evaluations):
    """Return what each evaluation is answered, as ``.`` (go on) and ``X`` (end of the phase).

    An evaluation is the value of ``objective`` of agent ``a``, or all agents' metrics.
    """
    answers = ""
    for number, given in enumerate(evaluations):
        metrics = given if isinstance(given, dict) else {"a": {"objective": given}}
        flow = condition.evaluation_flow_control(view(number, metrics))
        assert flow in (SimulationFlowControl.CONTINUE, SimulationFlowControl.STOP_PHASE)
        answers += "X" if flow is SimulationFlowControl.STOP_PHASE else "."
    return answers


def condition(**agents):
    return AgentEvaluationObjectiveTerminationCondition(agents=agents)


def of_a(**rules):
    return condition(a=rules)


@pytest.mark.parametrize(
    ("rule", "values", "answers"),
    [
        # the threshold itself is good, in both directions
        ({}, [0.99, 1.0], ".X"),
        ({"direction": "less_equal"}, [1.01, 1.0], ".X"),
        # a streak of three; a bad one in between begins it anew
        ({"consecutive": 3}, [1, 2, 0, 1, 1, 1], ".....X"),
        # good from the first one on, but four evaluations are asked for
        ({"min_evaluations": 4}, [1, 1, 1, 1], "...X"),
        ({"min_evaluations": 4, "consecutive": 2}, [1, 1, 0, 0, 1, 1], ".....X"),
        # what is not finite ends the streak ...
        ({"consecutive": 2}, [1, NAN, 1, 1], "...X"),
        ({"consecutive": 2}, [1, math.inf, 1, 1], "...X"),
        # ... and does not count among the evaluations: the third valid one is the last
        ({"min_evaluations": 3}, [1, NAN, 1, NAN, 1], "....X"),
        # once said, it stays so
        ({}, [1, 0, 0], "XXX"),
    ],
)  # fmt: skip
def test_success(rule, values, answers) -> None:
    subject = of_a(success=success(**rule))
    assert told(subject, *values) == answers
    assert subject.termination_reason == "success"


@pytest.mark.parametrize(
    ("rule", "values", "answers"),
    [
        # 0 is the first best; 0.4 and 0.3 are not better by 0.5
        ({}, [0, 0.4, 0.3], "..X"),
        # better by exactly min_delta is better, compared with the best, not with the last one
        ({}, [0, 0.5, 0.2, 1.0, 0.9, 1.4], ".....X"),
        ({}, [0, 0.4, 0.8, 1.2, 1.2], "....X"),  # 0.8 is better than 0; 1.2 is not than 0.8
        ({"direction": "minimize"}, [0, -0.4, -0.3], "..X"),
        ({"direction": "minimize"}, [0, -0.5, -1, -1.4, -1.2], "....X"),
        # without min_delta an equal value is an improvement, a worse one is none
        ({"min_delta": 0}, [1, 1, 1, 0.9, 0.9], "....X"),
        ({"patience": 4}, [0, 0, 0, 0, 0], "....X"),
        # patience is lost from evaluation 4 on
        ({"min_evaluations": 4}, [0, 0, 0, 0, 0], "....X"),
        # windows of three: the means are 1, 1.1, 1.2 (evaluations 3, 4, 5)
        ({"window": 3}, [0, 1, 2, 0.3, 1.3], "....X"),
        # and 1, 2, 3, 2, 1: better twice, then not
        ({"window": 3}, [0, 1, 2, 3, 4, -1, 0], "......X"),
        # what is not finite costs no patience and is in no window: 1, then (1 + 2 + 1) / 3, then 4/3
        ({}, [0, NAN, 0, NAN, 0], "....X"),
        ({"window": 3}, [0, 1, NAN, 2, 1, NAN, 1], "......X"),
    ],
)  # fmt: skip
def test_plateau(rule, values, answers) -> None:
    subject = of_a(plateau=plateau(**rule))
    assert told(subject, *values) == answers
    assert subject.termination_reason == "plateau"


def test_success_is_looked_at_first() -> None:
    both = {"success": success(consecutive=3), "plateau": plateau()}
    subject = of_a(**both)
    assert told(subject, 1, 1, 1) == "..X"  # the streak of three, and two that are not better
    assert subject.termination_reason == "success"
    subject = of_a(**both)
    assert told(subject, 0, 0, 0) == "..X"
    assert subject.termination_reason == "plateau"


def test_an_outcome_of_which_one_metric_is_bad_counts_for_neither_rule() -> None:
    subject = of_a(success=success(min_evaluations=3), plateau=plateau(metric="loss", direction="minimize"))
    good, bad = {"objective": 1.0, "loss": 1.0}, {"objective": 1.0, "loss": NAN}
    assert told(subject, {"a": good}, {"a": bad}, {"a": bad}, {"a": good}) == "...."
    assert told(subject, {"a": good}) == "X"  # the third valid one; also the second without improvement
    assert subject.termination_reason == "success"


def two(a, b):
    return {"a": {"objective": a}, "b": {"objective": b}}


def test_all_agents_must_succeed_at_once() -> None:
    rules = {"a": {"success": success(consecutive=2)}, "b": {"success": success(threshold=5, consecutive=1)}}
    # a: good from 1 to 3 and from 5 on; b: good in 1, 4 and 6
    subject = condition(**rules)
    assert told(subject, two(1, 5), two(1, 0), two(1, 0), two(0, 5), two(1, 0), two(1, 5)) == ".....X"


def test_all_agents_must_have_plateaued() -> None:
    rules = {"a": {"plateau": plateau()}, "b": {"plateau": plateau(patience=1, direction="minimize")}}
    subject = condition(**rules)
    # b gets better until 3, so nothing ends, though a has not since 1; b's first stall is 4
    assert told(subject, two(0, 9), two(0, 8), two(0, 7), two(0, 7)) == "...X"
    # an agent that gets better again has all its patience back
    subject = condition(**rules)
    assert told(subject, two(0, 9), two(0, 8), two(1, 8), two(1, 7), two(1, 6), two(1, 6)) == ".....X"
    assert subject.termination_reason == "plateau"


def test_one_agent_succeeds_and_the_other_stalls_is_neither() -> None:
    rules = {"success": success(), "plateau": plateau(patience=1)}
    subject = condition(a=rules, b=rules)
    # a is good and gets better, b is bad and does not
    assert told(subject, two(1, 0), two(2, 0), two(3, 0), two(4, 0)) == "...."
    assert told(subject, two(4, 0)) == "X"
    assert subject.termination_reason == "plateau"


def test_an_evaluation_without_an_agent_counts_for_nobody() -> None:
    rules = {"success": success(consecutive=2)}
    subject = condition(a=rules, b=rules)
    # in the third b is missing: b's streak ends, a's goes on
    missing = {"a": {"objective": 1.0}}
    assert told(subject, two(0, 1), two(1, 1), missing, two(1, 1), two(1, 1)) == "....X"


def test_other_agents_and_metrics_do_not_matter() -> None:
    subject = of_a(success=success(metric="win_rate"))
    metrics = {"a": {"objective": 9.0, "win_rate": 0.5, "loss": NAN}, "z": {"win_rate": 7.0}}
    assert told(subject, metrics) == "."


def test_a_metric_that_never_was_is_an_error() -> None:
    subject = of_a(success=success(metric="objectiv_sum"))
    with pytest.raises(ContractError) as error:
        told(subject, {"a": {"objective": 1.0, "objective_sum": 5.0, "steps": 5.0}})
    text = str(error.value)
    assert "agent 'a' has no evaluation metric 'objectiv_sum' (did you mean 'objective_sum'?)" in text
    assert "there are objective, objective_sum, steps" in text


def test_a_metric_that_is_missing_once_ends_the_streak() -> None:
    subject = of_a(success=success(metric="win_rate", consecutive=2))
    good, without = {"a": {"win_rate": 1.0}}, {"a": {"objective": 1.0}}
    assert told(subject, good, without, good, good) == "...X"


@pytest.mark.parametrize("rules", [{"success": success(consecutive=3)}, {"plateau": plateau(window=2)}])
@pytest.mark.parametrize("cut", range(7))
def test_a_pickled_condition_goes_on_as_if_nothing_had_been(rules, cut) -> None:
    values = [1, 0, 1, 1.2, 1.1, 1.3, 1.2]
    whole = told(of_a(**rules), *values)
    assert "X" in whole
    first = of_a(**rules)
    begun = told(first, *values[:cut])
    assert begun + told(pickle.loads(pickle.dumps(first)), *values[cut:]) == whole


def test_it_is_a_vanilla_condition_besides() -> None:
    subject = of_a(success=success())
    running = SimpleNamespace(endings={"w": 0}, environments_reset=False)
    assert subject.episode_flow_control(running) is SimulationFlowControl.CONTINUE
    running.endings["w"] = 1
    assert subject.episode_flow_control(running) is SimulationFlowControl.RESET
    last = SimpleNamespace(worker=0)
    over = SimpleNamespace(episodes=2, history=[[{}]], last=last)
    assert subject.phase_flow_control(over) is SimulationFlowControl.CONTINUE
    over.history[0].append({})
    assert subject.phase_flow_control(over) is SimulationFlowControl.STOP_PHASE
    assert subject.termination_reason is None
    assert (subject.can_end_phase(3), subject.can_end_phase(None)) == (True, False)
    # a worker's episode that ends after the evaluation does not go on either
    assert told(subject, 1) == "X"
    endless = SimpleNamespace(episodes=None, history=[[{}]], last=last)
    assert subject.phase_flow_control(endless) is SimulationFlowControl.STOP_PHASE


@pytest.mark.parametrize("rules", [{"success": success(threshold=20)}, {"plateau": plateau(patience=1)}])
def test_it_keeps_the_contract_of_conditions(rules) -> None:
    check_termination_condition(lambda: of_a(**rules), agents=["a"])


def test_metrics_of_a_brain_can_be_asked_for_in_the_check() -> None:
    rules = {"success": success(metric="win_rate")}
    check_termination_condition(lambda: of_a(**rules), agents=["a"], metrics=["win_rate"])
    with pytest.raises(ConformanceError, match="no evaluation metric 'win_rate'"):
        check_termination_condition(lambda: of_a(**rules), agents=["a"])


class Number(TerminationCondition):
    def evaluation_flow_control(self, view):
        return len(view.metrics)


class Clears(TerminationCondition):
    def evaluation_flow_control(self, view):
        view.metrics["agent"].clear()
        return SimulationFlowControl.CONTINUE


class Moody(TerminationCondition):
    """Every second one of them answers differently."""

    made = 0

    def __init__(self):
        Moody.made += 1
        self.answer = SimulationFlowControl(4 * (Moody.made % 2))

    def evaluation_flow_control(self, view):
        return self.answer


class Unpicklable(TerminationCondition):
    def __init__(self):
        self.hook = lambda: None


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Number, "it must return a SimulationFlowControl, not 1; write"),
        (Clears, "changes what it is shown: after evaluation 0"),
        (Moody, "two instances differ, asked about the same phase"),
        (Unpicklable, "raises an exception: pickle, as for a checkpoint"),
    ],
)
def test_conditions_that_break_the_contract_are_found(broken, said) -> None:
    with pytest.raises(ConformanceError) as error:
        check_termination_condition(broken, steps=5)
    assert said in str(error.value)


# --- reading the rules -----------------------------------------------------------------------


def test_rules_that_are_sound() -> None:
    assert read_rules({"a": {"success": success(threshold=2), "plateau": None}}) == (
        {"a": AgentRules(SuccessRule("objective", 2, "greater_equal", 1, 1))},
        [],
    )
    rules, faults = read_rules({"a": {"plateau": plateau()}, "b": {"plateau": plateau(min_delta=0)}})
    assert faults == []
    assert rules["a"].plateau == PlateauRule("objective", "maximize", 0.5, 2, 1, 1)
    assert rules["b"].metrics == ("objective",)


FAULTS = [
    (None, (), "must be a mapping of agents to their rules, found nothing (null)"),
    ({}, (), "found an empty mapping"),
    ([1], (), "found a list"),
    ({"a": 3}, ("a",), "an agent's rules must be a mapping, found the number 3"),
    ({"a": {}}, ("a",), "needs the rule 'success', the rule 'plateau', or both"),
    ({"a": {"success": None}}, ("a",), "needs the rule"),
    ({"a": {"sucess": success()}}, ("a", "sucess"), "did you mean 'success'"),
    ({"a": {"success": 1}}, ("a", "success"), "success must be a mapping"),
    ({"a": {"success": success(treshold=1)}}, ("a", "success", "treshold"), "did you mean 'threshold'"),
    ({"a": {"success": success(threshold="1")}}, ("a", "success", "threshold"), "a finite number, found the string '1'"),
    ({"a": {"success": success(threshold=NAN)}}, ("a", "success", "threshold"), "a finite number, found the number nan"),
    ({"a": {"success": success(direction="maximize")}}, ("a", "success", "direction"), "allowed: greater_equal, less_equal"),
    ({"a": {"success": success(direction="less_equals")}}, ("a", "success", "direction"), "did you mean 'less_equal'"),
    ({"a": {"success": success(direction=["x"])}}, ("a", "success", "direction"), "direction is a list"),
    ({"a": {"success": success(consecutive=0)}}, ("a", "success", "consecutive"), "an integer of 1 to 1,000,000,000, found the number 0"),
    ({"a": {"success": success(consecutive=True)}}, ("a", "success", "consecutive"), "found the boolean true"),
    ({"a": {"success": success(metric="")}}, ("a", "success", "metric"), "a non-empty string"),
    ({"a": {"plateau": plateau(min_delta=-0.1)}}, ("a", "plateau", "min_delta"), "of at least 0, found the number -0.1"),
    ({"a": {"plateau": plateau(window=1.5)}}, ("a", "plateau", "window"), "an integer of 1 to 1,000,000,000"),
    ({"a": {"plateau": plateau(direction="greater_equal")}}, ("a", "plateau", "direction"), "allowed: maximize, minimize"),
    ({"a": {"success": success()}, "b": {"plateau": plateau()}}, ("b",), "agent 'b' needs the rule 'success' too"),
    ({"a": {"success": success()}, "b": {"plateau": plateau()}}, ("a",), "agent 'a' needs the rule 'plateau' too"),
]  # fmt: skip
MISSING = [
    *(({"a": {"success": {k: v for k, v in success().items() if k != key}}}, ("a", "success"), key) for key in success()),
    *(({"a": {"plateau": {k: v for k, v in plateau().items() if k != key}}}, ("a", "plateau"), key) for key in plateau()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("agents", "place", "said"), [*FAULTS, *((a, p, f"needs the key {key!r}") for a, p, key in MISSING)]
)
def test_rules_that_cannot_be_read(agents, place, said) -> None:
    faults = read_rules(agents)[1]
    assert [at for at, message in faults if said in message] == [place], faults
    with pytest.raises(ContractError) as error:
        AgentEvaluationObjectiveTerminationCondition(agents=agents)
    assert said in str(error.value)
    assert str(error.value).startswith(".".join(place)) or len(faults) > 1


def test_all_faults_are_told_at_once() -> None:
    faults = read_rules({"a": {"success": success(consecutive=0, threshold="x")}, "b": {}})[1]
    assert {place for place, _ in faults} == {
        ("a", "success", "consecutive"),
        ("a", "success", "threshold"),
        ("b",),
    }


# --- in a document -----------------------------------------------------------------------------


def test_its_names() -> None:
    for name in (
        "palaestrai.experiment:AgentEvaluationObjectiveTerminationCondition",
        "palaestrai.experiment.agent_evaluation_objective_termination_condition"
        ":AgentEvaluationObjectiveTerminationCondition",
    ):
        assert canonical_name(name) == NAME


def document_of(agents, where="run", episodes=9, evaluate_every=3, **config):
    evaluated = named("palaestrai.experiment:AgentEvaluationObjectiveTerminationCondition", agents=agents)
    config = {"episodes": episodes, "evaluate_every": evaluate_every, **config}
    if where == "simulation":
        return document(phase(conditions=[evaluated], **config))
    return document(phase(**config), run=[named(ENVIRONMENT_ENDS), evaluated])


def problems_of(agents, **config):
    with pytest.raises(DocumentError) as error:
        document_of(agents, **config)
    return error.value.problems


def test_a_sound_document() -> None:
    for episodes in (9, None):
        doc = document_of({"a": {"success": success()}, "b": {"success": success()}}, episodes=episodes)
        assert doc.warnings == ()
        assert inspect(doc) == []


@pytest.mark.parametrize(
    ("agents", "path", "said"),
    [
        ({"c": {"success": success()}}, "agents.c", "there is no agent 'c'; agents: a, b"),
        ({"a": {"success": success(metrik=1)}}, "agents.a.success.metrik", "did you mean 'metric'"),
        ({"a": 1}, "agents.a", "must be a mapping"),
        ({}, "agents", "found an empty mapping"),
    ],
)
@pytest.mark.parametrize(
    ("where", "top"),
    [("run", "run_config.conditions.1"), ("simulation", "schedule.0.phase_0.simulation.conditions.0")],
)
def test_faults_are_told_where_they_stand(agents, path, said, where, top) -> None:
    (problem,) = problems_of(agents, where=where)
    assert problem.path == f"{top}.params.{path}"
    assert said in problem.message


def test_without_rules_the_class_says_what_it_needs() -> None:
    doc = document(phase(evaluate_every=1), run=[named(NAME), named(VANILLA_RUN)])
    (problem,) = inspect(doc)
    assert "needs the parameter 'agents'" in problem.message


RULES = {"a": {"success": success()}}


def test_a_document_in_which_nothing_is_evaluated_is_refused() -> None:
    for config in (
        {"evaluate_every": 0},
        {"evaluate_every": None},
        {"evaluate_every": None, "episodes": None},
    ):
        (problem,) = problems_of(RULES, **config)
        assert problem.path == "run_config.conditions.1"
        assert "needs evaluations, and no phase has any: give evaluate_every" in problem.message


def test_in_a_test_phase_it_ends_by_episodes_alone() -> None:
    doc = document_of(RULES, mode="test", evaluate_every=None)
    assert doc.warnings == ()
    assert inspect(doc) == []


def test_a_phase_that_it_never_ends_is_warned_of() -> None:
    evaluated = phase(evaluate_every=1)
    late = phase(agents=[agent("late")], evaluate_every=2)
    without = {"phase_config": {"evaluate_every": None, "episodes": 1}}
    run = [named(NAME, agents={"late": {"success": success()}})]
    doc = document(evaluated, late, without, run=run)
    assert [(w.path, w.message.split("the phase ")[1]) for w in doc.warnings if "rules" in w.message] == [
        ("run_config.conditions.0", "'phase_0': it has no agent 'late'"),
        ("run_config.conditions.0", "'phase_2': it has no evaluate_every"),
    ]


def test_in_simulation_it_is_warned_of() -> None:
    doc = document_of(RULES, where="simulation")
    (warning,) = doc.warnings
    assert warning.path == "schedule.0.phase_0.simulation.conditions.0"
    assert "its rules are asked where it stands in run_config" in warning.message


class Own(TerminationCondition):
    """Ends a phase by evaluations, and does not say so otherwise."""

    def evaluation_flow_control(self, view):
        return SimulationFlowControl.STOP_PHASE


def test_a_phase_without_a_number_of_episodes_needs_evaluations_that_can_end_it() -> None:
    own = [named(f"{__name__}:Own")]
    for every, problems in ((2, 0), (None, 1)):
        found = inspect(document(phase(episodes=None, evaluate_every=every), run=own))
        assert len(found) == problems
    assert "evaluate_every" in str(found[0])
    # the second phase has the evaluations, the first one never ends
    doc = document(
        phase(episodes=None), {"phase_config": {"evaluate_every": 1}}, run=[named(NAME, agents=RULES)]
    )
    (problem,) = inspect(doc)
    assert "phase 'phase_0' can never end" in problem.message
    # nor does one that lacks an agent with rules
    doc = document(
        phase([environment()], [agent("b")], episodes=None, evaluate_every=1),
        {"agents": [agent("a", 5)], "phase_config": {"episodes": 3}},
        run=[named(NAME, agents=RULES)],
    )
    (problem,) = inspect(doc)
    assert "phase 'phase_0' can never end" in problem.message
