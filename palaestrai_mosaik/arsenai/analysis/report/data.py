"""The data of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.arsenai.design.folder import JOBS
from palaestrai_mosaik.arsenai.design.model import DesignSpec
from palaestrai_mosaik.core.printing import count

from ..beside import Beside
from ..comparison.robustness import Robustness
from ..discovery import Discovery
from ..lost_runs import executed_text
from .compared import Compared, count_seeds

if TYPE_CHECKING:
    import pandas as pd


def log_of(document: str) -> str:
    """Return the log of a run in the folder of a design, given the file of its document there."""
    return f"{JOBS}/{PurePosixPath(document).stem}.log"


@dataclass(frozen=True)
class LearningData:
    """The learning curves of an agent.

    Attributes:
        title: title of the picture.
        value: label of the values.
        lines: ``level``, ``episode``, ``n`` (runs), ``seeds`` (of these runs), ``value``, ``low`` and ``high``, in the
            order of the episodes.
        note: explanation of values and bands.
        each: the noun for an episode.
    """

    title: str
    value: str
    lines: pd.DataFrame
    note: str = ""
    each: str = "episode"


@dataclass(frozen=True)
class SearchData:
    """The results of a search, as tables.

    Attributes:
        best: a row per setting, the best first; for several objectives, the Pareto front.
        history: ``setting``, ``runs``, ``steps``, ``value``, ``best``, in the order in which settings were reported.
        importances: ``outcome``, ``factor``, ``share``, ``p_adjusted``.
        outcome: the outcome of the history.
        better: the better direction of that outcome.
        summary: a summary in words.
        confirmed: whether ``best`` has values over fresh seeds.
        several: whether there is more than one objective.
        winner: the number of the recommended setting; ``None``: lost runs could change which one is the best.
        states: number of settings in each state, such as ``complete`` and ``pruned``.
        runs: number of runs of these settings.
    """

    best: pd.DataFrame
    history: pd.DataFrame
    importances: pd.DataFrame
    outcome: str
    better: str
    summary: str
    confirmed: bool
    several: bool = False
    winner: int | None = None
    states: Mapping[str, int] = field(default_factory=dict)
    runs: int = 0


@dataclass(frozen=True)
class ReportData:
    """The data of a report.

    Attributes:
        spec: the design.
        outcomes: names of the outcomes.
        values: for each row of the design, the decoded value (or label) of each factor, ``INACTIVE`` or missing if
            inactive.
        runs: a row per run with ``row``, ``repetition``, ``uid``, ``run``, ``status`` and a column per outcome (NaN if
            missing).
        sensitivity: ``outcome``, ``method``, ``index``, ``factor``, ``factor2`` (empty except for pairs), ``value``,
            ``low``, ``high`` (NaN without an interval), ``used``, ``lost`` and ``executed`` (runs).
        comparisons: comparisons with their runs.
        learning: learning curves.
        failures: unfinished runs, as columns of text.
        remarks: notes on the indices of an outcome by a method.
        refused: reasons for missing indices of an outcome by a method.
        sizes: counts in words (``rows`` -> ``"48"``).
        versions: versions of packages, and times.
        commands: the commands that reproduce the results.
        warnings: cautions about the whole design.
        notes: further notes.
        seconds: the duration of each execution, if recorded.
        folder: the folder of the design.
        documents: the file of each executed run in the folder, by the run's uid.
        discoveries: the boxes in which conditions hold.
        search: the results of a search.
        beside: the importances of a search beside the Sobol' indices of another design.
        robustness: the robustness of decisions over scenarios, if the design requests it.
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
        """Return the runs with a finite ``outcome``; all others are lost."""
        rows: pd.DataFrame = self.runs[np.isfinite(self.runs[outcome].to_numpy(float))]
        return rows

    def seeds_of(self, outcome: str) -> str:
        """Count the distinct seeds of the runs with a finite ``outcome``: ``3 seeds``."""
        return count(count_seeds(self.finite(outcome), self.spec.seed_policy == "common"), "seed")

    def counted(self, outcome: str) -> str:
        """Count the runs with a finite ``outcome``: ``36 runs (21 executed)``."""
        executions = self.finite(outcome)["run"]
        executed = executed_text(len(executions), executions.nunique())
        return f"{count(len(executions), 'run')}{f' ({executed})' * bool(executed)}"

    def runs_of(self, outcome: str) -> str:
        """Count the runs with a finite ``outcome`` and their seeds: ``36 runs (21 executed) of 3 seeds``."""
        return f"{self.counted(outcome)} of {self.seeds_of(outcome)}"
