"""Analyse a design as a whole: moments of its outcomes, indices, boxes, robustness, and the result of its search."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.arsenai.analysis.comparison.robustness import robustness_design
from palaestrai_mosaik.arsenai.analysis.discovery import discover_design
from palaestrai_mosaik.arsenai.analysis.lost_runs import count_missing_runs
from palaestrai_mosaik.arsenai.analysis.results import Results, or_reason
from palaestrai_mosaik.arsenai.analysis.sensitivity import sensitivity
from palaestrai_mosaik.core.progress import ProgressCallback
from palaestrai_mosaik.store import Store

from .result import SearchResult, search_result

if TYPE_CHECKING:
    from palaestrai_mosaik.arsenai.analysis.comparison.robustness import Robustness
    from palaestrai_mosaik.arsenai.analysis.discovery import Discovery
    from palaestrai_mosaik.arsenai.analysis.sensitivity import SensitivityResult

#: returns the progress display of a part: ``indices``, ``boxes`` or ``robustness``
PartProgress = Callable[[str], AbstractContextManager[ProgressCallback | None]]

#: the columns of :func:`outcome_moments`
MOMENTS = ("outcome", "mean", "std", "min", "median", "max", "not_finite")


@dataclass(frozen=True)
class Analysis:
    """The results of an analysis.

    Attributes:
        boxes_only: whether no indices were requested.
        indices: the sensitivity indices of each outcome by each method.
        discoveries: the boxes in which each condition holds.
        no_discoveries: why there are no boxes, although the design requests them; else empty.
        robustness: the robustness that the design requests.
        no_robustness: why there is none, although the design requests it; else empty.
        search: the result of the search; ``None`` without one.
    """

    boxes_only: bool
    indices: Sequence[SensitivityResult]
    discoveries: Sequence[Discovery]
    no_discoveries: str
    robustness: Sequence[Robustness]
    no_robustness: str
    search: SearchResult | None

    def is_failed(self, requested: Sequence[str]) -> bool:
        """Return whether a part failed: boxes, robustness, a ``requested`` method, or without these all methods."""
        if any(entry.refused for entry in self.discoveries) or self.no_robustness:
            return True
        refused = [bool(entry.refused) for entry in self.indices]
        return any(refused) if requested else bool(refused) and all(refused)


def _silent(part: str) -> AbstractContextManager[None]:
    return nullcontext()


def analyse_design(
    results: Results,
    store: str | Store | None = None,
    *,
    methods: Sequence[str] = (),
    outcomes: Sequence[str] = (),
    conditions: Sequence[str] = (),
    progress: PartProgress = _silent,
) -> Analysis:
    """Compute the requested parts of the analysis of a design, by default everything in the design.

    Args:
        results: the results of the design.
        store: the store of the runs of its search, or its URL; ``None``: ``results`` in the folder.
        methods: methods of sensitivity analysis; empty: those of the design.
        outcomes: the outcomes to analyse; empty: all.
        conditions: conditions to search for boxes in which they hold. Without ``methods``, nothing else is computed.
        progress: shows the progress of a part.

    Raises:
        PalaestraiMosaikError: a method or outcome does not exist.
        StoreError: the store cannot be read.
        ExecutionError: the journal of the search is damaged.
    """
    boxes_only = bool(conditions) and not methods
    indices: Sequence[SensitivityResult] = ()
    discoveries: Sequence[Discovery] = ()
    robustness: Sequence[Robustness] = ()
    no_discoveries = no_robustness = ""
    if not boxes_only:
        with progress("indices") as drawing:
            indices = sensitivity(results, methods, outcomes, drawing)
    if conditions or not methods:
        with progress("boxes") as searching:
            discoveries, no_discoveries = or_reason(lambda: discover_design(results, conditions, searching))
    if not methods and not conditions:
        with progress("robustness") as drawing:
            robustness, no_robustness = robustness_design(results, drawing)
    search = None
    if results.spec.search is not None and not boxes_only:
        search = search_result(results.spec, results.folder.path, store, journal=results.journal)
    return Analysis(boxes_only, indices, discoveries, no_discoveries, robustness, no_robustness, search)


def outcome_moments(results: Results, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row with :data:`MOMENTS` for each outcome; ``None`` for a moment that is unknown.

    ``not_finite`` is the number of executed runs without a finite value, ``None`` if there is no such run.
    """
    lost, moments = count_missing_runs(results.outcomes(), names), results.moments()
    rows = []
    for name in names:
        numbers = (moments[name][moment] for moment in MOMENTS[1:-1])
        values = (None if math.isnan(number) else number for number in numbers)
        rows.append(dict(zip(MOMENTS, (name, *values, lost[name] or None), strict=True)))
    return rows
