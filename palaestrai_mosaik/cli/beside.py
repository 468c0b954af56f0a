"""``--beside`` of ``arsenai analyse`` and ``report``: a search's importances beside Sobol' indices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.core.errors import PalaestraiMosaikError

from .common import find_folder
from .output import count_progress
from .tables import interval, table

if TYPE_CHECKING:
    from palaestrai_mosaik.arsenai.analysis.beside import Beside
    from palaestrai_mosaik.arsenai.analysis.results import Results


def beside_of(results: Results, folder: str, store: str | None) -> Beside:
    """Combine the importances of a search with Sobol' indices of the same factors.

    One of the two is from ``results``, the other from the design in ``folder``. With ``store``, both are read from
    there.
    """
    from palaestrai_mosaik.arsenai.analysis.beside import indices_beside
    from palaestrai_mosaik.arsenai.analysis.results import Results
    from palaestrai_mosaik.arsenai.search.result import search_result

    other = Results(find_folder(folder), store)
    searches = [results_of for results_of in (results, other) if results_of.spec.search is not None]
    if len(searches) != 1:
        fault = "both are searches" if searches else "neither is a search"
        raise PalaestraiMosaikError(
            f"--beside takes a search and a design with Sobol' indices together: {fault} ({results.folder.path} and "
            f"{other.folder.path})"
        )
    (search,) = searches
    shares = search_result(search.spec, search.folder.path, store).importances
    with count_progress("analyse", "drawn", "resample") as progress:
        return indices_beside(search.spec, shares, other if search is results else results, progress)


def beside_lines(beside: Beside) -> Iterator[str]:
    """Yield the printed lines: a table for each outcome, and an explanation."""
    for outcome, frame in beside.tables.items():
        yield f"{outcome}: what matters among the best ({beside.search}) and everywhere ({beside.other})"
        rows = [
            (
                *(row["factor"], row["importance"], row["importance_rank"]),
                *(
                    cell
                    for index in ("S1", "ST")
                    for cell in (
                        row[index],
                        interval(row[f"{index}_low"], row[f"{index}_high"]),
                        row[f"{index}_rank"],
                    )
                ),
            )
            for row in frame.to_dict("records")
        ]
        yield table(("factor", "importance", "rank", "S1", "", "rank", "ST", "", "rank"), rows, indent="  ")
    yield "  importance (PED-ANOVA): how much a factor decides whether a setting is among the best that the search has tried"
    yield "  S1, ST (Sobol'): its share of the variance over the whole ranges, alone and with all interactions"
    yield from (f"  {note}" for note in beside.notes)


def beside_data(beside: Beside) -> dict[str, Any]:
    """Return the data for ``--json``."""
    return {
        "search": beside.search,
        "sobol": beside.other,
        "confidence": beside.confidence,
        "outcomes": dict(beside.tables),
        "notes": beside.notes,
    }
