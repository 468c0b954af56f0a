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

from palaestrai_mosaik.arsenai.design.folder import CONFIRM, JOBS, RESULTS
from palaestrai_mosaik.arsenai.design.search import sought
from palaestrai_mosaik.arsenai.design.settings import SettingRecord, SettingState
from palaestrai_mosaik.arsenai.search.ranking import ROWS
from palaestrai_mosaik.arsenai.search.result import best_settings, history
from palaestrai_mosaik.core.errors import DocumentError, ExecutionError

from ..resources import Query, ResourceError, Source, resource
from .design import DesignWatch, watch

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
    # confirming runs are in their own design's folder, unless another store was named
    is_default = os.path.realpath(seen.store.directory) == os.path.realpath(folder.path / RESULTS)
    store = None if is_default else seen.store
    return [
        {
            "number": setting.number,
            "values": setting.values,
            "confirmed": {name: asdict(figure) for name, figure in setting.confirmed.items()},
        }
        for setting in best_settings(folder.spec, folder.path, records, store, folder)
    ]


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
    design_watch = watch(source)
    if design_watch.folder.spec.search is None:
        raise ResourceError("this design has no search")
    with _SEARCHES_LOCK:
        search_watch = _SEARCHES.setdefault(design_watch, SearchWatch())
    settings = search_watch.get(design_watch)
    if query.get("since") == settings["version"]:
        return {"version": settings["version"], "unchanged": True}
    return settings
