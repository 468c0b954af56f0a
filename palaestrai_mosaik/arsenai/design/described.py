"""A design in a notebook: its sampler, factors and outcomes as HTML. Names are escaped."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from palaestrai_mosaik.core.printing import count, listed

from .model import DesignSpec, Factor

#: largest number of levels listed per factor
_LEVELS = 8


def described(spec: DesignSpec, more: str = "") -> str:
    """Format a design as HTML; ``more`` is another line about it, which is escaped."""
    sampler = spec.sampler.name if spec.sampler.n is None else f"{spec.sampler.name}, n {spec.sampler.n:,}"
    facts = f"sampler {sampler}, {count(spec.repetitions, 'repetition')}, seeds {spec.seed_policy}"
    rows = "".join(_rows(spec))
    outcomes = [
        f"{outcome.name}{f' ({outcome.better} is better)' if outcome.better else ''}"
        for outcome in spec.outcomes
    ]
    return (
        f"<p><b>{escape(spec.uid)}</b></p>"
        f"{f'<p>{escape(more)}</p>' if more else ''}<p>{escape(facts)}</p>"
        f"<table><thead><tr><th>factor</th><th>values</th><th>active when</th></tr></thead><tbody>{rows}</tbody></table>"
        f"{f'<p>Outcomes: {escape(listed(outcomes, len(outcomes)))}</p>' if outcomes else ''}"
    )


def _rows(spec: DesignSpec) -> Iterator[str]:
    for factor in spec.factors:
        cells = (factor.name, values_of(factor), factor.when or "")
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def values_of(factor: Factor) -> str:
    """Describe the possible values of a factor: its levels, or its range and distribution."""
    if factor.kind == "levels":
        return listed(factor.labels, _LEVELS)
    ends = "" if factor.low is None or factor.high is None else f" from {factor.low:g} to {factor.high:g}"
    kind = "whole numbers" if factor.kind == "int" else "numbers"
    params = "".join(f", {name} {value:g}" for name, value in factor.params.items())
    return f"{kind}{ends}" + ("" if factor.dist == "uniform" else f", {factor.dist}") + params
