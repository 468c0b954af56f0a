"""A design in the page: its factors and rows, the states of its runs, their outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palaestrai_mosaik.arsenai.analysis.results import labels
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.design.model import INACTIVE, Axis, Factor
from palaestrai_mosaik.arsenai.execution import RunStatus
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.types.arrays import Array, FloatArray, IntArray

from ..resources import Query, Source, resource
from .design_watch import log_of, watch

#: the statuses; the page gets their indices
_STATUSES = list(RunStatus)
_LOGARITHMIC = ("loguniform", "lognormal")


@resource("design")
def design(source: Source, query: Query) -> dict[str, Any]:
    """Return the parts of a design that are fixed when it is generated. A search adds rows later (:func:`rows`).

    ``cells`` are the repetitions of the rows, row by row: the number of the run that is executed for each, an index of
    ``runs``. Rows with identical documents share a run.
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
        "factors": [
            {**description, "values": values}
            for description, values in zip(factors, added["values"], strict=True)
        ],
        "cells": added["cells"],
        "runs": added["runs"],
        "statuses": [str(status) for status in _STATUSES],
    }


@resource("design/rows")
def rows(source: Source, query: Query) -> dict[str, Any]:
    """Return the rows of the design after the first ``from`` rows.

    ``rows`` is the total number of rows. ``cells`` and ``runs`` are those of :func:`design`, with runs counted over all
    rows; ``values`` has the column of each factor.
    """
    return _rows(watch(source).folder, query.integer("from", 0))


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
    """Return the description of a factor."""
    zipped = [other.name for other in axis.factors if other is not factor]
    return {
        "name": factor.name,
        "levels": list(factor.labels) if factor.kind == "levels" else None,
        "whole": factor.kind == "int",
        "log": factor.kind != "levels" and factor.dist in _LOGARITHMIC,
        "path": factor.path,
        "when": factor.when,
        "zipped": zipped,
        "group": axis.group,
    }


def _column(factor: Factor, values: Sequence[Mapping[str, Any]]) -> Array:
    """Return the value of a factor in each row: a number, or the index of its level.

    If the factor is inactive, the number is NaN, and the index is -1.
    """
    if factor.kind == "levels":
        indices = {label: i for i, label in enumerate(factor.labels)}
        row_labels = labels([factor], values)
        return np.array([-1 if label is None else indices[label] for label in row_labels], dtype=np.int64)
    numbers = (row[factor.name] for row in values)
    return np.array([np.nan if number is INACTIVE else number for number in numbers], dtype=np.float64)


@resource("design/states")
def states(source: Source, query: Query) -> dict[str, Any]:
    """Return the states of all runs, or with ``since`` of those that have changed after that version.

    ``rows`` is the number of rows in the design; a page with fewer rows gets the others from :func:`rows`.
    """
    design_watch = watch(source)
    current = design_watch.states()
    since = query.integer("since", 0)
    chosen = (
        np.flatnonzero(current.changed > since)
        if since <= current.version
        else np.arange(len(current.changed))
    )
    runs = current.states.runs
    counts = dict.fromkeys(_STATUSES, 0)
    for state in runs:
        counts[state.status] += 1
    code = {status: i for i, status in enumerate(_STATUSES)}
    picked = chosen.tolist()
    return {
        "version": current.version,
        "rows": design_watch.folder.manifest["counts"]["rows"],
        "finished": current.finished,
        "counts": {str(status): number for status, number in counts.items() if number},
        "seconds_per_run": current.left.seconds_per_run,
        "processes": current.left.processes,
        "seconds_left": current.left.seconds,
        "not_collected": sum(not state.collected for state in runs),
        "problems": design_watch.problems(),
        "changed": {
            "run": chosen,
            "status": np.array([code[runs[i].status] for i in picked], dtype=np.uint8),
            "instance": [current.instances[i] for i in picked],
            "errors": [
                [i, current.errors[i], log_of(runs[i])] for i in picked if current.errors[i] is not None
            ],
        },
    }


@resource("design/outcomes")
def outcomes(source: Source, query: Query) -> dict[str, Any]:
    """Return the outcomes of the finished runs that have results in the store.

    ``values`` are those of the cells of the design (:func:`design`), NaN if missing. With ``since`` (an earlier
    ``finished``), only this number is returned if it has not changed.
    """
    design_watch = watch(source)
    finished, results = design_watch.results()
    if query.integer("since") == finished:
        return {"finished": finished, "unchanged": True}
    try:
        specs, frame = results.outcome_specs, results.outcomes()
    except StoreError as error:
        return {"finished": finished, "outcomes": _unread(results.folder), "problem": str(error)}
    # for a search, the frame only has settings that were executed in full
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
    result = np.full(count, np.nan)
    result[cells] = values
    return result


def _unread(folder: DesignFolder) -> list[dict[str, Any]]:
    """Return the outcomes of a design without results."""
    nothing = np.full(len(folder.runs), np.nan)
    return [
        {"name": spec.name, "better": spec.better, "of": spec.of, "values": nothing}
        for spec in folder.spec.outcomes
    ]
