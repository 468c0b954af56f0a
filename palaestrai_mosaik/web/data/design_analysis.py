"""The analyses of a design: indices, comparisons, boxes, robustness.

They are computed on request, and kept until more runs have finished.
"""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from palaestrai_mosaik.arsenai.analysis.comparison import Comparison, compare_design
from palaestrai_mosaik.arsenai.analysis.comparison.robustness import (
    DRAWN,
    Robustness,
    metric_table,
    robustness_design,
)
from palaestrai_mosaik.arsenai.analysis.discovery import Discovery, discoveries_asked_for
from palaestrai_mosaik.arsenai.analysis.discovery.plane import GROUPS, plane_of
from palaestrai_mosaik.arsenai.analysis.lost_runs import count_missing_runs
from palaestrai_mosaik.arsenai.analysis.report.indices import marks, method_of, players, ranked
from palaestrai_mosaik.arsenai.analysis.results import Results, or_reason
from palaestrai_mosaik.arsenai.analysis.sensitivity import SensitivityResult, sensitivity
from palaestrai_mosaik.arsenai.design.methods.delta import IRRELEVANT
from palaestrai_mosaik.core.errors import DocumentError, StoreError

from ..resources import Query, ResourceError, Source, resource
from .design import DesignWatch, watch

if TYPE_CHECKING:
    from palaestrai_mosaik.core.progress import ProgressCallback


class DesignAnalysis:
    """Analyses the results of a design, one computation at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[int, dict[str, Any]] | None = None
        #: the current computation, the number of drawn resamples, and their total
        self.progress: tuple[str, int, int] | None = None
        #: called with the number of drawn resamples, and their total
        self.listener: ProgressCallback | None = None

    def get(self, seen: DesignWatch) -> dict[str, Any]:
        """Return the analysis of the finished runs.

        Raises:
            ResourceError: there is nothing to analyse, or the design requests an analysis that does not fit it.
        """
        with self._lock:
            finished, results = seen.results()
            if self._kept is None or self._kept[0] != finished:
                try:
                    self._kept = finished, {"finished": finished, **self._analyse(results)}
                except (StoreError, DocumentError) as error:
                    raise ResourceError(str(error)) from error
                finally:
                    self.progress = None
            return self._kept[1]

    def _analyse(self, results: Results) -> dict[str, Any]:
        names = [outcome.name for outcome in results.outcome_specs]
        lost = count_missing_runs(results.outcomes(), names)
        indices = sensitivity(results, progress=self._progress_of("indices"))
        comparisons, reason = or_reason(
            lambda: compare_design(results, progress=self._progress_of("comparisons"))
        )
        notes = [f"no comparison: {reason}"] * bool(reason)
        if not indices:
            name = results.spec.sampler.name
            notes.append(
                f"no sensitivity indices: the design names no method, and none fits {name} by default"
            )
        discoveries, reason = discoveries_asked_for(results, self._progress_of("boxes"))
        notes += [f"no boxes: {reason}"] * bool(reason)
        robustness, reason = robustness_design(results, self._progress_of("robustness"))
        notes += [f"no robustness: {reason}"] * bool(reason)
        return {
            "runs": {name: lost[name] for name in ("runs", "executed", "failed", "missing")},
            "not_finite": [[name, lost[name]] for name in names if lost[name]],
            "not_collected": results.not_collected,
            "methods": [_method(results, result) for result in indices],
            "comparisons": [_comparison(result) for result in comparisons],
            "discoveries": [_discovery(result) for result in discoveries],
            "robustness": [_robustness(result) for result in robustness],
            "notes": notes,
        }

    def _progress_of(self, what: str) -> ProgressCallback:
        def tell(done: int, total: int) -> None:
            self.progress = what, done, total
            if self.listener is not None:
                self.listener(done, total)

        return tell


def _method(results: Results, result: SensitivityResult) -> dict[str, Any]:
    display = method_of(result.method, result.frame)
    leading = marks(result.frame, display.leading)
    irrelevant = leading[IRRELEVANT].value if IRRELEVANT in leading else None
    of_players = result.frame[result.frame["factor"].isin(players(results.spec))]
    return {
        **{"outcome": result.outcome, "method": result.method, "title": display.title, "says": display.says},
        "bars": list(display.bars),
        "leading": display.leading,
        "irrelevant": irrelevant,
        "ranked": ranked(marks(of_players, display.leading)),
        **{"used": result.used, "lost": result.lost, "executed": result.executed},
        "refused": result.refused or None,
        "notes": list(result.notes),
        "frame": result.frame,
    }


def _comparison(result: Comparison) -> dict[str, Any]:
    options = result.options
    return {
        **{"title": result.title, "outcome": result.outcome, "by": list(result.by), "better": options.better},
        **{"confidence": options.confidence, "constant": result.constant},
        "equal_settings": result.equal_settings,
        **{"levels": result.levels, "pairs": result.pairs},
        **{"warnings": list(result.warnings), "notes": list(result.notes)},
    }


def _discovery(discovery: Discovery) -> dict[str, Any]:
    boxes = []
    for box in discovery.boxes:
        plane = plane_of(discovery, box)
        description = {"name": f"{box.method} {box.number}", "rule": box.rule, "limits": box.limits}
        boxes.append({**description, **box.figures, "plane": None if plane is None else asdict(plane)})
    return {
        **{"condition": discovery.condition, "title": discovery.title, "boxes": boxes, "groups": GROUPS},
        **{"refused": discovery.refused or None, "nothing_found": discovery.nothing_found},
        "notes": list(discovery.notes),
    }


def _robustness(result: Robustness) -> dict[str, Any]:
    return {
        **{name: getattr(result, name) for name in ("title", "what", "better", "confidence")},
        **{"drawn": result.drawn, "metrics": [list(named) for named in DRAWN[result.drawn].items()]},
        **{"levels": metric_table(result), "warnings": list(result.warnings)},
    }


_ANALYSES: WeakKeyDictionary[DesignWatch, DesignAnalysis] = WeakKeyDictionary()
_LOCK = threading.Lock()


def analysis_of(source: Source) -> tuple[DesignWatch, DesignAnalysis]:
    """Return the watch and the analysis of a source's design."""
    design_watch = watch(source)
    with _LOCK:
        return design_watch, _ANALYSES.setdefault(design_watch, DesignAnalysis())


@resource("design/analysis")
def analysis(source: Source, query: Query) -> dict[str, Any]:
    """Return indices, boxes and robustness, as in ``arsenai analyse``, and comparisons, as in ``arsenai compare``.

    They are computed once for the same finished runs; the first request waits for the computation.
    """
    design_watch, analyses = analysis_of(source)
    return analyses.get(design_watch)


@resource("design/analysis/progress")
def progress(source: Source, query: Query) -> dict[str, Any]:
    """Return the progress of the analysis: ``what`` is computed (or ``None``), ``done`` and ``total`` resamples."""
    what, done, total = analysis_of(source)[1].progress or (None, 0, 0)
    return {"what": what, "done": done, "total": total}
