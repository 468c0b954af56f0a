"""Scenario discovery: find boxes of a design's factors in which a condition on the outcomes holds.

PRIM follows Friedman and Fisher 1999, "Bump hunting in high-dimensional data"; CART is scikit-learn's, from the extra
``discovery``. Coverage, density, quasi-p values and resampling follow Bryant and Lempert 2010, "Thinking inside the
box", Technological Forecasting and Social Change 77.
"""

from .discover import Discovery, FoundBox, discover_design, discoveries_asked_for, shares
from .figure import discovery_figure
from .surrogate import Relabelling, Surrogate

__all__ = [
    "Discovery",
    "FoundBox",
    "Relabelling",
    "Surrogate",
    "discover_design",
    "discoveries_asked_for",
    "discovery_figure",
    "shares",
]
