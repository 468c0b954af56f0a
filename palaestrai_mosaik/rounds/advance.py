"""Adds the next round to a folder, once the runs of those before have ended."""

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
    """Return the folder with the rows of the next round, or as it is.

    It stays as it is where it does not grow in rounds, where runs have not ended, and where no more rows are needed; the
    last is noted in it.

    Args:
        folder: the folder.
        store: where the results are; ``None``: ``results`` in the folder.

    Raises:
        PalaestraiMosaikError: what the sampler looks at cannot be computed.
        DocumentError: a file of the folder was edited, a document of the new rows is not sound, or another process
            executes the folder.
    """
    if folder.rounds is None:
        return folder
    results = Results(folder, store)
    try:
        if (results.runs()["status"] == "missing").any():
            return folder
    except StoreError:
        # nothing was executed yet
        return folder
    # (new rows are not to be added to rows that somebody has edited)
    problems = folder.verify()
    if problems:
        raise DocumentError(problems)
    return next_round(results)


def decide(results: Results) -> Decision:
    """Return what follows from the results of a design that grows in rounds. Same results, same decision.

    Raises:
        PalaestraiMosaikError: what the sampler looks at cannot be computed, or the extra ``discovery`` is missing.
    """
    if results.spec.sampler.name == ADAPTIVE.name:
        return decide_adaptive(results)
    return decide_sobol(results)


def next_round(results: Results) -> DesignFolder:
    """Return the folder of ``results`` with the rows of the next round, or with the end noted. All its runs have ended.

    Raises:
        PalaestraiMosaikError: as :func:`advance`.
    """
    folder = results.folder
    rounds = folder.rounds
    if rounds is None:
        return folder
    decision = decide(results)
    known = (*rounds.measured[:-1], dict(decision.measured))
    if decision.sample is None:
        noted = Rounds(known, decision.ended)
        rows = SampledRows(folder.sample, folder.manifest["counts"]["drawn"])
        return folder if noted == rounds else grow_folder(folder, rows, noted)
    rows = SampledRows(decision.sample, decision.drawn)
    return grow_folder(folder, rows, Rounds((*known, {"rows": rows.count})))
