"""``palaestrai-mosaik start``: executes run documents and prints a summary."""

from __future__ import annotations

import json
import shlex
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from palaestrai_mosaik.core.errors import (
    FAILED,
    FINISHED,
    INTERRUPTED,
    UNSOUND,
    DocumentError,
    PalaestraiMosaikError,
    Problem,
    RunInterrupted,
    StoreError,
    describe,
    format_traceback,
)
from palaestrai_mosaik.core.installation import default_store
from palaestrai_mosaik.core.printing import Printable, count
from palaestrai_mosaik.experiment import RunDocument, load
from palaestrai_mosaik.experiment.paths import Overrides, parse
from palaestrai_mosaik.runner import Progress, earlier_run, execute, make_progress
from palaestrai_mosaik.runner.scalars import check_sinks
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.labels import LabelChange
from palaestrai_mosaik.store.query.lookup import INSTANCES
from palaestrai_mosaik.store.read_back import NOT_READ_BACK, check_recorded
from palaestrai_mosaik.types.endings import ending

from .common import print_problems, read_note, store_option
from .output import (
    answer,
    compose,
    duration,
    number,
    problems_data,
    say,
    say_unless_quiet,
    select,
    status,
    table,
    verbose,
    wants_json,
    warn,
    without_progress,
)

_LISTED_OBJECTIVES = 4
#: the data of a phase
_PHASE = ("phase", "episodes", "steps", "seconds", "ended_by", "objectives")
#: the status of a run that ended, and cannot be read back
_LOST = "lost"
_PACKAGE = Path(__file__).parents[1]
#: folders with the frames above user code in tracebacks
_ENGINE = (
    *(_PACKAGE / name for name in ("api.py", "cli", "runner", "simulation")),
    *(Path(str(spec.origin)).parent for spec in map(find_spec, ("asyncio", "mosaik")) if spec is not None),
)


@dataclass
class _PhaseTally:
    """A phase in the summary, with the episodes and steps of an earlier process of the run."""

    phase: str
    started: float
    ended_by: str = ""
    episodes: int = 0
    steps: int = 0
    seconds: float = 0.0
    objectives: dict[str, float] = field(default_factory=dict)
    #: the steps of an earlier process
    carried: int = 0


class _Tally(Progress):
    """Forwards all calls to the progress display, and collects the data of the summary."""

    def __init__(self, shown: Progress):
        self.shown = shown
        self.created = time.perf_counter()
        #: the time after checks and set-up, when the run began
        self.begun: float | None = None
        self.instance: str | None = None
        self.phases: list[_PhaseTally] = []
        # called at every step, so the display's method is used directly
        self.step = shown.step  # type: ignore[method-assign]

    def begin_run(self, instance: str) -> None:
        self.begun = time.perf_counter()
        self.instance = instance
        self.shown.begin_run(instance)

    def begin_phase(self, name: str, workers: int, episodes: int | None) -> None:
        now = time.perf_counter()
        if self.begun is None:
            # not recorded, so 'begin_run' was not called
            self.begun = now
        self.phases.append(_PhaseTally(name, now))
        self.shown.begin_phase(name, workers, episodes)

    def carry(self, name: str, episodes: int, steps: int, reason: str = "") -> None:
        if reason:
            self.phases.append(_PhaseTally(name, 0.0, reason))
        phase = self.phases[-1]
        phase.episodes, phase.steps, phase.carried = episodes, steps, steps
        self.shown.carry(name, episodes, steps, reason)

    def episode(self, worker: int, episode: int, steps: int, objectives: dict[str, float]) -> None:
        phase = self.phases[-1]
        phase.episodes += 1
        phase.steps += steps
        phase.objectives = objectives
        self.shown.episode(worker, episode, steps, objectives)

    def end_phase(self, name: str, reason: str) -> None:
        phase = self.phases[-1]
        phase.ended_by = reason
        phase.seconds = time.perf_counter() - phase.started
        self.shown.end_phase(name, reason)

    def times(self) -> tuple[float, float]:
        """Return the seconds of the run, and those of checks and set-up before it."""
        now = time.perf_counter()
        begun = now if self.begun is None else self.begun
        return now - begun, begun - self.created

    def stop(self, reason: str) -> None:
        """End the phase if the runner has not, so that the display is closed."""
        if self.phases and not self.phases[-1].ended_by:
            self.end_phase(self.phases[-1].phase, reason)


class _Results:
    """The store of this command, if any, and the summaries of its runs."""

    def __init__(
        self,
        location: str | None,
        files: str | None,
        stack: ExitStack,
        overrides: Overrides,
        labels: LabelChange,
    ):
        self._overrides = overrides
        #: the labels of its runs
        self.labels = labels
        self.store = (
            None if location is None else stack.enter_context(Store(location, directory=files, create=True))
        )
        #: by document, the data for ``--json``
        self.summaries: list[dict[str, Any]] = []
        self._option = "" if location == default_store() else store_option(location)
        if files is not None:
            self._option += f" --files {shlex.quote(files)}"

    def resume_command(self, document: RunDocument) -> str | None:
        """Return the command that resumes the newest run of ``document``, or ``None`` if it cannot be resumed."""
        try:
            earlier = None if self.store is None else earlier_run(document, self.store)
        except StoreError:
            # the store may be the reason for the run's failure
            return None
        if earlier is None or not earlier.has_checkpoint:
            return None
        changed = "".join(
            f" --set {shlex.quote(f'{path}={json.dumps(value, ensure_ascii=False)}')}"
            for path, value in self._overrides.items()
        )
        return f"palaestrai-mosaik start {shlex.quote(document.source)} --resume{changed}{self._option}"

    def note(
        self,
        document: RunDocument,
        status: str,
        tally: _Tally | None = None,
        error: object = None,
        instance: str | None = None,
        warnings: Sequence[object] = (),
    ) -> None:
        """Add the result of ``document`` for ``--json``."""
        took, setting_up = (None, None) if tally is None else tally.times()
        problems = error.problems if isinstance(error, DocumentError) else ()
        self.summaries.append(
            {
                "file": document.source,
                "document": document.uid,
                "status": status,
                "run": instance if tally is None or tally.instance is None else tally.instance,
                "store": None if self.store is None else self.store.directory,
                "seconds": took,
                "set_up_seconds": setting_up,
                "phases": [] if tally is None else [select(phase, *_PHASE) for phase in tally.phases],
                "warnings": list(map(str, warnings)),
                "error": None if error is None else str(error),
                "problems": problems_data(problems) if wants_json() else [],
            }
        )

    def check_read_back(self) -> bool:
        """Mark runs that cannot be read back from the store as lost, and print why; return whether the last one can."""
        recorded = [s for s in self.summaries if s["run"] is not None and s["seconds"] is not None]
        if self.store is None or (error := _read_back_error(self.store, recorded)) is None:
            return True
        lost = [summary for summary in recorded if _read_back_error(self.store, [summary])] or recorded[-1:]
        for summary in lost:
            summary |= {"status": _LOST, "error": str(error)}
        say(
            f"palaestrai-mosaik: {NOT_READ_BACK}: {error}",
            f"files of runs are kept in {self.store.directory / INSTANCES}",
            error=True,
        )
        return bool(recorded[-1]["status"] != _LOST)

    def print_location(self) -> None:
        """Print the location of the last run, and the command that shows it."""
        run = self.summaries[-1]["run"]
        if self.store is not None and run is not None:
            say_unless_quiet(
                f"instance {run}, results in {self.store.directory}", f"next: {self.next_command(run)}"
            )

    def next_command(self, instance: str) -> str:
        """Return the command that shows a run."""
        return f"palaestrai-mosaik show {instance}{self._option}"


def _read_back_error(store: Store, summaries: Sequence[dict[str, Any]]) -> StoreError | None:
    """Return why these runs cannot be read back, if they cannot."""
    try:
        check_recorded(store, [summary["run"] for summary in summaries])
    except StoreError as error:
        return error
    return None


def start(  # noqa: PLR0913 (the options of the command)
    documents: Sequence[str],
    *,
    store: str | None,
    resume: bool,
    checkpoint_every: float,
    scalars: Sequence[str] = (),
    labels: Mapping[str, Any],
    settings: Sequence[str] = (),
    files: str | None = None,
) -> int:
    """Execute run documents.

    All documents are loaded before the first run. After a failed run, the next one is executed; Ctrl-C ends all.

    Args:
        documents: the paths of the documents.
        store: the location of the store; ``None`` to record nothing.
        resume: resume the newest run of each document if it is unfinished, and do nothing if it has finished.
        checkpoint_every: seconds between two checkpoints.
        scalars: destinations of live scalars, such as ``tensorboard:runs``.
        settings: overrides for all documents (``PATH=VALUE``).
        files: the folder of the files if the store is a database.
        labels: ``name`` (only for a single document), ``tags`` and ``note`` of the runs.

    Returns:
        The exit code.
    """
    check_sinks(scalars)
    change = LabelChange(labels["name"], labels["tags"], note=read_note(labels["note"]))
    if change.name and len(documents) > 1:
        raise PalaestraiMosaikError("--name is for the run of one document: use --tag for several")
    overrides = parse(settings)
    loaded = _load(documents, overrides)
    for document in loaded:
        warn(*document.warnings)
    codes = []
    with ExitStack() as stack:
        results = _Results(store, files, stack, overrides, change)
        for document in loaded:
            codes.append(_run(document, results, resume, checkpoint_every, scalars))
            if codes[-1] == INTERRUPTED:
                break
    answer({"runs": results.summaries})
    if len(documents) > 1:
        finished = sum(summary["status"] == "finished" for summary in results.summaries)
        say_unless_quiet(f"{finished} of {count(len(documents), 'run')} finished", error=True)
    if any(summary["status"] == _LOST for summary in results.summaries):
        return FAILED
    return next((code for code in (INTERRUPTED, FAILED, UNSOUND) if code in codes), FINISHED)


def _load(paths: Sequence[str], overrides: Overrides) -> list[RunDocument]:
    documents: list[RunDocument] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            documents.append(load(path, overrides))
        except DocumentError as error:
            problems += error.problems
    if problems:
        raise DocumentError(problems)
    return documents


def _run(
    document: RunDocument, results: _Results, resume: bool, checkpoint_every: float, scalars: Sequence[str]
) -> int:
    """Execute ``document``, or ``resume`` its newest run; return the exit code."""
    instance = None
    if resume and results.store is not None:
        instance, code = _to_resume(document, results.store)
        if code is not None:
            results.note(document, "finished" if code == FINISHED else "running", instance=instance)
            return code
    code = _execute(document, results, instance, checkpoint_every, scalars)
    if results.check_read_back() and code == FINISHED:
        results.print_location()
    return code


def _to_resume(document: RunDocument, store: Store) -> tuple[str | None, int | None]:
    """Return the instance to resume, if any, and the exit code if nothing has to be done."""
    earlier = earlier_run(document, store)
    message = f"run {document.uid!r}: "
    instance, code = None, None
    if earlier is None:
        message += "nothing to resume, starting from the beginning"
    elif earlier.status == "finished":
        message += f"instance {earlier.instance} has finished already"
        instance, code = earlier.instance, FINISHED
    elif earlier.status == "running":
        message += f"instance {earlier.instance} is running; two processes cannot continue it"
        instance, code = earlier.instance, FAILED
    elif not earlier.has_checkpoint:
        message += (
            f"instance {earlier.instance} ({earlier.status}) has no checkpoint, starting from the beginning"
        )
    else:
        message += f"resuming instance {earlier.instance} ({earlier.status})"
        instance = earlier.instance
    (say if code == FAILED else say_unless_quiet)(message, error=True)
    return instance, code


def _execute(
    document: RunDocument,
    results: _Results,
    resume: str | None,
    checkpoint_every: float,
    scalars: Sequence[str],
) -> int:
    tally = _Tally(make_progress(quiet=without_progress()))
    try:
        result = execute(
            document,
            store=results.store,
            progress=tally,
            resume=resume,
            checkpoint_every=checkpoint_every,
            scalars=scalars,
            labels=results.labels,
        )
    except (RunInterrupted, KeyboardInterrupt):
        tally.stop("interrupted")
        say(_ended(document, "interrupted", "", tally.instance, results), error=True)
        _summary(document, "interrupted", tally)
        results.note(document, "interrupted", tally)
        return INTERRUPTED
    except Exception as error:
        tally.stop("failed")
        return _note_failure(document, results, resume, tally, error)
    warn(*result.warnings[len(document.warnings) :])
    _summary(document, "finished", tally)
    results.note(document, "finished", tally, warnings=result.warnings)
    return FINISHED


def _note_failure(
    document: RunDocument, results: _Results, resume: str | None, tally: _Tally, error: Exception
) -> int:
    """Print and note the error that has ended a run, or prevented it; return the exit code."""
    instance = tally.instance
    if isinstance(error, DocumentError) and instance is None:
        print_problems(error.problems)
        results.note(document, "not sound", tally, error)
        return UNSOUND
    if verbose() or not isinstance(error, PalaestraiMosaikError):
        _print_traceback(error, whole=verbose() or instance is None)
    message = describe(error)
    if resume is None or instance is not None:
        results.note(document, "failed", tally, message)
        say(_ended(document, "failed", f": {message}", instance, results), error=True)
    else:
        results.note(document, "not resumed", tally, message)
        say(
            f"palaestrai-mosaik: run {document.uid!r} ({document.source}) not resumed: {message}",
            f"nothing was changed; see: {results.next_command(resume)}",
            error=True,
        )
    return FAILED


def _print_traceback(error: Exception, *, whole: bool) -> None:
    """Print the traceback, beginning with user code unless ``whole``. The store has the whole traceback."""
    trace = traceback.TracebackException.from_exception(error)
    frames = list(trace.stack)
    first = next((i for i, frame in enumerate(frames) if not _is_engine(frame.filename)), 0)
    if first and not whole:
        trace.stack = traceback.StackSummary.from_list(frames[first:])
    say(format_traceback(trace), error=True, end="")


def _is_engine(filename: str) -> bool:
    # frames of compiled modules have paths that do not exist on this machine
    path = Path(filename)
    return not path.is_absolute() or any(path.is_relative_to(folder) for folder in _ENGINE)


def _ended(document: RunDocument, how: str, why: str, instance: str | None, results: _Results) -> Printable:
    text = compose(
        f"palaestrai-mosaik: run {document.uid!r} ({document.source}) ", status(how, error=True), why
    )
    if results.store is None:
        return compose(text, "\nnothing was recorded (--no-store)")
    if instance is None:
        return compose(text, "\nit had not started: nothing was recorded")
    text = compose(text, f"\nrecorded in {results.store.directory}; see: {results.next_command(instance)}")
    again = results.resume_command(document)
    return text if again is None else compose(text, f"\nto go on from its last checkpoint: {again}")


def _summary(document: RunDocument, how: str, tally: _Tally) -> None:
    took, setting_up = tally.times()
    times = f" in {duration(took)}, after {duration(setting_up)} of set-up"
    say_unless_quiet(compose(f"run {document.uid!r}: ", status(how), times))
    rows = [
        (
            *(phase.phase, phase.episodes, phase.steps),
            round((phase.steps - phase.carried) / phase.seconds) if phase.seconds else None,
            *(ending(phase.ended_by), _objectives(phase.objectives)),
        )
        for phase in tally.phases
    ]
    if rows:
        headers = ("phase", "episodes", "steps", "steps/s", "ended by", "mean objective, last episode")
        say_unless_quiet(
            table(headers, rows, indent="  ", leaving=("ended by", "steps/s"), whole=headers[-1:])
        )


def _objectives(objectives: dict[str, float]) -> str:
    parts = [f"{name} {number(value)}" for name, value in objectives.items()]
    more = len(parts) - _LISTED_OBJECTIVES
    return ", ".join(parts[:_LISTED_OBJECTIVES]) + (f", and {more} more" if more > 0 else "")
