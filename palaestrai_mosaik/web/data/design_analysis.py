"""The analyses and the search of a design in the page."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from weakref import WeakKeyDictionary

import numpy as np

from palaestrai_mosaik.arsenai.analysis.comparison import Comparison, compare_design
from palaestrai_mosaik.arsenai.analysis.comparison.robustness import DRAWN, Robustness, metric_table
from palaestrai_mosaik.arsenai.analysis.discovery import Discovery
from palaestrai_mosaik.arsenai.analysis.discovery.figure import GROUPS, plane_of
from palaestrai_mosaik.arsenai.analysis.lost_runs import count_missing_runs
from palaestrai_mosaik.arsenai.analysis.report.indices import marks, method_of, players, ranked
from palaestrai_mosaik.arsenai.analysis.results import Results, or_reason
from palaestrai_mosaik.arsenai.analysis.sensitivity import SensitivityResult
from palaestrai_mosaik.arsenai.design.folder import CONFIRM, JOBS, RESULTS
from palaestrai_mosaik.arsenai.design.methods.delta import IRRELEVANT
from palaestrai_mosaik.arsenai.design.search import sought
from palaestrai_mosaik.arsenai.design.settings import SettingRecord, SettingState
from palaestrai_mosaik.arsenai.search.analysis import Analysis, analyse_design, outcome_moments
from palaestrai_mosaik.arsenai.search.ranking import ROWS
from palaestrai_mosaik.arsenai.search.result import best_settings, history
from palaestrai_mosaik.core.errors import DocumentError, ExecutionError, StoreError
from palaestrai_mosaik.store import Store

from ..resources import Query, ResourceError, Source, resource
from .design import DesignWatch, watch

if TYPE_CHECKING:
    from palaestrai_mosaik.core.progress import ProgressCallback


_STATES: tuple[SettingState, ...] = get_args(SettingState)
#: the whole numbers of a setting that are columns
_WHOLE = ("number", "runs", "steps", "first", "retries")
#: maximum length of a message of a pruner or a failure
_LONGEST = 300


class SearchWatch:
    """Describes the settings of a search, anew whenever they or the confirming runs have changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: tuple[Any, ...] = ()
        self._kept: dict[str, Any] = {}

    def get(self, seen: DesignWatch) -> dict[str, Any]:
        """Return the current settings; ``version`` identifies them.

        Raises:
            ResourceError: the journal or the table of settings is damaged.
        """
        with self._lock:
            try:
                states = seen.states().states
                # each ended run leaves a file in jobs/
                stamps = (_stamp(seen.folder.path / ROWS), _stamp(seen.folder.path / CONFIRM / JOBS))
                # a setting is shown with its factors, so the folder must have its row
                key = (tuple(states.settings), seen.folder.manifest["counts"]["rows"], stamps)
                if key != self._key:
                    self._kept = {"version": f"{hash(key):x}", **_search(seen, states.settings)}
                    self._key = key
            except (ExecutionError, DocumentError) as error:
                raise ResourceError(str(error)) from error
            return self._kept


def _stamp(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = os.stat(path)
        return status.st_mtime_ns, status.st_size
    return None


def _search(seen: DesignWatch, records: Sequence[SettingRecord]) -> dict[str, Any]:
    spec = seen.folder.spec
    assert spec.search is not None
    outcomes, points = sought(spec), history(spec, records)
    counts = Counter(record.state for record in records)
    # retried settings do not count towards the budget
    counted = [record for record in records if record.state != "retried"]
    return {
        "sampler": spec.search.sampler,
        "budget": {name: limit for name, limit in asdict(spec.search.budget).items() if limit is not None},
        "confirm": spec.search.confirm,
        "objectives": [{"name": outcome.name, "better": outcome.better} for outcome in outcomes],
        "states": _STATES,
        "counts": {state: counts[state] for state in _STATES},
        **{name: sum(getattr(record, name) for record in counted) for name in ("runs", "steps")},
        "settings": _columns(records, len(outcomes)),
        "best": _best(seen, records),
        "history": {
            name: np.array([getattr(point, name) for point in points])
            for name in ("number", "runs", "steps", "value", "best")
        },
    }


def _columns(records: Sequence[SettingRecord], objectives: int) -> dict[str, Any]:
    """Return a column for each property of the settings; -1 and NaN stand for missing values."""
    numbers = {name: [getattr(record, name) for record in records] for name in _WHOLE}
    return {
        **{
            name: np.array([-1 if value is None else value for value in column], dtype=np.int64)
            for name, column in numbers.items()
        },
        "state": np.array([_STATES.index(record.state) for record in records], dtype=np.uint8),
        "values": [
            np.array([dict(enumerate(record.values)).get(index, np.nan) for record in records], dtype=float)
            for index in range(objectives)
        ],
        "why": [[i, record.why[:_LONGEST]] for i, record in enumerate(records) if record.why],
    }


def _best(seen: DesignWatch, records: Sequence[SettingRecord]) -> list[dict[str, Any]]:
    folder = seen.folder
    return [
        {
            "number": setting.number,
            "values": setting.values,
            "confirmed": {name: asdict(figure) for name, figure in setting.confirmed.items()},
        }
        for setting in best_settings(folder.spec, folder.path, records, _store_of(seen), folder)
    ]


def _store_of(seen: DesignWatch) -> Store | None:
    """Return the store of a search; ``None`` for ``results`` in the folder: confirming runs are then in their own."""
    is_default = os.path.realpath(seen.store.directory) == os.path.realpath(seen.folder.path / RESULTS)
    return None if is_default else seen.store


_SEARCHES: WeakKeyDictionary[DesignWatch, SearchWatch] = WeakKeyDictionary()
_SEARCHES_LOCK = threading.Lock()


@resource("design/search")
def search(source: Source, query: Query) -> dict[str, Any]:
    """Return the settings of the search, the best ones, and the history.

    ``settings`` has a column for each property; ``values`` are those of the objectives. With ``since`` (a ``version``),
    only this version is returned if no file has changed.

    Raises:
        ResourceError: the design has no search.
    """
    settings = _settings_of(watch(source))
    if query.get("since") == settings["version"]:
        return {"version": settings["version"], "unchanged": True}
    return settings


def _settings_of(design_watch: DesignWatch) -> dict[str, Any]:
    if design_watch.folder.spec.search is None:
        raise ResourceError("this design has no search")
    with _SEARCHES_LOCK:
        search_watch = _SEARCHES.setdefault(design_watch, SearchWatch())
    return search_watch.get(design_watch)


def version_of(design_watch: DesignWatch) -> str:
    """Return the version of the settings of a search, as in :func:`search`.

    Raises:
        ResourceError: the design has no search, or its journal is damaged.
    """
    version: str = _settings_of(design_watch)["version"]
    return version


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
                    self._kept = finished, {"finished": finished, **self._analyse(seen, results)}
                except (ExecutionError, StoreError, DocumentError) as error:
                    raise ResourceError(str(error)) from error
                finally:
                    self.progress = None
            return self._kept[1]

    def _analyse(self, seen: DesignWatch, results: Results) -> dict[str, Any]:
        names = [outcome.name for outcome in results.outcome_specs]
        lost = count_missing_runs(results.outcomes(), names)
        analysed = analyse_design(results, _store_of(seen), progress=self._part)
        with self._part("comparisons") as progress:
            comparisons, no_comparison = or_reason(lambda: compare_design(results, progress=progress))
        return {
            "runs": {name: lost[name] for name in ("runs", "executed", "failed", "missing")},
            "not_finite": [[name, lost[name]] for name in names if lost[name]],
            "not_collected": results.not_collected,
            "outcomes": outcome_moments(results, names),
            "methods": [_method(results, result) for result in analysed.indices],
            "comparisons": [_comparison(result) for result in comparisons],
            "discoveries": [_discovery(result) for result in analysed.discoveries],
            "robustness": [_robustness(result) for result in analysed.robustness],
            "search": None
            if analysed.search is None
            else {"summary": analysed.search.summary, **analysed.search.data()},
            "notes": list(_notes(results, analysed, no_comparison)),
        }

    @contextmanager
    def _part(self, what: str) -> Iterator[ProgressCallback]:
        def tell(done: int, total: int) -> None:
            self.progress = what, done, total
            if self.listener is not None:
                self.listener(done, total)

        yield tell


def _notes(results: Results, analysed: Analysis, no_comparison: str) -> Iterator[str]:
    """Yield the reasons why parts of an analysis are missing."""
    if no_comparison:
        yield f"no comparison: {no_comparison}"
    if not analysed.indices and analysed.search is None:
        name = results.spec.sampler.name
        yield f"no sensitivity indices: the design names no method, and none fits {name} by default"
    if analysed.no_discoveries:
        yield f"no boxes: {analysed.no_discoveries}"
    if analysed.no_robustness:
        yield f"no robustness: {analysed.no_robustness}"


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
        **{"holds": discovery.holds, "runs": len(discovery.runs.holds), "lost": len(discovery.runs.lost)},
        **{"refused": discovery.refused or None, "nothing_found": discovery.nothing_found or None},
        "notes": list(discovery.notes),
    }


def _robustness(result: Robustness) -> dict[str, Any]:
    return {
        **{name: getattr(result, name) for name in ("title", "what", "by", "over", "better", "confidence")},
        "scenarios": result.scenarios,
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
    """Return the analysis of ``arsenai analyse``, and the comparisons of ``arsenai compare``.

    ``runs``, ``not_finite`` (outcome and number of runs), ``not_collected`` and ``outcomes`` (moments of each) describe
    the results. ``methods`` are sensitivity indices, ``discoveries`` boxes, ``comparisons`` and ``robustness`` those of
    levels. ``search`` is ``null`` without a search; else it has ``summary`` (sentences), ``best`` (settings: ``number``,
    ``factors``, ``values``, ``confirmed`` by outcome, ``recommended``, ``pruned``), ``history``, and ``importances``:
    for each outcome, ``share`` and ``p_adjusted`` by factor, the largest share first. ``notes`` say what is missing.

    They are computed once for the same finished runs; the first request waits for the computation.
    """
    design_watch, analyses = analysis_of(source)
    return analyses.get(design_watch)


@resource("design/analysis/progress")
def progress(source: Source, query: Query) -> dict[str, Any]:
    """Return the progress of the analysis: ``what`` is computed (or ``None``), ``done`` and ``total`` resamples."""
    what, done, total = analysis_of(source)[1].progress or (None, 0, 0)
    return {"what": what, "done": done, "total": total}
