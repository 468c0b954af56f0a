"""The command ``palaestrai-mosaik`` and its arguments.

``palaestrai-mosaik arsenai ...`` runs the command ``arsenai``, because palaestrAI replaces the program of this name if
it is installed in the same environment.

Nothing heavy is imported here. Each command imports its dependencies when it is called.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.core.errors import PalaestraiMosaikError
from palaestrai_mosaik.core.installation import DEFAULT_STORE, STORE_VARIABLE, default_store

from . import arsenai
from .common import (
    STORE_HELP,
    Command,
    add_allow_modules,
    add_completion,
    add_json,
    add_labels,
    add_serving,
    answering,
    call,
    episode_choice,
    index,
    lazy,
    limit_pair,
    moment,
    positive,
    seconds,
    top_parser,
    warn_of_neighbours,
)
from .completion import COMPLETING, complete

if TYPE_CHECKING:
    from palaestrai_mosaik.store import BodyChoice

_DESCRIPTION = "Co-simulate agents and environments on mosaik, and look at the results."
_EPILOG = f"""\
A RUN is the id that 'list' shows (or its beginning), the name of a run, the uid of a run
document (its latest run), or 'latest'. Results are stored in the folder {DEFAULT_STORE!r}, or in what
{STORE_VARIABLE} or --store name: a folder, the URL of a database, @FILE (the first
line is the URL) or env:NAME (a variable that holds the URL).

Both programs know the same words: run (or start) executes, resume continues, check (or plan) reports
problems, -o names the file or folder to write.

'palaestrai-mosaik arsenai ...' is the command arsenai, also where another package has replaced
the program of that name, and 'python -m palaestrai_mosaik ...' is palaestrai-mosaik.

Exit codes: 0 success, 1 a run failed, 2 wrong usage or an invalid document,
130 interrupted.
"""


def _start(
    *, no_store: bool, resume: bool, name: str | None, tags: list[str], note: str | None, **options: Any
) -> int:
    if no_store:
        _refuse("--no-store", files=options["files"], name=name, tag=tags, note=note)
    if resume and no_store:
        raise PalaestraiMosaikError("--resume needs the store that --no-store does without")
    options["store"] = None if no_store else store_of(options["store"])
    options["labels"] = {"name": name, "tags": tags, "note": note}
    return lazy("start", "start", one_thread=True, limited=True)(resume=resume, **options)


def _of_store(module: str, name: str) -> Callable[..., int]:
    """Create a function that calls a command with a ``location`` made from ``--store`` and ``--files``."""
    command = lazy(module, name)

    def function(*, store: str | None, files: str | None, **options: Any) -> int:
        from palaestrai_mosaik.store.store import StoreLocation

        return command(location=StoreLocation(store_of(store), files), **options)

    return function


def _show(*, agent: str | None, environment: str | None, body: Any, **options: Any) -> int:
    return _of_store("show", "show")(choice=_choice(agent, environment, body), **options)


def _export(*, body: Any, directory: str | None, output: str | None, **options: Any) -> int:
    if (directory is None) == (output is None):
        raise PalaestraiMosaikError("name the folder to export to, once: DIRECTORY or --output DIRECTORY")
    return _of_store("store", "export")(body=_one_or_several(body), directory=directory or output, **options)


def _serve(*, store: str | None, files: str | None, **options: Any) -> int:
    from palaestrai_mosaik.store.store import StoreLocation

    location = StoreLocation(store_of(store), files)
    return lazy("serve", "serve", one_thread=True)(location=location, **options)


def _plot(*, learning: bool, agent: str | None, environment: str | None, body: Any, **options: Any) -> int:
    choice = _choice(agent, environment, body)
    fold, statistics, phase = (options.pop(name) for name in ("objective", "statistics", "phase"))
    if learning:
        _refuse("--learning", **{name: options.pop(name) for name in ("sensors", "episode")})
        limits, no_limits = options.pop("limits"), options.pop("no_limits")
        _refuse("--learning", limits=limits, **{"no-limits": no_limits or None})
        from palaestrai_mosaik.plot import LearningChoice

        chosen = LearningChoice(phase, choice, fold, statistics)
        return _of_store("plot", "plot_learning")(choice=chosen, **options)
    _refuse("a plot without --learning", statistics=statistics)
    run, *more = options.pop("runs")
    if more:
        raise PalaestraiMosaikError("several runs can be plotted together with --learning only")
    if not options["sensors"]:
        _refuse("a plot without --sensors", limits=options["limits"])
    limits = options.pop("limits") or not options["no_limits"]
    del options["no_limits"]
    return _of_store("plot", "plot")(run=run, phase=phase, choice=choice, fold=fold, limits=limits, **options)


def _refuse(case: str, **options: Any) -> None:
    """Raise an error for options without a meaning in this case."""
    for option, value in options.items():
        if value not in (None, []):
            raise PalaestraiMosaikError(f"--{option} has no meaning for {case}")


def _choice(agent: str | None, environment: str | None, body: Any) -> BodyChoice:
    from palaestrai_mosaik.store import BodyChoice

    return BodyChoice(agent, environment, _one_or_several(body))


def _one_or_several(values: list[Any] | None) -> Any:
    return values[0] if values and len(values) == 1 else values


def store_of(location: str | None) -> str:
    """Return the location of the store, by default that of the environment variable or the default folder."""
    return location or default_store()


def _seed(text: str) -> str:
    return f"seed={int(text)}"


_seed.__name__ = "seed"


def _phase(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def parser() -> argparse.ArgumentParser:
    """Create the parser of ``palaestrai-mosaik``."""
    top, command = top_parser("palaestrai-mosaik", _DESCRIPTION, _EPILOG)
    _add_document_commands(command)
    _add_result_commands(command)
    _add_page_command(command)
    return top


def _add_document_commands(command: Command) -> None:
    start = command("start", _start, "execute run documents, one after the other", "run")
    _add_run_options(start, resumed=False)
    start.add_argument(
        "--resume",
        action="store_true",
        help="resume the latest unfinished run of the document from its last checkpoint, as the command resume does",
    )
    resume = command(
        "resume",
        _start,
        "resume the latest unfinished run of each document from its last checkpoint, as start --resume does",
    )
    _add_run_options(resume, resumed=True)
    resume.set_defaults(resume=True, no_store=False)

    check = command(
        "check",
        lazy("check", "check", limited=True),
        "describe what a run document does, and report all its problems",
        "plan",
    )
    check.add_argument("documents", nargs="+", metavar="RUN.yml")
    check.add_argument(
        "--no-environments",
        dest="environments",
        action="store_false",
        help="do not set up environments (then the names of sensors and actuators are not checked)",
    )

    _add_overrides(check)
    add_allow_modules(check)
    add_json(check)

    new = command("new", lazy("new", "new"), "write a small working example to start from")
    new.add_argument("kind", choices=("run", "agent", "environment", "design"))
    new.add_argument(
        "name", metavar="NAME", help="of the document, and of the module and class where there is one"
    )

    add_completion(command)
    command("schema", lazy("check", "schema"), "print the JSON Schema of run documents, for editors")

    graph = command(
        "graph",
        lazy("plot", "graph", limited=True),
        "draw the world of a run document: simulators, entities, data flow",
    )
    graph.add_argument("document", metavar="RUN.yml")
    graph.add_argument("--phase", type=_phase, default=0, help="name or number (default: the first one)")
    graph.add_argument(
        "-o", "--output", metavar="FILE", help=".svg, .png, .pdf or .txt (default: print as text)"
    )
    _add_overrides(graph)
    add_allow_modules(graph)
    add_json(graph)


def _add_run_options(sub: argparse.ArgumentParser, *, resumed: bool) -> None:
    """Add the common options of start and resume."""
    sub.add_argument("documents", nargs="+", metavar="RUN.yml")
    where = sub.add_mutually_exclusive_group()
    where.add_argument("--store", metavar="LOCATION", help=STORE_HELP)
    if not resumed:
        where.add_argument("--no-store", action="store_true", help="record nothing")
    sub.add_argument(
        "--files", metavar="FOLDER", help="where the files of a database go (default: palaestrai-results)"
    )
    sub.add_argument(
        "--checkpoint-every",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="how often a run saves its state for --resume (default: 60; 0: never)",
    )
    sub.add_argument(
        "--scalars",
        action="append",
        default=[],
        metavar="SINK",
        help="also write objectives, rewards and statistics of each episode to tensorboard:FOLDER, wandb:PROJECT "
        "or jsonl:FILE while the run goes on; may be given several times",
    )
    add_labels(sub)
    _add_overrides(sub)
    add_allow_modules(sub)
    add_json(sub)


def _add_overrides(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="use another value in the document, such as 'schedule.train.phase_config.episodes=3', or "
        "'agents.defender.muscle.params.gain=0.5' in every phase that has it; may be given several times",
    )
    sub.add_argument(
        "--seed",
        dest="settings",
        action="append",
        type=_seed,
        metavar="N",
        help="use another seed; the same as --set seed=N",
    )


def _add_result_commands(command: Command) -> None:
    listed = command("list", _of_store("store", "list_runs"), "list the runs in the store, the newest last")
    listed.add_argument(
        "--status",
        nargs="+",
        choices=("running", "finished", "failed", "interrupted", "pruned", "lost"),
        help="only runs with one of these",
    )
    listed.add_argument(
        "--document", metavar="PATTERN", help="only runs of documents with such a uid ('rural_*')"
    )
    listed.add_argument(
        "--since",
        type=moment,
        metavar="TIME",
        help="only runs that began since then: a date such as 2026-01-31, or how long ago, such as '2 days'",
    )
    listed.add_argument("--last", type=positive, metavar="N", help="only the newest N of them")
    listed.add_argument(
        "--tag",
        dest="tags",
        nargs="+",
        action="extend",
        default=[],
        metavar="TAG",
        help="only runs with all of these tags",
    )
    listed.add_argument(
        "--columns",
        nargs="+",
        default=[],
        metavar="PATTERN",
        help="also show parameters that differ, by the end of their path ('gain'), and metrics, such as "
        "'objective.defender:best' or 'statistic.*.loss:last'; '*' shows all",
    )
    add_json(listed)
    _add_store(listed)

    _add_label(command)

    deleted = command("delete", _of_store("store", "delete"), "delete runs with all that they recorded")
    deleted.add_argument("runs", nargs="+", metavar="RUN")
    deleted.add_argument("--yes", action="store_true", help="do not ask")
    _add_store(deleted)

    show = command("show", _show, "show how a run went: phases, episodes, outcomes, errors")
    show.add_argument("run", metavar="RUN")
    _add_choice(show)
    show.add_argument(
        "--steps", nargs="?", type=positive, const=5, metavar="N", help="also the first and last N steps (5)"
    )
    add_json(show)
    _add_store(show)

    plot = command(
        "plot", _plot, "plot objective and rewards of a run, chosen sensors, or how agents learned"
    )
    plot.add_argument("runs", nargs="+", metavar="RUN", help="several for --learning")
    _add_choice(plot)
    plot.add_argument(
        "--learning",
        action="store_true",
        help="plot objectives over training episodes, and evaluations; repetitions with other seeds become a band",
    )
    plot.add_argument(
        "--objective",
        choices=("sum", "mean"),
        help="of the values in each episode (default: mean; sum, the return, where rewards accumulate)",
    )
    plot.add_argument(
        "--statistics",
        nargs="+",
        default=[],
        metavar="PATTERN",
        help="with --learning: also plot statistics of agents, one panel for each pattern such as 'loss*'",
    )
    plot.add_argument(
        "--sensors",
        nargs="+",
        default=[],
        metavar="PATTERN",
        help="what to plot over time, a panel for each pattern such as 'grid.*vm_pu*' or 'setpoint.*'",
    )
    plot.add_argument(
        "--episode", type=index, metavar="N", help="the episode for --sensors (default: the last)"
    )
    limits = plot.add_mutually_exclusive_group()
    limits.add_argument(
        "--limits",
        nargs="+",
        type=limit_pair,
        metavar="LOW,HIGH",
        help="lines to draw in the panels of --sensors, one pair for all patterns or one for each, such as 0.9,1.1; "
        ",80 is an upper one only; --limits=-1,1 (default: 0.95,1.05 for vm_pu, ,100 for loading, else the "
        "bounds of the sensors if they are near)",
    )
    limits.add_argument("--no-limits", action="store_true", help="draw no limits")
    plot.add_argument("-o", "--output", metavar="FILE", help=".png, .svg or .pdf (default: RUN.png)")
    _add_store(plot)

    _add_theatre(command)

    export = command("export", _export, "export a run as files for other programs")
    export.add_argument("run", metavar="RUN")
    export.add_argument("directory", nargs="?", metavar="DIRECTORY", help="a new or empty folder")
    export.add_argument("-o", "--output", metavar="DIRECTORY", help="the same, as in other commands")
    export.add_argument("--format", choices=("parquet", "csv"), default="parquet")
    _add_bodies(export)
    _add_store(export)

    verify = command("verify", _of_store("verify", "verify"), "check recorded runs for damage")
    verify.add_argument("runs", nargs="*", metavar="RUN")
    verify.add_argument("--all", dest="everything", action="store_true", help="all runs in the store")
    verify.add_argument(
        "--mark-failed",
        dest="mark",
        action="store_true",
        help="mark damaged runs as failed, so that arsenai resume executes them again",
    )
    add_json(verify)
    _add_store(verify)

    _add_import(command)


def _add_import(command: Command) -> None:
    imported = command(
        "import", _of_store("store", "import_palaestrai"), "import results of palaestrAI into the store"
    )
    imported.add_argument(
        "source", metavar="DATABASE", help="SQLite file, URL, @FILE (holds the URL) or env:NAME"
    )
    imported.add_argument(
        "--document",
        "--experiment-run",
        dest="experiment_run",
        metavar="UID",
        help="only runs of the document with this uid",
    )
    _add_store(imported)


def _add_label(command: Command) -> None:
    labelled = command(
        "label", _of_store("store", "label"), "set name, tags and note of runs; without options, show them"
    )
    labelled.add_argument("runs", nargs="+", metavar="RUN")
    add_labels(labelled)
    labelled.add_argument(
        "--untag", nargs="+", action="extend", default=[], metavar="TAG", help="tags to remove"
    )
    add_json(labelled)
    _add_store(labelled)


def _add_page_command(command: Command) -> None:
    served = command(
        "serve", _serve, "show the runs of a store on a page in the browser, while they go on and after"
    )
    served.add_argument(
        "store", nargs="?", metavar="STORE", help=f"{STORE_HELP} (default: as for other commands)"
    )
    served.add_argument(
        "--files", metavar="FOLDER", help="where the files of a database are (default: palaestrai-results)"
    )
    add_serving(served)


def _add_theatre(command: Command) -> None:
    theatre = command(
        "theatre",
        _of_store("serve", "theatre"),
        "write a run as one HTML file that needs no network; several are compared, without any all runs are listed",
    )
    theatre.add_argument(
        "runs", nargs="*", metavar="RUN", help="several are compared (default: all are listed)"
    )
    theatre.add_argument(
        "-o", "--output", metavar="FILE", help="default: RUN.html, comparison.html or runs.html"
    )
    theatre.add_argument(
        "--phase",
        dest="phases",
        nargs="+",
        type=_phase,
        default=[],
        metavar="PHASE",
        help="of a single run, names or numbers (default: all, as long as the file stays below 5 MB)",
    )
    theatre.add_argument(
        "--episode",
        type=episode_choice,
        default="newest",
        metavar="N",
        help="the episode of each phase: a number, newest, or worst, the one with the voltage farthest from 1 "
        "(default: newest)",
    )
    theatre.add_argument(
        "--beside", type=_phase, metavar="PHASE", help="open the file with this phase beside the first one"
    )
    add_json(theatre)
    _add_store(theatre)


def _add_choice(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--phase", type=_phase, help="name or number (default: all)")
    sub.add_argument("--agent", metavar="NAME", help="only this agent")
    _add_bodies(sub)


def _add_bodies(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--environment", metavar="UID", help="only bodies in this environment")
    sub.add_argument(
        "--body", nargs="+", type=_phase, metavar="BODY", help="only bodies with these numbers or labels"
    )


def _add_store(group: argparse._ActionsContainer) -> None:
    group.add_argument("--store", metavar="LOCATION", help=STORE_HELP)
    group.add_argument(
        "--files",
        metavar="FOLDER",
        help="where the files of a database are (default: palaestrai-results; of a design: its results)",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``palaestrai-mosaik`` with ``argv`` (default: the process's arguments); return the exit code."""
    return answering("palaestrai-mosaik", partial(_main, argv))


def _main(argv: Sequence[str] | None) -> int:
    arguments = sys.argv[1:] if argv is None else list(argv)
    if COMPLETING in os.environ:
        complete(parser(), arsenai.parser)
    if argv is None:
        warn_of_neighbours()
    if arguments[:1] == [arsenai.PROGRAM]:
        return arsenai.main(arguments[1:], f"palaestrai-mosaik {arsenai.PROGRAM}")
    return call(parser(), arguments)


if __name__ == "__main__":
    sys.exit(main())
