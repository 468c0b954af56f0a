"""``palaestrai-mosaik plot`` and ``graph``: pictures of runs, and of the world of a document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import FINISHED, ContractError, DocumentError, PalaestraiMosaikError

from .common import named_after
from .output import answer, say, say_unless_quiet, wants_json, wide

if TYPE_CHECKING:
    from palaestrai_mosaik.plot import LearningChoice
    from palaestrai_mosaik.store.store import StoreLocation


def graph(document: str, phase: int | str, output: str | None, settings: Sequence[str] = ()) -> int:
    """Draw the world of a phase of a document, or print it as text without an ``output``."""
    from palaestrai_mosaik.experiment import check_classes, load
    from palaestrai_mosaik.experiment.paths import parse
    from palaestrai_mosaik.runner import inspect
    from palaestrai_mosaik.runner.factory import BASES, class_of
    from palaestrai_mosaik.simulation.world_graph import draw_graph, graph_data, graph_text, world_graph

    loaded = load(document, parse(settings))
    problems = check_classes(loaded, BASES, class_of)
    if problems:
        raise DocumentError(problems)
    try:
        world = world_graph(loaded, phase)
    except (ContractError, DocumentError):
        # probably caused by names that do not exist: report them with positions and similar names
        problems = inspect(loaded)
        if problems:
            raise DocumentError(problems) from None
        raise
    if wants_json():
        answer(graph_data(world))
    elif output is None:
        say(graph_text(world, whole=wide()), end="")
    if output is None:
        return FINISHED
    if Path(output).suffix.lower() != ".txt":
        draw_graph(world, output)
    else:
        try:
            files.write_text(output, graph_text(world, whole=wide()))
        except OSError as error:
            raise PalaestraiMosaikError(f"cannot write {output}: {error.strerror}") from error
    say_unless_quiet(output)
    return FINISHED


def plot(location: StoreLocation, run: str, output: str | None, **options: Any) -> int:
    """Plot a run to ``output`` (default: a file named after its document); print the file's name.

    ``options`` are those of :func:`~palaestrai_mosaik.plot.plot_run`.
    """
    from palaestrai_mosaik.plot import plot_run

    with location.look() as store:
        say_unless_quiet(plot_run(store, run, output or named_after(store, run, ".png"), **options))
    return FINISHED


def plot_learning(
    location: StoreLocation, runs: Sequence[str], output: str | None, choice: LearningChoice
) -> int:
    """Plot the learning of agents in runs; print the file's name."""
    from palaestrai_mosaik.plot import plot_learning

    with location.look() as store:
        say_unless_quiet(
            plot_learning(store, runs, output or named_after(store, runs[0], "-learning.png"), choice)
        )
    return FINISHED
