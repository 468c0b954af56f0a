"""What each section of the page shows: pictures, tables and the facts of their captions, as plain data.

The words are in the templates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from palaestrai_mosaik.analysis.comparison.hypothesis_tests import NO_DIFFERENCE
from palaestrai_mosaik.analysis.comparison.resampling import distinct
from palaestrai_mosaik.design.methods import MethodDisplay
from palaestrai_mosaik.text import count, joined

from ..missing_runs import executed_text
from . import tables
from .best import best_of, better_of
from .compared import TITLES, Compared
from .data import LearningData, ReportData, SearchData
from .headline import beyond, facts, first_fact
from .indices import leading_method, marks, method_of, pair_marks, pairs, players, ranked, singles
from .numbers import Mark, slug
from .outcomes import coordinates, factor_axes, outcome_axis, outcome_spec
from .pictures.canvas import Picture, limits, wide
from .pictures.curves import MOST_BANDS, MOST_PLACES, Curves, line_picture
from .pictures.distributions import MOST_POINTS, histogram, scatter
from .pictures.parallel import ENDS, MOST_FACTORS, MOST_FACTORS_NARROW, Lines, choose, parallel_picture
from .pictures.planes import MOST_CELLS, heat_map, morris_plane
from .pictures.rows import MOST_DOTS, Block, Row, rows_picture
from .tables import Table
from .verdict import mark_of
from .wording import caution, worded

if TYPE_CHECKING:
    import pandas as pd

    from .cautions import Cautions

#: of more factors, the most important ones are drawn; tables have all
MOST_ROWS_DRAWN = 30
MOST_SCATTERS = 12
#: of more effects of an outcome, the first ones are on the first picture
MOST_EFFECTS = 6
_MOST_PAIRS = 20
_SHARE = (0.0, 1.0)
_LEVELS = ("level", "n", "seeds", "lost", "settings", "distinct", "iqm", "mean", "median", "std")
_PAIRS = ("a", "b", "n", "seeds", "difference", "relative", "improvement", "p_holm", "favours")

View = dict[str, Any]


def effects(data: ReportData) -> Markup:
    """Return the leading effects of each outcome as one picture; nothing where there are none."""
    blocks = [block for outcome in data.outcomes if (block := _leading_effects(data, outcome)) is not None]
    if not blocks:
        return Markup("")
    return wide(
        "effects",
        lambda identity, width: rows_picture(identity, "Leading effects on each outcome", blocks, width),
    )


def _leading_effects(data: ReportData, outcome: str) -> Block | None:
    """Return the differences of a planned comparison, else the leading indices, else any differences."""
    compared = [one for one in data.comparisons if one.comparison.outcome == outcome]
    differences = next((block for one in compared if (block := _differences(data, one)) is not None), None)
    if differences is not None and data.spec.analysis.compare:
        return differences
    rows = data.sensitivity[data.sensitivity["outcome"] == outcome]
    name = leading_method(rows)
    if name is None:
        return differences
    own = rows[rows["method"] == name]
    method = method_of(name, own)
    found = marks(own, method.leading)
    real = players(data.spec)
    order = [factor for factor in ranked(found) if factor in real and found[factor].known][:MOST_EFFECTS]
    if not order:
        return differences
    rows_ = tuple(Row(factor, (found[factor],)) for factor in order)
    title = f"{outcome}: {method.title} ({method.leading.replace('mu_star', 'mu*')})"
    return _index_block(data, outcome, method, title, rows_)


def _index_block(
    data: ReportData,
    outcome: str,
    method: MethodDisplay,
    title: str,
    rows: tuple[Row, ...],
    series: tuple[str, ...] = (),
) -> Block:
    """Return indices as rows; shares are seen on an axis from nothing to all."""
    axis = method.leading
    if method.share:
        axis = "share of the variance"
    elif method.leading == "mu_star":
        axis = f"mean change of {outcome_axis(data, outcome).label}"
    return Block(title, axis, rows, series, origin=0.0, ends=_SHARE if method.share else (), stems=True)


def _differences(data: ReportData, compared: Compared) -> Block | None:
    comparison = compared.comparison
    if comparison.constant is not None or not len(comparison.pairs):
        return None
    # what is equal needs no picture
    drawn = comparison.pairs[comparison.pairs["test"] != NO_DIFFERENCE]
    drawn = drawn[drawn["difference"].notna()].head(MOST_ROWS_DRAWN)
    if drawn.empty:
        return None
    rows = tuple(
        Row(
            f"{pair['a']} \N{MINUS SIGN} {pair['b']}",
            (mark_of(pair, "difference"),),
            compared.differences(pair["a"], pair["b"]),
        )
        for pair in drawn.to_dict("records")
    )
    title = f"{comparison.outcome} by {' and '.join(comparison.by)}: differences of pairs"
    return Block(title, f"difference in {outcome_axis(data, comparison.outcome).label}", rows, origin=0.0)


def outcome(data: ReportData, name: str, cautions: Cautions) -> View:
    """Return all that the page tells of an outcome."""
    told = facts(data, name)
    refusals = [text for (refused, _), text in refused_methods(data).items() if refused == name]
    general = cautions.refer([*(one for one in told if one.caution), *refusals], name)
    best = best_of(data, name)
    return {
        "id": f"outcome-{slug(name)}",
        "name": name,
        "spec": outcome_spec(data, name),
        "first": worded(first_fact(data, name)).text,
        "refs": general,
        "sentences": [worded(one).text for one in told if not one.caution],
        "better": better_of(data, name),
        "best": None
        if best is None
        else {
            "best": best,
            "refs": cautions.refer(
                [caution("best_is_chosen", settings=best.settings)]
                if best.settings > 1 and best.fresh is None
                else [],
                name,
            ),
        },
        "parallel": _parallel(data, name),
        "methods": list(_methods(data, name, cautions)),
        "comparisons": [
            _comparison(data, one, place, cautions)
            for place, one in enumerate(one for one in data.comparisons if one.comparison.outcome == name)
        ],
        "values": _distribution(data, name),
    }


def refused_methods(data: ReportData) -> dict[tuple[str, str], str]:
    """Return why there are no indices of an outcome by a method, as the warnings of a report have it."""
    return {
        (name, method): f"{name} by {method}: {why}" for (name, method), why in data.refused.items() if why
    }


def _parallel(data: ReportData, name: str) -> View | None:
    # a run that several rows share is one line
    runs = data.finite(name).drop_duplicates("run")
    values = runs[name].to_numpy(float)
    # of equal runs, none is among the best
    if len(values) < 3 or distinct(values) == 1:
        return None
    axes = coordinates(data, name, runs)
    if len(axes) < 2:
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
        own = rows[rows["method"] == method_name]
        method = method_of(method_name, own)
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
    found = {index: marks(rows, index) for index in method.bars}
    real = players(data.spec)
    # what is no factor comes last
    order = sorted(ranked(found[method.leading]), key=lambda factor: factor not in real)
    unknown = Mark(math.nan)
    drawn = tuple(
        Row(factor, tuple(found[index].get(factor, unknown) for index in method.bars))
        for factor in order[:MOST_ROWS_DRAWN]
    )
    series = tuple(index.replace("mu_star", "mu*") for index in method.bars)
    title = f"{method.title}: {' and '.join(series)}"
    block = _index_block(data, name, method, title, drawn, series)
    big = wide(f"{identity}-rows", lambda one, width: rows_picture(one, title, [block], width))
    plane, cells = Markup(""), Markup("")
    sigma = marks(rows, "sigma") if method_name == "morris" else {}
    if sigma:
        points = [(f, found["mu_star"][f], sigma[f].value) for f in order if f in sigma]
        plane = wide(
            f"{identity}-plane",
            lambda one, width: morris_plane(one, "Size and spread of effects", points, width),
        )
    of_pairs = pair_marks(rows, method.pairs) if method.pairs else {}
    if of_pairs:
        names = [f for f in order if any(f in pair for pair in of_pairs)][:MOST_CELLS]
        heading = f"Interactions of pairs ({method.pairs})"
        cells = heat_map(f"{identity}-pairs", heading, names, of_pairs, str(method.pairs)).svg()
    outside = method.share and any(beyond(mark) for index in found.values() for mark in index.values())
    used = f"{method.title} of {name} ({_used(rows)}, {data.seeds_of(name)})"
    shown = [Table(f"sensitivity-{identity}", used, tables.wide(singles(rows), order))]
    if of_pairs:
        caption = f"{method.title} of pairs, {name}"
        shown.append(
            Table(f"sensitivity-{identity}-pairs", caption, tables.wide(pairs(rows)), most=_MOST_PAIRS)
        )
    remarks = data.remarks.get((name, method_name), ())
    return {
        "refs": cautions.refer([*remarks, *([caution("beyond")] if outside else [])], name, method.title),
        "intervals": any(mark.spread for row in drawn for mark in row.marks),
        "big": big,
        "plane": plane,
        "cells": cells,
        "says": method.says,
        "factors": len(order),
        "most": MOST_ROWS_DRAWN,
        "tables": shown,
    }


def _used(rows: pd.DataFrame) -> str:
    used, lost, executed = (int(rows[name].iloc[0]) for name in ("used", "lost", "executed"))
    caption = (f"{count(used, 'run')} used", executed_text(used, executed), f"{lost:,} lost" if lost else "")
    return ", ".join(filter(None, caption))


def _distribution(data: ReportData, name: str) -> View | None:
    values = data.runs[name].to_numpy(float)
    if not np.isfinite(values).any():
        return None
    by_row = data.runs.groupby("row")[name].mean()
    y = by_row.reindex(range(len(data.values))).to_numpy(float)
    factors = factor_axes(data, name)
    identity, axis = slug(name), outcome_axis(data, name)
    pictures: list[Picture] = [histogram(f"{identity}-spread", axis, values)]
    pictures += [
        scatter(f"{identity}-at-{i}", factor, axis, y) for i, factor in enumerate(factors[:MOST_SCATTERS])
    ]
    known, span = int(np.isfinite(y).sum()), limits(y)
    return {
        "panels": [picture.svg() for picture in pictures],
        "rows": known,
        "cells": known > MOST_POINTS,
        "repetitions": data.spec.repetitions,
        "runs": data.runs_of(name),
        "factors": len(factors),
        "most": MOST_SCATTERS,
        "limits": [
            [one for one in axis.limits if (span[0] <= one <= span[1]) is drawn] for drawn in (True, False)
        ],
        "table": Table(f"summary-{slug(name)}", f"{name} in numbers", tables.summary(data, name)),
    }


def _comparison(data: ReportData, compared: Compared, place: int, cautions: Cautions) -> View:
    """Return how the levels compare; what was lost comes before any result."""
    told = compared.comparison
    identity = f"comparison-{place}-{slug(told.outcome)}"
    part = f"by {joined(told.by)}"
    named = f"{told.outcome} {part}"
    found: View = {
        "by": told.by,
        "lost": Table(f"{identity}-lost", f"Runs of each level, {named}", compared.losses()),
        "refs": cautions.refer(told.warnings, told.outcome, part),
        "notes": told.notes,
        "constant": told.constant,
        "runs": int(told.levels["n"].sum()),
        "pictures": [],
        "facts": _comparison_facts(compared),
    }
    if told.constant is None:
        found["pictures"] = _comparison_pictures(data, compared, identity)
        if (profiles := told.profiles.get("low")) is not None and profiles.notna().any():
            pointwise = cautions.refer([caution("pointwise")], told.outcome, part)
            found["refs"] = sorted({*found["refs"], *pointwise})
    levels = tables.levels(compared)
    shown = [
        Table(
            f"{identity}-levels",
            named,
            levels,
            columns=_LEVELS,
            sorted=tables.best_levels_first(compared, levels),
            order="the best first" if told.equal_settings else "",
        )
    ]
    if len(compared.settings) > 1:
        caption = f"Mean of {told.outcome} by setting: is the same level best everywhere?"
        shown.append(Table(f"{identity}-settings", caption, compared.by_setting(), named=True))
        shown.append(Table(f"{identity}-cells", f"Each level in each setting, {named}", told.cells, most=0))
    if len(told.pairs):
        shown.append(Table(f"{identity}-pairs", f"Pairs in {named}", compared.pairs(), columns=_PAIRS))
    if len(told.profiles) and told.constant is None:
        caption = f"Performance profiles of {told.outcome}"
        shown.append(Table(f"{identity}-profiles", caption, told.profiles, most=0))
    return found | {"tables": shown}


def _comparison_facts(compared: Compared) -> View:
    """Return what the caption of a comparison's pictures tells."""
    told = compared.comparison
    return {
        "better": told.options.better,
        "common_seeds": told.options.common_seeds,
        "paired": told.paired,
        "settings": len(compared.settings),
        "equal_settings": told.equal_settings,
        "some_constant": bool(((told.levels["n"] > 1) & (told.levels["distinct"] == 1)).any()),
        "thinned": bool(told.levels["n"].max() > MOST_DOTS),
        "dots": MOST_DOTS,
        "pairs": len(told.pairs),
        "baseline": told.options.baseline is not None,
    }


def _comparison_pictures(data: ReportData, compared: Compared, identity: str) -> list[Markup]:
    told = compared.comparison
    levels = compared.ordered().to_dict("records") if told.equal_settings else told.levels.to_dict("records")
    label = outcome_axis(data, told.outcome).label
    blocks = {}
    for statistic in (name for name in TITLES if name in told.levels):
        rows = tuple(
            Row(
                _named(compared, row), (mark_of(row, statistic),), compared.dots(statistic, str(row["level"]))
            )
            for row in levels
        )
        title = f"{TITLES[statistic].capitalize()} of {told.outcome}"
        blocks[statistic] = Block(title, label, rows, ends=_whole(levels, statistic))
    differences = _differences(data, compared)
    if differences is not None:
        blocks["difference"] = differences
    improvements = _improvements(compared)
    if improvements is not None:
        blocks["improvement"] = improvements

    def shown(block: Block) -> Any:
        return lambda one, width: rows_picture(one, block.title, [block], width)

    found = [wide(f"{identity}-{name}", shown(block)) for name, block in blocks.items()]
    if len(told.profiles):
        lines = Curves(
            told.profiles, ("score", "share"), (label, "share of runs that are better"), share=True
        )
        found.append(
            wide(
                f"{identity}-profiles",
                lambda one, width: line_picture(one, f"Performance profiles of {told.outcome}", lines, width),
            )
        )
    return found


def _improvements(compared: Compared) -> Block | None:
    pairs = compared.comparison.pairs
    if not len(pairs) or not pairs["improvement"].notna().any():
        return None
    drawn = pairs[(pairs["test"] != NO_DIFFERENCE) & pairs["improvement"].notna()].head(MOST_ROWS_DRAWN)
    if drawn.empty:
        return None
    rows = tuple(
        Row(f"{pair['a']} over {pair['b']}", (mark_of(pair, "improvement"),))
        for pair in drawn.to_dict("records")
    )
    axis = "probability that the first is better"
    return Block("Probability of improvement", axis, rows, origin=0.5, ends=_SHARE)


def _named(compared: Compared, row: Mapping[Any, Any]) -> str:
    """Return the name of a level, with its settings where these are not those of all levels."""
    name = str(row["level"])
    if compared.comparison.equal_settings or not row["n"]:
        return name
    return f"{name} ({int(row['settings'])} of {len(compared.settings)} settings)"


def _whole(levels: Sequence[Mapping[Any, Any]], statistic: str) -> tuple[float, ...]:
    """Return 0 as an end of the axis where no level varies: any difference would fill a zoomed one."""
    varies = any(math.isfinite(mark_of(row, statistic).low) for row in levels)
    constant = any(row["n"] > 1 and row["distinct"] == 1 for row in levels)
    return (0.0,) if constant and not varies else ()


def search(data: SearchData) -> View:
    """Return what a search has found: the best settings, the way to them, and what mattered."""
    best = Table("search-best", "Pareto front" if data.several else "Best settings", data.best)
    found = [best]
    picture = Markup("")
    if len(data.history):
        title = f"{data.outcome}: the best setting so far ({data.better} is better)"
        frame = data.history.assign(level="best", low=np.nan, high=np.nan)
        lines = Curves(frame, ("steps", "best"), ("steps of environments", data.outcome))
        picture = wide("search-history", lambda one, width: line_picture(one, title, lines, width))
        found.append(Table("search-history", "The search, setting by setting", data.history, most=0))
    if len(data.importances):
        found.append(Table("search-importances", "Which factors mattered in the search", data.importances))
    return {
        "summary": data.summary,
        "picture": picture,
        "tables": found,
        "confirmed": data.confirmed,
        "several": data.several,
        "outcome": data.outcome,
        "importances": len(data.importances) > 0,
    }


def learning(data: LearningData, place: int, cautions: Cautions) -> View:
    """Return learning curves as a picture with its table."""
    identity = f"learning-{place}"
    levels = list(dict.fromkeys(map(str, data.lines["level"])))
    banded = bool(data.lines["low"].notna().any()) and len(levels) <= MOST_BANDS
    longest = int(data.lines.groupby("level")["episode"].count().max())
    lines = Curves(data.lines, ("episode", "value"), (data.each, data.value))
    return {
        "picture": wide(identity, lambda one, width: line_picture(one, data.title, lines, width)),
        "note": data.note,
        "refs": cautions.refer([caution("pointwise")] if banded else [], "learning curves"),
        "episodes": count(longest, data.each),
        "span": -(-longest // MOST_PLACES),
        "many": len(levels) > MOST_BANDS,
        "table": Table(identity, data.title, data.lines, most=0),
    }
