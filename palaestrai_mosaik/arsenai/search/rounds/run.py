"""Executes a folder round by round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from palaestrai_mosaik.arsenai.analysis.discovery.algorithms import check_installed
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.design.rounds import Rounds
from palaestrai_mosaik.arsenai.design.samplers.adaptive import ADAPTIVE
from palaestrai_mosaik.arsenai.execution import FolderProgress, Settings, Summary, run_folder
from palaestrai_mosaik.arsenai.execution.runs import RunsToExecute

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
    """Execute the runs of a folder, and add and execute further rounds until no more rows are needed.

    It ends earlier if runs have no result because they were interrupted or another process executes them. Failed runs
    are ignored, as in any analysis. A design that does not grow in rounds has one round.

    Args:
        folder: the design folder.
        which: runs to execute in the first round, see :func:`~palaestrai_mosaik.arsenai.execution.run_folder`.
        store: the store of the runs; None for ``results`` in the folder.
        settings: settings of the execution; None for those of the design.
        progress: called with the events of each round.
        ignore_queue: whether to treat the runs of submissions to a cluster as gone, without asking.
        on_round: called with the rounds after each of them.

    Returns:
        The folder in its final state, and the summary of all rounds.

    Raises:
        PalaestraiMosaikError: as :func:`~palaestrai_mosaik.arsenai.execution.run_folder` and :func:`.advance`.
    """
    if folder.spec.sampler.name == ADAPTIVE.name:
        # fail now, not after the first round, which may take a day
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
        stopped = summary.interrupted or summary.not_begun or summary.left_out
        if stopped or summary.not_collected or summary.not_read_back:
            return folder, whole
        rows = folder.manifest["counts"]["rows"]
        folder = advance(folder, store)
        if folder.rounds is not None and on_round is not None:
            on_round(folder.rounds)
        if folder.manifest["counts"]["rows"] == rows:
            return folder, whole
        which = "missing"


def _together(first: Summary, then: Summary) -> Summary:
    """Combine the summaries of consecutive rounds; ``then`` also considered the runs of ``first``."""
    if then.collected is not None and first.collected is not None:
        then.collected.runs += first.collected.runs
    return Summary(
        then.considered,
        # the runs that the first round executed existed before the second
        dict(Counter(then.before) - Counter(first.ended)),
        dict(Counter(first.ended) + Counter(then.ended)),
        then.not_begun,
        first.left_out + then.left_out,
        [*first.failures, *then.failures],
        first.seconds + then.seconds,
        then.interrupted,
        then.collected or first.collected,
        then.not_collected,
        then.not_read_back,
    )
