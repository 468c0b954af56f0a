"""The tables of a report: complete in a CSV file and in ``report.json``, and in part on the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.arsenai.design.model import INACTIVE

from ..comparison.robustness import METRIC_TITLES
from ..moments import Moments, best_first
from .best import first_with_direction
from .compared import Compared, count_seeds
from .data import ReportData
from .factors import value_of
from .numbers import Mark, cell, column

if TYPE_CHECKING:
    import pandas as pd

#: limit on the rows of a table on the page
MOST_ROWS = 60
#: longer tables are folded
MOST_OPEN = 8
_LONGEST_CELL = 400

#: headings of columns on the page
_TITLES = {
    "n": "runs",
    "iqm": "interquartile mean",
    "std": "standard deviation",
    "p_holm": "p (Holm)",
    "favours": "better",
    "relative": "relative difference",
    "improvement": "probability of improvement",
    "mu_star": "mu*",
    "factor2": "with",
    "distinct": "distinct values",
    "quasi_p": "quasi-p",
    "present": "share of resamples",
    "importance_rank": "rank of importance",
    "S1_rank": "rank by S1",
    **METRIC_TITLES,
    "best": "best by",
    "ST_rank": "rank by ST",
    "settings_all": "settings with all seeds",
    "settings_some": "settings with some seeds",
}
_P_VALUES = ("p", "p_holm", "p_adjusted", "quasi_p")


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Attributes:
        name: name of its file, without ending.
        caption: its caption.
        frame: the table.
        most: limit on the rows on the page; 0: only a link to the file.
        columns: the columns on the page, if present; empty: all.
        sorted: the rows in the order of the page; ``None``: that of ``frame``.
        order: description of that order.
        named: whether columns have names given by users, which have no special meaning.
    """

    name: str
    caption: str
    frame: pd.DataFrame
    most: int = MOST_ROWS
    columns: tuple[str, ...] = ()
    sorted: pd.DataFrame | None = None
    order: str = ""
    named: bool = False

    @property
    def file(self) -> str:
        return f"{self.name}.csv"

    def csv(self) -> str:
        """Return all rows as CSV, with all digits of floats."""
        return self.frame.to_csv(index=False, lineterminator="\n")

    def records(self) -> list[dict[str, Any]]:
        """Return all rows as plain data; unknown values are None."""
        return [
            {str(name): jsonable(value) for name, value in row.items()}
            for row in self.frame.to_dict("records")
        ]

    def view(self, links: Callable[[str], list[tuple[str, str]]] | None = None) -> dict[str, Any]:
        """Return the table as the page shows it: columns with their units, and cells of text.

        ``links`` maps the uid of a run to the names and addresses of its files.
        """
        frame = (self.frame if self.sorted is None else self.sorted).head(self.most)
        names = [str(name) for name in frame.columns]
        columns = [self._column(frame, name, names) for name in self._shown(names)]
        if not self.named:
            # A column without any value says nothing; the file has it.
            columns = [column for column in columns if any(column["cells"])] or columns
        files = [links(str(uid)) for uid in frame["run"]] if links and "run" in frame else []
        return {
            "name": self.name,
            "file": self.file,
            "caption": self.caption,
            "order": self.order,
            "rows": len(self.frame),
            "shown": len(frame),
            "open": len(frame) <= MOST_OPEN,
            "more_columns": len(names) > sum(len(shown["of"]) for shown in columns),
            "columns": columns,
            "body": list(zip(*(shown["cells"] for shown in columns), strict=True)),
            "files": files if any(files) else [],
        }

    def _shown(self, names: Sequence[str]) -> list[str]:
        """Return the columns on the page; ends of intervals appear beside their values."""
        if self.named:
            return list(names)
        return [name for name in self.columns or names if name in names and not _is_end(name, names)]

    def _column(self, frame: pd.DataFrame, name: str, names: Sequence[str]) -> dict[str, Any]:
        return _named_column(name, frame[name].tolist()) if self.named else _column(frame, name, names)


def _is_end(name: str, names: Sequence[str]) -> bool:
    """Whether a column is an end of an interval, which appears beside its value."""
    return any(name.endswith(f"{mark}{end}") and name[: -len(end) - 1] in names
               for mark in (" ", "_") for end in ("low", "high"))  # fmt: skip


def _named_column(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """Format a column named by users; also the smallest of its numbers keep digits."""
    if not all(_is_number(value) for value in values):
        return _shown(name, [_text(value) for value in values], numeric=False)
    formatted = column([Mark(_float(value)) for value in values], smallest=True)
    return _shown(name, formatted.cells, formatted.unit)


def _column(frame: pd.DataFrame, name: str, names: Sequence[str]) -> dict[str, Any]:
    values, title = frame[name].tolist(), _TITLES.get(name, name)
    if not all(_is_number(value) for value in values):
        return _shown(title, [_text(value) for value in values], name=name, numeric=False)
    if name in _P_VALUES:
        return _shown(title, [_p_value(value) for value in values], name=name)
    if "what" in names:
        return _shown(title, _counts_and_values(values), name=name)
    ends = next(([f"{name}{m}low", f"{name}{m}high"] for m in (" ", "_") if f"{name}{m}low" in names), [])
    columns = [values, *(frame[end].tolist() for end in ends)]
    formatted = column([Mark(*map(_float, numbers)) for numbers in zip(*columns, strict=True)])
    return _shown(title, formatted.cells, formatted.unit, name=name, ends=ends)


def _p_value(value: Any) -> str:
    return "" if _unknown(value) else "<\u20090.001" if value < 0.001 else f"{value:.3f}"


def _shown(
    title: str,
    cells: Sequence[str],
    unit: str = "",
    *,
    name: str = "",
    numeric: bool = True,
    ends: Sequence[str] = (),
) -> dict[str, Any]:
    """Build a column for the template; ``of``: the columns of the file in it."""
    name = name or title
    of = [name, *ends]
    return {"name": name, "title": title, "unit": unit, "numeric": numeric, "cells": list(cells), "of": of}


def _counts_and_values(values: Sequence[Any]) -> list[str]:
    """Format counts as whole numbers, and all other numbers in one unit."""
    numbers = [Mark(math.nan if float(value).is_integer() else float(value)) for value in values]
    formatted = column(numbers)
    return [
        text if mark.known else cell(int(value)) if math.isfinite(value) else ""
        for value, mark, text in zip(values, numbers, formatted.texts, strict=True)
    ]


def _text(value: Any) -> str:
    text = cell(value)
    return text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}\u2026"


def _float(value: Any) -> float:
    return math.nan if _unknown(value) else float(value)


def _unknown(value: Any) -> bool:
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and math.isnan(value))
    )


def _is_number(value: Any) -> bool:
    return _unknown(value) or (hasattr(value, "__float__") and not isinstance(value, bool | str))


def jsonable(value: Any) -> Any:
    """Convert ``value`` for JSON: None if unknown, text if infinite."""
    if hasattr(value, "item"):
        value = value.item()
    if value is INACTIVE or _unknown(value):
        return None
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str) else cell(value)


def wide(rows: pd.DataFrame, order: Sequence[str] = ()) -> pd.DataFrame:
    """Return a row per factor or pair, with the indices and their intervals side by side.

    Factors come in this ``order``, pairs by their first index in descending order.
    """
    import pandas as pd

    keys = ["factor"] if order else ["factor", "factor2"]
    table: dict[tuple[str, ...], dict[str, Any]] = {}
    with_intervals = set(rows.loc[rows["low"].notna(), "index"])
    for row in rows.to_dict("records"):
        where = tuple(row[key] for key in keys)
        cells = table.setdefault(where, dict(zip(keys, where, strict=True)))
        index = row["index"]
        cells[index] = row["value"]
        if index in with_intervals:
            cells |= {f"{index} low": row["low"], f"{index} high": row["high"]}
    result = pd.DataFrame(list(table.values()))
    if order:
        positions = {factor: position for position, factor in enumerate(order)}
        return result.sort_values("factor", key=lambda c: c.map(positions), kind="stable", ignore_index=True)
    return result.sort_values(rows["index"].iloc[0], ascending=False, kind="stable", ignore_index=True)


def summary(data: ReportData, outcome: str) -> pd.DataFrame:
    """Summarise an outcome: number of runs, mean, spread and quartiles."""
    import pandas as pd

    finite = data.finite(outcome)
    values = finite[outcome]
    moments = Moments.of(values.to_numpy(float))
    rows: list[tuple[str, float]] = [
        ("runs", float(moments.count)),
        ("runs that were executed", float(finite["run"].nunique())),
        ("seeds", float(count_seeds(finite, data.spec.seed_policy == "common"))),
        ("mean", moments.mean),
        ("standard deviation", moments.std),
        ("minimum", moments.min),
        ("lower quartile", moments.lower_quartile),
        ("median", moments.median),
        ("upper quartile", moments.upper_quartile),
        ("maximum", moments.max),
    ]
    by_row = finite.groupby("row")[outcome]
    if data.spec.repetitions > 1 and by_row.count().max() > 1 and values.var(ddof=0) > 0:
        within = float(((values - by_row.transform("mean")) ** 2).mean() / values.var(ddof=0))
        rows.append(("share of the variance between repetitions of a row", within))
    return pd.DataFrame(rows, columns=["what", "value"])


def runs(data: ReportData) -> pd.DataFrame:
    """Return the runs with their factors and outcomes, in the order of the design."""
    import pandas as pd

    keys = [name for name in ("row", "repetition", "uid", "run", "status") if name in data.runs]
    frame = data.runs.reset_index(drop=True)
    columns: dict[str, Any] = {name: frame[name] for name in keys}
    for factor in data.spec.factors:
        columns[_free(factor.name, columns)] = [
            value_of(factor, data.values[row]) for row in frame["row"].tolist()
        ]
    for outcome in data.outcomes:
        columns[_free(outcome, columns)] = frame[outcome]
    return pd.DataFrame(columns)


def sort_runs(data: ReportData, frame: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Sort the runs by the first outcome with a better direction, best first; return them with its name."""
    outcome, better = first_with_direction(data)
    if better is None:
        return frame, ""
    values = data.runs[outcome].to_numpy(float)
    order = np.concatenate([best_first(values, better), np.flatnonzero(~np.isfinite(values))])
    return frame.iloc[order].reset_index(drop=True), outcome


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """Make the name of a column unique."""
    while name in taken:
        name += "'"
    return name


def levels(data: Compared) -> pd.DataFrame:
    """Return the levels of a comparison with their seeds."""
    comparison_levels = data.comparison.levels
    return comparison_levels.assign(seeds=[data.seeds(str(level)) for level in comparison_levels["level"]])


def best_levels_first(data: Compared, levels: pd.DataFrame) -> pd.DataFrame:
    """Sort the :func:`levels`, best first, if their means are comparable."""
    if not data.comparison.equal_settings:
        return levels
    keys = -data.sign * levels[data.statistic]
    return levels.loc[keys.sort_values(kind="stable", na_position="last").index].reset_index(drop=True)
