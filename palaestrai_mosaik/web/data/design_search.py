"""A search in the page: its settings, the best ones, and its history. It is only read again when files have changed."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args
from weakref import WeakKeyDictionary

import numpy as np

from palaestrai_mosaik.design.folder import CONFIRM, JOBS, RESULTS
from palaestrai_mosaik.design.search import sought
from palaestrai_mosaik.design.search_journal import read_settings
from palaestrai_mosaik.design.settings_table import SETTINGS, SettingRecord, SettingState
from palaestrai_mosaik.errors import DocumentError, ExecutionError
from palaestrai_mosaik.execution import RunStatus
from palaestrai_mosaik.execution.status import lost_runs, without_lost
from palaestrai_mosaik.search.confirm import ROWS
from palaestrai_mosaik.search.result import best_settings, history

from ..resources import Query, ResourceError, Source, resource
from .design_watch import DesignWatch, watch

_STATES: tuple[SettingState, ...] = get_args(SettingState)
#: maximum length of a message of a pruner or a failure
_LONGEST = 300


class SearchWatch:
    """Reads the settings of a search whenever their files have been written."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: tuple[tuple[int, int] | None, ...] = ()
        self._kept: dict[str, Any] = {}

    def get(self, seen: DesignWatch) -> dict[str, Any]:
        """Return the current settings; ``version`` identifies this state of the files.

        Raises:
            ResourceError: the table of settings was edited.
        """
        with self._lock:
            path = seen.folder.path
            # each ended run leaves a file in jobs/
            names = (path / SETTINGS, path / ROWS, path / CONFIRM / JOBS)
            stamps = tuple(map(_stamp, names))
            # a setting is shown with its factors, so the folder must have its row
            rows = seen.folder.manifest["counts"]["rows"]
            lost = seen.states().statuses().count(RunStatus.LOST)
            if not self._kept or (stamps, rows, lost) != (
                self._files,
                self._kept["rows"],
                self._kept["lost"],
            ):
                try:
                    version = _version(stamps, rows, lost)
                    self._kept = {"version": version, "rows": rows, "lost": lost, **_search(seen)}
                except (ExecutionError, DocumentError) as error:
                    raise ResourceError(str(error)) from error
                self._files = stamps
            return self._kept


def _stamp(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = os.stat(path)
        return status.st_mtime_ns, status.st_size
    return None


def _version(found: Sequence[tuple[int, int] | None], rows: int, lost: int) -> str:
    stamps = ["" if stamp is None else f"{stamp[0]:x}.{stamp[1]:x}" for stamp in found]
    return "-".join([*stamps, f"{rows:x}", f"{lost:x}"])


def _search(seen: DesignWatch) -> dict[str, Any]:
    folder = seen.folder
    spec = folder.spec
    assert spec.search is not None
    outcomes = sought(spec)
    records = read_settings(folder.path)
    records = without_lost(records, lost_runs(seen.states().states, records))
    points = history(spec, records)
    counts = Counter(item.state for item in records)
    counted = [item for item in records if item.state != "retried"]
    # confirming runs are in their own design's folder, unless another store was named
    is_default = os.path.realpath(seen.store.directory) == os.path.realpath(folder.path / RESULTS)
    with_rows = [item for item in records if item.number < folder.manifest["counts"]["rows"]]
    return {
        "sampler": spec.search.sampler,
        "budget": {name: limit for name, limit in asdict(spec.search.budget).items() if limit is not None},
        "confirm": spec.search.confirm,
        "objectives": [{"name": item.name, "better": item.better} for item in outcomes],
        "states": _STATES,
        "counts": {state: counts[state] for state in _STATES},
        # runs and steps that count towards the budget
        "runs": sum(item.runs for item in counted),
        "steps": sum(item.steps for item in counted),
        "settings": {
            "number": np.array([item.number for item in records], dtype=np.int64),
            "state": np.array([_STATES.index(item.state) for item in records], dtype=np.uint8),
            "runs": np.array([item.runs for item in records], dtype=np.int64),
            "steps": np.array([item.steps for item in records], dtype=np.int64),
            "values": [_values(records, index) for index in range(len(outcomes))],
            "first": np.array([-1 if item.first is None else item.first for item in records], dtype=np.int64),
            "retries": np.array(
                [-1 if item.retries is None else item.retries for item in records], dtype=np.int64
            ),
            "why": [[i, item.why[:_LONGEST]] for i, item in enumerate(records) if item.why],
        },
        "best": [
            {
                "number": item.number,
                "values": item.values,
                "confirmed": {k: asdict(v) for k, v in item.confirmed.items()},
            }
            for item in best_settings(
                spec, folder.path, with_rows, None if is_default else seen.store, folder
            )
        ],
        "history": {
            name: np.array([getattr(point, name) for point in points])
            for name in ("number", "runs", "steps", "value", "best")
        },
    }


def _values(records: Sequence[SettingRecord], place: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(
        [record.values[place] if place < len(record.values) else np.nan for record in records],
        dtype=np.float64,
    )


_SEARCHES: WeakKeyDictionary[DesignWatch, SearchWatch] = WeakKeyDictionary()
_LOCK = threading.Lock()


@resource("design/search")
def search(source: Source, query: Query) -> dict[str, Any]:
    """Return the settings of the search, the best ones, and the history.

    ``settings`` has a column for each property; ``values`` are those of the objectives. With ``since`` (a ``version``),
    only this version is returned if no file has changed.

    Raises:
        ResourceError: the design has no search.
    """
    design_watch = watch(source)
    if design_watch.folder.spec.search is None:
        raise ResourceError("this design has no search")
    with _LOCK:
        search_watch = _SEARCHES.setdefault(design_watch, SearchWatch())
    settings = search_watch.get(design_watch)
    if query.get("since") == settings["version"]:
        return {"version": settings["version"], "unchanged": True}
    return settings
