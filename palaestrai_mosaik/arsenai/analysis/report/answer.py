"""The answer of a design to its question: one sentence for each outcome and condition, with its interval and n.

The question is where a condition holds (``analysis.discover``), which setting is the best (``search``), which level is
(``analysis.compare``), or else which factors matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from palaestrai_mosaik.arsenai.design.few import significance_level
from palaestrai_mosaik.arsenai.design.methods.significance import P_ADJUSTED
from palaestrai_mosaik.core.printing import count

from ..discovery import Discovery
from ..lost_runs import executed_text
from .best import best_of
from .compared import Compared
from .data import ReportData, SearchData
from .headline import SMALL, facts, sure
from .indices import LeadingIndices, leading_indices, marks
from .numbers import Mark
from .verdict import described, pair_fact
from .wording import Fact, Sentence, fact, worded

_MOST_NAMED = 3
#: facts that open a comparison
_OPENING = ("first_level", "first_of_finished", "some_tie", "all_tie", "only_level")


@dataclass(frozen=True)
class Answer:
    """The answer for an outcome.

    Attributes:
        fact: the answer.
        used: the runs that it is of, in words; empty if the answer says so itself.
        covered: the facts that it says, which need not be repeated.
    """

    fact: Fact
    used: str = ""
    covered: tuple[Fact, ...] = ()

    @property
    def sentence(self) -> Sentence:
        """The answer in words."""
        text = worded(self.fact).text
        if not self.used:
            return Sentence(text)
        return Sentence(Markup("{}; from {}.").format(Markup(text.removesuffix(".")), self.used))


def answer(data: ReportData, outcome: str) -> Answer:
    """Return the answer for an outcome."""
    all_facts = facts(data, outcome)
    if all_facts[0].kind in ("constant", "no_value"):
        return Answer(all_facts[0], covered=(all_facts[0],))
    if data.search is not None and outcome == data.search.outcome:
        return Answer(search_fact(data, data.search))
    planned = _planned(data, outcome, all_facts)
    if planned is not None:
        return planned
    first = next((candidate for candidate in all_facts if not candidate.caution), all_facts[0])
    leading = leading_indices(data.spec, data.sensitivity[data.sensitivity["outcome"] == outcome])
    if leading is None or not leading.order or first.kind in _OPENING or "runs" in first.values:
        return Answer(first, covered=(first,))
    used = f"{_used(leading)} of {data.seeds_of(outcome)}"
    shares = _shares(data, outcome, leading)
    return Answer(first, used, (first,)) if shares is None else Answer(shares, used)


def condition_fact(discovery: Discovery) -> Fact:
    """Return the first box in which a condition holds, with its intervals."""
    share: Mapping[str, Any] = {"condition": discovery.condition, "title": discovery.title}
    if discovery.boxes:
        box = discovery.boxes[0]
        return fact(
            "holds_in_box", **share, name=f"{box.method} {box.number}", rule=box.rule, **_figures(box.figures)
        )
    return fact("holds_nowhere", **share, refused=discovery.refused)


def _figures(figures: Mapping[str, float]) -> dict[str, Any]:
    ends = ("", "_low", "_high")
    return {name: Mark(*(figures[f"{name}{end}"] for end in ends)) for name in ("coverage", "density")} | {
        "runs": int(figures["runs"])
    }


def search_fact(data: ReportData, search: SearchData) -> Fact:
    """Return which setting a search recommends."""
    counts = {"states": dict(search.states), "settings": sum(search.states.values()), "runs": search.runs}
    if search.several:
        return fact("pareto_front", front=len(search.best), outcomes=list(data.outcomes), **counts)
    best = best_of(data, search.outcome)
    if best is None:
        return fact("no_winner", outcome=search.outcome, certain=True, **counts)
    if not best.certain:
        return fact("no_winner", outcome=search.outcome, certain=False, **counts)
    mark = best.fresh if best.fresh is not None else best.mark
    n = best.fresh_runs if best.fresh is not None else best.runs
    common = {"outcome": search.outcome, "mark": mark, "n": n, "fresh": best.fresh is not None}
    return fact("winner", values=dict(best.values), **common, **counts)


def _planned(data: ReportData, outcome: str, all_facts: list[Fact]) -> Answer | None:
    """Return the answer of the first planned comparison of an outcome."""
    compared = next((item for item in data.comparisons if item.comparison.outcome == outcome), None)
    if compared is None or not data.spec.analysis.compare:
        return None
    opening = next((item for item in all_facts if item.kind in (*_OPENING, "unranked")), None)
    if opening is None:
        return None
    if opening.kind != "first_level":
        return Answer(opening, covered=(opening,))
    pairs = compared.comparison.pairs
    if len(pairs) == 1 and len(compared.comparison.levels) == 2:
        return _of_two(compared, opening, all_facts)
    return Answer(_of_many(compared, opening), covered=(opening,))


def _of_two(compared: Compared, opening: Fact, all_facts: list[Fact]) -> Answer:
    """Return the difference of two levels."""
    (pair,) = compared.comparison.pairs.to_dict("records")
    level = significance_level(compared.comparison.options.confidence)
    if pair["p_holm"] <= level and pair["p_worst"] <= level:
        said = pair_fact(pair, compared)
    else:
        said = next((item for item in all_facts if item.kind in ("of_finished", "not_told_apart")), opening)
    if said is opening or said.kind == "of_finished":
        return Answer(opening, covered=(opening,))
    if said.kind == "not_told_apart":
        common = {"outcome": compared.comparison.outcome, "by": compared.comparison.by}
        return Answer(
            fact("two_alike", pair=described(pair, compared), **common), _pair_used(pair, compared), (said,)
        )
    return Answer(said, _pair_used(pair, compared), (said,))


def _pair_used(pair: Mapping[Any, Any], compared: Compared) -> str:
    n, n_b = int(pair["n"]), int(pair.get("n_b", pair["n"]))
    runs = f"{n} pairs of runs" if compared.comparison.paired else f"{n + n_b} runs"
    seeds = compared.seeds(pair["a"], pair["b"])
    return f"{runs}, {seeds} seed{'s' * (seeds != 1)} of each level"


def _of_many(compared: Compared, opening: Fact) -> Fact:
    """Return the best level, with the levels that it is better than, and those that it is not told apart from."""
    best, level = opening.values["level"], significance_level(compared.comparison.options.confidence)
    directed = compared.comparison.options.better is not None
    beaten: list[str] = []
    open_: list[str] = []
    for pair in compared.comparison.pairs.to_dict("records"):
        if best not in (pair["a"], pair["b"]):
            continue
        other = pair["b"] if pair["a"] == best else pair["a"]
        sure_ = pair["favours"] == best if directed else pair["p_worst"] <= level
        (beaten if sure_ and pair["p_holm"] <= level else open_).append(str(other))
    return fact(
        "best_of_levels", opening=opening.values, beaten=beaten, open=open_, level=level, directed=directed
    )


def _used(leading: LeadingIndices) -> str:
    used, executed, lost = (int(leading.rows[name].iloc[0]) for name in ("used", "executed", "lost"))
    more = ", ".join(filter(None, [executed_text(used, executed), f"{lost:,} lost" if lost else ""]))
    return count(used, "run") + (f" ({more})" if more else "")


def _shares(data: ReportData, outcome: str, leading: LeadingIndices) -> Fact | None:
    """Return the shares of the leading factors with an effect; ``None`` if the method has none."""
    if not leading.display.share:
        return None
    tests = marks(leading.rows, P_ADJUSTED)
    level = significance_level(data.spec.analysis.confidence)
    named = [factor for factor in leading.order if factor in tests and tests[factor].value <= level]
    shown = [factor for factor in named if sure(leading.marks[factor])][:_MOST_NAMED]
    shown = [factor for i, factor in enumerate(shown) if not i or leading.marks[factor].value >= SMALL]
    if not shown or shown[0] != leading.order[0]:
        return None
    entries = [(factor, leading.marks[factor], tests[factor].value) for factor in shown]
    interactions = leading.display.leading == "ST"
    more = len(named) - len(shown)
    return fact("shares_of", outcome=outcome, entries=entries, interactions=interactions, more=more)
