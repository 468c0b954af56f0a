"""What a report is made of, as plain data: it can be made up as well as collected from a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.design.model import DesignSpec

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.analysis.comparison import Comparison


@dataclass(frozen=True)
class LearningData:
    """How an agent learned: ``lines`` has the columns ``level``, ``episode``, ``n`` (runs), ``value``,
    ``low`` and ``high``, in order of the episodes; ``note`` says what value and band are.
    """

    title: str
    value: str
    lines: pd.DataFrame
    note: str = ""


@dataclass(frozen=True)
class ReportData:
    """All that a report tells.

    ``values``: per row of the design the decoded value (or label) of each factor,
    ``INACTIVE`` (or nothing) where it is. ``runs``: a row per run with ``row``, ``repetition``, ``uid``, ``run``, ``status``
    and a column per outcome of ``outcomes`` (NaN where there is none). ``sensitivity``: ``outcome``,
    ``method``, ``index``, ``factor``, ``factor2`` (empty but for pairs), ``value``, ``low``, ``high`` (NaN
    without an interval), ``used`` and ``lost`` (rows). ``failures``: text columns.
    ``remarks``: what has to be known about a method's indices of an outcome; ``refused``: why there
    are none. ``sizes``: what was counted, in words (``rows`` -> ``"48"``). ``commands`` make all of it again.
    """

    spec: DesignSpec
    outcomes: tuple[str, ...]
    values: Sequence[Mapping[str, Any]]
    runs: pd.DataFrame
    sensitivity: pd.DataFrame
    comparisons: tuple[Comparison, ...] = ()
    learning: tuple[LearningData, ...] = ()
    failures: pd.DataFrame | None = None
    remarks: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    refused: Mapping[tuple[str, str], str] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def better(self, outcome: str) -> str | None:
        """Return which direction of ``outcome`` is good: ``higher``, ``lower`` or nothing."""
        return next((one.better for one in self.spec.outcomes if one.name == outcome), None)
