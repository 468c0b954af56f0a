"""``arsenai status``: how far the runs of a design folder are."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.design.folder import CONFIRM, MANIFEST, RESULTS, DesignFolder
from palaestrai_mosaik.design.search import sought
from palaestrai_mosaik.design.settings_table import (
    SettingRecord,
    count_failed,
    failure_reasons,
    retries_of,
    retries_text,
)
from palaestrai_mosaik.errors import FINISHED
from palaestrai_mosaik.execution import (
    RunStatus,
    States,
    StoreLocation,
    load_run_states,
    row_values,
    time_left,
)
from palaestrai_mosaik.execution.cluster.scheduler import TaskState
from palaestrai_mosaik.execution.cluster.submission import Submissions
from palaestrai_mosaik.execution.job import JobRecord
from palaestrai_mosaik.execution.status import RunState, job_path
from palaestrai_mosaik.text import count, listed

from .answers import answer
from .common import find_folder, store_option
from .output import say, wants_json
from .run_lists import factors_of, list_runs, reason_lines, short_path
from .tables import duration, number, table
from .tune import MOST_FILES, failed_settings, lost_line, retry_lines

if TYPE_CHECKING:
    from palaestrai_mosaik.search.lost import LostResults

#: of a Pareto front, so many settings are named
_MOST_OF_FRONT = 10
#: what ``resume`` executes again because of what it did
_FAILED = (RunStatus.FAILED, RunStatus.TIMED_OUT, RunStatus.OUT_OF_MEMORY)


def status(folder: str | None, store: str | None = None, ignore_queue: bool = False) -> int:
    """Tell how far the runs of ``folder`` are; return the exit code, which is 0 whatever they are.

    ``ignore_queue``: schedulers are not asked about what was submitted to them.
    """
    opened = find_folder(folder)
    states = load_run_states(opened, StoreLocation.of(opened.path / RESULTS, store), ask=not ignore_queue)
    settings, lost = states.settings, _lost(opened, states, store)
    data = _as_json(opened, states, store, settings, lost)
    if wants_json():
        answer(data)
        return FINISHED
    say(f"design {data['design']!r} in {data['folder']}: {count(data['runs'], 'run')}, of which")
    say(f"{count(data['documents'], 'document')} are executed")
    say(table(("status", "documents"), data["counts"].items(), indent="  ", statuses="status"))
    if opened.rounds is not None:
        for line in opened.rounds.lines():
            say(line)
        say(_growth(opened, store))
    if data["settings"] is not None:
        for line in _search_lines(data, retries_text(settings)):
            say(line)
    for what in ("failed", "running"):
        if data[what]:
            say(f"{what}:")
            list_runs(data[what])
    lines = list(reason_lines(failure_reasons(settings), (one["run"] for one in data["failed"])))
    if lines and not data["failed"]:
        say("failed:")
    for line in lines:
        say(line)
    for line in _document_lines(opened, data, store):
        say(line)
    for line in _left_lines(opened, data, store, lost):
        say(line)
    for line in _cluster_lines(data):
        say(line)
    if data["seconds_per_run"] is not None:
        line = f"{duration(data['seconds_per_run'])} per run (median, with the start of its process)"
        if data["seconds_left"]:
            line += f", about {duration(data['seconds_left'])} left with {data['processes']} at a time"
        say(line)
    if data["not_collected"]:
        name = f"{shlex.quote(short_path(opened.path))}{store_option(store)}"
        ended = "finished run" if opened.spec.search is None else "run"
        say(f"{count(data['not_collected'], ended)} to be collected: arsenai collect {name}")
    return FINISHED


def _search_lines(data: dict[str, Any], again: str) -> Iterator[str]:
    """Yield how many settings a search has, and how good the best is; of several objectives, which are on the front.

    ``again`` says which settings that failed were tried again.
    """
    words = ", ".join(f"{n:,} {state}" for state, n in data["settings"].items())
    settings = count(sum(data["settings"].values()), "setting")
    yield f"search with {data['search']}: {settings}{f' ({words})' * bool(words)}"
    if again:
        yield again
    if data["front"] is not None:
        yield f"Pareto front so far: settings {listed(data['front'], _MOST_OF_FRONT)}"
    elif data["best"] is not None:
        best = data["best"]
        yield f"best so far: setting {best['setting']}, {best['outcome']} {number(best['value'])}"


def _cluster_lines(data: dict[str, Any]) -> Iterator[str]:
    """Yield what a cluster still has of the runs, why some of them wait again, and what is not known of it."""
    late = data["not_reached"]
    if late is not None:
        log = f" ({late['log']})" if late["log"] else ""
        yield (
            f"{count(late['runs'], 'run')} wait again, as the time of their task was over before they began: "
            f"give more --time, or a shorter --warning{log}"
        )
    for one in data["submissions"]:
        tasks = ", ".join(f"{n:,} {word}" for word, n in one["tasks"].items())
        yield f"submission {one['number']} ({', '.join((one['executor'], *one['jobs']))}): tasks {tasks}"
    for problem in data["problems"]:
        yield f"it is unknown what the cluster has of some runs, which are shown as lost or waiting: {problem}"
    yield from data["faults"]


def _document_lines(folder: DesignFolder, data: dict[str, Any], store: str | None) -> Iterator[str]:
    """Yield which run documents are missing, and how they come back."""
    missing = data["missing_documents"]
    if missing:
        name = f"{shlex.quote(short_path(folder.path))}{store_option(store)}"
        how = "put it back, or generate the design again; nothing is executed until then"
        if folder.spec.search is not None:
            how = f"to write it again: arsenai resume {name}"
        yield f"{count(len(missing), 'run document')} missing ({listed(missing, MOST_FILES)}); {how}"


def _left_lines(
    folder: DesignFolder, data: dict[str, Any], store: str | None, lost: LostResults | None
) -> Iterator[str]:
    """Yield what is left of a search, and how it is done."""
    if lost is None:
        return
    name = f"{shlex.quote(short_path(folder.path))}{store_option(store)}"
    if lost.runs and not data["running"]:
        yield lost_line(lost, folder.path, store)
    if data["search_over"] is False:
        if not (lost.to_execute() or data["submissions"] or data["running"]):
            if data["failed_tasks"] is not None:
                n, output = data["failed_tasks"]["tasks"], short_path(data["failed_tasks"]["output"])
                yield f"{count(n, 'task')} of the newest submission failed: what they printed is in {output}"
            yield f"the search is not over: arsenai resume {name}"
        return
    yield f"the search is over: {data['search_over']}"
    left = sum(by is None for by in data["retried"].values())
    yield from retry_lines(data["to_retry"], left, name)
    confirmed = data["confirm"]
    if confirmed is None:
        return
    finished, failed, runs = (confirmed[key] for key in ("finished", "failed", "runs"))
    if finished < runs or not runs:
        progress = f"{finished:,} of {count(runs, 'run')} finished" if runs else "not yet"
        failures = f", {failed:,} failed" if failed else ""
        command = f": arsenai resume {name}" if finished + failed < runs or not runs else ""
        yield f"the best settings with fresh seeds: {progress}{failures}{command}"


def _lost(folder: DesignFolder, states: States, store: str | None) -> LostResults | None:
    """Return the lost results of a folder's search, or ``None`` without a search."""
    if folder.spec.search is None:
        return None
    from palaestrai_mosaik.search.lost import LostResults

    return LostResults.of(folder.path, states, StoreLocation.of(folder.path / RESULTS, store))


def _as_json(
    folder: DesignFolder,
    states: States,
    store: str | None,
    settings: Sequence[SettingRecord],
    lost: LostResults | None,
) -> dict[str, Any]:
    counts = Counter(state.status for state in states.runs)
    failed = [state for state in states.runs if state.status in _FAILED]
    running = [state for state in states.runs if state.status is RunStatus.RUNNING]
    values = row_values(folder, {state.planned.uid for state in failed})
    left = time_left(folder, states)
    return {
        "design": folder.spec.uid,
        "folder": str(folder.path),
        "runs": len(folder.runs),
        "documents": len(states.runs),
        "rounds": None if folder.rounds is None else list(folder.rounds.measured),
        "rounds_ended": None if folder.rounds is None else folder.rounds.ended or None,
        **_search(folder, states, store, settings, lost),
        "failed_tasks": _failed_tasks(folder, states),
        "counts": {status.value: counts[status] for status in RunStatus if counts[status]},
        "not_collected": sum(not state.collected for state in states.runs),
        "missing_documents": folder.missing_documents(),
        "not_reached": _not_reached(folder, states),
        "failed": [
            {
                "run": state.planned.uid,
                "factors": factors_of(folder, values[state.planned.uid]),
                "error": state.error or state.status,
                "log": _log(folder, state),
            }
            for state in failed
        ],
        "running": [
            {
                "run": state.planned.uid,
                "host": None if state.marker is None else state.marker.host,
                "process": None if state.marker is None else state.marker.pid,
                "task": None if state.marker is None else state.marker.task,
                "since": None if state.marker is None else _age(state.marker.started),
            }
            for state in running
        ],
        "submissions": _submissions(folder, states),
        "problems": list(states.problems),
        "faults": list(states.faults),
        "seconds_per_run": left.seconds_per_run,
        "seconds_left": left.seconds,
        "processes": left.processes,
    }


def _not_reached(folder: DesignFolder, states: States) -> dict[str, Any] | None:
    """Return how many runs wait again as the time of their task was over before they began, and the log of a task."""
    late = [state.assignment for state in states.runs if state.out_of_time]
    if not late:
        return None
    logs = [one.log for one in late if one is not None and one.log is not None]
    return {"runs": len(late), "log": short_path(folder.path / logs[-1]) if logs else None}


def _growth(folder: DesignFolder, store: str | None) -> str:
    """Return whether rows are added to a design that grows, and by which command."""
    assert folder.rounds is not None
    if folder.rounds.ended:
        return f"no more rows: {folder.rounds.ended}"
    return f"rows are added when these have been executed: arsenai run {shlex.quote(short_path(folder.path))}{store_option(store)}"


def _search(
    folder: DesignFolder,
    states: States,
    store: str | None,
    settings: Sequence[SettingRecord],
    lost: LostResults | None,
) -> dict[str, Any]:
    """Return how far the search of a folder is: settings by state, the best of them, and what is left.

    ``front``: of several objectives, the numbers of the settings that no other one beats in all of them.
    ``search_over``: why it is over; false: it is not; ``None``: there is none.
    """
    spec = folder.spec
    if spec.search is None or lost is None:
        names = ("search", "settings", "failed_settings", "retried", "to_retry")
        return dict.fromkeys((*names, "best", "front", "search_over", "confirm"))
    from palaestrai_mosaik.search.ending import search_over
    from palaestrai_mosaik.search.ranking import ranked

    journal = states.journal
    over = bool(journal.trials) and not lost.to_execute()

    outcome = sought(spec)[0]
    complete = [one for one in settings if one.state == "complete"]
    sign = 1.0 if outcome.better == "lower" else -1.0
    best = min(complete, key=lambda one: (sign * one.values[0], one.number), default=None)
    return {
        "search": spec.search.sampler,
        "settings": dict(sorted(Counter(one.state for one in settings).items())),
        "retried": retries_of(settings),
        "to_retry": count_failed(settings),
        "failed_settings": failed_settings(failure_reasons(settings)),
        "front": [one.number for one in ranked(spec, settings)] if len(sought(spec)) > 1 else None,
        "best": None
        if best is None
        else {"setting": best.number, "outcome": outcome.name, "value": best.values[0]},
        "search_over": over and (search_over(spec.search, journal.trials, journal.marked) or False),
        "confirm": _confirmed(folder, store) if spec.search.confirm and complete else None,
    }


def _failed_tasks(folder: DesignFolder, states: States) -> dict[str, Any] | None:
    """Return how many tasks that worked on a search have failed of its newest submission."""
    if not states.searching:
        return None
    from palaestrai_mosaik.search.cluster import failed_tasks

    found = failed_tasks(folder.path, states.searching)
    return None if found is None else {"tasks": found.tasks, "output": found.output}


def _confirmed(folder: DesignFolder, store: str | None) -> dict[str, int]:
    """Count the runs that confirm the best settings of a search, those that finished, and those that failed."""
    path = folder.path / CONFIRM
    if not (path / MANIFEST).exists():
        return {"runs": 0, "finished": 0, "failed": 0}
    opened = DesignFolder.open(path)
    # a store that several searches share may have had the runs before
    states = load_run_states(opened, StoreLocation.of(path / RESULTS, store), ask=False)
    finished = sum(state.status is RunStatus.FINISHED for state in states.runs)
    failed = sum(state.status in _FAILED for state in states.runs)
    return {"runs": len(opened.documents), "finished": finished, "failed": failed}


def _log(folder: DesignFolder, state: RunState) -> str:
    """Return the log that explains a failure: of the run, or of its task if the run did not start."""
    if state.before is not None and state.assignment is not None and state.assignment.log is not None:
        return short_path(folder.path / state.assignment.log)
    path = job_path(folder.path, state.planned)
    if state.record is not None and state.record.hash != state.planned.hash:
        # executed before the design has grown, when the run had another name
        files = path.parent.glob("*.json")
        path = next((file.with_suffix("") for file in files if JobRecord.read(file) == state.record), path)
    return short_path(path) + ".log"


def _submissions(folder: DesignFolder, states: States) -> list[dict[str, Any]]:
    """Return the submissions that still have runs to execute, and how many tasks are in which state."""
    tasks = {
        number: {task: state for task, state in of_one.items() if not state.ended}
        for number, of_one in states.searching.items()
    }
    tasks = {number: live for number, live in tasks.items() if live}
    for state in states.runs:
        if (
            state.assignment is not None
            and state.assignment.state is not None
            and not state.assignment.state.ended
        ):
            tasks.setdefault(state.assignment.submission, {})[state.assignment.task] = state.assignment.state
    found = []
    for submitted, words in sorted(tasks.items()):
        submission = Submissions(folder.path).read(submitted)
        counted = Counter(words.values())
        found.append(
            {
                "number": submitted,
                "executor": submission.executor,
                "jobs": [array.job for array in submission.arrays],
                "tasks": {word.value: counted[word] for word in TaskState if counted[word]},
            }
        )
    return found


def _age(started: str) -> str:
    # (by the clock of another host, or a clock that was set back, it may not have begun yet)
    return duration(max(0.0, (datetime.now(UTC) - datetime.fromisoformat(started)).total_seconds()))
