"""Collect the data of a report from a design's folder and results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.arsenai.analysis.comparison import compare_design
from palaestrai_mosaik.arsenai.analysis.comparison.aggregates import iqm
from palaestrai_mosaik.arsenai.analysis.comparison.robustness import robustness_design
from palaestrai_mosaik.arsenai.analysis.discovery import discoveries_asked_for
from palaestrai_mosaik.arsenai.analysis.results import Results, or_reason
from palaestrai_mosaik.arsenai.analysis.sensitivity import sensitivity, tidy
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.design.model import DesignSpec, Factor, is_number
from palaestrai_mosaik.arsenai.design.samplers.adaptive import ADAPTIVE
from palaestrai_mosaik.core.errors import PalaestraiMosaikError
from palaestrai_mosaik.core.printing import count, joined
from palaestrai_mosaik.core.progress import ProgressCallback

from ..lost_runs import count_missing_runs, executed_text
from .compared import Compared, count_seeds, with_runs
from .data import LearningData, ReportData, log_of
from .factors import value_of
from .indices import leading_factors
from .numbers import cell, typeset

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store import Store

#: below this number of episodes, learning curves show nothing
FEWEST_EPISODES = 4
#: numbers with more different values are split into thirds
MOST_LEVELS = 7
#: number of distinguishable lines; more levels are not drawn
MOST_LINES = 28
#: the most runs of a level in a learning curve, evenly spread over the rows
MOST_RUNS = 200
#: below this number of runs, a band of quartiles makes no sense
_FEWEST_FOR_QUARTILES = 4


def collect(
    results: Results,
    analysing: ProgressCallback | None = None,
    comparing: ProgressCallback | None = None,
    discovering: ProgressCallback | None = None,
) -> ReportData:
    """Collect the design's results, with its analyses, comparisons and discoveries.

    ``analysing``, ``comparing`` and ``discovering`` are called with the number of resamples drawn so far and the
    total.

    Raises:
        StoreError: there are no results.
        DocumentError: the design asks for an analysis that does not fit it.
    """
    folder = results.folder
    # Without outcomes in its document, a design has those of its last phase.
    spec = replace(results.spec, outcomes=results.outcome_specs)
    frame, values = results.outcomes(), folder.values()
    analyses = sensitivity(results, progress=analysing)
    indices = tidy(analyses)
    comparisons, notes = _comparisons(results, comparing)
    discoveries, reason = discoveries_asked_for(results, discovering)
    notes += [f"no boxes: {reason}"] * bool(reason)
    notes += _growth(folder)
    robust, reason = robustness_design(results)
    notes += [f"no robustness: {reason}"] * bool(reason)
    split, levels = _split(results, frame, indices, comparisons[0].comparison.by if comparisons else ())
    with results.open_store() as store:
        learning, left_out = _learning_of(store, frame, levels, split, spec.seed_policy == "common")
        executed = _executed(store, frame)
    seconds = tuple(results.runs().drop_duplicates("run")["duration"].dropna().tolist())
    refused = {(result.outcome, result.method): result.refused for result in analyses if result.refused}
    again = ["arsenai generate design.yml --output again", "arsenai run again"]
    if spec.search is not None:
        again = ["arsenai tune design.yml --output again"]
    return ReportData(
        spec=spec,
        outcomes=tuple(outcome.name for outcome in spec.outcomes),
        values=values,
        runs=frame.drop(columns="instance"),
        sensitivity=indices,
        comparisons=tuple(comparisons),
        learning=learning,
        failures=_failures(results, values),
        remarks={(result.outcome, result.method): result.notes for result in analyses if result.notes},
        refused=refused,
        sizes=_sizes(folder.manifest["counts"], frame, spec.seed_policy == "common"),
        versions={
            "generated with": ", ".join(map(" ".join, folder.manifest["versions"].items())),
            **executed,
            **_times(seconds),
        },
        commands=("# in the folder of the design", *again, "arsenai report again"),
        warnings=(
            *folder.sample.warnings,
            *filter(None, [results.not_collected]),
            *(f"{outcome} by {method}: {why}" for (outcome, method), why in refused.items()),
        ),
        notes=(*notes, *left_out),
        seconds=seconds,
        folder=folder.path,
        documents={run.uid: run.file for run in folder.documents},
        discoveries=tuple(discoveries),
        robustness=tuple(robust),
    )


def _learning_of(
    store: Store, frame: pd.DataFrame, levels: Mapping[int, str], split: str, common: bool
) -> tuple[tuple[LearningData, ...], list[str]]:
    """Return the learning curves, or a note if they would have too many lines."""
    lines = len(set(levels.values()))
    if lines <= MOST_LINES:
        return tuple(_learning(store, frame, levels, split, common)), []
    # One run suffices to know if there are curves.
    if not any(_learning(store, _own(frame).head(1), levels, split, common)):
        return (), []
    return (), [
        f"no learning curves: {lines:,} levels of {split} are more lines than can be told apart (at most "
        f"{MOST_LINES}); draw some runs: palaestrai-mosaik plot RUN RUN --learning"
    ]


def _growth(folder: DesignFolder) -> Iterator[str]:
    """Yield notes on rows that were added in rounds."""
    rounds = folder.rounds
    if rounds is None:
        return
    more = f"no more rows: {rounds.ended}" if rounds.ended else "more rows may be added: arsenai run"
    yield f"the rows were added in {count(rounds.number, 'round')} ({rounds.lines()[-1]}; {more})"
    if folder.spec.sampler.name == ADAPTIVE.name:
        yield (
            "most rows lie where it is uncertain whether the condition of the sampler holds: means, histograms and shares of "
            "runs are those of these rows, not of the ranges of the factors"
        )


def _sizes(counts: Mapping[str, int], frame: pd.DataFrame, common: bool) -> dict[str, str]:
    rows = f"{counts['rows']:,}"
    if counts["rejected"]:
        rows += f" ({counts['rejected']:,} more rejected by constraints)"
    lost = count_missing_runs(frame, ())
    executed = executed_text(lost["runs"] - lost["missing"], lost["executed"])
    runs = f"{lost['runs']:,}" + (f" ({executed})" if executed else "")
    return {"rows": rows, "runs": runs, "seeds": f"{count_seeds(frame, common):,}"}


def _executed(store: Store, frame: pd.DataFrame) -> dict[str, str]:
    """Return the versions of the packages that executed the runs."""
    runs = store.runs()
    runs = runs[runs["run"].isin(set(frame["instance"].dropna()))]
    versions = {
        ", ".join(f"{name} {version}" for name, version in sorted(packages.items()))
        for packages in runs["packages"]
        if packages
    }
    return {"executed with": "; or ".join(sorted(versions))} if versions else {}


def _times(seconds: Sequence[float]) -> dict[str, str]:
    if not seconds:
        return {}
    middle, total = typeset(median(seconds), 3), typeset(sum(seconds), 3)
    # `arsenai status` reports the longer time of whole jobs.
    return {"time": f"{middle} s per run (median), {total} s in all, without the start of their processes"}


def _comparisons(results: Results, progress: ProgressCallback | None) -> tuple[list[Compared], list[str]]:
    """Return the comparisons of the design, or a note if it declares none and none is possible."""
    comparisons, reason = or_reason(lambda: compare_design(results, progress=progress))
    if reason and (results.spec.analysis.compare or results.spec.analysis.baseline is not None):
        raise PalaestraiMosaikError(reason)
    return with_runs(results, comparisons), [f"no comparison: {reason}"] * bool(reason)


def _failures(results: Results, values: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the unfinished executions, with their status, factors, error and log."""
    import pandas as pd

    runs = results.runs()
    runs = runs[(runs["status"] != "finished") & (runs["uid"] == runs["run"])]
    logs = {run.uid: log_of(run.file) for run in results.folder.documents}
    rows = [
        (
            uid,
            status,
            described(results.spec, values[row]),
            error if isinstance(error, str) else "",
            logs[uid],
        )
        for uid, status, row, error in zip(
            *(runs[name] for name in ("uid", "status", "row", "error")), strict=True
        )
    ]
    return pd.DataFrame(rows, columns=["run", "status", "values", "error", "log"])


def described(spec: DesignSpec, values: Mapping[str, Any]) -> str:
    """Format the values of a row as text: ``gain=0.5, algorithm=ppo``."""
    pairs = ((factor.name, value_of(factor, values)) for factor in spec.factors)
    return ", ".join(f"{name}={cell(value)}" for name, value in pairs if value is not None)


def _learning(
    store: Store, frame: pd.DataFrame, by_row: Mapping[int, str], split: str, common: bool
) -> Iterator[LearningData]:
    """Yield the objective of each agent over the episodes of each phase.

    ``by_row`` maps rows to the lines of their runs; ``split`` names the factors that distinguish the lines.
    """
    runs = _own(frame)
    levels = runs["row"].map(by_row)
    chosen: dict[str, str] = {}
    for level in dict.fromkeys(by_row.values()):
        instances = runs.loc[levels == level, "instance"].tolist()
        kept = np.linspace(0, len(instances) - 1, min(len(instances), MOST_RUNS)).round().astype(int)
        chosen |= {instances[i]: level for i in kept}
    settings = runs.loc[runs["instance"].isin(chosen)].groupby(levels)["row"].nunique()
    mixed = " The runs of a line differ in the other factors." if settings.max() > 1 else ""
    seeds = dict(zip(runs["instance"], runs["repetition"] if common else runs["run"], strict=True))
    phases = store.phases_across(list(chosen)).itertuples(index=False)
    for (number_, name), evaluation in product(phases, (False, True)):
        sums = store.outcomes_across(list(chosen), "objective", phase=int(number_), evaluation=evaluation)
        if sums.empty or sums["episode"].max() + 1 < FEWEST_EPISODES:
            continue
        sums = sums.groupby(["run", "agent", "episode"], sort=False)["sum"].mean().reset_index()
        sums["level"] = sums["run"].map(chosen)
        sums["seed"] = sums["run"].map(seeds)
        for agent in sums["agent"].unique():
            lines = _lines(sums[sums["agent"] == agent], list(dict.fromkeys(chosen.values())))
            phase_text = f"{'evaluations of ' * evaluation}phase {name}"
            title = f"How {agent} did in {phase_text}" + (f", by {split}" if split else "")
            note = _note(lines, len(runs), len(chosen)) + mixed
            each = "evaluation" if evaluation else "episode"
            yield LearningData(title, "objective, sum of an episode", lines, note, each)


def _own(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the finished runs that do not share the execution of another run."""
    return frame[(frame["status"] == "finished") & (frame["uid"] == frame["run"])]


def _split(
    results: Results, frame: pd.DataFrame, indices: pd.DataFrame, by: Sequence[str]
) -> tuple[str, dict[int, str]]:
    """Return the factors that learning curves are split by, and the line of each executed row.

    The lines are the compared levels; without a comparison, the levels of the leading factor, or thirds of its range.
    """
    values = results.folder.values()
    rows = list(dict.fromkeys(_own(frame)["row"].tolist()))
    names = list(by) or _leading_factor(results.spec, indices, [values[row] for row in rows])
    if not names:
        return "", dict.fromkeys(rows, "all runs")
    numbers = {row: values[row].get(names[0]) for row in rows}
    if not by and all(map(is_number, numbers.values())) and len(set(numbers.values())) > MOST_LEVELS:
        return names[0], _thirds(numbers)
    factors = [results.spec.factor(name) for name in names]
    return joined(names), {row: _level(values[row], factors) for row in rows}


def _leading_factor(
    spec: DesignSpec, indices: pd.DataFrame, values: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the most important factor that varies; an empty list without any."""
    varied = [f.name for f in spec.factors if len({cell(row.get(f.name)) for row in values}) > 1]
    return leading_factors(spec, indices, varied)[:1]


def _thirds(numbers: Mapping[int, float]) -> dict[int, str]:
    """Return the third that the number of each row is in; equal numbers stay together."""
    ordered = np.sort(np.array(list(numbers.values()), dtype=float))
    ends = ordered[[len(ordered) // 3, 2 * len(ordered) // 3]]
    thirds = {row: int(np.searchsorted(ends, value, side="right")) for row, value in numbers.items()}
    texts: dict[int, str] = {}
    for third in sorted(set(thirds.values())):
        members = {row: numbers[row] for row, index in thirds.items() if index == third}
        text = f"{typeset(float(min(members.values())), 3)} to {typeset(float(max(members.values())), 3)}"
        texts |= dict.fromkeys(members, text)
    return {row: texts[row] for row in sorted(numbers, key=lambda row: (thirds[row], row))}


def _level(values: Mapping[str, Any], by: Sequence[Factor]) -> str:
    cells = ["inactive" if (value := value_of(factor, values)) is None else cell(value) for factor in by]
    return (
        cells[0]
        if len(by) == 1
        else ", ".join(f"{factor.name}={text}" for factor, text in zip(by, cells, strict=True))
    )


def _lines(sums: pd.DataFrame, levels: Sequence[str]) -> pd.DataFrame:
    """Return value and band of each level and episode, from the episodes that all runs of the level have."""
    import pandas as pd

    parts = []
    for level in levels:
        table = sums[sums["level"] == level].pivot(index="episode", columns="run", values="sum").sort_index()
        # If one run ended early, the mean of the others would jump there.
        table = table.dropna()
        if table.empty:
            continue
        values = table.to_numpy(float)
        n = values.shape[1]
        ends = (25, 75) if n >= _FEWEST_FOR_QUARTILES else (0, 100)
        low, high = np.percentile(values, ends, axis=1)
        seeds = sums.loc[sums["run"].isin(table.columns), "seed"].nunique()
        part = {"level": level, "episode": table.index.to_numpy() + 1, "n": n, "seeds": seeds}
        parts.append(pd.DataFrame({**part, "value": iqm(values, axis=1), "low": low, "high": high}))
    columns = ["level", "episode", "n", "seeds", "value", "low", "high"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _note(lines: pd.DataFrame, runs: int, drawn: int) -> str:
    most = int(lines["n"].max())
    if most == 1:
        return "Each line is a single run."
    counts = sorted(set(zip(lines["n"], lines["seeds"], strict=True)))
    sizes = " or ".join(f"{count(int(n), 'run')} of {count(int(seeds), 'seed')}" for n, seeds in counts)
    text = f"Lines: interquartile mean over {sizes}; bands: lower to upper quartile"
    if int(lines["n"].min()) < _FEWEST_FOR_QUARTILES:
        text += f", of fewer than {_FEWEST_FOR_QUARTILES} runs lowest to highest"
    if drawn < runs:
        text += f". Of {count(runs, 'run')}, {drawn:,} are shown, evenly spread over the rows of each level"
    return f"{text}."
