"""The report on disk: one HTML file with all that it needs, and its tables and facts beside it."""

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

from palaestrai_mosaik import __version__, files
from palaestrai_mosaik.errors import StoreError

from ..missing_runs import count_missing_runs
from . import factors, sections, tables
from .beside import beside
from .best import Best
from .cautions import Cautions
from .data import ReportData
from .discoveries import discovery
from .headline import headline
from .numbers import duration, percent
from .pictures.canvas import drawing
from .robust import robustness
from .tables import Table, jsonable
from .verdict import count_tests, lost_runs
from .wording import environment, plain

#: by this meta tag, a report is known as one
GENERATOR = "palaestrai_mosaik report"
PAGE, FACTS = "index.html", "report.json"
#: so many runs are on the page, the best ones
MOST_RUNS = 100
#: where pages that show single runs lie beside the report
THEATRE = "theatre"

Links = Callable[[str], list[tuple[str, str]]]


def render(data: ReportData, directory: str | Path | None = None) -> dict[str, str]:
    """Return the files of the report by their names: the page, ``report.json``, and a CSV for every table.

    The same data gives the same text. ``directory``: where the page will be; links lead from there to the files of
    runs that exist. ``None``: there are no links.
    """
    axes = data.spec.axes
    names = {factor.name for axis in axes for factor in axis.factors} | {axis.name for axis in axes}
    cautions = Cautions({*data.outcomes, *names})
    with drawing():
        view = _view(data, cautions)
    shown = list(_tables(view))
    written = [*(table.file for table in shown), FACTS]
    links = partial(_links, data, Path(directory)) if directory is not None else None
    page = (
        environment()
        .get_template("page.html.j2")
        .render(
            **view,
            cautions=cautions.listed(),
            view_of=lambda table: table.view(links),
            policy=_policy(),
            generator=f"{GENERATOR} {__version__}",
            files=" ".join(written),
            style=Markup(_compact(_resource("style.css"))),
            script=Markup(_resource("page.js")),
        )
    )
    found = {table.file: table.csv() for table in shown}
    return {PAGE: page, FACTS: _facts(data, view, cautions, shown), **found}


def _resource(name: str) -> str:
    return (resources.files(__package__) / "templates" / name).read_text(encoding="utf-8")


def _compact(style: str) -> str:
    return re.sub(r"\n\s*", "\n", style)


def _policy() -> str:
    """Return what a browser may do with the page: show it, and execute the one script that it has."""
    digest = b64encode(sha256(_resource("page.js").encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _view(data: ReportData, cautions: Cautions) -> dict[str, Any]:
    """Return what the template shows, as plain data, pictures and tables."""
    lost = cautions.refer([lost_runs(data)])
    # what concerns one method of one outcome is told there
    own = set(sections.refused_methods(data).values())
    general = cautions.refer(text for text in data.warnings if text not in own)
    tests = cautions.refer([count_tests(data)])
    failures = data.failures if data.failures is not None and len(data.failures) else None
    all_runs = tables.runs(data)
    ordered, by = tables.best_first(data, all_runs)
    return {
        "design": data.spec,
        "sizes": data.sizes,
        "confidence": f"{100 * data.spec.analysis.confidence:g}",
        "tiles": _tiles(data, lost),
        "general": general,
        "tests": tests,
        "effects": sections.effects(data),
        "outcomes": [sections.outcome(data, name, cautions) for name in data.outcomes],
        "discoveries": [discovery(one, i, cautions) for i, one in enumerate(data.discoveries)],
        "robustness": [robustness(one, i, cautions) for i, one in enumerate(data.robustness)],
        "learning": [sections.learning(one, i, cautions) for i, one in enumerate(data.learning)],
        "search": None if data.search is None else sections.search(data.search),
        "beside": None if data.beside is None else beside(data.beside, cautions),
        "notes": data.notes,
        "factors": Table("factors", "Factors", factors.table(data), most=200, named=True),
        "failures": None
        if failures is None
        else Table("failures", "Runs that have not finished", failures, named=True),
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
    told = data.sizes.get("runs", f"{counts['runs']:,}")
    number, _, more = told.partition(" ")
    share = f"{percent(gone / counts['runs'])}\xa0% of the runs" if gone else "all runs have finished"
    found = [
        ("Runs", number, more.strip("()"), [], False),
        ("Failed or missing", f"{gone:,}", share, lost, gone > 0),
    ]
    if data.seconds:
        found += [
            ("Time of a run", duration(median(data.seconds)), "median, without start-up", [], False),
            ("Time of all runs", duration(sum(data.seconds)), "without start-up", [], False),
        ]
    return [dict(zip(("name", "value", "more", "refs", "bad"), one, strict=True)) for one in found]


def _tables(view: dict[str, Any]) -> Iterator[Table]:
    """Yield the tables of the page in its order."""
    if view["search"] is not None:
        yield from view["search"]["tables"]
    if view["beside"] is not None:
        yield from (one["table"] for one in view["beside"]["outcomes"])
    for outcome in view["outcomes"]:
        yield from chain.from_iterable(one.get("tables", ()) for one in outcome["methods"])
        for one in outcome["comparisons"]:
            yield one["lost"]
            yield from one["tables"]
        if outcome["values"]:
            yield outcome["values"]["table"]
    yield from chain.from_iterable(one["tables"] for one in view["discoveries"])
    yield from chain.from_iterable(one["tables"] for one in view["robustness"])
    yield from (one["table"] for one in view["learning"])
    yield from filter(None, (view["factors"], view["failures"], view["runs"]))


def _links(data: ReportData, directory: Path, uid: str) -> list[tuple[str, str]]:
    """Return the files of a run that exist, with their addresses relative to the page."""
    document = data.documents.get(uid)
    if document is None or data.folder is None:
        return []
    stem = PurePosixPath(document).stem
    candidates = [
        ("document", data.folder / document),
        ("log", data.folder / "jobs" / f"{stem}.log"),
        ("theatre", directory / THEATRE / f"{stem}.html"),
    ]
    start = os.path.abspath(directory)
    return [
        (name, quote(Path(os.path.relpath(os.path.abspath(path), start)).as_posix()))
        for name, path in candidates
        if path.is_file()
    ]


def _facts(data: ReportData, view: dict[str, Any], cautions: Cautions, shown: list[Table]) -> str:
    """Return the facts of the page as JSON; what is not known is ``null``."""
    outcomes = [
        {
            "name": name,
            "better": one["better"],
            "sentences": list(map(str, sentences)),
            "cautions": one["refs"],
            "best": None if one["best"] is None else _best(data, one["best"]["best"]),
        }
        for (name, sentences), one in zip(headline(data), view["outcomes"], strict=True)
    ]
    told = {
        "format": 1,
        "design": {"uid": data.spec.uid, "hash": data.spec.hash, "seed": data.spec.seed},
        "sizes": dict(data.sizes),
        "confidence": data.spec.analysis.confidence,
        "outcomes": outcomes,
        "cautions": [plain(text) for text in cautions.texts()],
        "seconds": {"median": median(data.seconds), "sum": sum(data.seconds)} if data.seconds else None,
        "versions": dict(data.versions),
        "commands": list(data.commands),
        "tables": {table.name: {"caption": table.caption, "rows": table.records()} for table in shown},
    }
    return f"{json.dumps(told, indent=1, allow_nan=False)}\n"


def _best(data: ReportData, best: Best) -> dict[str, Any]:
    values = {name: jsonable(value) for name, value in data.values[best.row].items()}
    return {
        "row": best.row,
        "values": {name: value for name, value in values.items() if value is not None},
        "mean": jsonable(best.mark.value),
        "low": jsonable(best.mark.low),
        "high": jsonable(best.mark.high),
        "runs": best.runs,
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
_OWN = re.compile(r"[a-z0-9_-]+\.csv|report\.json")


def write_report(data: ReportData, directory: str | Path) -> Path:
    """Write the report into ``directory`` and return the path of its page.

    An earlier report there is replaced, its tables that are no longer written are removed;
    other files are left alone. Raises :class:`StoreError` where the directory holds something
    else, or cannot be written.
    """
    directory = Path(directory)
    files.add_root(directory)
    try:
        before = files_of_report(directory)
        files.make_folder(directory, parents=True)
        new = render(data, directory)
        # the page comes last: it never names a table that is not there yet
        for name in sorted(new, key=lambda name: name == PAGE):
            _write(directory / name, new[name])
        for name in sorted(before - set(new)):
            files.remove(directory / name, missing_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write the report into {directory}: {error.strerror or error}") from error
    return directory / PAGE


def files_of_report(directory: Path) -> set[str]:
    """Return the tables of the report that the directory holds.

    Raises :class:`StoreError` where it holds something else.
    """
    # pages of single runs may be there first
    if not directory.exists() or (
        directory.is_dir() and {path.name for path in directory.iterdir()} <= {THEATRE}
    ):
        return set()
    page = directory / PAGE
    text = files.read_text(page, errors="replace") if page.is_file() else ""
    if f'content="{GENERATOR}' not in text[:2000]:
        raise StoreError(f"{directory} exists and holds no report: name another directory (--output)")
    found = _FILES.search(text)
    names = html.unescape(found[1]).split() if found else []
    return {name for name in names if _OWN.fullmatch(name)}


def _write(path: Path, text: str) -> None:
    content = text.encode("utf-8", "replace")
    # (a link to a file that says the same is no file of the report)
    if not path.is_symlink() and path.is_file() and files.read_bytes(path) == content:
        return
    files.write_bytes(path, content, durable=False)
