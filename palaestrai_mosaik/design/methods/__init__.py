"""Methods of sensitivity analysis, one a file: from a :class:`Study` to its :class:`Indices`.

:mod:`~palaestrai_mosaik.design.registry` says how to add one.
"""

from ..registry import Registry
from .anova import ANOVA
from .delta import DELTA
from .dgsm import DGSM
from .fast import FAST
from .method import Index, Indices, Method, MethodDisplay, Refused, Repetitions, Study
from .morris import MORRIS
from .pawn import PAWN
from .rbd_fast import RBD_FAST
from .shapley import SHAPLEY
from .sobol import SOBOL

#: Every method by its name, in the order in which they are trusted where several were used.
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
