"""The reasons for which episodes and phases end, in words."""

import pytest

from palaestrai_mosaik.experiment.class_names import SHORT_NAMES
from palaestrai_mosaik.simulation.conditions import TerminationCondition
from palaestrai_mosaik.types.endings import ending


class DeadlineHasPassed(TerminationCondition):
    """Ends the phase at a deadline.

    More about it.
    """


class Undescribed(TerminationCondition):
    pass


@pytest.mark.parametrize(
    ("reason", "phase", "episode"),
    [
        (
            "VanillaRunGovernorTerminationCondition",
            "all episodes done (VanillaRunGovernor)",
            "environment ended (VanillaRunGovernor)",
        ),
        (
            "EnvironmentTerminationCondition",
            "environment ended (Environment)",
            "environment ended (Environment)",
        ),
        (
            "AgentEvaluationObjectiveTerminationCondition: plateau",
            "evaluations no longer improve (AgentEvaluationObjective)",
            "evaluations no longer improve (AgentEvaluationObjective)",
        ),
        ("Budget: the money: is spent", "the money: is spent (Budget)", "the money: is spent (Budget)"),
        (
            "DeadlineHasPassed",
            "Ends the phase at a deadline (DeadlineHasPassed)",
            "Ends the phase at a deadline (DeadlineHasPassed)",
        ),
        ("Undescribed", "Undescribed", "Undescribed"),
        ("OfAnotherProcess", "OfAnotherProcess", "OfAnotherProcess"),
        ("episodes", "all episodes done", "all episodes done"),
        ("failed", "failed", "failed"),
        ("", "", ""),
    ],
)
def test_reasons_in_words(reason: str, phase: str, episode: str) -> None:
    assert (ending(reason), ending(reason, episode=True)) == (phase, episode)


def test_all_conditions_that_ship_have_words() -> None:
    for spec in SHORT_NAMES["condition"].values():
        name = spec.name.rpartition(":")[2]
        words = ending(name)
        assert words.endswith(f" ({name.removesuffix('TerminationCondition')})"), words
        assert words[0].islower(), words
