"""What the page shows of a design: its factors and rows, the states of its runs, their outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palaestrai_mosaik.analysis.results import labels
from palaestrai_mosaik.design.folder import DesignFolder
from palaestrai_mosaik.design.model import INACTIVE, Axis, Factor
from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.execution import RunStatus
from palaestrai_mosaik.types.arrays import Array, FloatArray, IntArray

from ..resources import Query, Source, resource
from .design_watch import log_of, watch

#: statuses by the numbers that stand for them
_STATUSES = list(RunStatus)
_LOGARITHMIC = ("loguniform", "lognormal")


@resource("design")
def design(source: Source, query: Query) -> dict[str, Any]:
    """Return what is fixed when a design is generated; to the folder of a search, rows are added (:func:`rows`).

    ``cells`` are the repetitions of the rows, row by row: for each the number of the run that is executed for it, one
    of ``runs``. Where rows have identical documents, one run is executed for several.
    """
    folder = watch(source).folder
    spec, counts = folder.spec, folder.manifest["counts"]
    factors = [_factor(axis, factor) for axis in spec.axes for factor in axis.factors]
    added = _rows(folder, 0)
    return {
        "uid": spec.uid,
        "folder": str(folder.path),
        "sampler": {
            "name": spec.sampler.name if spec.search is None else spec.search.sampler,
            "n": spec.sampler.n,
            "options": _options(spec.sampler.options),
        },
        "search": spec.search is not None,
        "rows": counts["rows"],
        "rejected": counts["rejected"],
        "repetitions": spec.repetitions,
        "seeds": spec.seed_policy,
        "constraints": list(spec.constraints),
        "warnings": list(folder.sample.warnings),
        "factors": [{**one, "values": values} for one, values in zip(factors, added["values"], strict=True)],
        "cells": added["cells"],
        "runs": added["runs"],
        "statuses": [str(status) for status in _STATUSES],
    }


@resource("design/rows")
def rows(source: Source, query: Query) -> dict[str, Any]:
    """Return the rows of the design that come after the first ``from`` ones.

    ``rows`` is how many there are in all. ``cells`` and ``runs`` are as of :func:`design`, which counts runs over all
    rows; ``values`` has the column of each factor.
    """
    return _rows(watch(source).folder, query.integer("from", 0) or 0)


def _rows(folder: DesignFolder, first: int) -> dict[str, Any]:
    spec, count = folder.spec, folder.manifest["counts"]["rows"]
    documents = folder.documents
    number = {run.uid: i for i, run in enumerate(documents)}
    cells = np.zeros((count, spec.repetitions), dtype=np.int64)
    for run in folder.runs:
        cells[run.row, run.repetition] = number[run.run]
    values = folder.values(first)
    added = [run for run in documents if run.row >= first]
    return {
        "rows": count,
        "cells": cells[first:].ravel(),
        "runs": {
            "uid": [run.uid for run in added],
            "row": np.array([run.row for run in added], dtype=np.int64),
            "repetition": np.array([run.repetition for run in added], dtype=np.int64),
        },
        "values": [_column(factor, values) for axis in spec.axes for factor in axis.factors],
    }


def _options(options: Mapping[str, Any]) -> list[str]:
    return [f"{name}: {value}" for name, value in options.items() if value is not None]


def _factor(axis: Axis, factor: Factor) -> dict[str, Any]:
    """Return what a factor is."""
    others = [other.name for other in axis.factors if other is not factor]
    return {
        "name": factor.name,
        "levels": list(factor.labels) if factor.kind == "levels" else None,
        "whole": factor.kind == "int",
        "log": factor.kind != "levels" and factor.dist in _LOGARITHMIC,
        "path": factor.path,
        "when": factor.when,
        "zipped": others,
        "group": axis.group,
    }


def _column(factor: Factor, values: Sequence[Mapping[str, Any]]) -> Array:
    """Return the value of a factor in each row: a number, or the number of its level.

    Where it is inactive, the number is NaN, and that of the level is -1.
    """
    if factor.kind == "levels":
        places = {label: i for i, label in enumerate(factor.labels)}
        found = labels([factor], values)
        return np.array([-1 if label is None else places[label] for label in found], dtype=np.int64)
    numbers = (row[factor.name] for row in values)
    return np.array([np.nan if one is INACTIVE else one for one in numbers], dtype=np.float64)


@resource("design/states")
def states(source: Source, query: Query) -> dict[str, Any]:
    """Return how far the runs are: all of them, or with ``since`` those that have changed after that version.

    ``rows``: how many rows the design has; where a page knows fewer, :func:`rows` has the others.
    """
    seen = watch(source)
    now = seen.states()
    since = query.integer("since", 0) or 0
    chosen = np.flatnonzero(now.changed > since) if since <= now.version else np.arange(len(now.changed))
    runs = now.states.runs
    counts = dict.fromkeys(_STATUSES, 0)
    for state in runs:
        counts[state.status] += 1
    code = {status: i for i, status in enumerate(_STATUSES)}
    picked = chosen.tolist()
    return {
        "version": now.version,
        "rows": seen.folder.manifest["counts"]["rows"],
        "finished": now.finished,
        "counts": {str(status): number for status, number in counts.items() if number},
        "seconds_per_run": now.left.seconds_per_run,
        "processes": now.left.processes,
        "seconds_left": now.left.seconds,
        "not_collected": sum(not state.collected for state in runs),
        "problems": seen.problems(),
        "changed": {
            "run": chosen,
            "status": np.array([code[runs[i].status] for i in picked], dtype=np.uint8),
            "instance": [now.instances[i] for i in picked],
            "errors": [[i, now.errors[i], log_of(runs[i])] for i in picked if now.errors[i] is not None],
        },
    }


@resource("design/outcomes")
def outcomes(source: Source, query: Query) -> dict[str, Any]:
    """Return the outcomes of the runs that have finished, and whose results the store has.

    ``values`` are those of the cells of the design (:func:`design`), NaN where there is none. With ``since`` (a number
    ``finished``) there is nothing but this number where it has not changed.
    """
    seen = watch(source)
    finished, results = seen.results()
    if query.integer("since") == finished:
        return {"finished": finished, "unchanged": True}
    try:
        specs, frame = results.outcome_specs, results.outcomes()
    except StoreError as error:
        return {"finished": finished, "outcomes": _unread(results.folder), "problem": str(error)}
    # (of a search, the frame has what was executed whole)
    repetitions = results.spec.repetitions
    cells = frame["row"].to_numpy(int) * repetitions + frame["repetition"].to_numpy(int)
    return {
        "finished": finished,
        "outcomes": [
            {
                "name": spec.name,
                "better": spec.better,
                "of": spec.of,
                "values": _in_cells(frame[spec.name].to_numpy(float), cells, len(results.folder.runs)),
            }
            for spec in specs
        ],
        "problem": None,
    }


def _in_cells(values: FloatArray, cells: IntArray, count: int) -> FloatArray:
    found = np.full(count, np.nan)
    found[cells] = values
    return found


def _unread(folder: DesignFolder) -> list[dict[str, Any]]:
    """Return the outcomes of a design of which no run has any."""
    nothing = np.full(len(folder.runs), np.nan)
    return [
        {"name": spec.name, "better": spec.better, "of": spec.of, "values": nothing}
        for spec in folder.spec.outcomes
    ]
