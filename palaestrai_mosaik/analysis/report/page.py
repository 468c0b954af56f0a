"""The report on disk: one HTML file with all that it needs, and the tables beside it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik import __version__, files
from palaestrai_mosaik.design.model import INACTIVE, Factor
from palaestrai_mosaik.errors import StoreError

from .compared import count_seeds
from .comparisons import comparison
from .data import ReportData, Table
from .headline import headline
from .markup import Caution, Safe, cell, join, sentence, slug, tag
from .sections import Part, distribution, learning, lost, notices, sensitivity
from .verdict import count_tests

if TYPE_CHECKING:
    import pandas as pd

#: what a browser is allowed to do with the page: nothing but to show it
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
#: by this meta tag, a report is known as one
GENERATOR = "palaestrai_mosaik report"
PAGE = "index.html"
_LONGEST_VALUE = 60


def render(data: ReportData) -> dict[str, str]:
    """Return the files of the report by their names: the page, and a CSV for every table.

    The same data gives the same text.
    """
    parts: list[tuple[str, str, list[Part]]] = []
    for identity, title, content in _sections(data):
        found = list(content)
        if found:
            parts.append((identity, title, found))
    tables = [part for _, _, content in parts for part in content if isinstance(part, Table)]
    files = {table.file: table.csv() for table in tables}
    links = [tag("li", tag("a", title, href=f"#{identity}")) for identity, title, _ in parts]
    body = [
        tag("header", tag("h1", data.spec.uid), tag("p", _lead(data), class_="lead")),
        tag("nav", tag("ul", *links), aria_label="sections"),
        *(_section(*part) for part in parts),
    ]
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content=f"{GENERATOR} {__version__}"),
        tag("meta", name="files", content=" ".join(files)),
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{data.spec.uid}: report"),
        tag("style", Safe(_style())),
    ]
    page = tag("html", tag("head", *head), "\n", tag("body", tag("main", *body)), lang="en")
    return {PAGE: f"<!DOCTYPE html>\n{page}\n", **files}


def _style() -> str:
    text = (resources.files(__package__) / "style.css").read_text(encoding="utf-8")
    return re.sub(r"\n\s*", "\n", text)


def _section(identity: str, title: str, content: Iterable[Part]) -> Safe:
    parts = [part.markup() if isinstance(part, Table) else part for part in content]
    return tag("section", "\n", tag("h2", title, id=identity), *parts, aria_labelledby=identity)


def _lead(data: ReportData) -> str:
    # what is in brackets belongs behind the noun: "48 rows (2 more rejected by constraints)"
    counted = ((name, *value.partition(" ")) for name, value in data.sizes.items())
    sizes = ", ".join(
        f"{size} {name.removesuffix('s') if size == '1' else name}{space}{more}"
        for name, size, space, more in counted
    )
    return f"Design {data.spec.uid!r} (hash {data.spec.hash[:12]}): {sizes}." if sizes else ""


def _sections(data: ReportData) -> Iterator[tuple[str, str, Iterator[Part]]]:
    yield "answers", "What matters", _answers(data)
    for outcome in data.outcomes:
        yield f"outcome-{slug(outcome)}", f"Outcome {outcome}", _outcome(data, outcome)
    yield "learning", "Learning curves", _learning(data)
    yield "design", "Design", _design(data)
    yield "runs", "Runs", _runs(data)
    yield "notes", "Notes", _notes(data)
    yield "again", "Versions and how to do it again", _again(data)


def _answers(data: ReportData) -> Iterator[Part]:
    gone = lost(data)
    yield from notices(([gone] if gone else []) + list(data.warnings))
    for outcome, sentences in headline(data):
        items = [
            tag("li", sentence(parts), class_="caution" if isinstance(parts, Caution) else None)
            for parts in sentences
        ]
        yield tag("div", tag("h3", outcome), tag("ul", *items), class_="answer")
    if data.outcomes:
        tests = count_tests(data)
        if tests:
            yield tag("p", tests, class_="quiet")
        confidence = f"{100 * data.spec.analysis.confidence:g} %"
        yield tag("p", f"In brackets: intervals of {confidence} confidence.", class_="quiet")


def _outcome(data: ReportData, outcome: str) -> Iterator[Part]:
    spec = next((one for one in data.spec.outcomes if one.name == outcome), None)
    if spec is not None:
        yield tag("p", _what(spec), class_="lead")
    found = list(sensitivity(data, outcome))
    if found:
        yield tag("h3", "What it depends on")
        yield from found
    compared = [one for one in data.comparisons if one.comparison.outcome == outcome]
    if compared:
        yield tag("h3", "Comparison")
        for place, one in enumerate(compared):
            yield from comparison(one, place)
    shown = list(distribution(data, outcome))
    if shown:
        yield tag("h3", "Its values, against each factor")
        yield from shown
        yield Table(f"summary-{slug(outcome)}", f"{outcome} in numbers", _summary(data, outcome))


def _what(spec: Any) -> str:
    parts = [spec.of]
    if spec.agent is not None:
        parts.append(f"of {spec.agent}")
    if spec.phase is not None:
        parts.append(f"in phase {spec.phase}")
    if spec.outside is not None:
        parts.append(f"outside {spec.outside[0]:g} to {spec.outside[1]:g}")
    kind = "evaluation episodes" if spec.evaluation else "episodes"
    folded = f"{spec.step} over the steps, {spec.episode} over the {kind}"
    better = f"; {spec.better} is better" if spec.better else ""
    return f"{' '.join(parts)}: {folded}{better}."


def _summary(data: ReportData, outcome: str) -> pd.DataFrame:
    import pandas as pd

    finite = data.finite(outcome)
    values = finite[outcome]
    quantiles = values.quantile([0, 0.25, 0.5, 0.75, 1]).tolist()
    names = ("minimum", "lower quartile", "median", "upper quartile", "maximum")
    rows: list[tuple[str, float]] = [
        ("runs", float(len(values))),
        ("runs that were executed", float(finite["run"].nunique())),
        ("seeds", float(count_seeds(finite, data.spec.seed_policy == "common"))),
        ("mean", float(values.mean())),
        ("standard deviation", float(values.std())),
        *zip(names, quantiles, strict=True),
    ]
    by_row = finite.groupby("row")[outcome]
    if data.spec.repetitions > 1 and by_row.count().max() > 1 and values.var(ddof=0) > 0:
        within = float(((values - by_row.transform("mean")) ** 2).mean() / values.var(ddof=0))
        rows.append(("share of the variance between repetitions of a row", within))
    return pd.DataFrame(rows, columns=["what", "value"])


def _learning(data: ReportData) -> Iterator[Part]:
    for place, one in enumerate(data.learning):
        yield from learning(one, place)


def _design(data: ReportData) -> Iterator[Part]:
    spec = data.spec
    options = {"n": spec.sampler.n, **spec.sampler.options}
    options_text = ", ".join(f"{key} {value}" for key, value in options.items() if value is not None)
    facts = {
        "sampler": f"{spec.sampler.name}{f' ({options_text})' if options_text else ''}",
        **data.sizes,
        "repetitions": str(spec.repetitions),
        "seed": f"{spec.seed}; {_POLICIES[spec.seed_policy]}",
        "constraints": "; ".join(spec.constraints),
        "hash": spec.hash,
    }
    yield _facts(facts)
    yield Table("factors", "Factors", _factors(data), most=200)


_POLICIES = {
    "common": "all rows share the seed of a repetition (common random numbers)",
    "independent": "each run has a seed of its own",
}


def _facts(facts: Mapping[str, str]) -> Safe:
    pairs = [join((tag("dt", name), tag("dd", value))) for name, value in facts.items() if value]
    return tag("dl", *pairs)


def _factors(data: ReportData) -> pd.DataFrame:
    import pandas as pd

    rows = [
        (
            factor.name,
            _kind(factor),
            _range(factor),
            axis.name if len(axis.factors) > 1 else "",
            axis.group or "",
            factor.path or "choice",
            factor.when or "",
        )
        for axis in data.spec.axes
        for factor in axis.factors
    ]
    frame = pd.DataFrame(rows, columns=["factor", "kind", "values", "zip", "group", "path", "when"])
    return frame.loc[:, [name for name in frame if (frame[name] != "").any()]]


def _kind(factor: Factor) -> str:
    if factor.kind == "levels":
        return "ordered levels" if factor.ordered else "levels"
    return f"{'whole number' if factor.kind == 'int' else 'number'}, {factor.dist}"


def _range(factor: Factor) -> str:
    if factor.kind == "levels":
        shown = list(factor.labels)
        if len(set(factor.weights)) > 1:
            shown = [f"{label} ({w:.3g})" for label, w in zip(shown, factor.weights, strict=True)]
        return ", ".join(shown)
    parts = [f"{name} {value:g}" for name, value in factor.params.items()]
    if factor.low is not None or factor.high is not None:
        ends = ("unbounded" if end is None else f"{end:g}" for end in (factor.low, factor.high))
        parts.insert(0, " to ".join(ends))
    return ", ".join(parts)


def _runs(data: ReportData) -> Iterator[Part]:
    if data.failures is not None and len(data.failures):
        yield tag("h3", "Not finished")
        yield Table("failures", "Runs that have not finished", data.failures)
        yield tag("h3", "All runs")
    yield Table("runs", "Runs, their factors and outcomes", _table_of_runs(data), most=20)


def _table_of_runs(data: ReportData) -> pd.DataFrame:
    import pandas as pd

    keys = [name for name in ("row", "repetition", "uid", "run", "status") if name in data.runs]
    runs = data.runs.reset_index(drop=True)
    columns: dict[str, Any] = {name: runs[name] for name in keys}
    for factor in data.spec.factors:
        columns[_free(factor.name, columns)] = [
            _value(factor, data.values[row]) for row in runs["row"].tolist()
        ]
    for outcome in data.outcomes:
        columns[_free(outcome, columns)] = runs[outcome]
    return pd.DataFrame(columns)


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """Return a name for a column that no other column has."""
    while name in taken:
        name += "'"
    return name


def _value(factor: Factor, row: Mapping[str, Any]) -> Any:
    """Return what a row says of a factor: a number, a label, or nothing where it is inactive."""
    value = row.get(factor.name, INACTIVE)
    if factor.kind == "levels":
        for level, label in zip(factor.levels, factor.labels, strict=True):
            if type(level) is type(value) and level == value:
                return label
    if value is INACTIVE:
        return None
    return value if isinstance(value, int | float | str) else cell(value)


def _notes(data: ReportData) -> Iterator[Part]:
    if data.notes:
        yield tag("ul", *(tag("li", note) for note in data.notes))


def _again(data: ReportData) -> Iterator[Part]:
    if data.versions:
        yield _facts(data.versions)
    if data.commands:
        yield tag("pre", "\n".join(data.commands))


_FILES = re.compile(r'<meta name="files" content="([^"]*)">')
_CSV = re.compile(r"[a-z0-9-]+\.csv")


def write_report(data: ReportData, directory: str | Path) -> Path:
    """Write the report into ``directory`` and return the path of its page.

    An earlier report there is replaced, its tables that are no longer written are removed;
    other files are left alone. Raises :class:`StoreError` where the directory holds something
    else, or cannot be written.
    """
    directory = Path(directory)
    files.add_root(directory)
    try:
        before = _files_of_report(directory)
        files.make_folder(directory, parents=True)
        new = render(data)
        # the page comes last: it never names a table that is not there yet
        for name in sorted(new, key=lambda name: name == PAGE):
            _write(directory / name, new[name])
        for name in sorted(before - set(new)):
            files.remove(directory / name, missing_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write the report into {directory}: {error.strerror or error}") from error
    return directory / PAGE


def _files_of_report(directory: Path) -> set[str]:
    """Return the tables of the report that the directory holds."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return set()
    page = directory / PAGE
    text = files.read_text(page, errors="replace") if page.is_file() else ""
    if f'content="{GENERATOR}' not in text[:2000]:
        raise StoreError(f"{directory} exists and holds no report: name another directory (--output)")
    found = _FILES.search(text)
    names = html.unescape(found[1]).split() if found else []
    return {name for name in names if _CSV.fullmatch(name)}


def _write(path: Path, text: str) -> None:
    content = text.encode("utf-8", "replace")
    # (a link to a file that says the same is no file of the report)
    if not path.is_symlink() and path.is_file() and files.read_bytes(path) == content:
        return
    files.write_bytes(path, content, durable=False)
