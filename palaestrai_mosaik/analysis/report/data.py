"""What a report is made of, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.design.model import DesignSpec
from palaestrai_mosaik.text import count

from ..beside import Beside
from ..comparison.robustness import Robustness
from ..discovery import Discovery
from ..missing_runs import executed_text
from .compared import Compared, count_seeds

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class LearningData:
    """How an agent learned: ``lines`` has the columns ``level``, ``episode``, ``n`` (runs), ``seeds``
    (of them), ``value``, ``low`` and ``high``, in order of the episodes; ``note`` says what value and band are, and ``each``
    what the episodes are called.
    """

    title: str
    value: str
    lines: pd.DataFrame
    note: str = ""
    each: str = "episode"


@dataclass(frozen=True)
class SearchData:
    """What a search has found, as tables.

    ``best``: a row per setting, the best first (of several objectives the Pareto front). ``history``: ``setting``,
    ``runs``, ``steps``, ``value``, ``best``, in the order in which settings were told; ``importances``: ``outcome``,
    ``factor``, ``share``. ``outcome`` names what the history is of, ``better`` its direction. ``confirmed``: whether
    ``best`` has figures over fresh seeds; ``several``: whether there is more than one objective.
    """

    best: pd.DataFrame
    history: pd.DataFrame
    importances: pd.DataFrame
    outcome: str
    better: str
    summary: str
    confirmed: bool
    several: bool = False


@dataclass(frozen=True)
class ReportData:
    """All that a report tells.

    ``values``: per row of the design the decoded value (or label) of each factor,
    ``INACTIVE`` (or nothing) where it is. ``runs``: a row per run with ``row``, ``repetition``, ``uid``, ``run``, ``status``
    and a column per outcome of ``outcomes`` (NaN where there is none). ``sensitivity``: ``outcome``,
    ``method``, ``index``, ``factor``, ``factor2`` (empty but for pairs), ``value``, ``low``, ``high`` (NaN
    without an interval), ``used``, ``lost`` and ``executed`` (runs). ``failures``: text columns.
    ``remarks``: what has to be known about a method's indices of an outcome; ``refused``: why there
    are none. ``sizes``: what was counted, in words (``rows`` -> ``"48"``). ``commands`` make all of it again.
    ``seconds``: how long each execution took, where the store knows. ``folder`` is that of the design, and
    ``documents`` the file of each executed run in it, by the run's uid. ``discoveries``: where conditions hold.
    ``search``: what a search has found. ``beside``: its importances beside the Sobol' indices of another design.
    ``robustness``: of decisions over scenarios, as the design asks for it.
    """

    spec: DesignSpec
    outcomes: tuple[str, ...]
    values: Sequence[Mapping[str, Any]]
    runs: pd.DataFrame
    sensitivity: pd.DataFrame
    comparisons: tuple[Compared, ...] = ()
    learning: tuple[LearningData, ...] = ()
    failures: pd.DataFrame | None = None
    remarks: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    refused: Mapping[tuple[str, str], str] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: tuple[float, ...] = ()
    folder: Path | None = None
    documents: Mapping[str, str] = field(default_factory=dict)
    discoveries: tuple[Discovery, ...] = ()
    search: SearchData | None = None
    beside: Beside | None = None
    robustness: tuple[Robustness, ...] = ()

    def finite(self, outcome: str) -> pd.DataFrame:
        """Return the runs that gave a finite ``outcome``; all others are lost."""
        found: pd.DataFrame = self.runs[np.isfinite(self.runs[outcome].to_numpy(float))]
        return found

    def seeds_of(self, outcome: str) -> str:
        """Return how many distinct seeds the runs have that gave ``outcome``: ``3 seeds``."""
        return count(count_seeds(self.finite(outcome), self.spec.seed_policy == "common"), "seed")

    def counted(self, outcome: str) -> str:
        """Return how many runs gave ``outcome``: ``36 runs (21 executed)``."""
        told = self.finite(outcome)["run"]
        executed = executed_text(len(told), told.nunique())
        return f"{count(len(told), 'run')}{f' ({executed})' * bool(executed)}"

    def runs_of(self, outcome: str) -> str:
        """Return the same with their seeds: ``36 runs (21 executed) of 3 seeds``."""
        return f"{self.counted(outcome)} of {self.seeds_of(outcome)}"
