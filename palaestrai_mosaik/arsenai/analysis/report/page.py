"""The report on disk: a self-contained HTML file, with its tables and facts beside it."""

from __future__ import annotations

import html
import json
import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from importlib import resources
from itertools import chain
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from palaestrai_mosaik import __version__
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError

from ..lost_runs import count_missing_runs
from . import factors, sections, tables
from .answer import condition_fact
from .beside import beside
from .best import Best, best_of, is_choice
from .data import ReportData, log_of
from .discoveries import discovery
from .headline import headline
from .numbers import duration, percent
from .paper import find_browser, print_page
from .pictures.canvas import drawing
from .references import bibtex
from .robust import robustness
from .tables import Table, jsonable
from .verdict import count_tests, lost_runs
from .wording import Cautions, environment, plain, worded

#: content of the meta tag that identifies a report
GENERATOR = "palaestrai_mosaik report"
PAGE, FACTS, BIBTEX = "index.html", "report.json", "references.bib"
MARKDOWN, PDF = "report.md", "report.pdf"
#: the file of each format
FORMATS = {"html": PAGE, "md": MARKDOWN, "pdf": PDF}
#: number of runs on the page, the best ones
MOST_RUNS = 100
#: folder beside the report with pages of single runs
THEATRE = "theatre"

Links = Callable[[str], list[tuple[str, str]]]


def render(data: ReportData, directory: str | Path | None = None, format: str = "html") -> dict[str, str]:
    """Render the files of the report: the page, ``report.json``, ``references.bib``, and a CSV for every table.

    Equal data gives equal text.

    Args:
        data: the data of the report.
        directory: the folder that the page will be in; it links to existing files of runs. ``None``: no links.
        format: ``md`` adds ``report.md``; a PDF is printed from the page.

    Returns:
        The text of each file, by name.
    """
    axes = data.spec.axes
    names = {factor.name for axis in axes for factor in axis.factors} | {axis.name for axis in axes}
    cautions = Cautions({*data.outcomes, *names})
    with drawing():
        view = _view(data, cautions)
    tables_of_page = list(_tables(view))
    written = [*(table.file for table in tables_of_page), FACTS, BIBTEX]
    if format != "html":
        written.append(FORMATS[format])
    entries = bibtex(data)
    links = partial(_links, data, Path(directory)) if directory is not None else None
    content = {
        **view,
        "cautions": cautions.listed(),
        "view_of": lambda table: table.view(links),
        "files": " ".join(written),
        "bibtex": entries,
    }
    page = (
        environment()
        .get_template("page.html.j2")
        .render(
            **content,
            policy=_policy(),
            generator=f"{GENERATOR} {__version__}",
            style=Markup(_compact(_resource("style.css"))),
            script=Markup(_resource("page.js")),
        )
    )
    texts = {PAGE: page, FACTS: _facts(data, view, cautions, tables_of_page), BIBTEX: entries}
    if format == "md":
        texts[MARKDOWN] = environment().get_template("page.md.j2").render(**content)
    return texts | {table.file: table.csv() for table in tables_of_page}


def _resource(name: str) -> str:
    return (resources.files(__package__) / "templates" / name).read_text(encoding="utf-8")


def _compact(style: str) -> str:
    return re.sub(r"\n\s*", "\n", style)


def _policy() -> str:
    """Return the content security policy: only the page's script, inline styles and embedded images are allowed."""
    digest = b64encode(sha256(_resource("page.js").encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _view(data: ReportData, cautions: Cautions) -> dict[str, Any]:
    """Return the data of the template: plain data, pictures and tables."""
    lost = cautions.refer([lost_runs(data)])
    # Cautions about one method of one outcome appear there.
    of_methods = set(sections.refused_methods(data).values())
    general = cautions.refer(text for text in data.warnings if text not in of_methods)
    tests = cautions.refer([count_tests(data)])
    failures = None
    if data.failures is not None and len(data.failures):
        failures = Table("failures", "Runs that have not finished", data.failures, named=True)
    all_runs = tables.runs(data)
    ordered, by = tables.sort_runs(data, all_runs)
    return {
        "design": data.spec,
        "sizes": data.sizes,
        "confidence": f"{100 * data.spec.analysis.confidence:g}",
        "tiles": _tiles(data, lost),
        "general": general,
        "tests": tests,
        "conditions": [worded(condition_fact(item)).text for item in data.discoveries],
        "gone": None if (told := lost_runs(data)) is None else told.text,
        "choice": is_choice(data.spec),
        "outcomes": [sections.outcome(data, name, cautions) for name in data.outcomes],
        "discoveries": [discovery(item, i, cautions) for i, item in enumerate(data.discoveries)],
        "robustness": [robustness(item, i, cautions) for i, item in enumerate(data.robustness)],
        "learning": [sections.learning(item, i, cautions) for i, item in enumerate(data.learning)],
        "search": None if data.search is None else sections.search(data.search),
        "beside": None if data.beside is None else beside(data.beside, cautions),
        "notes": data.notes,
        "factors": Table("factors", "Factors", factors.table(data), most=200, named=True),
        "failures": failures,
        "runs": Table(
            "runs",
            "Runs, their factors and outcomes",
            all_runs,
            most=MOST_RUNS,
            sorted=ordered,
            order=f"the best {by} first" if by else "",
            named=True,
        ),
        "versions": data.versions,
        "commands": data.commands,
    }


def _tiles(data: ReportData, lost: list[int]) -> list[dict[str, Any]]:
    counts = count_missing_runs(data.runs, ())
    gone = counts["failed"] + counts["missing"]
    text = data.sizes.get("runs", f"{counts['runs']:,}")
    number, _, more = text.partition(" ")
    share = f"{percent(gone / counts['runs'])}\xa0% of the runs" if gone else "all runs have finished"
    tiles: list[tuple[str, str, str, list[int], bool]] = [
        ("Runs", number, more.strip("()"), [], False),
        ("Failed or missing", f"{gone:,}", share, lost, gone > 0),
    ]
    if data.search is not None and data.search.states:
        states = data.search.states
        words = ", ".join(
            f"{n:,} {'stopped early' if state == 'pruned' else state}" for state, n in states.items()
        )
        tiles[:1] = [
            ("Settings", f"{sum(states.values()):,}", words, [], False),
            ("Runs", f"{data.search.runs:,}", f"{counts['runs']:,} of complete settings", [], False),
        ]
    if data.seconds:
        tiles += [
            ("Time of a run", duration(median(data.seconds)), "median, without start-up", [], False),
            ("Time of all runs", duration(sum(data.seconds)), "without start-up", [], False),
        ]
    return [dict(zip(("name", "value", "more", "refs", "bad"), tile, strict=True)) for tile in tiles]


def _tables(view: dict[str, Any]) -> Iterator[Table]:
    """Yield the tables in the order of the page."""
    if view["search"] is not None:
        yield from view["search"]["tables"]
    if view["beside"] is not None:
        yield from (section["table"] for section in view["beside"]["outcomes"])
    for outcome in view["outcomes"]:
        yield from _tables_of(outcome)
    for section in (*view["discoveries"], *view["robustness"]):
        yield from section["tables"]
    yield from (section["table"] for section in view["learning"])
    yield from filter(None, (view["factors"], view["failures"], view["runs"]))


def _tables_of(outcome: dict[str, Any]) -> Iterator[Table]:
    yield from chain.from_iterable(section.get("tables", ()) for section in outcome["methods"])
    for section in outcome["comparisons"]:
        yield from (section["lost"], *section["tables"])
    if outcome["values"]:
        yield outcome["values"]["table"]


def _links(data: ReportData, directory: Path, uid: str) -> list[tuple[str, str]]:
    """Return the existing files of a run, with their addresses relative to the page."""
    document = data.documents.get(uid)
    if document is None or data.folder is None:
        return []
    candidates = [
        ("document", data.folder / document),
        ("log", data.folder / log_of(document)),
        ("theatre", directory / THEATRE / f"{PurePosixPath(document).stem}.html"),
    ]
    start = os.path.abspath(directory)
    return [
        (name, quote(Path(os.path.relpath(os.path.abspath(path), start)).as_posix()))
        for name, path in candidates
        if path.is_file()
    ]


def _facts(data: ReportData, view: dict[str, Any], cautions: Cautions, shown: list[Table]) -> str:
    """Return the facts of the page as JSON; unknown values are ``null``."""
    outcomes = [
        {
            "name": name,
            "better": outcome_view["better"],
            "answer": plain(outcome_view["answer"]),
            "sentences": list(map(str, sentences)),
            "cautions": outcome_view["refs"],
            "best": None if (best := best_of(data, name)) is None else _best(data, best),
        }
        for (name, sentences), outcome_view in zip(headline(data), view["outcomes"], strict=True)
    ]
    content = {
        "format": 1,
        "design": {"uid": data.spec.uid, "hash": data.spec.hash, "seed": data.spec.seed},
        "sizes": dict(data.sizes),
        "confidence": data.spec.analysis.confidence,
        "conditions": [plain(text) for text in view["conditions"]],
        "outcomes": outcomes,
        "cautions": [plain(text) for text in cautions.texts()],
        "seconds": {"median": median(data.seconds), "sum": sum(data.seconds)} if data.seconds else None,
        "versions": dict(data.versions),
        "commands": list(data.commands),
        "tables": {table.name: {"caption": table.caption, "rows": table.records()} for table in shown},
    }
    return f"{json.dumps(content, indent=1, allow_nan=False)}\n"


def _best(data: ReportData, best: Best) -> dict[str, Any]:
    left_out = {factor.name for axis in data.spec.axes if axis.name in best.over for factor in axis.factors}
    values = {name: jsonable(value) for name, value in data.values[best.row].items() if name not in left_out}
    return {
        "row": best.row,
        "recommended": best.certain,
        "values": {name: value for name, value in values.items() if value is not None},
        "mean": jsonable(best.mark.value),
        "low": jsonable(best.mark.low),
        "high": jsonable(best.mark.high),
        "runs": best.runs,
        "planned": best.planned,
        "settings": best.settings,
        "ties": best.ties,
        "documents": list(best.documents),
        "command": best.command,
        "fresh_seeds": None
        if best.fresh is None
        else {
            "mean": jsonable(best.fresh.value),
            "low": jsonable(best.fresh.low),
            "high": jsonable(best.fresh.high),
            "runs": best.fresh_runs,
        },
    }


_FILES = re.compile(r'<meta name="files" content="([^"]*)">')
_OWN = re.compile(r"[a-z0-9_-]+\.csv|report\.(json|md|pdf)|references\.bib")


def write_report(data: ReportData, directory: str | Path, format: str = "html") -> Path:
    """Write the report into ``directory``.

    It replaces an earlier report there, and removes tables of that report which no longer exist. Other files stay.

    Args:
        data: the data of the report.
        directory: the folder, created if missing.
        format: ``html``: the page; ``md`` or ``pdf``: also ``report.md`` or ``report.pdf``.

    Returns:
        The path of the page, or of the file in the other format.

    Raises:
        PalaestraiMosaikError: there is no browser that prints the PDF, or it fails.
        StoreError: the directory has other content, or cannot be written.
    """
    directory = Path(directory)
    browser = find_browser() if format == "pdf" else ""
    try:
        files.add_root(directory)
        before = files_of_report(directory)
        files.make_folder(directory, parents=True)
        new = render(data, directory, format)
        # The page comes last, so that it never refers to a missing table.
        for name in sorted(new, key=lambda name: name == PAGE):
            _write(directory / name, new[name])
        for name in sorted(before - set(new)):
            files.remove(directory / name, missing_ok=True)
        if browser:
            print_page(directory / PAGE, directory / PDF, browser)
    except OSError as error:
        raise StoreError(f"cannot write the report into {directory}: {error.strerror or error}") from error
    return directory / FORMATS[format]


def files_of_report(directory: Path) -> set[str]:
    """Return the names of the tables of the report in the directory.

    Raises:
        StoreError: the directory has other content.
    """
    # Pages of single runs may exist first.
    if not directory.exists() or (
        directory.is_dir() and {path.name for path in directory.iterdir()} <= {THEATRE}
    ):
        return set()
    page = directory / PAGE
    text = files.read_text(page, errors="replace") if page.is_file() else ""
    if f'content="{GENERATOR}' not in text[:2000]:
        raise StoreError(f"{directory} exists and holds no report: name another directory (--output)")
    match = _FILES.search(text)
    names = html.unescape(match[1]).split() if match else []
    return {name for name in names if _OWN.fullmatch(name)}


def _write(path: Path, text: str) -> None:
    content = text.encode("utf-8", "replace")
    # A symbolic link is replaced even if the content is equal: its target does not belong to the report.
    if not path.is_symlink() and path.is_file() and files.read_bytes(path) == content:
        return
    files.write_bytes(path, content, durable=False)
