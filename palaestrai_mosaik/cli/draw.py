"""``palaestrai-mosaik graph`` and ``plot``: pictures of worlds and of results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import ContractError, DocumentError, PalaestraiMosaikError

from .common import FINISHED, say

if TYPE_CHECKING:
    from palaestrai_mosaik.analysis import Fold, LearningChoice
    from palaestrai_mosaik.store import BodyChoice, Store
    from palaestrai_mosaik.store.location import StoreLocation


def graph(path: str, phase: int | str, output: str | None) -> int:
    """Draw the world of a phase of the document at ``path``; print it if there is no ``output``."""
    from palaestrai_mosaik.experiment import check_classes, load
    from palaestrai_mosaik.run import inspect
    from palaestrai_mosaik.run.parts import BASES, class_of
    from palaestrai_mosaik.simulation.graph import draw_graph, graph_text, world_graph

    document = load(path)
    problems = check_classes(document, BASES, class_of)
    if problems:
        raise DocumentError(problems)
    try:
        world = world_graph(document, phase)
    except (ContractError, DocumentError):
        # most likely the document names what is not there: say so with all places and nearest names
        problems = inspect(document)
        if problems:
            raise DocumentError(problems) from None
        raise
    if output is None:
        say(graph_text(world), end="")
    else:
        if Path(output).suffix.lower() == ".txt":
            _write(output, graph_text(world))
        else:
            draw_graph(world, output)
        say(output)
    return FINISHED


def _write(path: str, text: str) -> None:
    try:
        files.write_text(path, text)
    except OSError as error:
        raise PalaestraiMosaikError(f"cannot write {path}: {error.strerror}") from error


def plot(  # noqa: PLR0913  (independent choices)
    location: StoreLocation,
    run: str,
    output: str | None,
    *,
    phase: int | str | None,
    choice: BodyChoice,
    sensors: Sequence[str],
    episode: int | None,
    fold: Fold | None,
) -> int:
    """Plot a run into ``output``, or a file named after its document; print the file's name."""
    from palaestrai_mosaik.analysis import plot_run

    with location.look() as store:
        path = output or _named_after(store, run, "")
        say(
            plot_run(
                *(store, run, path),
                phase=phase,
                choice=choice,
                sensors=sensors,
                episode=episode,
                fold=fold,
            )
        )
    return FINISHED


def plot_learning(
    location: StoreLocation, runs: Sequence[str], output: str | None, choice: LearningChoice
) -> int:
    """Plot how the agents of runs learned; print the file's name."""
    from palaestrai_mosaik.analysis import plot_learning

    with location.look() as store:
        say(plot_learning(store, runs, output or _named_after(store, runs[0], "-learning"), choice))
    return FINISHED


def _named_after(store: Store, run: str, ending: str) -> str:
    uid = store.find_run(run)
    runs = store.runs()
    document = runs.loc[runs["run"] == uid, "document"].iloc[0]
    return re.sub(r"[^\w.-]+", "_", f"{document}-{uid[:15]}").strip("_.") + f"{ending}.png"
