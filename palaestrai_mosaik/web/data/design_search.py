"""What the page shows of a search: its settings, the best ones, the way to them. Read again only where files have changed."""

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
#: characters of what a pruner or a failure said
_LONGEST = 300


class SearchWatch:
    """Reads what is known of the settings of a search, once for each time that its files were written."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: tuple[tuple[int, int] | None, ...] = ()
        self._kept: dict[str, Any] = {}

    def get(self, seen: DesignWatch) -> dict[str, Any]:
        """Return the settings as they are now; ``version`` names this state of the files.

        Raises:
            ResourceError: the table of settings was edited.
        """
        with self._lock:
            path = seen.folder.path
            # (each run that has ended leaves a file in jobs/)
            names = (path / SETTINGS, path / ROWS, path / CONFIRM / JOBS)
            found = tuple(map(_stamp, names))
            # (a setting is shown with its factors: the folder must have its row)
            rows = seen.folder.manifest["counts"]["rows"]
            lost = seen.states().statuses().count(RunStatus.LOST)
            if not self._kept or (found, rows, lost) != (self._files, self._kept["rows"], self._kept["lost"]):
                try:
                    version = _version(found, rows, lost)
                    self._kept = {"version": version, "rows": rows, "lost": lost, **_search(seen)}
                except (ExecutionError, DocumentError) as error:
                    raise ResourceError(str(error)) from error
                self._files = found
            return self._kept


def _stamp(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        told = os.stat(path)
        return told.st_mtime_ns, told.st_size
    return None


def _version(found: Sequence[tuple[int, int] | None], rows: int, lost: int) -> str:
    stamps = ["" if one is None else f"{one[0]:x}.{one[1]:x}" for one in found]
    return "-".join([*stamps, f"{rows:x}", f"{lost:x}"])


def _search(seen: DesignWatch) -> dict[str, Any]:
    folder = seen.folder
    spec = folder.spec
    assert spec.search is not None
    outcomes = sought(spec)
    records = read_settings(folder.path)
    records = without_lost(records, lost_runs(seen.states().states, records))
    points = history(spec, records)
    counts = Counter(one.state for one in records)
    counted = [one for one in records if one.state != "retried"]
    # (the runs that confirm are in the folder of their own design, unless another store was named)
    own = os.path.realpath(seen.store.directory) == os.path.realpath(folder.path / RESULTS)
    shown = [one for one in records if one.number < folder.manifest["counts"]["rows"]]
    return {
        "sampler": spec.search.sampler,
        "budget": {name: limit for name, limit in asdict(spec.search.budget).items() if limit is not None},
        "confirm": spec.search.confirm,
        "objectives": [{"name": one.name, "better": one.better} for one in outcomes],
        "states": _STATES,
        "counts": {state: counts[state] for state in _STATES},
        # (of the budget)
        "runs": sum(one.runs for one in counted),
        "steps": sum(one.steps for one in counted),
        "settings": {
            "number": np.array([one.number for one in records], dtype=np.int64),
            "state": np.array([_STATES.index(one.state) for one in records], dtype=np.uint8),
            "runs": np.array([one.runs for one in records], dtype=np.int64),
            "steps": np.array([one.steps for one in records], dtype=np.int64),
            "values": [_values(records, place) for place in range(len(outcomes))],
            "first": np.array([-1 if one.first is None else one.first for one in records], dtype=np.int64),
            "retries": np.array(
                [-1 if one.retries is None else one.retries for one in records], dtype=np.int64
            ),
            "why": [[i, one.why[:_LONGEST]] for i, one in enumerate(records) if one.why],
        },
        "best": [
            {
                "number": one.number,
                "values": one.values,
                "confirmed": {k: asdict(v) for k, v in one.confirmed.items()},
            }
            for one in best_settings(spec, folder.path, shown, None if own else seen.store, folder)
        ],
        "history": {
            name: np.array([getattr(point, name) for point in points])
            for name in ("number", "runs", "steps", "value", "best")
        },
    }


def _values(records: Sequence[SettingRecord], place: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(
        [one.values[place] if place < len(one.values) else np.nan for one in records], dtype=np.float64
    )


_SEARCHES: WeakKeyDictionary[DesignWatch, SearchWatch] = WeakKeyDictionary()
_LOCK = threading.Lock()


@resource("design/search")
def search(source: Source, query: Query) -> dict[str, Any]:
    """Return the settings of the search, the best of them and the way to them.

    ``settings`` has a column for each property; ``values`` are those of the objectives. With ``since`` (a ``version``)
    there is nothing but this version where no file has changed.

    Raises:
        ResourceError: the design has no search.
    """
    seen = watch(source)
    if seen.folder.spec.search is None:
        raise ResourceError("this design has no search")
    with _LOCK:
        kept = _SEARCHES.setdefault(seen, SearchWatch())
    found = kept.get(seen)
    if query.get("since") == found["version"]:
        return {"version": found["version"], "unchanged": True}
    return found
