"""Filters that ship with the package, one per file."""

from .action_change_penalty import ActionChangePenaltyFilter
from .action_time_shift import ActionTimeShiftFilter
from .delta import DeltaActionFilter, DeltaObsFilter, DeltaStepFilter
from .deviation import AbsoluteDeviationFilter, QuadraticPenaltyFilter
from .merge_steps import MergeStepsFilter
from .norm import NormFilter
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
