"""Methods of sensitivity analysis, one per file: each computes the :class:`Indices` of a :class:`Study`.

:mod:`~palaestrai_mosaik.arsenai.design.registry` explains how to add one.
"""

from ..registry import Registry
from .anova import ANOVA
from .delta import DELTA, PAWN
from .dgsm import DGSM
from .fast import FAST, RBD_FAST
from .method import Index, Indices, Method, MethodDisplay, Refused, Repetitions, Study
from .morris import MORRIS
from .sobol import SHAPLEY, SOBOL

#: Every method by its name, the most trusted first.
METHODS: Registry[Method] = Registry(
    Method,
    "method of sensitivity analysis",
    "palaestrai_mosaik.analysis_methods",
    (
        SOBOL,
        SHAPLEY,
        MORRIS,
        FAST,
        RBD_FAST,
        DELTA,
        PAWN,
        DGSM,
        ANOVA,
    ),
)

__all__ = [
    "METHODS",
    "Index",
    "Indices",
    "Method",
    "MethodDisplay",
    "Refused",
    "Repetitions",
    "Study",
]
