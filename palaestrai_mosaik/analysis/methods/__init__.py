"""Methods of sensitivity analysis, one a file: from a :class:`Study` to its :class:`Indices`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from .anova import anova
from .delta import delta
from .dgsm import dgsm
from .fast import fast
from .morris import morris
from .pawn import pawn
from .rbd_fast import rbd_fast
from .shapley import shapley
from .sobol import sobol
from .study import Index, Indices, Refused, Repetitions, Study


@dataclass(frozen=True)
class Method:
    """A method: its function, the indices it gives, and what it can do without.

    ``loses``: what is left out where a row has no finite outcome: the ``row``, the ``block`` of rows
    that belong together, or ``nothing``, because the method needs all rows; ``run``: the method is
    about single runs, and does without those that are lost.
    ``groups``: whether it tells groups apart rather than axes.
    ``runs``: what an executed run is that several rows share. Of ``points``, at which the outcome is taken for a
    function of the factors, it gives the values at all of them; for a ``sample``, all rows count in the
    estimate, and what is drawn anew for its error are executed runs; as ``observations`` go into tests, it is one of them.
    """

    analyse: Callable[[Study], Indices]
    indices: tuple[str, ...]
    loses: Literal["run", "row", "block", "nothing"] = "row"
    groups: bool = False
    runs: Literal["points", "sample", "observations"] = "points"


#: all methods by name
ANALYSERS: Mapping[str, Method] = {
    "sobol": Method(sobol, ("S1", "ST"), "block", groups=True),
    "shapley": Method(shapley, ("Sh",), "block", groups=True),
    "morris": Method(morris, ("mu", "mu_star", "sigma"), "block", groups=True),
    "fast": Method(fast, ("S1", "ST"), "nothing"),
    "rbd_fast": Method(rbd_fast, ("S1",), runs="sample"),
    "delta": Method(delta, ("delta",), runs="sample"),
    "pawn": Method(pawn, ("median", "maximum"), runs="sample"),
    "dgsm": Method(dgsm, ("dgsm", "vi"), "block"),
    "anova": Method(anova, ("eta2",), "run", runs="observations"),
}

__all__ = ["ANALYSERS", "Index", "Indices", "Method", "Refused", "Repetitions", "Study"]
