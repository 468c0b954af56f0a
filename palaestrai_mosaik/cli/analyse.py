"""``arsenai analyse``, ``compare`` and ``report``: what the runs of a design say, as tables and files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik import files
from palaestrai_mosaik.design.folder import ANALYSIS, REPORT
from palaestrai_mosaik.errors import FAILED, FINISHED, PalaestraiMosaikError
from palaestrai_mosaik.progress import ProgressCallback
from palaestrai_mosaik.text import count, joined

from .answers import answer
from .common import store_option
from .output import count_progress, say, say_unless_quiet, wants_json, warn
from .tables import NOTHING, byte_size, number, table

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.analysis.beside import Beside
    from palaestrai_mosaik.analysis.comparison import Comparison
    from palaestrai_mosaik.analysis.comparison.robustness import Robustness
    from palaestrai_mosaik.analysis.discovery import Discovery
    from palaestrai_mosaik.analysis.report import ReportData, SearchData
    from palaestrai_mosaik.analysis.results import Results
    from palaestrai_mosaik.analysis.sensitivity import SensitivityResult
    from palaestrai_mosaik.design.model import DesignSpec
    from palaestrai_mosaik.search.result import SearchResult

# Of many pairs, the strongest are printed; the file holds all.
_MOST_PAIRS = 10
_DIGITS = "%.10g"
# what is said in place of an interval where all that it would come from is equal
_EQUAL = "all equal"
# the frames of a comparison, each a file
_FRAMES = ("levels", "pairs", "cells", "profiles")


def analyse(
    folder: str | None,
    *,
    store: str | None,
    methods: Sequence[str],
    outcomes: Sequence[str],
    output: str | None,
    discover: Sequence[str] = (),
    beside: str | None = None,
) -> int:
    """Print the outcomes of the design in ``folder``, what they depend on, and where conditions hold; write all as CSV.

    With ``discover`` and without ``methods``, boxes are looked for and nothing else. ``beside`` is another folder: of a
    search, that of Sobol' indices of the same factors, or the other way round. Returns 1 where a method that was
    asked for (by ``methods`` or the design) could not be used on an outcome, no method could, a condition holds
    where no box can be looked for, or the robustness that the design asks for cannot be computed.
    """
    from palaestrai_mosaik.analysis.results import Results
    from palaestrai_mosaik.analysis.sensitivity import choose_outcomes

    from .beside import beside_data, beside_of
    from .common import find_folder
    from .discovery import data_of
    from .robustness import data_of as robustness_data

    with _reading() as reading:
        results = Results(find_folder(folder), store, reading)
        names = choose_outcomes(results, outcomes)
        one = _analysed(results, methods, names, discover)
    one.search = None if one.boxes_only else _search_of(results, store)
    one.beside = None if beside is None else beside_of(results, beside, store)
    directory = Path(output) if output is not None else results.folder.path / ANALYSIS
    say(runs_line(results, names))
    say(_outcome_table(results, names), end="\n\n")
    for block in _analysis_blocks(results, one):
        say(block, end="\n\n")
    written = _write_analysis(results, one, directory)
    for file in written:
        say_unless_quiet(file)
    for warning in _analysis_warnings(results, one):
        warn(warning)
    say_unless_quiet(next_step(results.folder.path, store))
    if wants_json():
        answer(
            {
                **_design_data(results, names),
                "search": None if one.search is None else one.search.data(),
                "beside": None if one.beside is None else beside_data(one.beside),
                "outcomes": _moments(results, names),
                "methods": [
                    {
                        **{
                            "outcome": told.outcome,
                            "method": told.method,
                            "used": told.used,
                            "lost": told.lost,
                        },
                        **{"executed": told.executed, "refused": told.refused or None, "notes": told.notes},
                        "indices": told.frame,
                    }
                    for told in one.indices
                ],
                "discoveries": [data_of(told) for told in one.discoveries],
                "robustness": [robustness_data(told) for told in one.robustness],
                "files": written,
            }
        )
    asked = methods or results.spec.analysis.methods
    refused = [told for told in one.indices if told.refused]
    failed = any(told.refused for told in one.discoveries) or one.no_robustness
    return FAILED if failed or (refused and (asked or len(refused) == len(one.indices))) else FINISHED


@dataclass
class _Analysis:
    """What is known of the results of a design; ``boxes_only``: indices were not asked for."""

    boxes_only: bool
    indices: Sequence[SensitivityResult]
    discoveries: Sequence[Discovery]
    robustness: Sequence[Robustness]
    #: why the robustness that the design asks for is not there
    no_robustness: str
    search: SearchResult | None = None
    beside: Beside | None = None


def _analysed(
    results: Results, methods: Sequence[str], names: Sequence[str], discover: Sequence[str]
) -> _Analysis:
    """Compute what was asked for; without any question, all that the design says."""
    from palaestrai_mosaik.analysis.comparison.robustness import robustness_design
    from palaestrai_mosaik.analysis.discovery import discover_design
    from palaestrai_mosaik.analysis.sensitivity import sensitivity

    boxes_only = bool(discover) and not methods
    with _drawing("analyse") as drawing, _drawing("discover") as searching:
        found = () if boxes_only else sensitivity(results, methods, names, drawing)
        discovered = () if methods and not discover else discover_design(results, discover, searching)
    if methods or discover:
        return _Analysis(boxes_only, found, discovered, (), "")
    with _drawing("robustness") as drawing:
        return _Analysis(boxes_only, found, discovered, *robustness_design(results, drawing))


def _analysis_blocks(results: Results, one: _Analysis) -> Iterator[str]:
    """Yield what is printed of an analysis."""
    from .beside import lines_of_beside
    from .discovery import lines_of
    from .robustness import lines_of as lines_of_robustness

    yield from ("\n".join(_sensitivity_lines(told)) for told in one.indices)
    if not one.indices and not one.boxes_only and results.spec.search is None:
        yield f"no method of sensitivity analysis is named, and none fits {results.spec.sampler.name} by default"
    yield from ("\n".join(lines_of(told)) for told in one.discoveries)
    yield from ("\n".join(lines_of_robustness(told)) for told in one.robustness)
    if one.search is not None:
        yield "\n".join(_search_lines(results.spec, one.search))
    if one.beside is not None:
        yield "\n".join(lines_of_beside(one.beside))


def _write_analysis(results: Results, one: _Analysis, directory: Path) -> list[Path]:
    """Write the tables of an analysis; return the files."""
    from palaestrai_mosaik.analysis.sensitivity import tidy

    from .discovery import write_discoveries

    written = [_write_table(results.table(), directory / "outcomes.csv")]
    if one.search is not None:
        written += [
            _write_table(frame, directory / f"search-{name}.csv", _DIGITS)
            for name, frame in _search_tables(results.spec, one.search).items()
        ]
    if one.beside is not None:
        written.append(_write_table(one.beside.table(), directory / "beside.csv", _DIGITS))
    if one.indices:
        written.append(_write_table(tidy(one.indices), directory / "sensitivity.csv", _DIGITS))
    if one.discoveries:
        written += write_discoveries(
            one.discoveries, directory, lambda frame, file: _write_table(frame, file, _DIGITS)
        )
    if one.robustness:
        written += _write_robustness(one.robustness, directory)
    return written


def _analysis_warnings(results: Results, one: _Analysis) -> Iterator[str]:
    """Yield what a reader must know of an analysis."""
    if results.not_collected:
        yield results.not_collected
    yield from (f"{told.title}: {warning}" for told in one.robustness for warning in told.warnings)
    if one.no_robustness:
        yield f"robustness: {one.no_robustness}"
    yield from (f"{told.outcome} by {told.method}: {told.refused}" for told in one.indices if told.refused)
    yield from (f"{told.condition}: {told.refused}" for told in one.discoveries if told.refused)


def _search_of(results: Results, store: str | None) -> SearchResult | None:
    """Return what the search of a design has found; ``None`` where it has none, or nothing is complete."""
    if results.spec.search is None:
        return None
    from palaestrai_mosaik.search.result import search_result

    return search_result(results.spec, results.folder.path, store)


def _search_lines(spec: DesignSpec, found: SearchResult) -> Iterator[str]:
    from .tune import best_lines

    yield found.summary
    yield from best_lines(spec, found.best)
    for outcome, shares in found.importances.items():
        yield f"which factors mattered for {outcome}, where the search has looked:"
        yield table(("factor", "share"), list(shares.items()), indent="  ")
    left_out = [factor.name for factor in spec.factors if factor.when is not None]
    if found.importances and left_out:
        yield f"  without {joined(left_out)}, which not all settings have ('when')"


def _search_tables(spec: DesignSpec, found: SearchResult) -> dict[str, pd.DataFrame]:
    """Return the tables of a search by name: ``best``, ``history``, ``importances``."""
    import pandas as pd

    from .run_lists import factor_value

    factors = {factor.name: factor for factor in spec.factors}
    best = []
    for one in found.best:
        named = {name: factor_value(factors[name], value) for name, value in one.factors.items()}
        row: dict[str, Any] = {"setting": one.number, **named, **one.values}
        for name, fresh in one.confirmed.items():
            row |= {f"{name}, fresh seeds": fresh.mean, f"{name}, std": fresh.std, f"{name}, n": fresh.seeds}
        best.append(row)
    shares = [
        {"outcome": outcome, "factor": factor, "share": share}
        for outcome, of_outcome in found.importances.items()
        for factor, share in of_outcome.items()
    ]
    return {
        "best": pd.DataFrame(best),
        "history": pd.DataFrame(
            [(one.number, one.runs, one.steps, one.value, one.best) for one in found.history],
            columns=["setting", "runs", "steps", "value", "best"],
        ),
        "importances": pd.DataFrame(shares, columns=["outcome", "factor", "share"]),
    }


def _search_data(spec: DesignSpec, found: SearchResult) -> SearchData:
    from palaestrai_mosaik.analysis.report import SearchData
    from palaestrai_mosaik.design.search import sought

    first, *more = sought(spec)
    confirmed = any(one.confirmed for one in found.best)
    tables = _search_tables(spec, found)
    return SearchData(
        **tables,
        outcome=first.name,
        better=str(first.better),
        summary=found.summary,
        confirmed=confirmed,
        several=bool(more),
    )


def _reading() -> AbstractContextManager[ProgressCallback | None]:
    """Return the progress of reading outcomes."""
    return count_progress("outcomes", "read", "value")


def _drawing(name: str) -> AbstractContextManager[ProgressCallback | None]:
    """Return the progress of what draws resamples."""
    return count_progress(name, "drawn", "resample")


def next_step(folder: Path, store: str | None) -> str:
    """Return the line that says what to do after an analysis."""
    return f"next: {shlex.join(['arsenai', 'report', str(folder)])}{store_option(store)}"


def runs_line(results: Results, names: Sequence[str]) -> str:
    """Return how many runs the design has, how many of them were executed, and what became of them."""
    from palaestrai_mosaik.analysis.missing_runs import count_missing_runs, executed_text

    lost = count_missing_runs(results.outcomes(), names)
    parts = [executed_text(lost["runs"] - lost["missing"], lost["executed"])]
    parts += [f"{lost[status]:,} {status}" for status in ("failed", "missing") if lost[status]]
    said = ", ".join(filter(None, parts))
    return count(lost["runs"], "run") + (f" ({said})" if said else "")


def _design_data(results: Results, names: Sequence[str]) -> dict[str, Any]:
    from palaestrai_mosaik.analysis.missing_runs import count_missing_runs

    counted = count_missing_runs(results.outcomes(), names)
    runs = {name: counted[name] for name in ("runs", "executed", "failed", "missing")}
    place = {"design": results.spec.uid, "folder": results.folder.path}
    return {**place, **runs, "not_collected": results.not_collected}


#: the columns of the table of outcomes
_MOMENTS = ("outcome", "mean", "std", "min", "median", "max", "not_finite")


def _outcome_table(results: Results, names: Sequence[str]) -> str:
    headers = [name.replace("_", " ") for name in _MOMENTS]
    return table(headers, (tuple(row.values()) for row in _moments(results, names)), indent="  ")


def _moments(results: Results, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return what is known of the values of each outcome."""
    from palaestrai_mosaik.analysis.missing_runs import count_missing_runs

    frame = results.outcomes()
    lost = count_missing_runs(frame, names)
    rows = []
    for name in names:
        values = frame[name].to_numpy(dtype=float)
        values = values[np.isfinite(values)]
        moments: Sequence[float | None] = [None] * 5
        if len(values):
            # of a sample, as the report has it
            spread = values.std(ddof=1) if len(values) > 1 else None
            moments = [values.mean(), spread, values.min(), float(np.median(values)), values.max()]
        values_of = (name, *moments, lost[name] or None)
        rows.append(dict(zip(_MOMENTS, values_of, strict=True)))
    return rows


def _sensitivity_lines(one: SensitivityResult) -> Iterator[str]:
    from palaestrai_mosaik.analysis.missing_runs import executed_text

    parts = [f"{count(one.used, 'run')} used", executed_text(one.used, one.executed)]
    parts.append(f"{one.lost:,} lost" if one.lost else "")
    yield f"{one.outcome} by {one.method} ({', '.join(filter(None, parts))})"
    if one.refused:
        yield f"  not computed: {one.refused}"
        return
    singles = one.frame[one.frame["factor2"] == ""]
    yield _wide(singles, ["factor"])
    pairs = one.frame[one.frame["factor2"] != ""]
    if len(pairs):
        first = pairs["index"].iloc[0]
        order = pairs[pairs["index"] == first].sort_values("value", ascending=False, kind="stable")
        strongest = order.head(_MOST_PAIRS)[["factor", "factor2"]]
        yield _wide(strongest.merge(pairs, on=["factor", "factor2"], sort=False), ["factor", "factor2"])
        if len(order) > len(strongest):
            yield f"  and {count(len(order) - len(strongest), 'weaker pair')}"
    yield from (f"  {note}" for note in one.notes)


def _wide(frame: pd.DataFrame, keys: list[str]) -> str:
    """Return the indices of each factor or pair side by side, with their intervals."""
    indices = list(dict.fromkeys(frame["index"]))
    cells: dict[tuple[Any, ...], dict[str, list[Any]]] = {}
    for row in frame.to_dict("records"):
        where = tuple(row[key] for key in keys)
        cells.setdefault(where, {})[str(row["index"])] = [row["value"], _between(row)]
    headers = [*(" x " if key == "factor2" else key for key in keys)]
    headers += [title for index in indices for title in (index, "")]
    rows = [
        [*where, *(cell for index in indices for cell in values.get(index, [None, None]))]
        for where, values in cells.items()
    ]
    return table(headers, rows, indent="  ")


def _between(row: dict[Any, Any]) -> str | None:
    low, high = number(row["low"]), number(row["high"])
    return None if NOTHING in (low, high) else f"[{low}, {high}]"


def _write_table(frame: pd.DataFrame, file: Path, digits: str | None = None) -> Path:
    try:
        files.make_folder(file.parent, parents=True)
        with files.writing_text(file) as stream:
            frame.to_csv(stream, index=False, lineterminator="\n", float_format=digits)
    except OSError as error:
        raise PalaestraiMosaikError(f"cannot write {file}: {error.strerror}") from error
    return file


def compare(
    folder: str | None,
    *,
    store: str | None,
    by: Sequence[str],
    baseline: str | None,
    outcomes: Sequence[str],
    output: str | None,
) -> int:
    """Compare levels of factors of the design in ``folder`` (default: the only one here); print tables, write them as CSV."""
    from palaestrai_mosaik.analysis.comparison import compare_design
    from palaestrai_mosaik.analysis.results import Results

    from .common import find_folder

    with _reading() as reading, _drawing("compare") as drawing:
        results = Results(find_folder(folder), store, reading)
        found = compare_design(results, by, baseline, outcomes, progress=drawing)
    directory = Path(output) if output is not None else results.folder.path / ANALYSIS
    say(runs_line(results, [outcome.name for outcome in results.outcome_specs]), end="\n\n")
    for one in found:
        say("\n".join(_comparison_lines(one)), end="\n\n")
    written = list(_write_comparisons(found, directory))
    _say_compared(results, found, written, store)
    if wants_json():
        compared = [_comparison_data(one) for one in found]
        names = [outcome.name for outcome in results.outcome_specs]
        answer({**_design_data(results, names), "comparisons": compared, "files": written})
    return FINISHED


def compare_robustness(
    folder: str | None,
    *,
    store: str | None,
    by: Sequence[str],
    over: Sequence[str],
    satisfice: Sequence[str],
    outcomes: Sequence[str],
    output: str | None,
) -> int:
    """Print how robust the levels of the factors ``by`` are over scenarios; write tables as CSV.

    What is not given is as the design says (``analysis.robustness``), as far as it does.
    """
    from palaestrai_mosaik.analysis.comparison.robustness import robustness
    from palaestrai_mosaik.analysis.results import Results
    from palaestrai_mosaik.design.model import RobustnessSpec

    from .common import find_folder
    from .robustness import data_of, lines_of, names_of

    with _reading() as reading, _drawing("compare") as drawing:
        results = Results(find_folder(folder), store, reading)
        asked = results.spec.analysis.robustness or RobustnessSpec()
        wanted = names_of(by) or asked.by, names_of(over) or asked.over
        if not outcomes and results.spec.analysis.robustness is not None:
            outcomes = [one.name for one in results.outcome_specs if one.better is not None]
        found = robustness(results, *wanted, outcomes, satisfice or asked.satisfice, drawing)
    directory = Path(output) if output is not None else results.folder.path / ANALYSIS
    names = [outcome.name for outcome in results.outcome_specs]
    say(runs_line(results, names), end="\n\n")
    for one in found:
        say("\n".join(lines_of(one)), end="\n\n")
    written = _write_robustness(found, directory)
    _say_compared(results, found, written, store)
    if wants_json():
        compared = [data_of(one) for one in found]
        answer({**_design_data(results, names), "robustness": compared, "files": written})
    return FINISHED


def _write_robustness(found: Sequence[Robustness], directory: Path) -> list[Path]:
    """Write metrics and scenarios of all entries as CSV; return the files."""
    from palaestrai_mosaik.analysis.comparison.robustness import robustness_table

    return [
        _write_table(robustness_table(found, name), directory / file, _DIGITS)
        for name, file in (("table", "robustness.csv"), ("scenarios", "robustness-scenarios.csv"))
    ]


def _say_compared(
    results: Results, found: Sequence[Comparison | Robustness], written: Sequence[Path], store: str | None
) -> None:
    """Print which files were written, what a reader has to know about the comparisons, and what comes next."""
    for file in written:
        say_unless_quiet(file)
    if results.not_collected:
        warn(results.not_collected)
    for one in found:
        for warning in one.warnings:
            warn(f"{one.title}: {warning}")
    say_unless_quiet(next_step(results.folder.path, store))


def _comparison_data(one: Comparison) -> dict[str, Any]:
    return {
        "outcome": one.outcome,
        "by": one.by,
        "better": one.options.better,
        "confidence": one.options.confidence,
        "constant": one.constant,
        "levels": one.levels,
        "pairs": one.pairs,
        "warnings": one.warnings,
        "notes": one.notes,
    }


def _comparison_lines(one: Comparison) -> Iterator[str]:
    better = f" ({one.options.better} is better)" if one.options.better is not None else ""
    share = f"{one.options.confidence:.4g}"
    yield f"{one.title}{better}, intervals with confidence {share}"
    if one.constant is not None:
        runs = int(one.levels["n"].sum())
        yield f"  all {runs:,} runs gave {number(one.constant)}: there is nothing to compare"
        return
    aggregates = ("mean", "", "IQM", "", "median", "")
    unequal = () if one.equal_settings else ("settings",)
    yield table(
        ("level", "runs", "lost", *unequal, *aggregates, "std"),
        [_level(row, unequal) for row in one.levels.to_dict("records")],
        indent="  ",
    )
    yield ""
    effect = next(iter(one.pairs["rank_effect_name"].dropna()), "effect")
    estimates = ("difference", "", "improvement", "", effect)
    yield table(
        ("pair", "n", "lost", *estimates, "p", "p (Holm)", "better"),
        [_pair(row) for row in one.pairs.to_dict("records")],
        indent="  ",
    )
    yield from (f"  {note}" for note in one.notes)


def _level(row: dict[Any, Any], columns: Sequence[str]) -> tuple[Any, ...]:
    aggregates = (
        part for name in ("mean", "iqm", "median") for part in (row[name], _between_columns(row, name))
    )
    more = (row[name] for name in columns)
    return (row["level"], row["n"], row["lost"] or None, *more, *aggregates, row["std"])


def _pair(row: dict[Any, Any]) -> tuple[Any, ...]:
    n = row["n"] if row["n"] == row["n_b"] else f"{row['n']} and {row['n_b']}"
    return (
        *(f"{row['a']} - {row['b']}", n, row["lost"] or None),
        *(row["difference"], _between_columns(row, "difference")),
        *(row["improvement"], _between_columns(row, "improvement")),
        *(row["rank_effect"], row["p"], row["p_holm"], row["favours"] or None),
    )


def _between_columns(row: dict[Any, Any], name: str) -> str | None:
    low, high = number(row[f"{name}_low"]), number(row[f"{name}_high"])
    if NOTHING not in (low, high):
        return f"[{low}, {high}]"
    return _EQUAL if row["n"] > 1 and row["distinct"] == 1 and name != "improvement" else None


def _write_comparisons(found: Sequence[Comparison], directory: Path) -> Iterator[Path]:
    """Write each kind of frame of all comparisons into one file; yield its name."""
    import pandas as pd

    for name in _FRAMES:
        frames = [_labelled(one, getattr(one, name)) for one in found]
        whole = pd.concat([frame for frame in frames if len(frame)] or frames)
        yield _write_table(whole, directory / f"comparison-{name}.csv")


def _labelled(one: Comparison, frame: pd.DataFrame) -> pd.DataFrame:
    shown = frame.copy()
    shown.insert(0, "outcome", one.outcome)
    shown.insert(1, "by", " and ".join(one.by))
    return shown


def report(
    folder: str | None,
    *,
    store: str | None,
    output: str | None,
    theatre: Sequence[str],
    beside: str | None = None,
) -> int:
    """Write the report of the design in ``folder``; print where it is, and its first sentences.

    Args:
        folder: the folder of the design; ``None``: the only one here.
        store: where the results are.
        output: where the report goes; ``None``: into the folder of the design.
        theatre: runs that it leads to, each as one file beside it: ``best``, ``worst``, or uids of runs.
        beside: of a search, the folder of a design with Sobol' indices of the same factors, or the other way round.
    """
    from palaestrai_mosaik.analysis.report import collect, headline, write_report
    from palaestrai_mosaik.analysis.report.verdict import count_tests, lost_runs
    from palaestrai_mosaik.analysis.results import Results

    from .beside import beside_of
    from .common import find_folder

    with _reading() as reading, _drawing("analyse") as analysing, _drawing("compare") as comparing:
        results = Results(find_folder(folder), store, reading)
        with _drawing("discover") as discovering:
            data = collect(results, analysing, comparing, discovering)
    searched = _search_of(results, store)
    if searched is not None:
        data = replace(data, search=_search_data(results.spec, searched))
    if beside is not None:
        data = replace(data, beside=beside_of(results, beside, store))
    directory = Path(output) if output is not None else results.folder.path / REPORT
    written = _write_theatres(results, data, theatre, directory)
    page = write_report(data, directory)
    said = list(headline(data))
    for outcome, sentences in said:
        say_unless_quiet(outcome)
        for sentence in sentences:
            say_unless_quiet(f"  {sentence}")
    tests = count_tests(data)
    if tests:
        say_unless_quiet(str(tests))
    tables = count(sum(1 for _ in page.parent.glob("*.csv")), "table")
    say_unless_quiet(
        f"{page} ({page.stat().st_size / 1000:,.0f} kB), with {tables} as CSV and report.json beside it"
    )
    for file in written:
        say_unless_quiet(f"{file} ({byte_size(file.stat().st_size)})")
    gone = lost_runs(data)
    warnings = ([str(gone)] if gone else []) + list(data.warnings)
    for warning in warnings:
        warn(warning)
    if wants_json():
        sentences_of = {outcome: list(map(str, sentences)) for outcome, sentences in said}
        answer({"page": page, "sentences": sentences_of, "warnings": warnings, "theatre": written})
    return FINISHED


def _write_theatres(results: Results, data: ReportData, wanted: Sequence[str], directory: Path) -> list[Path]:
    """Write runs as one file each, where the report in ``directory`` looks for them; return the files."""
    if not wanted:
        return []
    from palaestrai_mosaik.analysis.report.extremes import chosen_runs
    from palaestrai_mosaik.analysis.report.page import THEATRE, files_of_report
    from palaestrai_mosaik.web.theatre import run_page

    runs = chosen_runs(data, wanted)
    files.add_root(directory)
    files_of_report(directory)  # (before something is written where something else is)
    place = directory / THEATRE
    instances = results.runs().drop_duplicates("run").set_index("run")["instance"]
    written = []
    try:
        files.make_folder(place, parents=True)
        with results.open_store() as store, count_progress("theatre", "written", "run") as progress:
            for done, run in enumerate(runs):
                if progress is not None:
                    progress(done, len(runs))
                file = place / f"{Path(data.documents[run]).stem}.html"
                written.append(run_page(store, instances[run]).save(file))
            if progress is not None:
                progress(len(runs), len(runs))
    except OSError as error:
        raise PalaestraiMosaikError(f"cannot write into {place}: {error.strerror or error}") from error
    return written
