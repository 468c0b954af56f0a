"""Adds the next round to a folder after the runs of all earlier rounds have ended."""

from __future__ import annotations

from palaestrai_mosaik.analysis import Results
from palaestrai_mosaik.design.folder import DesignFolder
from palaestrai_mosaik.design.rounds import Rounds
from palaestrai_mosaik.design.rows import SampledRows
from palaestrai_mosaik.design.samplers.adaptive import ADAPTIVE
from palaestrai_mosaik.design.writer import grow_folder
from palaestrai_mosaik.errors import DocumentError, StoreError

from .adaptive import decide_adaptive
from .decision import Decision
from .sobol import decide_sobol


def advance(folder: DesignFolder, store: str | None = None) -> DesignFolder:
    """Add the rows of the next round to a folder.

    Args:
        folder: the folder.
        store: the store of the results; None for ``results`` in the folder.

    Returns:
        The folder with the new rows. It is unchanged if it does not grow in rounds, if runs have not ended, or if no
        more rows are needed; the last is recorded in it.

    Raises:
        PalaestraiMosaikError: the sampler's criterion cannot be computed.
        DocumentError: a file of the folder was edited, a document of the new rows is invalid, or another process
            executes the folder.
    """
    if folder.rounds is None:
        return folder
    results = Results(folder, store)
    try:
        if (results.runs()["status"] == "missing").any():
            return folder
    except StoreError:
        # no run has been executed yet
        return folder
    # never add rows to edited ones
    problems = folder.verify()
    if problems:
        raise DocumentError(problems)
    return next_round(results)


def decide(results: Results) -> Decision:
    """Decide whether a design needs more rows. The same results yield the same decision.

    Args:
        results: the results of a design that grows in rounds.

    Returns:
        The measurements of the last round, and all rows of the next one or the reason for the end.

    Raises:
        PalaestraiMosaikError: the sampler's criterion cannot be computed, or the extra ``discovery`` is missing.
    """
    if results.spec.sampler.name == ADAPTIVE.name:
        return decide_adaptive(results)
    return decide_sobol(results)


def next_round(results: Results) -> DesignFolder:
    """Return the folder of ``results`` with the rows of the next round, or with the end recorded.

    Args:
        results: results of a folder in which all runs have ended.

    Raises:
        PalaestraiMosaikError: as :func:`advance`.
    """
    folder = results.folder
    rounds = folder.rounds
    if rounds is None:
        return folder
    decision = decide(results)
    measured = (*rounds.measured[:-1], dict(decision.measured))
    if decision.sample is None:
        final = Rounds(measured, decision.ended)
        rows = SampledRows(folder.sample, folder.manifest["counts"]["drawn"])
        return folder if final == rounds else grow_folder(folder, rows, final)
    rows = SampledRows(decision.sample, decision.drawn)
    return grow_folder(folder, rows, Rounds((*measured, {"rows": rows.count})))
