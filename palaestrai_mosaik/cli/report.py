"""``arsenai report``: one HTML page with all that a design's results say."""

from __future__ import annotations

import sys

from palaestrai_mosaik.design.folder import REPORT

from .common import FINISHED, say
from .tables import count


def report(folder: str | None, *, store: str | None, output: str | None) -> int:
    """Write the report of the design in ``folder``; print where it is, and its first sentences."""
    from palaestrai_mosaik.analysis.report import collect, headline, write_report
    from palaestrai_mosaik.analysis.report.markup import plain
    from palaestrai_mosaik.analysis.report.sections import lost
    from palaestrai_mosaik.analysis.report.verdict import count_tests
    from palaestrai_mosaik.analysis.results import Results

    from .folders import find_folder

    results = Results(find_folder(folder), store)
    data = collect(results)
    page = write_report(data, output if output is not None else results.folder.path / REPORT)
    for outcome, sentences in headline(data):
        say(outcome)
        for sentence in sentences:
            say(f"  {plain(sentence)}")
    tests = count_tests(data)
    if tests:
        say(plain((tests,)))
    tables = count(sum(1 for _ in page.parent.glob("*.csv")), "table")
    say(f"{page} ({page.stat().st_size / 1000:,.0f} kB), with {tables} as CSV beside it")
    # what is on standard output comes first where both streams are one
    sys.stdout.flush()
    gone = lost(data)
    for warning in ([gone] if gone else []) + list(data.warnings):
        say(f"warning: {warning}", error=True)
    return FINISHED
