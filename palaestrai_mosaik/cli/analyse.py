"""``arsenai analyse``: the results of a design as tables."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.arsenai.analysis.comparison.robustness import METRIC_TITLES
from palaestrai_mosaik.arsenai.analysis.discovery.discover import (
    box_table,
    limit_table,
    setting_table,
    trajectory_table,
)
from palaestrai_mosaik.arsenai.analysis.discovery.figure import plot_discovery
from palaestrai_mosaik.arsenai.analysis.lost_runs import executed_text
from palaestrai_mosaik.arsenai.design.folder import ANALYSIS
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import FAILED, FINISHED, PalaestraiMosaikError
from palaestrai_mosaik.core.printing import count, joined
from palaestrai_mosaik.core.progress import ProgressCallback

from .common import find_folder, store_option
from .output import (
    answer,
    count_progress,
    interval,
    number,
    say,
    say_unless_quiet,
    select,
    table,
    wants_json,
    warn,
    wrapped,
)

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.arsenai.analysis.beside import Beside
    from palaestrai_mosaik.arsenai.analysis.comparison.robustness import Robustness
    from palaestrai_mosaik.arsenai.analysis.discovery import Discovery, FoundBox
    from palaestrai_mosaik.arsenai.analysis.results import Results
    from palaestrai_mosaik.arsenai.analysis.sensitivity import SensitivityResult
    from palaestrai_mosaik.arsenai.design.model import DesignSpec
    from palaestrai_mosaik.arsenai.search.analysis import Analysis
    from palaestrai_mosaik.arsenai.search.result import SearchResult


#: the parts of an analysis that have other names in the progress display
_PARTS = {"indices": "analyse", "boxes": "discover"}
# maximum number of printed pairs, the strongest ones; the file has all
_MOST_PAIRS = 10


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
    """Print a design's outcomes, their sensitivity indices, and boxes in which conditions hold; write tables as CSV.

    Args:
        folder: the folder of the design; ``None`` for the only one here.
        store: the location of the results.
        methods: methods of sensitivity analysis; by default, those of the design.
        outcomes: the outcomes to analyse; by default, all.
        output: the folder of the CSV files.
        discover: conditions to search for boxes in which they hold. Without ``methods``, nothing else is computed.
        beside: for a search, the folder of a design with Sobol' indices of the same factors, or the reverse.

    Returns:
        The exit code. It is 1 if a requested method failed for an outcome, no method succeeded, boxes of a condition
        cannot be searched for, or the robustness in the design cannot be computed.
    """
    from palaestrai_mosaik.arsenai.analysis.results import Results
    from palaestrai_mosaik.arsenai.analysis.sensitivity import choose_outcomes
    from palaestrai_mosaik.arsenai.search.analysis import analyse_design

    with outcome_progress() as progress:
        results = Results(find_folder(folder), store, progress)
        names = choose_outcomes(results, outcomes)
        analysis = analyse_design(
            results,
            store,
            methods=methods,
            outcomes=names,
            conditions=discover,
            progress=lambda part: resample_progress(_PARTS.get(part, part)),
        )
    if analysis.no_discoveries:
        raise PalaestraiMosaikError(analysis.no_discoveries)
    compared = None if beside is None else beside_of(results, beside, store)
    directory = Path(output) if output is not None else results.folder.path / ANALYSIS
    say(runs_line(results, names))
    say(_outcome_table(results, names), *_analysis_blocks(results, analysis, compared), end="\n\n")
    written = _write_analysis(results, analysis, compared, directory)
    say_unless_quiet(*written)
    warn(*_analysis_warnings(results, analysis))
    say_unless_quiet(next_step(results.folder.path, store))
    if wants_json():
        answer(_analysis_data(results, names, analysis, compared) | {"files": written})
    return FAILED if analysis.is_failed(methods or results.spec.analysis.methods) else FINISHED


def _analysis_blocks(results: Results, analysis: Analysis, beside: Beside | None) -> Iterator[str]:
    """Yield the printed parts of an analysis."""
    yield from ("\n".join(_sensitivity_lines(entry)) for entry in analysis.indices)
    if not analysis.indices and not analysis.boxes_only and results.spec.search is None:
        yield f"no method of sensitivity analysis is named, and none fits {results.spec.sampler.name} by default"
    yield from ("\n".join(_discovery_lines(entry)) for entry in analysis.discoveries)
    yield from ("\n".join(robustness_lines(entry)) for entry in analysis.robustness)
    if analysis.search is not None:
        yield "\n".join(_search_lines(results.spec, analysis.search))
    if beside is not None:
        yield "\n".join(_beside_lines(beside))


def _write_analysis(
    results: Results, analysis: Analysis, beside: Beside | None, directory: Path
) -> list[Path]:
    """Write the tables of an analysis as CSV; return the files."""
    from palaestrai_mosaik.arsenai.analysis.sensitivity import tidy

    written = [write_table(results.table(), directory / "outcomes.csv", digits=None)]
    tables: dict[str, pd.DataFrame] = {}
    if analysis.search is not None:
        of_search = search_tables(results.spec, analysis.search)
        tables |= {f"search-{name}.csv": frame for name, frame in of_search.items()}
    if beside is not None:
        tables["beside.csv"] = beside.table()
    if analysis.indices:
        tables["sensitivity.csv"] = tidy(analysis.indices)
    written += [write_table(frame, directory / name) for name, frame in tables.items()]
    if analysis.discoveries:
        written += _write_discoveries(analysis.discoveries, directory)
    if analysis.robustness:
        written += write_robustness(analysis.robustness, directory)
    return written


def _analysis_warnings(results: Results, analysis: Analysis) -> Iterator[str]:
    """Yield the warnings about an analysis."""
    if results.not_collected:
        yield results.not_collected
    yield from (f"{entry.title}: {warning}" for entry in analysis.robustness for warning in entry.warnings)
    if analysis.no_robustness:
        yield f"robustness: {analysis.no_robustness}"
    yield from (
        f"{entry.outcome} by {entry.method}: {entry.refused}" for entry in analysis.indices if entry.refused
    )
    yield from (f"{entry.condition}: {entry.refused}" for entry in analysis.discoveries if entry.refused)


def _analysis_data(
    results: Results, names: Sequence[str], analysis: Analysis, beside: Beside | None
) -> dict[str, Any]:
    from palaestrai_mosaik.arsenai.search.analysis import outcome_moments

    methods = [
        {
            **select(entry, "outcome", "method", "used", "lost", "executed"),
            "refused": entry.refused or None,
            "notes": entry.notes,
            "indices": entry.frame,
        }
        for entry in analysis.indices
    ]
    return {
        **design_data(results, names),
        "search": None if analysis.search is None else analysis.search.data(),
        "beside": None if beside is None else _beside_data(beside),
        "outcomes": outcome_moments(results, names),
        "methods": methods,
        "discoveries": [_discovery_data(entry) for entry in analysis.discoveries],
        "robustness": [robustness_data(entry) for entry in analysis.robustness],
    }


def search_of(results: Results, store: str | None) -> SearchResult | None:
    """Return the result of a design's search, or ``None`` without a search or a complete setting."""
    if results.spec.search is None:
        return None
    from palaestrai_mosaik.arsenai.search.result import search_result

    return search_result(results.spec, results.folder.path, store, journal=results.journal)


def _search_lines(spec: DesignSpec, result: SearchResult) -> Iterator[str]:
    from .tune import best_lines

    yield result.summary
    yield from best_lines(spec, result.best)
    for outcome, importances in result.importances.items():
        yield f"which factors mattered for {outcome}, where the search has looked:"
        rows = [
            (factor, importance.share, importance.p_adjusted) for factor, importance in importances.items()
        ]
        yield table(("factor", "share", "p (adjusted)"), rows, indent="  ")
    left_out = [factor.name for factor in spec.factors if factor.when is not None]
    if result.importances and left_out:
        yield f"  without {joined(left_out)}, which not all settings have ('when')"


def search_tables(spec: DesignSpec, result: SearchResult) -> dict[str, pd.DataFrame]:
    """Return the tables of a search by name: ``best``, ``history``, ``importances``."""
    import pandas as pd

    from .run_lists import labelled_factors

    best = []
    for item in result.best:
        row: dict[str, Any] = {"setting": item.number, **labelled_factors(spec, item.factors), **item.values}
        for name, fresh in item.confirmed.items():
            row |= {f"{name}, fresh seeds": fresh.mean, f"{name}, std": fresh.std, f"{name}, n": fresh.seeds}
            row |= {f"{name}, planned": fresh.planned}
        best.append(row)
    shares = [
        {"outcome": outcome, "factor": factor, **asdict(item)}
        for outcome, of_outcome in result.importances.items()
        for factor, item in of_outcome.items()
    ]
    return {
        "best": pd.DataFrame(best),
        "history": pd.DataFrame(
            [(item.number, item.runs, item.steps, item.value, item.best) for item in result.history],
            columns=["setting", "runs", "steps", "value", "best"],
        ),
        "importances": pd.DataFrame(shares, columns=["outcome", "factor", "share", "p_adjusted"]),
    }


def outcome_progress() -> AbstractContextManager[ProgressCallback | None]:
    """Create the progress display for reading outcomes."""
    return count_progress("outcomes", "read", "value")


def resample_progress(name: str) -> AbstractContextManager[ProgressCallback | None]:
    """Create the progress display for drawing resamples."""
    return count_progress(name, "drawn", "resample")


def next_step(folder: Path, store: str | None) -> str:
    """Return the hint at the next command after an analysis."""
    return f"next: {shlex.join(['arsenai', 'report', str(folder)])}{store_option(store)}"


def runs_line(results: Results, names: Sequence[str]) -> str:
    """Return a line with the numbers of runs, executed runs, and lost runs by reason."""
    from palaestrai_mosaik.arsenai.analysis.lost_runs import count_missing_runs, executed_text

    lost = count_missing_runs(results.outcomes(), names)
    parts = [executed_text(lost["runs"] - lost["missing"], lost["executed"])]
    parts += [f"{lost[status]:,} {status}" for status in ("failed", "missing") if lost[status]]
    summary = ", ".join(filter(None, parts))
    return count(lost["runs"], "run") + (f" ({summary})" if summary else "")


def design_data(results: Results, names: Sequence[str]) -> dict[str, Any]:
    from palaestrai_mosaik.arsenai.analysis.lost_runs import count_missing_runs

    counted = count_missing_runs(results.outcomes(), names)
    return {
        "design": results.spec.uid,
        "folder": results.folder.path,
        **{name: counted[name] for name in ("runs", "executed", "failed", "missing")},
        "not_collected": results.not_collected,
    }


def _outcome_table(results: Results, names: Sequence[str]) -> str:
    from palaestrai_mosaik.arsenai.search.analysis import MOMENTS, outcome_moments

    headers = [name.replace("_", " ") for name in MOMENTS]
    return table(headers, (tuple(row.values()) for row in outcome_moments(results, names)), indent="  ")


def _sensitivity_lines(result: SensitivityResult) -> Iterator[str]:
    from palaestrai_mosaik.arsenai.analysis.lost_runs import used_text

    used = used_text(result.used, result.executed, result.lost)
    yield f"{result.outcome} by {result.method} ({used})"
    if result.refused:
        yield f"  not computed: {result.refused}"
        return
    singles = result.frame[result.frame["factor2"] == ""]
    yield _wide(singles, ["factor"])
    pairs = result.frame[result.frame["factor2"] != ""]
    if len(pairs):
        first = pairs["index"].iloc[0]
        order = pairs[pairs["index"] == first].sort_values("value", ascending=False, kind="stable")
        strongest = order.head(_MOST_PAIRS)[["factor", "factor2"]]
        yield _wide(strongest.merge(pairs, on=["factor", "factor2"], sort=False), ["factor", "factor2"])
        if len(order) > len(strongest):
            yield f"  and {count(len(order) - len(strongest), 'weaker pair')}"
    yield from (wrapped(f"  {note}", 4) for note in result.notes)


#: by index, its title
_TITLES = {"p_adjusted": "p (adjusted)"}


def _wide(frame: pd.DataFrame, keys: list[str]) -> str:
    """Return a table of the indices of each factor or pair side by side, with their intervals."""
    indices = list(dict.fromkeys(frame["index"]))
    cells: dict[tuple[Any, ...], dict[str, list[Any]]] = {}
    for row in frame.to_dict("records"):
        where = tuple(row[key] for key in keys)
        cells.setdefault(where, {})[str(row["index"])] = [row["value"], interval(row["low"], row["high"])]
    headers = [*(" x " if key == "factor2" else key for key in keys)]
    headers += [title for index in indices for title in (_TITLES.get(index, index), "interval")]
    rows = [
        [*where, *(cell for index in indices for cell in values.get(index, [None, None]))]
        for where, values in cells.items()
    ]
    return table(headers, rows, indent="  ")


def write_table(frame: pd.DataFrame, file: Path, digits: str | None = "%.10g") -> Path:
    """Write a table as CSV, with ten digits, or all for ``None``; return the file."""
    try:
        files.make_folder(file.parent, parents=True)
        with files.writing_text(file) as stream:
            frame.to_csv(stream, index=False, lineterminator="\n", float_format=digits)
    except OSError as error:
        raise PalaestraiMosaikError(f"cannot write {file}: {error.strerror}") from error
    return file


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


#: the columns of the table of importances beside sensitivity indices
_BESIDE = ("factor", "importance", "rank", *("S1", "interval", "rank"), *("ST", "interval", "rank"))


def _beside_lines(beside: Beside) -> Iterator[str]:
    """Yield the printed lines: a table for each outcome, and an explanation."""
    for outcome, frame in beside.tables.items():
        yield f"{outcome}: what matters among the best ({beside.search}) and everywhere ({beside.other})"
        rows = []
        for row in frame.to_dict("records"):
            cells = [row["factor"], row["importance"], row["importance_rank"]]
            for index in ("S1", "ST"):
                limits = interval(row[f"{index}_low"], row[f"{index}_high"])
                cells += [row[index], limits, row[f"{index}_rank"]]
            rows.append(cells)
        yield table(_BESIDE, rows, indent="  ")
    yield "  importance (PED-ANOVA): how much a factor decides whether a setting is among the best that the search has tried"
    yield "  S1, ST (Sobol'): its share of the variance over the whole ranges, alone and with all interactions"
    yield from (wrapped(f"  {note}", 4) for note in beside.notes)


def _beside_data(beside: Beside) -> dict[str, Any]:
    return {
        "search": beside.search,
        "sobol": beside.other,
        "confidence": beside.confidence,
        "outcomes": dict(beside.tables),
        "notes": beside.notes,
    }


#: by file name, the function that creates its table
_TABLES = {
    "discovery-boxes.csv": box_table,
    "discovery-limits.csv": limit_table,
    "discovery-trajectory.csv": trajectory_table,
    "discovery-settings.csv": setting_table,
}


def _write_discoveries(discoveries: Sequence[Discovery], directory: Path) -> list[Path]:
    """Write the tables of all discoveries, and a picture of each; return the files.

    Outdated pictures of an earlier analysis are removed.
    """
    written = [write_table(make(discoveries), directory / name) for name, make in _TABLES.items()]
    for position, discovery in enumerate(discoveries, start=1):
        file = directory / f"discovery-{position}.png"
        if discovery.boxes:
            written.append(plot_discovery(discovery, file))
        else:
            files.remove(file, missing_ok=True)
    position = len(discoveries) + 1
    while (file := directory / f"discovery-{position}.png").exists():
        files.remove(file, missing_ok=True)
        position += 1
    return written


def _discovery_lines(discovery: Discovery) -> Iterator[str]:
    """Yield the printed lines of a discovery."""
    yield discovery.title
    if discovery.refused:
        yield f"  no box: {discovery.refused}"
    if discovery.nothing_found:
        yield f"  {discovery.nothing_found}"
    for box in discovery.boxes:
        yield ""
        yield f"  {box.method} box {box.number}: {box.rule}"
        yield f"    {_figures(box)}"
        yield f"    {_sizes(box)}"
        yield table(
            ("factor", "limit", "value", "quasi-p", "in resamples", "interval"),
            [_limit(row) for row in box.limits.to_dict("records")],
            indent="    ",
        )
    yield from (wrapped(f"  {note}", 4) for note in discovery.notes)


def _figures(box: FoundBox) -> str:
    figures = box.figures
    parts = []
    for name in ("coverage", "density"):
        limits = interval(figures[f"{name}_low"], figures[f"{name}_high"])
        parts.append(f"{name} {number(figures[name])}{'' if limits is None else f' {limits}'}")
    overlap = f"overlap with resamples {number(figures['overlap'])}"
    return ", ".join([*parts, f"mass {number(figures['mass'])}", overlap])


def _sizes(box: FoundBox) -> str:
    counts = ("runs", "executed", "holds", "settings", "settings_all", "settings_some", "lost")
    runs, executed, holds, settings, always, partly, lost = (int(box.figures[name]) for name in counts)
    identical = executed_text(runs, executed)
    text = f"{count(runs, 'run')}{f' ({identical})' * bool(identical)}, the condition holds in {holds:,}"
    if settings < executed:
        text += f"; {count(settings, 'setting')}: in {always:,} with all seeds, in {partly:,} with some"
    return f"{text}; {lost:,} lost" if lost else text


def _limit(row: dict[Any, Any]) -> tuple[Any, ...]:
    value = row["quasi_p"]
    quasi_p = "<0.001" if value < 0.001 else f"{value:.3f}"
    present = f"{100 * row['present']:.0f} %"
    return row["factor"], row["limit"], row["value"], quasi_p, present, interval(row["low"], row["high"])


def _discovery_data(discovery: Discovery) -> dict[str, Any]:
    return {
        **select(discovery, "condition", "holds"),
        "runs": len(discovery.runs.holds),
        "lost": len(discovery.runs.lost),
        "refused": discovery.refused or None,
        "nothing_found": discovery.nothing_found or None,
        "notes": discovery.notes,
        "boxes": [
            {
                **{"method": box.method, "box": box.number, "rule": box.rule, **box.figures},
                **select(box, "limits", "trajectory"),
            }
            for box in discovery.boxes
        ],
    }


def robustness_lines(robustness: Robustness) -> Iterator[str]:
    """Yield a table with a row per level and a column per metric with its interval; a star marks the best."""
    better = f" ({robustness.better} is better)" if robustness.better else ""
    yield f"{robustness.title}{better}, intervals with confidence {robustness.confidence:.4g}"
    metrics = list(dict.fromkeys(robustness.table["metric"]))
    headers = ["level", "scenarios"]
    for metric in metrics:
        headers += [METRIC_TITLES.get(metric, metric), "best", "interval"]
    cells: dict[str, list[Any]] = {}
    for row in robustness.table.to_dict("records"):
        cell = cells.setdefault(row["level"], [row["level"], row["scenarios"]])
        cell += [row["value"], "*" if row["best"] else "", interval(row["low"], row["high"])]
    yield table(headers, list(cells.values()), indent="  ")
    lost = int(robustness.table["lost"].max())
    if lost:
        yield f"  {count(lost, 'scenario')} left out"


def write_robustness(entries: Sequence[Robustness], directory: Path) -> list[Path]:
    """Write metrics and scenarios of all entries as tables; return the files."""
    from palaestrai_mosaik.arsenai.analysis.comparison.robustness import robustness_table

    return [
        write_table(robustness_table(entries, name), directory / file)
        for name, file in (("table", "robustness.csv"), ("scenarios", "robustness-scenarios.csv"))
    ]


def robustness_data(robustness: Robustness) -> dict[str, Any]:
    """Return the data of an entry for ``--json``."""
    return {
        **select(robustness, "what", "by", "over", "better", "confidence"),
        "metrics": robustness.table,
        **select(robustness, "scenarios", "warnings"),
    }
