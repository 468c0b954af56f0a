"""Writes the readable batch script of a submission to Slurm, which a task executes around its runs."""

from __future__ import annotations

import os
import re
import shlex
import sys
import sysconfig
from pathlib import Path

from palaestrai_mosaik.arsenai.design.folder import SCRIPT
from palaestrai_mosaik.core.errors import SchedulerError
from palaestrai_mosaik.core.text import count
from palaestrai_mosaik.runner.worker_process import THREADS

from ..job import write_file
from .settings import SlurmSettings
from .submission import Submission, Submissions

_PLAIN = re.compile(r"[\w@+=:,./-]+", re.ASCII)
#: Slurm's options and the settings with their values
_OPTIONS = {
    "partition": "partition",
    "time": "time",
    "mem": "memory",
    "account": "account",
    "qos": "qos",
}

_BEGINNING = """\
#!/bin/bash
#
# Submission {number} of the design in this folder: {what} in {tasks}. It was written by
# "arsenai submit", which hands it to Slurm like this:
#
#     sbatch --array=0-{last}{throttle} {script} 0
#
# or, where that is more than an array may have, in several arrays: the argument is the number of the
# task that element 0 executes. {tasks_file} has a line for each task: its runs{runs}.

{directives}
"""

_REST = """\
task=$((${{1:?give the number of the first task}} + ${{SLURM_ARRAY_TASK_ID:?submit this with --array}}))
folder={folder}

# the runs find what those find that are executed where this was submitted
cd {directory} || exit 2
{path}
# runs share the cores of the task: libraries do not start a thread for each core
export {threads}
{prologue}
# What Slurm tells this shell is handed on: USR1 says that the time limit is near, TERM that the task
# is cancelled. The runs then store what they have.
runs= told=
hand_on() {{
    told=$1
    if [ -n "$runs" ]; then kill -s "$1" "$runs"; fi
}}
trap 'hand_on USR1' USR1
trap 'hand_on TERM' TERM

{python} -m palaestrai_mosaik.cli.node "$folder" {number} "$task" &
runs=$!
# (it came before there was anybody to hand it to)
if [ -n "$told" ]; then kill -s "$told" "$runs"; fi

# A signal ends "wait" early, so wait until the process is gone. The task ends as it has ended.
until wait "$runs"; ! kill -0 "$runs" 2> /dev/null; do :; done
wait "$runs"
exit
"""


def write_script(folder: Path, submission: Submission) -> Path:
    """Write the script of ``submission`` to the design folder; return its path.

    Args:
        folder: the design folder.
        submission: the submission.

    Raises:
        SchedulerError: a script cannot contain the folder's path.
        ExecutionError: the script cannot be written.
    """
    path = folder.absolute() / SCRIPT
    text = script(folder.absolute(), submission)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SchedulerError(f"{str(folder)!a}: the paths of what runs on a cluster must be UTF-8") from None
    write_file(path, text)
    return path


def script(folder: Path, submission: Submission) -> str:
    """Return the text of the script. Raises :class:`SchedulerError` if it cannot contain the folder's path."""
    settings = SlurmSettings.of(submission.settings)
    output = Submissions(folder).output(submission.number)
    beginning = _BEGINNING.format(
        number=submission.number,
        what="a search" if submission.search else count(submission.runs, "run"),
        runs=", of which it asks for one after the other" if submission.search else "",
        tasks=count(submission.tasks, "task"),
        last=submission.tasks - 1,
        throttle=f"%{settings.throttle}" if settings.throttle else "",
        script=SCRIPT,
        tasks_file=f"{output.relative_to(folder)}.tasks",
        directives="\n".join(_directives(submission, settings, output)),
    )
    body = _REST.format(
        folder=shlex.quote(str(folder)),
        directory=shlex.quote(os.getcwd()),
        path=_python_path() if settings.python is None else "",
        threads=" ".join(f'{name}="${{{name}:-1}}"' for name in THREADS),
        prologue="".join(f"{line}\n" for line in ("", *settings.prologue) if settings.prologue),
        python=shlex.quote(settings.python or sys.executable),
        number=submission.number,
    )
    return f"{beginning}\n{body}"


def _directives(submission: Submission, settings: SlurmSettings, output: Path) -> list[str]:
    options = [
        ("job-name", submission.name),
        ("output", f"{_for_output(output)}/%A_%a.log"),
        ("open-mode", "append"),
        ("ntasks", "1"),
        ("cpus-per-task", str(settings.cpus)),
    ]
    for option, name in _OPTIONS.items():
        value = getattr(settings, name)
        if value is not None:
            options.append((option, value))
    if settings.warning:
        options.append(("signal", f"B:USR1@{settings.warning}"))
    lines = [f"--{option}={_quoted(value)}" for option, value in options]
    lines.append("--requeue" if settings.requeue else "--no-requeue")
    return [f"#SBATCH {line}" for line in (*lines, *settings.directives)]


def _for_output(path: Path) -> str:
    """Escape a path for Slurm's option ``output``, in which percent signs begin placeholders."""
    text = str(path)
    # backslashes have a special meaning there and cannot be escaped, and a directive is a single line
    if "\\" in text or text.splitlines() != [text]:
        raise SchedulerError(
            f"Slurm cannot write to {text!r}: move the design's folder to where its path has no backslash "
            "and no line break"
        )
    return text.replace("%", "%%")


def _quoted(value: str) -> str:
    """Quote a value for a directive, which sbatch parses without a shell; it knows double quotes and backslashes."""
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _python_path() -> str:
    """Return a line that sets ``PYTHONPATH`` to this interpreter's additional folders for modules."""
    standard_folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    standard_folders.append(str(Path(sys.base_prefix) / "lib" / "python"))
    paths = [
        os.path.abspath(path) for path in sys.path if path and not path.startswith(tuple(standard_folders))
    ]
    return f"export PYTHONPATH={shlex.quote(os.pathsep.join(dict.fromkeys(paths)))}"
