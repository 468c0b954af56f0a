"""Filters that ship with the package, one per file."""

from .absolute_deviation import AbsoluteDeviationFilter
from .action_change_penalty import ActionChangePenaltyFilter
from .action_time_shift import ActionTimeShiftFilter
from .delta_action import DeltaActionFilter
from .delta_obs import DeltaObsFilter
from .delta_step import DeltaStepFilter
from .merge_steps import MergeStepsFilter
from .norm import NormFilter
from .quadratic_penalty import QuadraticPenaltyFilter
from .scale import ScaleFilter

__all__ = [
    "AbsoluteDeviationFilter",
    "ActionChangePenaltyFilter",
    "ActionTimeShiftFilter",
    "DeltaActionFilter",
    "DeltaObsFilter",
    "DeltaStepFilter",
    "MergeStepsFilter",
    "NormFilter",
    "QuadraticPenaltyFilter",
    "ScaleFilter",
]
