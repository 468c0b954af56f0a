"""The part of the page that shows a comparison: losses first, then levels, settings and pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from palaestrai_mosaik.analysis.comparison.hypothesis_tests import NO_DIFFERENCE
from palaestrai_mosaik.text import count

from .bars import MOST_DOTS, intervals
from .compared import TITLES, Compared
from .data import Table
from .lines import line_panel
from .markup import Safe, number, slug, tag
from .sections import MOST_BARS, POINTWISE, Part, figure, notices, remarks
from .svg import legend
from .verdict import mark_of

_SHARE = (0.0, 1.0)

# What is shown of the tables of a comparison; their files have all columns.
_OF_LEVELS = (
    *("level", "n", "seeds", "lost", "settings", "distinct", "iqm", "iqm_low", "iqm_high"),
    *("mean", "mean_low", "mean_high", "median", "std"),
)
_OF_PAIRS = (
    *("a", "b", "n", "seeds", "difference", "difference_low", "difference_high", "relative"),
    *("improvement", "p_holm", "favours"),
)


def comparison(data: Compared, place: int) -> Iterator[Part]:
    """Yield how the levels compare."""
    comparison = data.comparison
    identity = f"comparison-{place}-{slug(comparison.outcome)}"
    named = f"{comparison.outcome} by {' and '.join(comparison.by)}"
    yield tag("h4", f"By {' and '.join(comparison.by)}")
    # what was lost comes before any result
    yield Table(f"{identity}-lost", f"Runs of each level, {named}", data.losses())
    yield from notices(comparison.warnings)
    if comparison.constant is None:
        yield figure(_caption(data), *_panels(data, identity), key=_key(data))
    else:
        # an axis would have nothing to show but one place, and what is beside it would look like much
        runs = count(int(comparison.levels["n"].sum()), "run")
        yield tag(
            "p",
            f"All {runs} gave {number(comparison.constant, 6)}; there is nothing to draw.",
            class_="quiet",
        )
    yield from remarks(comparison.notes)
    levels = comparison.levels.assign(seeds=[data.seeds(str(level)) for level in comparison.levels["level"]])
    yield Table(f"{identity}-levels", named, levels, columns=_OF_LEVELS)
    if len(data.settings) > 1:
        title = f"Mean of {comparison.outcome} by setting: is the same level best everywhere?"
        yield Table(f"{identity}-settings", title, data.by_setting())
        yield Table(f"{identity}-cells", f"Each level in each setting, {named}", comparison.cells, most=0)
    if len(comparison.pairs):
        yield Table(f"{identity}-pairs", f"Pairs in {named}", data.pairs(), columns=_OF_PAIRS)
        yield tag("p", _of_pairs(data), class_="quiet")
    if len(comparison.profiles) and comparison.constant is None:
        title = f"Performance profiles of {comparison.outcome}"
        yield Table(f"{identity}-profiles", title, comparison.profiles, most=0)


def _panels(data: Compared, identity: str) -> Iterator[Safe]:
    comparison = data.comparison
    levels = comparison.levels.to_dict("records")
    for statistic in (name for name in TITLES if name in comparison.levels):
        yield intervals(
            f"{identity}-{statistic}",
            f"{TITLES[statistic].capitalize()} of {comparison.outcome}",
            [(_named(data, row), mark_of(row, statistic)) for row in levels],
            comparison.outcome,
            ends=_whole(levels, statistic),
            single=[data.dots(statistic, str(row["level"])) for row in levels],
        )
    # what is equal needs no picture
    drawn = (
        comparison.pairs[comparison.pairs["test"] != NO_DIFFERENCE]
        if len(comparison.pairs)
        else comparison.pairs
    )
    pairs = drawn.head(MOST_BARS).to_dict("records")
    if pairs and comparison.pairs["difference"].notna().any():
        yield intervals(
            f"{identity}-difference",
            "Differences of pairs",
            [(f"{row['a']} less {row['b']}", mark_of(row, "difference")) for row in pairs],
            f"difference in {comparison.outcome}",
            origin=0.0,
            single=[data.differences(row["a"], row["b"]) for row in pairs],
        )
    if pairs and comparison.pairs["improvement"].notna().any():
        yield intervals(
            f"{identity}-improvement",
            "Probability of improvement",
            [(f"{row['a']} over {row['b']}", mark_of(row, "improvement")) for row in pairs],
            "probability that the first is better",
            origin=0.5,
            ends=_SHARE,
        )
    if len(comparison.profiles):
        labels = (comparison.outcome, "share of runs that are better")
        columns = ("score", "share")
        title = "Performance profiles"
        yield line_panel(f"{identity}-profiles", title, comparison.profiles, columns, labels, share=True)


def _named(data: Compared, row: Mapping[Any, Any]) -> str:
    """Return the name of a level, with its settings where these are not those of all levels."""
    name = str(row["level"])
    if data.comparison.equal_settings or not row["n"]:
        return name
    return f"{name} ({int(row['settings'])} of {len(data.settings)} settings)"


def _whole(levels: Sequence[Mapping[Any, Any]], statistic: str) -> tuple[float, ...]:
    """Return 0 as an end of the axis where no level varies: any difference would fill a zoomed one."""
    varies = any(math.isfinite(mark_of(row, statistic).low) for row in levels)
    constant = any(row["n"] > 1 and row["distinct"] == 1 for row in levels)
    return (0.0,) if constant and not varies else ()


def _key(data: Compared) -> Safe | None:
    profiles = data.comparison.profiles
    return legend(list(dict.fromkeys(map(str, profiles["level"])))) if len(profiles) else None


def _caption(data: Compared) -> str:
    comparison = data.comparison
    better = {"higher": "Higher is better. ", "lower": "Lower is better. "}
    said = better.get(comparison.options.better or "", "")
    if not comparison.options.common_seeds:
        said += "Dots: single runs, each of its own seed."
    elif len(data.settings) > 1:
        said += (
            "Dots: one for each seed, the same number from its runs alone (of all settings; a seed that lacks "
            "one has no dot)."
        )
    else:
        said += "Dots: one for each seed."
    if ((comparison.levels["n"] > 1) & (comparison.levels["distinct"] == 1)).any():
        said += " No interval: all runs of the level gave one value."
    if not comparison.equal_settings:
        said += " The levels have runs in unequal settings, so they do not compare here."
    if comparison.options.common_seeds and not comparison.paired:
        said += " Differences have none, because runs are not paired."
    if comparison.levels["n"].max() > MOST_DOTS:
        said += f" Of more than {MOST_DOTS} dots, {MOST_DOTS} are shown, evenly spread over their ranks."
    if comparison.profiles.get("low") is not None and comparison.profiles["low"].notna().any():
        said += f" Profiles: {POINTWISE.format('score')[0].lower()}{POINTWISE.format('score')[1:]}"
    return said


def _of_pairs(data: Compared) -> str:
    baseline = data.comparison.options.baseline
    second = "the baseline" if baseline is not None else "b"
    return (
        f"difference: mean of a less that of b; relative: the same as a share of the mean of {second}. Where "
        "favours is empty, the test does not tell a and b apart; that does not make them equal: the interval of "
        "the difference says how far apart they may be."
    )
