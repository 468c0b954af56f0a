"""The command ``arsenai`` and its arguments: experiments from design documents to answers.

Nothing heavy is imported here. Each command imports its dependencies when it is called.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from palaestrai_mosaik.core.errors import PalaestraiMosaikError

from .common import (
    STORE_HELP,
    Command,
    add_allow_modules,
    add_completion,
    add_json,
    add_serving,
    answering,
    call,
    index_ranges,
    lazy,
    names_list,
    positive,
    seconds,
    top_parser,
    warn_of_neighbours,
)
from .completion import COMPLETING, complete

PROGRAM = "arsenai"
_DESCRIPTION = "Design experiments: one document makes many runs, which are executed and compared."
_EPILOG = """\
A DESIGN is a YAML document; 'generate' makes a FOLDER of it. Without FOLDER, commands use the only
one in _outputs/ or in the working directory. Results are stored in FOLDER/results, or in --store
(a folder or a database). Runs on a cluster record into stores of their own; 'collect' copies these
results.

Both programs know the same words: run (or start) executes, resume continues, check (or plan) reports
problems, -o names the file or folder to write.

Exit codes: 0 success, 1 a run failed (analyse: a requested method could not be applied, none
could, or a condition holds everywhere, nowhere or too seldom), 2 wrong usage or an invalid document, 130 interrupted.
"""

#: options of 'submit' for Slurm
_SLURM: dict[str, dict[str, Any]] = {
    "--partition": {"metavar": "NAME"},
    "--time": {"metavar": "TIME", "help": "time limit of a task: minutes, HH:MM:SS or D-HH:MM:SS"},
    "--memory": {"metavar": "SIZE", "help": "of a task, such as 4G"},
    "--cpus": {"type": positive, "metavar": "N", "help": "cores of a task (default: 1)"},
    "--account": {"metavar": "NAME"},
    "--qos": {"metavar": "NAME"},
    "--throttle": {"type": positive, "metavar": "N", "help": "tasks of an array at the same time"},
    "--runs-per-task": {
        **{"type": positive, "metavar": "N"},
        "help": "runs that a task executes (default: enough for some minutes)",
    },
    "--processes": {
        **{"type": positive, "metavar": "N"},
        "help": "runs of a task at the same time (default: cores)",
    },
    "--requeue": {
        **{"type": int, "metavar": "N"},
        "help": "maximum requeues after a timeout; the task resumes where it stopped (default: 0)",
    },
    "--warning": {
        **{"type": int, "metavar": "SECONDS"},
        "help": "how long before the time limit runs are asked to stop (default: 120)",
    },
    "--directive": {
        **{"dest": "directives", "action": "append", "metavar": "OPTION"},
        "help": "further option of sbatch, such as --directive=--constraint=fast; may be repeated",
    },
    "--prologue": {
        **{"action": "append", "metavar": "LINE"},
        "help": "shell line executed before the runs, such as 'module load python'; may be repeated",
    },
    "--python": {"metavar": "PATH", "help": "interpreter on the nodes (default: this one)"},
}


def _run(*, resume: bool, **options: Any) -> int:
    return lazy("execution", "resume" if resume else "run", one_thread=True)(**options)


def _submit(*, again: bool, failed: bool, **options: Any) -> int:
    from .execution import submit

    names = [option.get("dest") or flag.lstrip("-").replace("-", "_") for flag, option in _SLURM.items()]
    slurm = {name: value for name in names if (value := options.pop(name)) is not None}
    return submit(**options, which="failed" if failed else "unfinished" if again else "missing", slurm=slurm)


def _compare(
    *, robustness: bool, over: list[str], satisfice: list[str], baseline: str | None, **options: Any
) -> int:
    if robustness:
        if baseline is not None:
            raise PalaestraiMosaikError(
                "--baseline is for comparisons without --robustness, which compares with the best level"
            )
        return lazy("compare", "compare_robustness")(over=over, satisfice=satisfice, **options)
    for name, values in (("--over", over), ("--satisfice", satisfice)):
        if values:
            raise PalaestraiMosaikError(f"{name} is for --robustness: give that, too")
    return lazy("compare", "compare")(baseline=baseline, **options)


def parser(program: str = PROGRAM) -> argparse.ArgumentParser:
    """Create the parser of ``arsenai``, for the program name ``program``."""
    top, command = top_parser(program, _DESCRIPTION, _EPILOG)
    _add_design_commands(command)
    _add_execution_commands(command)
    _add_cluster_commands(command)
    _add_analysis_commands(command)
    return top


def _add_design_commands(command: Command) -> None:
    plan = command(
        "plan",
        lazy("design", "plan", one_thread=True),
        "show what a design would generate, and report all its problems; write nothing",
        "check",
    )
    plan.add_argument("design", metavar="DESIGN.yml")
    plan.add_argument(
        "--seconds-per-run", type=seconds, metavar="SECONDS", help="for the estimate of the costs"
    )

    generate = command(
        "generate",
        lazy("design", "generate", one_thread=True),
        "write the run documents of a design into a folder",
    )
    generate.add_argument("design", metavar="DESIGN.yml")
    generate.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        help="default: the design's uid in 'output' of the design, or in _outputs/",
    )
    generate.add_argument(
        "--force",
        action="store_true",
        help="replace files that were edited, or another design: its analysis/ and report/ go, "
        "results/ and jobs/ stay",
    )

    for sub in (plan, generate):
        _add_check(sub)

    add_completion(command)
    command("schema", lazy("design", "schema"), "print the JSON Schema of design documents, for editors")


def _add_check(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--check",
        dest="extent",
        choices=("levels", "all", "none"),
        default="levels",
        help="rows to check as 'palaestrai-mosaik check' does: levels (default), so many that each level and each "
        "extreme value of a factor occurs; all; none, where packages of the runs are missing here",
    )
    add_allow_modules(sub)
    add_json(sub)


def _add_execution_commands(command: Command) -> None:
    run = command("run", _run, "execute the missing runs of a folder", "start")
    resume = command(
        "resume", lazy("execution", "resume", one_thread=True), "execute missing, failed and interrupted runs"
    )
    tune = command(
        "tune",
        lazy("tune", "tune", one_thread=True),
        "search for the best settings of a design that has 'search'",
    )
    tune.add_argument("design", metavar="DESIGN.yml")
    tune.add_argument(
        "-o", "--output", metavar="FOLDER", help="default: as of generate; a search that is there goes on"
    )
    tune.add_argument("--store", metavar="LOCATION", help=f"{STORE_HELP} (default: FOLDER/results)")
    tune.add_argument("-j", "--jobs", type=positive, metavar="N", help="runs at once (default: all cores)")
    tune.add_argument(
        "--executor",
        choices=("local", "inline", "slurm", "parsl"),
        help="local (default): a process per run; inline: in this process; slurm: job arrays, whose tasks ask for "
        "their next setting; parsl: pilot jobs",
    )
    tune.add_argument(
        "--fail-fast", action="store_true", default=None, help="begin nothing more after a failure"
    )
    tune.add_argument("--timeout", type=seconds, metavar="SECONDS", help="end a run that takes longer")
    for sub, more in ((tune, ""), (resume, ", where it is a search; other failed runs are executed anyway")):
        text = f"also execute failed settings again, with the same seeds{more}"
        sub.add_argument("--retry-failed", action="store_true", help=text)
    _add_check(tune)

    run.add_argument(
        "--resume", action="store_true", help="also failed and interrupted runs, as the command resume does"
    )
    for sub in (run, resume):
        _add_folder(sub)
        sub.add_argument("-j", "--jobs", type=positive, metavar="N", help="runs at once (default: all cores)")
        sub.add_argument(
            "--executor",
            choices=("local", "inline", "slurm", "parsl"),
            help="local (default): a process per run; inline: in this process, for debugging; slurm: job "
            "arrays; parsl: pilot jobs",
        )
        _add_choice(sub)
        sub.add_argument(
            "--fail-fast", action="store_true", default=None, help="start no more runs after a failure"
        )
        _add_limits(sub)
        add_json(sub)

    status = command(
        "status", lazy("status", "status"), "show which runs are finished, running, failed or waiting"
    )
    _add_folder(status)
    add_json(status)
    _add_ignore_queue(status)


def _add_cluster_commands(command: Command) -> None:
    submit = command("submit", _submit, "submit the missing runs of a folder, or its search, to a cluster")
    _add_folder(submit)
    _add_choice(submit)
    submit.add_argument("--again", action="store_true", help="also failed runs")
    submit.add_argument(
        "--dry-run", action="store_true", help="only write submit.sbatch, and estimate time and storage"
    )
    submit.add_argument(
        "--seconds-per-run", type=seconds, metavar="SECONDS", help="for the estimate of --dry-run"
    )
    task = submit.add_argument_group("tasks of the job arrays")
    for flag, option in _SLURM.items():
        task.add_argument(flag, **option)
    _add_limits(submit)
    add_json(submit)

    cancel = command("cancel", lazy("execution", "cancel"), "cancel the queued and running tasks of a folder")
    cancel.add_argument("folder", nargs="?", metavar="FOLDER", help="made by 'arsenai generate'")

    collect = command(
        "collect", lazy("execution", "collect"), "collect the results of cluster runs in one store"
    )
    _add_folder(collect)
    collect.add_argument(
        "--remove", action="store_true", help="delete the stores of finished runs once they are collected"
    )
    add_json(collect)


def _add_choice(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--rows", type=index_ranges, metavar="ROWS", help="only these rows, such as 0-9,15")
    sub.add_argument("--failed", action="store_true", help="only failed runs")
    _add_ignore_queue(sub)


def _add_ignore_queue(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--ignore-queue", action="store_true", help="do not query the scheduler; treat queued runs as lost"
    )


def _add_limits(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--timeout", type=seconds, metavar="SECONDS", help="end a run that takes longer")
    sub.add_argument(
        "--runs-per-process",
        type=positive,
        metavar="N",
        help="execute runs in one process, one after the other (default: 1, or several short ones without users' code)",
    )
    sub.add_argument(
        "--allow-modules",
        metavar="MODULES",
        help="documents may only name classes of this package and of these modules, such as mine,yours.agents",
    )


def _add_analysis_commands(command: Command) -> None:
    analyse = command(
        "analyse",
        lazy("analyse", "analyse"),
        "compute which factors matter (sensitivity indices, variance shares), and where conditions hold",
    )
    _add_folder(analyse)
    analyse.add_argument(
        "--methods", nargs="+", default=[], metavar="METHOD", help="default: what fits the design"
    )
    analyse.add_argument(
        "--discover",
        action="append",
        default=[],
        metavar="CONDITION",
        help="find boxes of factors in which a condition on outcomes holds, such as 'violations > 0.01'; may be "
        "repeated; without --methods, do nothing else",
    )
    _add_beside(analyse)
    _add_outcomes(analyse)

    compare = command(
        "compare", _compare, "compare agents or settings: means, intervals, paired tests, robustness"
    )
    _add_folder(compare)
    compare.add_argument("--by", nargs="+", default=[], metavar="FACTOR", help="whose levels are compared")
    compare.add_argument(
        "--baseline", metavar="LEVEL", help="compare all others with this one (default: all pairs)"
    )
    compare.add_argument(
        "--robustness",
        action="store_true",
        help="over scenarios: regret, worst case, percentiles, mean-variance, satisficing, instead of means and tests",
    )
    compare.add_argument(
        "--over",
        nargs="+",
        default=[],
        metavar="FACTOR",
        help="the factors that make the scenarios of --robustness (default: all others)",
    )
    compare.add_argument(
        "--satisfice",
        action="append",
        default=[],
        metavar="CONDITION",
        help="with --robustness, the share of the scenarios in which a condition on outcomes holds, such as "
        "'violations <= 0.01'; may be repeated",
    )
    _add_outcomes(compare)

    report = command(
        "report",
        lazy("report", "report"),
        "write one HTML page with all tables and figures, as Markdown or PDF, too",
    )
    _add_folder(report)
    add_json(report)
    report.add_argument("-o", "--output", metavar="DIRECTORY", help="default: FOLDER/report")
    report.add_argument(
        "--theatre",
        type=names_list,
        default=(),
        metavar="RUNS",
        help="also write these runs as one file each, to which the page leads: best, worst, or ids of runs, such as "
        "best,worst",
    )

    report.add_argument(
        "--format",
        choices=("html", "md", "pdf"),
        default="html",
        help="what to write beside the tables: html, the page; md, also report.md, text and tables; pdf, also report.pdf, "
        "printed by Chromium or Chrome (default: html)",
    )

    _add_beside(report)

    theatre = command(
        "theatre",
        lazy("serve", "theatre_of_design", one_thread=True),
        "write a design as one HTML file that needs no network: states, outcomes, indices, best and worst runs",
    )
    _add_folder(theatre)
    add_json(theatre)
    theatre.add_argument("-o", "--output", metavar="FILE", help="default: DESIGN.html")

    serve = command(
        "serve",
        lazy("serve", "serve_design", one_thread=True),
        "show a design and its runs on a page in the browser, while they go on and after",
    )
    _add_folder(serve)
    add_serving(serve)


def _add_folder(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("folder", nargs="?", metavar="FOLDER", help="made by 'arsenai generate'")
    sub.add_argument("--store", metavar="LOCATION", help=f"{STORE_HELP} (default: FOLDER/results)")


def _add_beside(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--beside",
        metavar="FOLDER",
        help="of a search: the folder of a design with Sobol' indices of the same factors, or the other way round; with "
        "--store, the results of both are there",
    )


def _add_outcomes(sub: argparse.ArgumentParser) -> None:
    add_json(sub)
    sub.add_argument("--outcomes", nargs="+", default=[], metavar="NAME", help="only these (default: all)")
    sub.add_argument(
        "-o", "--output", metavar="DIRECTORY", help="for the CSV files (default: FOLDER/analysis)"
    )


def main(argv: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Run ``arsenai`` with ``argv`` (default: the process's arguments) as ``program``; return the exit code."""
    return answering(program, partial(_main, argv, program))


def _main(argv: Sequence[str] | None, program: str) -> int:
    if COMPLETING in os.environ:
        complete(parser(program), parser)
    if argv is None:
        warn_of_neighbours()
    return call(parser(program), argv, _with_store)


def _with_store(options: dict[str, Any]) -> None:
    """Set a missing store to the one in the user's configuration file."""
    if "store" in options and options["store"] is None:
        from palaestrai_mosaik.arsenai.execution.settings import read_configuration

        options["store"] = read_configuration().store


if __name__ == "__main__":
    sys.exit(main())
