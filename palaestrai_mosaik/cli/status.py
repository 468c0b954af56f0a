"""``arsenai status``: the states of the runs of a design folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from palaestrai_mosaik.arsenai.design.folder import CONFIRM, MANIFEST, RESULTS, DesignFolder, Rounds
from palaestrai_mosaik.arsenai.design.model import DesignSpec
from palaestrai_mosaik.arsenai.design.search import sought
from palaestrai_mosaik.arsenai.design.settings import (
    SettingRecord,
    count_failed,
    failure_reasons,
    retries_of,
    retries_text,
)
from palaestrai_mosaik.arsenai.execution import (
    RunStatus,
    States,
    StoreLocation,
    load_run_states,
    time_left,
)
from palaestrai_mosaik.arsenai.execution.cluster.scheduler import TaskState
from palaestrai_mosaik.arsenai.execution.cluster.submission import Submissions
from palaestrai_mosaik.arsenai.execution.job import JobRecord
from palaestrai_mosaik.arsenai.execution.status import LostResults, RunState, job_path
from palaestrai_mosaik.core.errors import FINISHED
from palaestrai_mosaik.core.printing import count, listed

from .common import find_folder
from .output import answer, duration, number, say, select, table, wants_json
from .run_lists import arguments, failed_runs, list_runs, reason_lines, short_path
from .tune import MOST_FILES, failed_settings, lost_line, retry_lines

#: maximum number of listed settings of a Pareto front
_MOST_OF_FRONT = 10
#: failures of runs, which ``resume`` executes again
_FAILED = (RunStatus.FAILED, RunStatus.TIMED_OUT, RunStatus.OUT_OF_MEMORY)


def status(folder: str | None, store: str | None = None, ignore_queue: bool = False) -> int:
    """Print the states of the runs of ``folder``; return the exit code, which is always 0.

    ``ignore_queue``: do not query the schedulers of submissions.
    """
    opened = find_folder(folder)
    states = load_run_states(opened, StoreLocation.of(opened.path / RESULTS, store), ask=not ignore_queue)
    settings, lost = states.settings, _lost(opened, states, store)
    data = _as_json(opened, states, store, settings, lost)
    if wants_json():
        answer(data)
        return FINISHED
    say(
        f"design {data['design']!r} in {data['folder']}: {count(data['runs'], 'run')}, of which",
        f"{count(data['documents'], 'document')} are executed",
        table(("status", "documents"), data["counts"].items(), indent="  ", statuses="status"),
    )
    target = arguments(opened.path, store)
    if opened.rounds is not None:
        say(*opened.rounds.lines(), _growth(opened.rounds, target))
    if data["settings"] is not None:
        say(*_search_lines(data, retries_text(settings)))
    reasons = list(reason_lines(failure_reasons(settings), (run["run"] for run in data["failed"])))
    _print_runs(data, reasons)
    say(*_document_lines(opened, data, target))
    if lost is not None:
        say(*_left_lines(opened, data, target, store, lost))
    say(*_cluster_lines(data), *_time_lines(data))
    if data["not_collected"]:
        ended = "finished run" if opened.spec.search is None else "run"
        say(f"{count(data['not_collected'], ended)} to be collected: arsenai collect {target}")
    return FINISHED


def _print_runs(data: dict[str, Any], reasons: Sequence[str]) -> None:
    """Print the failed and the running runs, and further ``reasons`` of failures."""
    for state in ("failed", "running"):
        if data[state]:
            say(f"{state}:")
            list_runs(data[state])
    if reasons and not data["failed"]:
        say("failed:")
    say(*reasons)


def _time_lines(data: dict[str, Any]) -> Iterator[str]:
    """Yield the duration of a run, and the time left."""
    if data["seconds_per_run"] is not None:
        line = f"{duration(data['seconds_per_run'])} per run (median, with the start of its process)"
        if data["seconds_left"]:
            line += f", about {duration(data['seconds_left'])} left with {data['processes']} at a time"
        yield line


def _search_lines(data: dict[str, Any], again: str) -> Iterator[str]:
    """Yield the number of settings of a search, and the best setting or the Pareto front.

    ``again`` is a text about failed settings that were repeated.
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
    """Yield runs for which the time was too short, the submissions with unfinished tasks, and problems."""
    late = data["not_reached"]
    if late is not None:
        log = f" ({late['log']})" if late["log"] else ""
        yield (
            f"{count(late['runs'], 'run')} wait again, as the time of their task was over before they began: "
            f"give more --time, or a shorter --warning{log}"
        )
    for submission in data["submissions"]:
        tasks = ", ".join(f"{n:,} {word}" for word, n in submission["tasks"].items())
        where = ", ".join((submission["executor"], *submission["jobs"]))
        yield f"submission {submission['number']} ({where}): tasks {tasks}"
    for problem in data["problems"]:
        yield f"it is unknown what the cluster has of some runs, which are shown as lost or waiting: {problem}"
    yield from data["faults"]


def _document_lines(folder: DesignFolder, data: dict[str, Any], target: str) -> Iterator[str]:
    """Yield which run documents are missing, and how they come back."""
    missing = data["missing_documents"]
    if missing:
        how = "put it back, or generate the design again; nothing is executed until then"
        if folder.spec.search is not None:
            how = f"to write it again: arsenai resume {target}"
        yield f"{count(len(missing), 'run document')} missing ({listed(missing, MOST_FILES)}); {how}"


def _left_lines(
    folder: DesignFolder, data: dict[str, Any], target: str, store: str | None, lost: LostResults
) -> Iterator[str]:
    """Yield the next steps of a search, with the commands."""
    if lost.runs and not data["running"]:
        yield lost_line(lost, folder.path, store)
    if data["search_over"] is False:
        if not (lost.to_execute() or data["submissions"] or data["running"]):
            if data["failed_tasks"] is not None:
                n, output = data["failed_tasks"]["tasks"], short_path(data["failed_tasks"]["output"])
                yield f"{count(n, 'task')} of the newest submission failed: what they printed is in {output}"
            yield f"the search is not over: arsenai resume {target}"
        return
    yield f"the search is over: {data['search_over']}"
    left = sum(by is None for by in data["retried"].values())
    yield from retry_lines(data["to_retry"], left, target)
    if data["confirm"] is not None:
        yield from _confirmation_lines(**data["confirm"], target=target)


def _confirmation_lines(*, runs: int, finished: int, failed: int, target: str) -> Iterator[str]:
    """Yield the state of the runs that confirm the best settings, unless all have finished."""
    if finished < runs or not runs:
        progress = f"{finished:,} of {count(runs, 'run')} finished" if runs else "not yet"
        failures = f", {failed:,} failed" if failed else ""
        command = f": arsenai resume {target}" if finished + failed < runs or not runs else ""
        yield f"the best settings with fresh seeds: {progress}{failures}{command}"


def _lost(folder: DesignFolder, states: States, store: str | None) -> LostResults | None:
    """Return the lost results of a folder's search, or ``None`` without a search."""
    if folder.spec.search is None:
        return None
    return LostResults.of(folder.path, states, StoreLocation.of(folder.path / RESULTS, store))


def _as_json(
    folder: DesignFolder,
    states: States,
    store: str | None,
    settings: Sequence[SettingRecord],
    lost: LostResults | None,
) -> dict[str, Any]:
    counts = Counter(state.status for state in states.runs)
    left, rounds = time_left(folder, states), folder.rounds
    return {
        "design": folder.spec.uid,
        "folder": str(folder.path),
        "runs": len(folder.runs),
        "documents": len(states.runs),
        "rounds": None if rounds is None else list(rounds.measured),
        "rounds_ended": None if rounds is None else rounds.ended or None,
        **_search(folder, states, store, settings, lost),
        "failed_tasks": _failed_tasks(folder, states),
        "counts": _counts(counts, RunStatus),
        "not_collected": sum(not state.collected for state in states.runs),
        "missing_documents": folder.missing_documents(),
        "not_reached": _not_reached(folder, states),
        "failed": _failed(folder, states),
        "running": [_running(state) for state in states.runs if state.status is RunStatus.RUNNING],
        "submissions": _submissions(folder, states),
        **select(states, "problems", "faults"),
        "seconds_per_run": left.seconds_per_run,
        "seconds_left": left.seconds,
        "processes": left.processes,
    }


def _counts(counts: Counter[Any], states: type[RunStatus] | type[TaskState]) -> dict[str, int]:
    """Return the numbers by state, in the order of the ``states``, without zeros."""
    return {state.value: counts[state] for state in states if counts[state]}


def _failed(folder: DesignFolder, states: States) -> list[dict[str, Any]]:
    """Return the failed runs, with their factors, errors and logs."""
    failed = (state for state in states.runs if state.status in _FAILED)
    return failed_runs(
        folder, ((state.planned.uid, state.error or state.status, _log(folder, state)) for state in failed)
    )


def _running(state: RunState) -> dict[str, Any]:
    """Return the process that executes a run."""
    marker = state.marker
    if marker is None:
        return {"run": state.planned.uid} | dict.fromkeys(("host", "process", "task", "since"))
    age = datetime.now(UTC) - datetime.fromisoformat(marker.started)
    return {
        "run": state.planned.uid,
        "host": marker.host,
        "process": marker.pid,
        "task": marker.task,
        # clocks of other hosts may be ahead
        "since": duration(max(0.0, age.total_seconds())),
    }


def _not_reached(folder: DesignFolder, states: States) -> dict[str, Any] | None:
    """Return the number of runs whose task ended before they began, and the log of a task."""
    late = [state.assignment for state in states.runs if state.out_of_time]
    if not late:
        return None
    logs = [assignment.log for assignment in late if assignment is not None and assignment.log is not None]
    return {"runs": len(late), "log": short_path(folder.path / logs[-1]) if logs else None}


def _growth(rounds: Rounds, target: str) -> str:
    """Return whether rows are added to a design that grows, and the command."""
    if rounds.ended:
        return f"no more rows: {rounds.ended}"
    return f"rows are added when these have been executed: arsenai run {target}"


def _search(
    folder: DesignFolder,
    states: States,
    store: str | None,
    settings: Sequence[SettingRecord],
    lost: LostResults | None,
) -> dict[str, Any]:
    """Return the state of a search: settings by state, the best setting, and next steps.

    ``front``: with several objectives, the numbers of the settings on the Pareto front. ``search_over``: the reason for
    the end, or false if the search goes on; ``None`` without a search.
    """
    spec = folder.spec
    if spec.search is None or lost is None:
        names = ("search", "settings", "failed_settings", "retried", "to_retry")
        return dict.fromkeys((*names, "best", "front", "search_over", "confirm"))
    from palaestrai_mosaik.arsenai.search.budget import search_over
    from palaestrai_mosaik.arsenai.search.ranking import ranked
    from palaestrai_mosaik.arsenai.search.settings import Trials

    journal = states.journal
    over = bool(journal.trials) and not lost.to_execute()
    best = _best(spec, settings)
    return {
        "search": spec.search.sampler,
        "settings": dict(sorted(Counter(setting.state for setting in settings).items())),
        "retried": retries_of(settings),
        "to_retry": count_failed(settings),
        "failed_settings": failed_settings(failure_reasons(settings)),
        "front": [setting.number for setting in ranked(spec, settings)] if len(sought(spec)) > 1 else None,
        "best": best,
        "search_over": over and (search_over(spec.search, Trials(journal.trials, journal.marked)) or False),
        "confirm": _confirmed(folder, store) if spec.search.confirm and best is not None else None,
    }


def _best(spec: DesignSpec, settings: Sequence[SettingRecord]) -> dict[str, Any] | None:
    """Return the complete setting with the best value of the first outcome, if any."""
    outcome = sought(spec)[0]
    sign = 1.0 if outcome.better == "lower" else -1.0
    complete = (setting for setting in settings if setting.state == "complete")
    best = min(complete, key=lambda setting: (sign * setting.values[0], setting.number), default=None)
    return (
        None if best is None else {"setting": best.number, "outcome": outcome.name, "value": best.values[0]}
    )


def _failed_tasks(folder: DesignFolder, states: States) -> dict[str, Any] | None:
    """Return the number of failed tasks of a search's newest submission, and the file with their output."""
    if not states.searching:
        return None
    from palaestrai_mosaik.arsenai.search.cluster import failed_tasks

    failed = failed_tasks(folder.path, states.searching)
    return None if failed is None else {"tasks": failed.tasks, "output": failed.output}


def _confirmed(folder: DesignFolder, store: str | None) -> dict[str, int]:
    """Count all, finished and failed runs that confirm the best settings of a search."""
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
    """Return the submissions with unfinished tasks, and the number of tasks by state."""
    tasks: dict[int, dict[int, TaskState]] = {}
    for submission, task, state in _tasks(states):
        if state is not None and not state.ended:
            tasks.setdefault(submission, {})[task] = state
    opened = map(Submissions(folder.path).read, sorted(tasks))
    return [
        {
            **select(submission, "number", "executor"),
            "jobs": [array.job for array in submission.arrays],
            "tasks": _counts(Counter(tasks[submission.number].values()), TaskState),
        }
        for submission in opened
    ]


def _tasks(states: States) -> Iterator[tuple[int, int, TaskState | None]]:
    """Yield submission, number and state of the tasks of a search, and of those with runs of a design."""
    for submission, running in states.searching.items():
        yield from ((submission, task, state) for task, state in running.items())
    for run in states.runs:
        if run.assignment is not None:
            yield run.assignment.submission, run.assignment.task, run.assignment.state
