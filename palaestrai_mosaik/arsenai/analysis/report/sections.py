"""The sections of the page: pictures, tables and the facts of their captions, as plain data.

The templates turn them into text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from palaestrai_mosaik.arsenai.analysis.comparison.aggregates import distinct
from palaestrai_mosaik.arsenai.analysis.comparison.studentized import NO_DIFFERENCE
from palaestrai_mosaik.arsenai.design.methods import MethodDisplay
from palaestrai_mosaik.core.printing import count, joined

from ..lost_runs import used_text
from . import tables
from .answer import answer
from .best import Best, best_of, better_of, is_choice, is_crossed, uncertain
from .compared import TITLES, Compared
from .data import LearningData, ReportData, SearchData
from .headline import beyond, facts
from .indices import (
    marks,
    method_of,
    pair_marks,
    pairs,
    players,
    ranked,
    singles,
    with_effect,
)
from .numbers import Mark, slug
from .outcomes import coordinates, factor_axes, outcome_axis, outcome_spec
from .pictures.canvas import Picture, limits, wide
from .pictures.curves import MOST_BANDS, MOST_PLACES, Curves, line_picture
from .pictures.distributions import MOST_POINTS, histogram, scatter
from .pictures.parallel import (
    ENDS,
    MOST_FACTORS,
    MOST_FACTORS_NARROW,
    Lines,
    choose,
    parallel_picture,
)
from .pictures.planes import MOST_CELLS, heat_map, morris_plane
from .pictures.rows import MOST_DOTS, Block, Row, rows_picture
from .tables import MOST_ROWS, Table
from .verdict import comparison_facts, mark_of, verdicts
from .wording import Fact, caution, worded

if TYPE_CHECKING:
    import pandas as pd

    from .wording import Cautions

#: limit on drawn factors, the most important first; tables have all
MOST_ROWS_DRAWN = 30
MOST_SCATTERS = 12
#: of more pairs, the differences to the best level are drawn
_MOST_DIFFERENCES = 3
#: with fewer factors, pictures of each factor show all that parallel coordinates would
_FEWEST_COORDINATES = 3
_MOST_PAIRS = 20
_SHARE = (0.0, 1.0)
_LEVELS = ("level", "n", "seeds", "lost", "settings", "distinct", "iqm", "mean", "median", "std")
_PAIRS = ("a", "b", "n", "seeds", "difference", "relative", "improvement", "p_holm", "favours")

View = dict[str, Any]


def _index_block(
    data: ReportData,
    outcome: str,
    method: MethodDisplay,
    title: str,
    rows: tuple[Row, ...],
    series: tuple[str, ...] = (),
) -> Block:
    """Build rows of indices; the axis of shares reaches from 0 to 1."""
    axis = method.leading
    if method.share:
        axis = "share of the variance"
    elif method.leading == "mu_star":
        axis = f"mean change of {outcome_axis(data, outcome).label}"
    elif method.measure:
        axis = method.measure.partition(" between")[0]
    return Block(title, axis, rows, series, origin=0.0, ends=_SHARE if method.share else (), stems=True)


def _differences(data: ReportData, compared: Compared) -> Block | None:
    comparison = compared.comparison
    if comparison.constant is not None or not len(comparison.pairs):
        return None
    # Equal levels need no picture.
    drawn = comparison.pairs[comparison.pairs["test"] != NO_DIFFERENCE]
    drawn = drawn[drawn["difference"].notna()]
    best = compared.ordered()["level"].astype(str).head(1).tolist()
    of_best = drawn["a"].isin(best) | drawn["b"].isin(best)
    some = comparison.equal_settings and len(drawn) > _MOST_DIFFERENCES and of_best.any()
    drawn = (drawn[of_best] if some else drawn).head(MOST_ROWS_DRAWN)
    if drawn["difference_low"].isna().all():
        return None
    rows = tuple(
        Row(
            f"{pair['a']} \N{MINUS SIGN} {pair['b']}",
            (mark_of(pair, "difference"),),
            compared.differences(pair["a"], pair["b"]),
        )
        for pair in drawn.to_dict("records")
    )
    pairs_ = f"of {best[0]} and each other level" if some else "of pairs"
    title = f"{comparison.outcome} by {' and '.join(comparison.by)}: differences {pairs_}"
    return Block(title, f"difference in {outcome_axis(data, comparison.outcome).label}", rows, origin=0.0)


def outcome(data: ReportData, name: str, cautions: Cautions) -> View:
    """Return the content of an outcome's section."""
    outcome_facts, of_outcome = facts(data, name), answer(data, name)
    statements = [worded(item).text for item in outcome_facts if not item.caution]
    covered = {worded(item).text for item in of_outcome.covered}
    # Comparisons that nobody planned have their sentences beside their figures.
    aside = not data.spec.analysis.compare and (data.sensitivity["outcome"] == name).any()
    if aside:
        covered |= {worded(item).text for item in verdicts(data, name)}
    refusals = [text for (refused, _), text in refused_methods(data).items() if refused == name]
    general = cautions.refer([*(item for item in outcome_facts if item.caution), *refusals], name)
    best = best_of(data, name) if is_choice(data.spec) else None
    return {
        "id": f"outcome-{slug(name)}",
        "name": name,
        "spec": outcome_spec(data, name),
        "answer": of_outcome.sentence.text,
        "refs": general,
        "sentences": [text for text in statements if text not in covered],
        "planned": bool(data.spec.analysis.compare),
        "aside": aside,
        "better": better_of(data, name),
        "not_crossed": uncertain(data.spec)
        if is_choice(data.spec) and best is None and not is_crossed(data)
        else (),
        "best": None if best is None else {"best": best, "refs": cautions.refer(_chosen(best), name)},
        "parallel": _parallel(data, name),
        "methods": list(_methods(data, name, cautions)),
        "comparisons": [
            _comparison(data, item, number, cautions)
            for number, item in enumerate(
                item for item in data.comparisons if item.comparison.outcome == name
            )
        ],
        "values": _distribution(data, name),
    }


def _chosen(best: Best) -> Iterator[Fact]:
    """Yield a caution if the best of several settings was chosen by the runs that its mean is of."""
    if best.settings > 1 and best.fresh is None:
        yield caution("best_is_chosen", settings=best.settings)


def refused_methods(data: ReportData) -> dict[tuple[str, str], str]:
    """Return the reasons for missing indices by outcome and method, as worded in the warnings of the report."""
    return {
        (name, method): f"{name} by {method}: {why}" for (name, method), why in data.refused.items() if why
    }


def _parallel(data: ReportData, name: str) -> View | None:
    # A run that several rows share is one line.
    runs = data.finite(name).drop_duplicates("run")
    values = runs[name].to_numpy(float)
    # Equal runs have no best one.
    if len(values) < 3 or distinct(values) == 1:
        return None
    axes = coordinates(data, name, runs)
    if len(axes) - 1 < _FEWEST_COORDINATES:
        return None
    better = better_of(data, name)
    drawn = choose(values, -1 if better == "lower" else 1)
    lines = Lines(axes, runs["uid"].astype(str).tolist(), drawn, ENDS[better])
    picture = wide(f"{slug(name)}-runs", lambda identity, width: parallel_picture(identity, lines, width))
    return {
        "picture": picture,
        "drawn": drawn,
        "emphasised": len(drawn.best),
        "better": better,
        "ends": lines.ends,
        "factors": len(axes) - 1,
        "most": MOST_FACTORS,
        "most_narrow": MOST_FACTORS_NARROW,
    }


def _methods(data: ReportData, name: str, cautions: Cautions) -> Any:
    rows = data.sensitivity[data.sensitivity["outcome"] == name]
    for method_name in dict.fromkeys(rows["method"]):
        method_rows = rows[rows["method"] == method_name]
        method = method_of(method_name, method_rows)
        refused = refused_methods(data).get((name, method_name))
        if refused is not None:
            yield {"title": method.title, "refs": cautions.refer([refused], name), "refused": True}
        else:
            yield {"title": method.title, "refused": False} | _method(
                data, name, method_name, method, cautions
            )


def _method(data: ReportData, name: str, method_name: str, method: MethodDisplay, cautions: Cautions) -> View:
    rows = data.sensitivity[
        (data.sensitivity["outcome"] == name) & (data.sensitivity["method"] == method_name)
    ]
    identity = f"{slug(name)}-{slug(method_name.replace('_', '-'))}"
    marks_by_index = {index: marks(rows, index) for index in method.bars}
    real = players(data.spec)
    # Rows other than factors and groups come last.
    order = sorted(ranked(marks_by_index[method.leading]), key=lambda factor: factor not in real)
    unknown = Mark(math.nan)
    drawn = tuple(
        Row(factor, tuple(marks_by_index[index].get(factor, unknown) for index in method.bars))
        for factor in order[:MOST_ROWS_DRAWN]
    )
    series = tuple(index.replace("mu_star", "mu*") for index in method.bars)
    title = f"{method.title}: {' and '.join(series)}"
    block = _index_block(data, name, method, title, drawn, series)
    big = wide(f"{identity}-rows", lambda picture_id, width: rows_picture(picture_id, title, [block], width))
    of_pairs = pair_marks(rows, method.pairs) if method.pairs else {}
    every = [mark for index in marks_by_index.values() for mark in index.values()]
    notes: list[Fact | str] = [*data.remarks.get((name, method_name), ())]
    if method.share and any(map(beyond, every)):
        notes.append(caution("beyond"))
    used = f"{method.title} of {name} ({_used(rows)}, {data.seeds_of(name)})"
    method_tables = [Table(f"sensitivity-{identity}", used, tables.wide(singles(rows), order))]
    if of_pairs:
        caption = f"{method.title} of pairs, {name}"
        method_tables.append(
            Table(f"sensitivity-{identity}-pairs", caption, tables.wide(pairs(rows)), most=_MOST_PAIRS)
        )
    return {
        "refs": cautions.refer(notes, name, method.title),
        "intervals": any(mark.spread for row in drawn for mark in row.marks),
        "big": big,
        "plane": _plane(identity, rows, order) if method_name == "morris" else Markup(""),
        "cells": _cells(identity, method, of_pairs, order) if len(of_pairs) > 1 else Markup(""),
        "says": method.says,
        "factors": len(order),
        "most": MOST_ROWS_DRAWN,
        "tables": method_tables,
    }


def _plane(identity: str, rows: pd.DataFrame, order: Sequence[str]) -> Markup:
    """Draw the size and spread of the effects by Morris' method."""
    mu_star, sigma = marks(rows, "mu_star"), marks(rows, "sigma")
    points = [(factor, mu_star[factor], sigma[factor].value) for factor in order if factor in sigma]
    if not points:
        return Markup("")
    return wide(
        f"{identity}-plane",
        lambda picture_id, width: morris_plane(picture_id, "Size and spread of effects", points, width),
    )


def _cells(
    identity: str, method: MethodDisplay, of_pairs: Mapping[tuple[str, str], Mark], order: Sequence[str]
) -> Markup:
    """Draw the interactions of pairs of factors."""
    names = [factor for factor in order if any(factor in pair for pair in of_pairs)][:MOST_CELLS]
    heading = f"Interactions of pairs ({method.pairs})"
    return heat_map(f"{identity}-pairs", heading, names, of_pairs, str(method.pairs)).svg()


def _used(rows: pd.DataFrame) -> str:
    return used_text(*(int(rows[name].iloc[0]) for name in ("used", "executed", "lost")))


def _distribution(data: ReportData, name: str) -> View | None:
    values = data.runs[name].to_numpy(float)
    if not np.isfinite(values).any():
        return None
    by_row = data.finite(name).groupby("row")[name].mean()
    y = by_row.reindex(range(len(data.values))).to_numpy(float)
    compared = {
        by for item in data.comparisons if item.comparison.outcome == name for by in item.comparison.by
    }
    factors = [axis for axis in factor_axes(data, name) if axis.name not in compared]
    identity, axis = slug(name), outcome_axis(data, name)
    effective = set(with_effect(data, name))
    pictures: list[Picture] = [histogram(f"{identity}-spread", axis, values)]
    pictures += [
        scatter(f"{identity}-at-{i}", factor, axis, y, means=factor.name in effective)
        for i, factor in enumerate(factors[:MOST_SCATTERS])
    ]
    known_rows, span = int(np.isfinite(y).sum()), limits(y)
    return {
        "panels": [picture.svg() for picture in pictures],
        "rows": known_rows,
        "cells": known_rows > MOST_POINTS,
        "repetitions": data.spec.repetitions,
        "runs": data.runs_of(name),
        "factors": len(factors),
        "most": MOST_SCATTERS,
        "means": [factor.name for factor in factors[:MOST_SCATTERS] if factor.name in effective],
        "limits": [
            [limit for limit in axis.limits if (span[0] <= limit <= span[1]) is drawn]
            for drawn in (True, False)
        ],
        "table": Table(f"summary-{slug(name)}", f"{name} in numbers", tables.summary(data, name)),
    }


def _comparison(data: ReportData, compared: Compared, number: int, cautions: Cautions) -> View:
    """Return the content of a comparison's section; losses come before all results."""
    comparison = compared.comparison
    identity = f"comparison-{number}-{slug(comparison.outcome)}"
    part = f"by {joined(comparison.by)}"
    named = f"{comparison.outcome} {part}"
    view: View = {
        "by": comparison.by,
        "lost": Table(
            f"{identity}-lost",
            f"Runs of each level, {named}",
            compared.losses(),
            most=MOST_ROWS if comparison.levels["lost"].any() else 0,
        ),
        "refs": cautions.refer(comparison.warnings, comparison.outcome, part),
        "notes": comparison.notes,
        "constant": comparison.constant,
        "runs": int(comparison.levels["n"].sum()),
        "pictures": [],
        "profiles": _profiles(data, compared, identity),
        "sentences": [worded(item).text for item in comparison_facts(compared) if not item.caution],
        "facts": _comparison_facts(compared),
    }
    if comparison.constant is None:
        view["pictures"] = _comparison_pictures(data, compared, identity)
        if (profiles := comparison.profiles.get("low")) is not None and profiles.notna().any():
            pointwise = cautions.refer([caution("pointwise")], comparison.outcome, part)
            view["refs"] = sorted({*view["refs"], *pointwise})
    levels = tables.levels(compared)
    section_tables = [
        Table(
            f"{identity}-levels",
            named,
            levels,
            columns=_LEVELS,
            sorted=tables.best_levels_first(compared, levels),
            order="the best first" if comparison.equal_settings else "",
        )
    ]
    if len(compared.settings) > 1:
        caption = f"Mean of {comparison.outcome} by setting: is the same level best everywhere?"
        section_tables.append(Table(f"{identity}-settings", caption, compared.by_setting(), named=True))
        section_tables.append(
            Table(f"{identity}-cells", f"Each level in each setting, {named}", comparison.cells, most=0)
        )
    if len(comparison.pairs):
        section_tables.append(
            Table(f"{identity}-pairs", f"Pairs in {named}", compared.pairs(), columns=_PAIRS)
        )
    if len(comparison.profiles) and comparison.constant is None:
        caption = f"Performance profiles of {comparison.outcome}"
        section_tables.append(Table(f"{identity}-profiles", caption, comparison.profiles, most=0))
    return view | {"tables": section_tables}


def _comparison_facts(compared: Compared) -> View:
    """Return the facts in the caption of a comparison's pictures."""
    comparison = compared.comparison
    return {
        "better": comparison.options.better,
        "common_seeds": comparison.options.common_seeds,
        "paired": comparison.paired,
        "settings": len(compared.settings),
        "equal_settings": comparison.equal_settings,
        "some_constant": bool(((comparison.levels["n"] > 1) & (comparison.levels["distinct"] == 1)).any()),
        "thinned": bool(comparison.levels["n"].max() > MOST_DOTS),
        "dots": MOST_DOTS,
        "pairs": len(comparison.pairs),
        "baseline": comparison.options.baseline is not None,
    }


def _comparison_pictures(data: ReportData, compared: Compared, identity: str) -> list[Markup]:
    comparison = compared.comparison
    levels = (
        compared.ordered().to_dict("records")
        if comparison.equal_settings
        else comparison.levels.to_dict("records")
    )
    label, statistic = outcome_axis(data, comparison.outcome).label, compared.statistic
    rows = tuple(
        Row(_named(compared, row), (mark_of(row, statistic),), compared.dots(statistic, str(row["level"])))
        for row in levels
    )
    title = f"{TITLES[statistic].capitalize()} of {comparison.outcome}"
    blocks = {statistic: Block(title, label, rows, ends=_whole(levels, statistic))}
    differences = _differences(data, compared)
    if differences is not None:
        blocks["difference"] = differences

    def shown(block: Block) -> Any:
        return lambda picture_id, width: rows_picture(picture_id, block.title, [block], width)

    return [wide(f"{identity}-{name}", shown(block)) for name, block in blocks.items()]


def _profiles(data: ReportData, compared: Compared, identity: str) -> Markup:
    """Draw the performance profiles of a comparison; empty markup without any."""
    comparison = compared.comparison
    if comparison.constant is not None or not len(comparison.profiles):
        return Markup("")
    label, title = (
        outcome_axis(data, comparison.outcome).label,
        f"Performance profiles of {comparison.outcome}",
    )
    columns, labels = ("score", "share"), (label, "share of runs that are better")
    lines = Curves(comparison.profiles, columns, labels, share=True)
    return wide(
        f"{identity}-profiles", lambda picture_id, width: line_picture(picture_id, title, lines, width)
    )


def _named(compared: Compared, row: Mapping[Any, Any]) -> str:
    """Return the name of a level, with the number of its settings if some are missing."""
    name = str(row["level"])
    if compared.comparison.equal_settings or not row["n"]:
        return name
    return f"{name} ({int(row['settings'])} of {len(compared.settings)} settings)"


def _whole(levels: Sequence[Mapping[Any, Any]], statistic: str) -> tuple[float, ...]:
    """Return 0 as an end of the axis if no level varies, because any difference would fill a zoomed axis."""
    varies = any(math.isfinite(mark_of(row, statistic).low) for row in levels)
    constant = any(row["n"] > 1 and row["distinct"] == 1 for row in levels)
    return (0.0,) if constant and not varies else ()


def search(data: SearchData) -> View:
    """Return the results of a search: the best settings, the history and the importances."""
    best = Table("search-best", "Pareto front" if data.several else "Best settings", data.best)
    search_tables = [best]
    picture = Markup("")
    if len(data.history):
        title = f"{data.outcome}: the best setting so far ({data.better} is better)"
        frame = data.history.assign(level="best", low=np.nan, high=np.nan)
        lines = Curves(frame, ("steps", "best"), ("steps of environments", data.outcome))
        picture = wide(
            "search-history", lambda picture_id, width: line_picture(picture_id, title, lines, width)
        )
        search_tables.append(Table("search-history", "The search, setting by setting", data.history, most=0))
    if len(data.importances):
        search_tables.append(
            Table("search-importances", "Which factors mattered in the search", data.importances)
        )
    return {
        "summary": data.summary,
        "picture": picture,
        "tables": search_tables,
        "confirmed": data.confirmed,
        "several": data.several,
        "outcome": data.outcome,
        "importances": len(data.importances) > 0,
        **_fresh(data.best),
    }


def _fresh(best: pd.DataFrame) -> dict[str, int]:
    """Count the planned and the lost runs with fresh seeds; each gives all outcomes."""
    names = [name.removesuffix(", planned") for name in map(str, best) if name.endswith(", planned")]
    planned = best[[f"{name}, planned" for name in names]].max(axis=1).sum()
    finished = best[[f"{name}, n" for name in names]].min(axis=1).sum()
    return {"planned": int(planned), "lost": int(planned - finished)}


def learning(data: LearningData, number: int, cautions: Cautions) -> View:
    """Return learning curves as a picture with its table."""
    identity = f"learning-{number}"
    levels = list(dict.fromkeys(map(str, data.lines["level"])))
    banded = bool(data.lines["low"].notna().any()) and len(levels) <= MOST_BANDS
    longest = int(data.lines.groupby("level")["episode"].count().max())
    lines = Curves(data.lines, ("episode", "value"), (data.each, data.value))
    return {
        "picture": wide(
            identity, lambda picture_id, width: line_picture(picture_id, data.title, lines, width)
        ),
        "note": data.note,
        "refs": cautions.refer([caution("pointwise")] if banded else [], "learning curves"),
        "episodes": count(longest, data.each),
        "span": -(-longest // MOST_PLACES),
        "many": len(levels) > MOST_BANDS,
        "table": Table(identity, data.title, data.lines, most=0),
    }
