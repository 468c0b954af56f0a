"""The command ``palaestrai-mosaik``: its arguments, and what every command has in common.

Nothing heavy is imported here: a command imports what it needs when it is called.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.errors import PalaestraiMosaikError
from palaestrai_mosaik.importing import only_modules

from .common import (
    DEFAULT_STORE,
    STORE_HELP,
    STORE_VARIABLE,
    Command,
    add_allow_modules,
    call,
    few_threads,
    first_import,
    index,
    positive,
    seconds,
    top_parser,
)

if TYPE_CHECKING:
    from palaestrai_mosaik.store import BodyChoice
    from palaestrai_mosaik.store.location import StoreLocation

_DESCRIPTION = "Co-simulate agents and environments on mosaik, and look at the results."
_EPILOG = f"""\
A RUN is named by the id that 'list' shows (its beginning will do), by the uid of its
document (the latest run of it is meant), or by 'latest'. Results are kept in the folder
{DEFAULT_STORE!r}, or where {STORE_VARIABLE} or --store say: a folder, the
URL of a database, @FILE (whose first line is the URL) or env:NAME (a variable that holds it).

Exit codes: 0 all is well, 1 a run failed, 2 wrong usage or an unsound document,
130 interrupted.
"""


def _start(arguments: argparse.Namespace) -> int:
    few_threads()
    if arguments.resume and arguments.no_store:
        raise PalaestraiMosaikError("--resume needs the store that --no-store does without")
    with first_import("palaestrai_mosaik.cli.start"):
        from .start import start

    with only_modules(arguments.allow_modules):
        return start(
            arguments.documents,
            store=None if arguments.no_store else store_of(arguments),
            quiet=arguments.quiet,
            resume=arguments.resume,
            checkpoint_every=arguments.checkpoint_every,
            scalars=arguments.scalars,
        )


def _check(arguments: argparse.Namespace) -> int:
    from .check import check

    with only_modules(arguments.allow_modules):
        return check(arguments.documents, environments=not arguments.no_environments)


def _schema(arguments: argparse.Namespace) -> int:
    from .check import schema

    return schema()


def _list(arguments: argparse.Namespace) -> int:
    from .show import list_runs

    return list_runs(_location(arguments))


def _show(arguments: argparse.Namespace) -> int:
    from .show import show

    return show(_location(arguments), arguments.run, arguments.phase, _bodies(arguments), arguments.steps)


def _plot(arguments: argparse.Namespace) -> int:
    from .check import plot, plot_learning

    if arguments.learning:
        _refuse(arguments, "--learning", "sensors", "episode")
        from palaestrai_mosaik.analysis import LearningChoice

        fold: Any = arguments.objective or "sum"
        choice = LearningChoice(arguments.phase, _bodies(arguments), fold, arguments.statistics)
        return plot_learning(_location(arguments), arguments.runs, arguments.output, choice)
    _refuse(arguments, "a plot without --learning", "statistics")
    if len(arguments.runs) > 1:
        raise PalaestraiMosaikError("several runs can be plotted together with --learning only")
    return plot(
        _location(arguments),
        arguments.runs[0],
        arguments.output,
        phase=arguments.phase,
        choice=_bodies(arguments),
        sensors=arguments.sensors,
        episode=arguments.episode,
        fold=arguments.objective,
    )


def _bodies(arguments: argparse.Namespace) -> BodyChoice:
    from palaestrai_mosaik.store import BodyChoice

    body = arguments.body
    return BodyChoice(arguments.agent, arguments.environment, body[0] if body and len(body) == 1 else body)


def _refuse(arguments: argparse.Namespace, place: str, *options: str) -> None:
    """Raise for options that mean nothing here."""
    for option in options:
        if getattr(arguments, option) not in (None, []):
            raise PalaestraiMosaikError(f"--{option} has no meaning for {place}")


def _export(arguments: argparse.Namespace) -> int:
    from .show import export

    return export(
        _location(arguments),
        arguments.run,
        arguments.directory,
        arguments.format,
        environment=arguments.environment,
        body=arguments.body,
    )


def _verify(arguments: argparse.Namespace) -> int:
    from .store import verify

    return verify(_location(arguments), arguments.runs, everything=arguments.all, mark=arguments.mark_failed)


def _import(arguments: argparse.Namespace) -> int:
    from .store import import_palaestrai

    return import_palaestrai(arguments.source, _location(arguments), arguments.experiment_run)


def _graph(arguments: argparse.Namespace) -> int:
    from .check import graph

    with only_modules(arguments.allow_modules):
        return graph(arguments.document, arguments.phase, arguments.output)


def store_of(arguments: argparse.Namespace) -> str:
    """Return the location of the store that the user means."""
    location: str = arguments.store or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE
    return location


def _location(arguments: argparse.Namespace) -> StoreLocation:
    """Return where the results are that the user means, and the files of a database."""
    from palaestrai_mosaik.store.location import StoreLocation

    return StoreLocation(store_of(arguments), arguments.files)


def _phase(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``palaestrai-mosaik``."""
    top, command = top_parser("palaestrai-mosaik", _DESCRIPTION, _EPILOG)
    _add_document_commands(command)
    _add_result_commands(command)
    return top


def _add_document_commands(command: Command) -> None:
    start = command("start", _start, "execute run documents, one after the other")
    start.add_argument("documents", nargs="+", metavar="RUN.yml")
    where = start.add_mutually_exclusive_group()
    where.add_argument("--store", metavar="LOCATION", help=STORE_HELP)
    where.add_argument("--no-store", action="store_true", help="record nothing")
    start.add_argument("--quiet", action="store_true", help="show no progress")
    start.add_argument(
        "--resume",
        action="store_true",
        help="go on with the latest run of the document from its last checkpoint, if it did not finish",
    )
    start.add_argument(
        "--checkpoint-every",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="how often a run saves its state for --resume (default: 60; 0: never)",
    )
    start.add_argument(
        "--scalars",
        action="append",
        default=[],
        metavar="SINK",
        help="also write objectives, rewards and statistics of each episode to tensorboard:FOLDER, wandb:PROJECT "
        "or jsonl:FILE while the run goes on; may be given several times",
    )

    add_allow_modules(start)

    check = command("check", _check, "say what a run document would do, and everything that is wrong with it")
    check.add_argument("documents", nargs="+", metavar="RUN.yml")
    check.add_argument(
        "--no-environments",
        action="store_true",
        help="do not set environments up (so the names of sensors and actuators are not checked)",
    )

    add_allow_modules(check)

    command("schema", _schema, "print the JSON Schema of run documents, for editors")

    graph = command("graph", _graph, "draw the world of a run document: simulators, entities, data flow")
    graph.add_argument("document", metavar="RUN.yml")
    graph.add_argument("--phase", type=_phase, default=0, help="name or number (default: the first one)")
    graph.add_argument("--output", metavar="FILE", help=".svg, .png, .pdf or .txt (default: print as text)")
    add_allow_modules(graph)


def _add_result_commands(command: Command) -> None:
    _add_store(command("list", _list, "list the runs in the store, the newest last"))

    show = command("show", _show, "show how a run went: phases, episodes, outcomes, errors")
    show.add_argument("run", metavar="RUN")
    _add_choice(show)
    show.add_argument(
        "--steps", nargs="?", type=positive, const=5, metavar="N", help="also the first and last N steps (5)"
    )
    _add_store(show)

    plot = command(
        "plot", _plot, "plot objective and rewards of a run, chosen sensors, or how agents learned"
    )
    plot.add_argument("runs", nargs="+", metavar="RUN", help="several for --learning")
    _add_choice(plot)
    plot.add_argument(
        "--learning",
        action="store_true",
        help="plot objectives over training episodes, and evaluations; repetitions with other seeds get a band",
    )
    plot.add_argument(
        "--objective",
        choices=("sum", "mean"),
        help="of the values in each episode (default: mean; with --learning: sum)",
    )
    plot.add_argument(
        "--statistics",
        nargs="+",
        default=[],
        metavar="PATTERN",
        help="for --learning: also what agents told about themselves, a panel for each pattern such as 'loss*'",
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
    plot.add_argument("--output", metavar="FILE", help=".png, .svg or .pdf (default: RUN.png)")
    _add_store(plot)

    export = command("export", _export, "write all of a run as files for other programs")
    export.add_argument("run", metavar="RUN")
    export.add_argument("directory", metavar="DIRECTORY", help="a new or empty folder")
    export.add_argument("--format", choices=("parquet", "csv"), default="parquet")
    _add_bodies(export)
    _add_store(export)

    verify = command("verify", _verify, "read all that was recorded of runs, and tell what is damaged")
    verify.add_argument("runs", nargs="*", metavar="RUN")
    verify.add_argument("--all", action="store_true", help="all runs in the store")
    verify.add_argument(
        "--mark-failed",
        action="store_true",
        help="record finished runs that are damaged as failed, so that arsenai resume executes them again",
    )
    _add_store(verify)

    imported = command(
        "import", _import, "bring results of palaestrAI into the store, beside those that are there"
    )
    imported.add_argument(
        "source", metavar="DATABASE", help="SQLite file, URL, @FILE (holds the URL) or env:NAME"
    )
    imported.add_argument("--experiment-run", metavar="UID", help="only runs of this run document")
    _add_store(imported)


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
    """Run ``palaestrai-mosaik`` with ``argv`` (default: the process's); return the exit code."""
    return call(parser(), argv)


if __name__ == "__main__":
    sys.exit(main())
