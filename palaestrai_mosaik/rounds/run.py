"""Executes a folder round by round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from palaestrai_mosaik.analysis.discovery.algorithms import check_installed
from palaestrai_mosaik.design.folder import DesignFolder
from palaestrai_mosaik.design.rounds import Rounds
from palaestrai_mosaik.design.samplers.adaptive import ADAPTIVE
from palaestrai_mosaik.execution import FolderProgress, Settings, Summary, run_folder
from palaestrai_mosaik.execution.runs import RunsToExecute

from .advance import advance


def run_rounds(
    folder: DesignFolder,
    *,
    which: RunsToExecute = "missing",
    store: str | None = None,
    settings: Settings | None = None,
    progress: FolderProgress | None = None,
    ignore_queue: bool = False,
    on_round: Callable[[Rounds], None] | None = None,
) -> tuple[DesignFolder, Summary]:
    """Execute runs of a folder, add the rows of the next round, execute these, and so on until no more are needed.

    It ends earlier where runs have no result: they were interrupted, or another process executes them. Runs that failed
    are lost to the decision, as to any analysis. A design that does not grow in rounds has one round.

    Args:
        folder: the design folder.
        which: which runs are executed in the first round, see :func:`~palaestrai_mosaik.execution.run_folder`.
        store: where the runs are recorded; ``None``: ``results`` in the folder.
        settings: how runs are executed; ``None``: as the design says.
        progress: is called with what happens in each round; ``None``: nothing is shown.
        ignore_queue: treat what submissions to a cluster still have as gone, without asking.
        on_round: is called with the rounds after each of them; ``None``: nothing is.

    Returns:
        The folder as it is in the end, and how the execution of all rounds went.

    Raises:
        PalaestraiMosaikError: as :func:`~palaestrai_mosaik.execution.run_folder` and :func:`.advance`.
    """
    if folder.spec.sampler.name == ADAPTIVE.name:
        # (not after the first round, which may take a day)
        check_installed()
    whole: Summary | None = None
    while True:
        summary = run_folder(
            folder,
            which=which,
            store=store,
            settings=settings,
            progress=progress,
            ignore_queue=ignore_queue,
        )
        whole = summary if whole is None else _together(whole, summary)
        if summary.interrupted or summary.not_begun or summary.left_out or summary.not_collected:
            return folder, whole
        rows = folder.manifest["counts"]["rows"]
        folder = advance(folder, store)
        if folder.rounds is not None and on_round is not None:
            on_round(folder.rounds)
        if folder.manifest["counts"]["rows"] == rows:
            return folder, whole
        which = "missing"


def _together(first: Summary, then: Summary) -> Summary:
    """Return how two rounds went; ``then`` considered the runs of ``first``, too."""
    if then.collected is not None and first.collected is not None:
        then.collected.runs += first.collected.runs
    return Summary(
        then.considered,
        # (what the first has executed was there before the second)
        dict(Counter(then.before) - Counter(first.ended)),
        dict(Counter(first.ended) + Counter(then.ended)),
        then.not_begun,
        first.left_out + then.left_out,
        [*first.failures, *then.failures],
        first.seconds + then.seconds,
        then.interrupted,
        then.collected or first.collected,
        then.not_collected,
    )
