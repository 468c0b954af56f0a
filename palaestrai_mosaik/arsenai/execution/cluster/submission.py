"""Submissions to a cluster, and their files in ``submissions/``.

::

    submit.sbatch            the readable script of the newest submission to Slurm
    submissions/
      0001.json              the submission: its time, its settings, and the scheduler's jobs
      0001.tasks             one line per task with its runs, in the order of execution; without runs for tasks of
                             a search, which request settings one by one
      0001/                  the output of the tasks, one file each; a file "stop" in it ends them
      0001.ended.json        the final states of tasks, which the scheduler may forget
    stores/<slug>/           the store of one run

None of the files is a pickle: users with write access to the folder can change the runs, but code comes only
from modules that ``allow_modules`` permits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self

from palaestrai_mosaik.arsenai.design.expansion import is_run_file
from palaestrai_mosaik.arsenai.design.folder import JOBS, RUNS, STORES, SUBMISSIONS, trust
from palaestrai_mosaik.arsenai.design.vocabulary import EXECUTION, SLURM
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ExecutionError
from palaestrai_mosaik.experiment.fields import show
from palaestrai_mosaik.store.store import StoreLocation

from ..executor import PreloadedClass
from ..job import Job, write_file
from ..settings import ParslSettings, SlurmSettings, keep

ClusterExecutorName = Literal["slurm", "parsl"]
#: valid names and numbers of jobs, which the scheduler's commands cannot mistake for lists or options
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
_JOB = re.compile(r"[0-9]{1,20}")
_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class TaskRun:
    """A run that a task executes: its uid, its document's hash and file, and the number of the attempt.

    Raises :class:`ValueError` for invalid values, and for a file other than a run's, which could be outside of
    the folder.
    """

    run: str
    hash: str
    file: str
    attempt: int = 1

    def __post_init__(self) -> None:
        # the values may come from a file of another user
        if not (isinstance(self.file, str) and is_run_file(self.file)):
            raise ValueError(f"{self.file!r} is no document in {RUNS}/")
        for name in ("run", "hash"):
            _must(isinstance(getattr(self, name), str), name, "a text", getattr(self, name))
        _must_count("attempt", self.attempt, 1)

    @classmethod
    def of(cls, job: Job, folder: Path) -> Self:
        """Create the entry for ``job`` with a document in the design folder ``folder``."""
        return cls(job.run, job.hash, job.document.relative_to(folder.absolute()).as_posix(), job.attempt)

    @property
    def slug(self) -> str:
        """The name of the run's files, without a suffix."""
        return Path(self.file).name.removesuffix(".yml")


@dataclass(frozen=True, slots=True)
class Array:
    """A job array of the scheduler; its elements 0, 1, ... are the tasks ``first``, ``first + 1``, ...

    Raises :class:`ValueError` for invalid values.
    """

    job: str
    first: int
    tasks: int

    def __post_init__(self) -> None:
        sound = isinstance(self.job, str) and _JOB.fullmatch(self.job)
        _must(sound, "job", "a job's number as text", self.job)
        _must_count("first", self.first, 0)
        _must_count("tasks", self.tasks, 0)


@dataclass(frozen=True, slots=True)
class Submission:
    """One call of ``arsenai submit`` (or of ``run`` on a cluster); plain data, kept as JSON.

    Attributes:
        number: the number of the submission, from 1.
        executor: ``slurm`` or ``parsl``.
        name: the unique name of the scheduler's jobs.
        submitted: the time of the call, UTC in ISO 8601.
        tasks: the number of tasks.
        runs: the number of runs.
        settings: the executor's settings as plain data. They are checked when they are used, because the status of
            runs does not depend on them.
        arrays: the jobs submitted so far.
        processes: runs that a task executes at the same time.
        timeout: see :class:`~palaestrai_mosaik.arsenai.execution.Settings`, as for ``runs_per_process``,
            ``checkpoint_every`` and ``preload``.
        allow_modules: see :class:`~palaestrai_mosaik.arsenai.execution.job.Job`.
        limited: whether the user gave ``allow_modules``; otherwise they are the modules that the documents name.
        cluster: the name of the scheduler's cluster, if it has one.
        search: whether the tasks work on the folder's search, and have no runs of their own.
        fail_fast: whether a task begins no further run after a failure.

    Raises:
        ValueError: a value is invalid.
        ExecutionError: a value of the section ``execution`` is invalid.
    """

    number: int
    executor: ClusterExecutorName
    name: str
    submitted: str
    tasks: int
    runs: int
    settings: dict[str, Any] = field(default_factory=dict)
    arrays: tuple[Array, ...] = ()
    processes: int = 1
    timeout: float | None = None
    runs_per_process: int | None = None
    checkpoint_every: float = 60.0
    preload: tuple[PreloadedClass, ...] = ()
    allow_modules: tuple[str, ...] | None = None
    limited: bool = False
    cluster: str | None = None
    search: bool = False
    fail_fast: bool = False

    def __post_init__(self) -> None:
        # the values may come from a file of another user
        for name in ("number", "tasks", "runs"):
            _must_count(name, getattr(self, name), 1 if name == "number" else 0)
        _must(self.executor in ("slurm", "parsl"), "executor", "slurm or parsl", self.executor)
        sound = isinstance(self.name, str) and _NAME.fullmatch(self.name)
        _must(sound, "name", "letters, digits and . _ -", self.name)
        _must(isinstance(self.submitted, str), "submitted", "a time", self.submitted)
        for name in ("limited", "search", "fail_fast"):
            _must(isinstance(getattr(self, name), bool), name, "true or false", getattr(self, name))
        _must(isinstance(self.cluster, str | None), "cluster", "a name", self.cluster)
        _must(isinstance(self.settings, dict), "settings", "a mapping", self.settings)
        for entry in self.preload:
            kinds = tuple(map(type, entry))
            _must(kinds == (str, str, dict), "preload", "a list of module, name and parameters", list(entry))
        keep(self, EXECUTION)
        keep(self, SLURM)

    @property
    def settings_fault(self) -> str | None:
        """A message about invalid settings; ``None`` if they are valid."""
        try:
            (SlurmSettings if self.executor == "slurm" else ParslSettings).of(self.settings)
        except ExecutionError as error:
            return f"the settings of submission {self.number} are not sound: {error}"
        return None

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read the submission in ``file``. Raises :class:`ExecutionError` if it is missing or damaged."""
        try:
            values = json.loads(files.read_text(file))
            unknown = values.keys() - {field_.name for field_ in fields(cls)}
            if unknown:
                raise ValueError(f"unknown key {min(unknown)!r}")
            missing = {field_.name for field_ in fields(cls)} - values.keys()
            if missing:
                raise ValueError(f"key {min(missing)!r} is missing")
            values["arrays"] = tuple(Array(**array) for array in values["arrays"])
            values["preload"] = tuple((module, name, params) for module, name, params in values["preload"])
            return cls(**values)
        except OSError as error:
            raise ExecutionError(f"cannot read {file}: {error.strerror}") from error
        except (ValueError, TypeError, AttributeError, RecursionError, ExecutionError) as error:
            raise ExecutionError(f"{file} is not a submission: {error}") from error


def task_numbers(submission: Submission) -> dict[str, int]:
    """Return the number of each submitted task by its name in Slurm: ``77_4``."""
    return {
        f"{array.job}_{element}": array.first + element
        for array in submission.arrays
        for element in range(array.tasks)
    }


class Submissions:
    """Reads and writes the submissions of the design folder at ``folder``."""

    def __init__(self, folder: Path):
        try:
            self.folder = trust(folder)
        except OSError as error:
            raise ExecutionError(f"cannot open {folder}: {error.strerror}") from error
        self.path = self.folder / SUBMISSIONS

    def numbers(self) -> list[int]:
        """Return the numbers of all submissions, the newest last."""
        try:
            names = files.list_names(self.path)
        except FileNotFoundError:
            return []
        stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def next_number(self) -> int:
        """Return an unused number, because tasks must print to new files."""
        try:
            names = files.list_names(self.path)
        except FileNotFoundError:
            return 1
        matches = (_NUMBER.match(name) for name in names)
        return max((int(match[0]) for match in matches if match is not None), default=0) + 1

    def read(self, number: int, *, task: int | None = None) -> Submission:
        """Return submission ``number``. Raises :class:`ExecutionError`, also if it has no task with the number ``task``."""
        file = self._file(number, ".json")
        submission = Submission.read(file)
        if submission.number != number:
            raise ExecutionError(f"{file} is not a submission: its number is {submission.number}")
        if task is not None and not 0 <= task < submission.tasks:
            raise ExecutionError(
                f"submission {number} of {self.folder} has the tasks 0 to {submission.tasks - 1}, not {task}"
            )
        return submission

    def all(self) -> list[Submission]:
        """Return all submissions, the newest last. Raises :class:`ExecutionError`."""
        return [self.read(number) for number in self.numbers()]

    def begin(self, submission: Submission, tasks: Sequence[Sequence[TaskRun]]) -> None:
        """Write a new submission, with the file of its tasks first, so that a visible submission is complete."""
        output = self.output(submission.number)
        try:
            # an existing folder must not be a link, which would redirect the tasks' output
            files.make_folder(self.path)
            files.make_folder(output)
        except OSError as error:
            raise ExecutionError(f"cannot write to {output}: {error.strerror}") from error
        lines = (json.dumps([asdict(run) for run in task], separators=(",", ":")) for task in tasks)
        write_file(self._file(submission.number, ".tasks"), "".join(f"{line}\n" for line in lines))
        self.write(submission)

    def write(self, submission: Submission) -> None:
        """Replace the submission's JSON file."""
        write_file(self._file(submission.number, ".json"), json.dumps(asdict(submission), indent=1) + "\n")

    def tasks(self, number: int) -> Iterator[list[TaskRun]]:
        """Yield the runs of each task of submission ``number``, in order."""
        for task, line in enumerate(self._lines(number)):
            yield self._runs(number, task, line)

    def task(self, number: int, task: int) -> list[TaskRun]:
        """Return the runs of one task. Raises :class:`ExecutionError` if there is no such task."""
        # parse only the line of this task, because there may be 100,000
        line = next(islice(self._lines(number), task, None), None)
        if line is None:
            raise ExecutionError(f"submission {number} of {self.folder} has no task {task}")
        return self._runs(number, task, line)

    def _lines(self, number: int) -> Iterator[str]:
        file = self._file(number, ".tasks")
        try:
            with files.open_text(file) as lines:
                yield from lines
        except (OSError, ValueError) as error:
            raise ExecutionError(f"cannot read {file}: {error}") from error

    def _runs(self, number: int, task: int, line: str) -> list[TaskRun]:
        try:
            return [TaskRun(**run) for run in json.loads(line)]
        except (ValueError, TypeError, RecursionError) as error:
            file = self._file(number, ".tasks")
            raise ExecutionError(f"{file}:{task + 1}: this line is not a task's: {error}") from error

    def output(self, number: int) -> Path:
        """Return the folder for the output of a submission's tasks."""
        return self._file(number, "")

    def job(self, submission: Submission, run: TaskRun, task: str | None) -> Job:
        """Return the job of ``run``, with its own store, for the task that the scheduler calls ``task``."""
        return Job(
            run.run,
            run.hash,
            self.folder / run.file,
            self.folder / JOBS / run.slug,
            run_store_location(self.folder, run.slug),
            run.attempt,
            checkpoint_every=submission.checkpoint_every,
            own_store=True,
            task=task,
            allow_modules=submission.allow_modules,
        )

    def ended(self, number: int) -> dict[int, str]:
        """Return the final states of tasks, by number, that :meth:`note_ended` has recorded."""
        with suppress(OSError, ValueError):
            words = json.loads(files.read_text(self._file(number, ".ended.json")))
            if isinstance(words, dict):
                return {int(task): str(word) for task, word in words.items()}
        return {}

    def note_ended(self, number: int, words: dict[int, str]) -> None:
        """Record the final states of tasks, because schedulers forget them. Ignore a read-only folder."""
        with suppress(ExecutionError):
            write_file(self._file(number, ".ended.json"), json.dumps(words, separators=(",", ":")) + "\n")

    def _file(self, number: int, suffix: str) -> Path:
        return self.path / f"{number:04d}{suffix}"


def _must(sound: object, key: str, must: str, value: object) -> None:
    if not sound:
        raise ValueError(f"{key} must be {must}, found {show(value)}")


def _must_count(key: str, value: object, minimum: int) -> None:
    sound = isinstance(value, int) and not isinstance(value, bool) and value >= minimum
    _must(sound, key, f"an integer of at least {minimum}", value)


def run_store_location(folder: Path, slug: str) -> StoreLocation:
    """Return the location of the run's own store in the design folder ``folder``; ``slug`` is the name of its files."""
    return StoreLocation(str(folder.absolute() / STORES / slug))
