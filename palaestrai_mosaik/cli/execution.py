"""``arsenai run``, ``resume`` and ``status``: execute the runs of a design folder."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from palaestrai_mosaik.design.decode import INACTIVE
from palaestrai_mosaik.design.folder import RESULTS, DesignFolder
from palaestrai_mosaik.errors import ExecutionError
from palaestrai_mosaik.execution import (
    RunState,
    RunStatus,
    Settings,
    StoreLocation,
    Summary,
    available_cores,
    make_progress,
    row_values,
    run_folder,
    states_of,
)
from palaestrai_mosaik.execution.runs import Which
from palaestrai_mosaik.execution.status import job_path

from .common import FAILED, FINISHED, INTERRUPTED
from .folders import find_folder
from .tables import count, duration, number, shorten, table

_LISTED = 20
#: what is said of runs that are not executed
_LEFT_OUT = {
    RunStatus.FINISHED: "finished before",
    RunStatus.FAILED: "failed before (arsenai resume executes them again)",
    RunStatus.RUNNING: "another process executes",
    RunStatus.WAITING: "nobody has begun",
    RunStatus.INTERRUPTED: "were interrupted",
    RunStatus.LOST: "were lost",
}
_WIDTH = 60


def run(  # noqa: PLR0913 (one parameter for each option)
    folder: str | None,
    *,
    jobs: int | None = None,
    executor: str | None = None,
    store: str | None = None,
    rows: Sequence[range] | None = None,
    failed: bool = False,
    fail_fast: bool = False,
    timeout: float | None = None,
    runs_per_process: int | None = None,
    quiet: bool = False,
    again: bool = False,
) -> int:
    """Execute the runs of ``folder`` that are missing; return the exit code.

    Runs that failed are left out, unless ``failed`` asks for these alone or ``again``
    (``arsenai resume``) for all that did not finish. ``rows`` chooses rows of the
    design. ``jobs``, ``executor``, ``timeout``, ``runs_per_process`` and ``fail_fast`` replace
    what the section ``execution`` of the design says.
    """
    opened = find_folder(folder)
    settings = Settings.of(
        opened.spec.resolved.get("execution"),
        jobs=jobs,
        executor=executor,
        timeout=timeout,
        runs_per_process=runs_per_process,
        fail_fast=fail_fast or None,
    )
    which: Which = "failed" if failed else "unfinished" if again else "missing"
    summary = run_folder(
        opened,
        which=which,
        rows=_numbers(opened, rows),
        store=store,
        settings=settings,
        progress=make_progress(quiet=quiet),
    )
    _tell(opened, summary, store)
    if summary.interrupted:
        return INTERRUPTED
    return FINISHED if summary.whole else FAILED


def resume(folder: str | None, **options: Any) -> int:
    """Execute all runs of ``folder`` that did not finish, those that failed included. See :func:`run`."""
    return run(folder, again=True, **options)


def status(folder: str | None, store: str | None = None, as_json: bool = False) -> int:
    """Tell how far the runs of ``folder`` are; return the exit code, which is 0 whatever they are."""
    opened = find_folder(folder)
    states = states_of(opened, StoreLocation.of(opened.path / RESULTS, store))
    told = _status(opened, states)
    if as_json:
        print(json.dumps(told, indent=2))
        return FINISHED
    print(f"design {told['design']!r} in {told['folder']}: {count(told['runs'], 'run')}, of which")
    print(f"{count(told['documents'], 'document')} are executed")
    print(table(("status", "documents"), told["counts"].items(), indent="  "))
    for what in ("failed", "running"):
        if told[what]:
            print(f"{what}:")
            _list(told[what])
    if told["seconds_per_run"] is not None:
        line = f"{duration(told['seconds_per_run'])} per run (median)"
        if told["seconds_left"]:
            line += f", about {duration(told['seconds_left'])} left with {told['processes']} at a time"
        print(line)
    return FINISHED


def _numbers(folder: DesignFolder, rows: Sequence[range] | None) -> set[int] | None:
    """Return the numbers of the rows that are asked for; they may be many more than there are."""
    if rows is None:
        return None
    last = max((run.row for run in folder.runs), default=-1)
    for asked in rows:
        if asked[-1] > last:
            raise ExecutionError(f"the design has no row {asked[-1]}: it has rows 0 to {last}")
    return set().union(*rows)


def _tell(folder: DesignFolder, summary: Summary, store: str | None) -> None:
    """Print how it went, and what to do next."""
    for status, which in _LEFT_OUT.items():
        if summary.before.get(status):
            print(f"left out: {count(summary.before[status], 'run')} that {which}")
    ended = {status.value: n for status, n in summary.ended.items()}
    words = [f"{n:,} {status}" for status, n in sorted(ended.items())]
    if summary.not_begun:
        words.append(f"{summary.not_begun:,} not begun")
    if words:
        print(f"runs: {', '.join(words)}, in {duration(summary.seconds)}")
    if summary.failures:
        values = row_values(folder, {record.run for record in summary.failures})
        by_uid = {run.uid: run for run in folder.documents}
        failures = sorted(
            summary.failures, key=lambda record: (by_uid[record.run].row, by_uid[record.run].repetition)
        )
        print("failed:")
        _list(
            {
                "run": record.run,
                "factors": _factors(folder, values[record.run]),
                "error": record.error,
                "log": _short(job_path(folder.path, by_uid[record.run])) + ".log",
            }
            for record in failures
        )
    print(f"{summary.finished:,} of {count(summary.considered, 'run')} finished")
    option = "" if store is None else f" --store {store}"
    name = _short(folder.path)
    if summary.whole:
        print(f"next: arsenai analyse {name}{option}")
    else:
        print(f"to go on: arsenai resume {name}{option}")


def _list(items: Iterable[Mapping[str, Any]]) -> None:
    shown = list(items)
    rows = [[_cell(value) for value in item.values()] for item in shown[:_LISTED]]
    print(table(list(shown[0]), rows, indent="  "))
    if len(shown) > _LISTED:
        print(f"  and {len(shown) - _LISTED:,} more: see arsenai status")


def _cell(value: Any) -> Any:
    return shorten(value, _WIDTH) if isinstance(value, str) and "\n" in value else value


def _factors(folder: DesignFolder, values: Mapping[str, Any]) -> str:
    """Return the factors of a row on one line, levels by their labels."""
    told = []
    for factor in folder.spec.factors:
        value = values[factor.name]
        if value is INACTIVE:
            continue
        if factor.choice is None and factor.levels:
            levels = zip(factor.levels, factor.labels, strict=True)
            # (True equals 1, but is another level)
            value = next(label for level, label in levels if type(level) is type(value) and level == value)
        told.append(f"{factor.name}={number(value) if isinstance(value, float) else value}")
    return shorten(" ".join(told), _WIDTH)


def _short(path: Path) -> str:
    """Return ``path`` from the working directory, where it lies below it."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _status(folder: DesignFolder, states: list[RunState]) -> dict[str, Any]:
    counts = Counter(state.status for state in states)
    failed = [state for state in states if state.status is RunStatus.FAILED]
    running = [state for state in states if state.status is RunStatus.RUNNING]
    values = row_values(folder, {state.planned.uid for state in failed})
    seconds = [
        state.record.seconds
        for state in states
        if state.status is RunStatus.FINISHED and state.record is not None
    ]
    median = statistics.median(seconds) if seconds else None
    section = folder.spec.resolved.get("execution")
    processes = len(running) or Settings.of(section).jobs or available_cores()
    left = len(states) - counts[RunStatus.FINISHED] - counts[RunStatus.FAILED]
    return {
        "design": folder.spec.uid,
        "folder": str(folder.path),
        "runs": len(folder.runs),
        "documents": len(states),
        "counts": {status.value: counts[status] for status in RunStatus if counts[status]},
        "failed": [
            {
                "run": state.planned.uid,
                "factors": _factors(folder, values[state.planned.uid]),
                "error": None if state.record is None else state.record.error,
                "log": _short(job_path(folder.path, state.planned)) + ".log",
            }
            for state in failed
        ],
        "running": [
            {
                "run": state.planned.uid,
                "host": None if state.marker is None else state.marker.host,
                "process": None if state.marker is None else state.marker.pid,
                "since": None if state.marker is None else _age(state.marker.started),
            }
            for state in running
        ],
        "seconds_per_run": median,
        "seconds_left": None if median is None else median * left / processes,
        "processes": processes,
    }


def _age(started: str) -> str:
    return duration((datetime.now(UTC) - datetime.fromisoformat(started)).total_seconds())
