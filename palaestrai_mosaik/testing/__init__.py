"""Conformance checks for your own classes.

Each check takes a function that creates a part, uses the part as the framework would, and raises
:class:`ConformanceError`, an ``AssertionError`` that lists all broken rules. Checks can be called from any test
framework, or without one::

    from palaestrai_mosaik.testing import check_environment

    def test_my_environment():
        check_environment(lambda: MyEnvironment(size=3))
"""

from .agents import check_brain, check_muscle, check_objective
from .conditions import check_termination_condition
from .environments import check_batch_environment, check_environment, check_reward, check_state_transformer
from .filters import check_filter
from .findings import ConformanceError

__all__ = [
    "ConformanceError",
    "check_batch_environment",
    "check_brain",
    "check_environment",
    "check_filter",
    "check_muscle",
    "check_objective",
    "check_reward",
    "check_state_transformer",
    "check_termination_condition",
]
