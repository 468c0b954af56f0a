"""``arsenai report``: the results of a design as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from palaestrai_mosaik.arsenai.design.folder import REPORT
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import FINISHED, PalaestraiMosaikError
from palaestrai_mosaik.core.printing import count

from .analyse import beside_of, outcome_progress, resample_progress, search_of, search_tables
from .common import find_folder
from .output import answer, byte_size, count_progress, say_unless_quiet, warn

if TYPE_CHECKING:
    from palaestrai_mosaik.arsenai.analysis.report import ReportData, SearchData
    from palaestrai_mosaik.arsenai.analysis.results import Results
    from palaestrai_mosaik.arsenai.design.model import DesignSpec
    from palaestrai_mosaik.arsenai.search.result import SearchResult


def report(
    folder: str | None,
    *,
    store: str | None,
    output: str | None,
    theatre: Sequence[str],
    beside: str | None = None,
    format: str = "html",
) -> int:
    """Write the report of a design; print its path and its main statements.

    Args:
        folder: the folder of the design; ``None`` for the only one here.
        store: the location of the results.
        output: the folder of the report; ``None`` for the one in the design's folder.
        theatre: runs to add as single files: ``best``, ``worst``, or uids of runs.
        beside: for a search, the folder of a design with Sobol' indices of the same factors, or the reverse.
        format: ``html``, ``md`` or ``pdf``.
    """
    from palaestrai_mosaik.arsenai.analysis.report import collect, headline, write_report
    from palaestrai_mosaik.arsenai.analysis.report.answer import answer as answer_of
    from palaestrai_mosaik.arsenai.analysis.report.answer import condition_fact
    from palaestrai_mosaik.arsenai.analysis.report.verdict import count_tests, lost_runs
    from palaestrai_mosaik.arsenai.analysis.report.wording import worded
    from palaestrai_mosaik.arsenai.analysis.results import Results

    with (
        outcome_progress() as progress,
        resample_progress("analyse") as analysing,
        resample_progress("compare") as comparing,
    ):
        results = Results(find_folder(folder), store, progress)
        with resample_progress("discover") as discovering:
            data = collect(results, analysing, comparing, discovering)
    searched = search_of(results, store)
    if searched is not None:
        data = replace(data, search=_search_data(results.spec, searched))
    if beside is not None:
        data = replace(data, beside=beside_of(results, beside, store))
    directory = Path(output) if output is not None else results.folder.path / REPORT
    written = _write_theatres(results, data, theatre, directory)
    page = write_report(data, directory, format)
    answers = [str(worded(condition_fact(item))) for item in data.discoveries]
    say_unless_quiet(*answers)
    headlines = {outcome: list(map(str, sentences)) for outcome, sentences in headline(data)}
    for outcome, sentences in headlines.items():
        first = answer_of(data, outcome)
        covered = {str(first.sentence), *(str(worded(fact)) for fact in first.covered)}
        others = [sentence for sentence in sentences if sentence not in covered]
        say_unless_quiet(outcome, *(f"  {line}" for line in [str(first.sentence), *others]))
    tests = count_tests(data)
    if tests:
        say_unless_quiet(str(tests))
    tables = count(len(list(page.parent.glob("*.csv"))), "table")
    say_unless_quiet(
        f"{page} ({page.stat().st_size / 1000:,.0f} kB), with {tables} as CSV and report.json beside it",
        *(f"{file} ({byte_size(file.stat().st_size)})" for file in written),
    )
    warnings = [str(text) for text in (lost_runs(data), *data.warnings) if text]
    warn(*warnings)
    answer({"page": page, "sentences": headlines, "warnings": warnings, "theatre": written})
    return FINISHED


def _write_theatres(
    results: Results, data: ReportData, choices: Sequence[str], directory: Path
) -> list[Path]:
    """Write runs as single files to the location expected by the report in ``directory``; return the files."""
    if not choices:
        return []
    from palaestrai_mosaik.arsenai.analysis.report.best import chosen_runs
    from palaestrai_mosaik.arsenai.analysis.report.page import THEATRE, files_of_report
    from palaestrai_mosaik.web.theatre import run_page

    runs = chosen_runs(data, choices)
    folder = directory / THEATRE
    instances = results.runs().drop_duplicates("run").set_index("run")["instance"]
    written = []
    try:
        files.add_root(directory)
        files_of_report(directory)  # check before writing that no other files are in the way
        files.make_folder(folder, parents=True)
        with results.open_store() as store, count_progress("theatre", "written", "run") as progress:
            for done, run in enumerate(runs):
                if progress is not None:
                    progress(done, len(runs))
                file = folder / f"{Path(data.documents[run]).stem}.html"
                written.append(run_page(store, instances[run]).save(file))
            if progress is not None:
                progress(len(runs), len(runs))
    except OSError as error:
        raise PalaestraiMosaikError(f"cannot write into {folder}: {error.strerror or error}") from error
    return written


def _search_data(spec: DesignSpec, result: SearchResult) -> SearchData:
    from palaestrai_mosaik.arsenai.analysis.report import SearchData
    from palaestrai_mosaik.arsenai.design.search import sought

    first, *more = sought(spec)
    confirmed = any(setting.confirmed for setting in result.best)
    return SearchData(
        **search_tables(spec, result),
        outcome=first.name,
        better=str(first.better),
        summary=result.summary,
        confirmed=confirmed,
        several=bool(more),
        winner=next((setting.number for setting in result.best if setting.recommended), None),
        states=result.states,
        runs=result.runs,
    )
