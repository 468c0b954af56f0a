"""What a report is made of, as plain data, and its tables: a part on the page, all of it in CSV files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.design.model import DesignSpec
from palaestrai_mosaik.text import count

from ..missing_runs import executed_text
from .compared import Compared, count_seeds
from .markup import Safe, cell, tag

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class LearningData:
    """How an agent learned: ``lines`` has the columns ``level``, ``episode``, ``n`` (runs), ``seeds``
    (of them), ``value``, ``low`` and ``high``, in order of the episodes; ``note`` says what value and band are.
    """

    title: str
    value: str
    lines: pd.DataFrame
    note: str = ""


@dataclass(frozen=True)
class ReportData:
    """All that a report tells.

    ``values``: per row of the design the decoded value (or label) of each factor,
    ``INACTIVE`` (or nothing) where it is. ``runs``: a row per run with ``row``, ``repetition``, ``uid``, ``run``, ``status``
    and a column per outcome of ``outcomes`` (NaN where there is none). ``sensitivity``: ``outcome``,
    ``method``, ``index``, ``factor``, ``factor2`` (empty but for pairs), ``value``, ``low``, ``high`` (NaN
    without an interval), ``used``, ``lost`` and ``executed`` (runs). ``failures``: text columns.
    ``remarks``: what has to be known about a method's indices of an outcome; ``refused``: why there
    are none. ``sizes``: what was counted, in words (``rows`` -> ``"48"``). ``commands`` make all of it again.
    """

    spec: DesignSpec
    outcomes: tuple[str, ...]
    values: Sequence[Mapping[str, Any]]
    runs: pd.DataFrame
    sensitivity: pd.DataFrame
    comparisons: tuple[Compared, ...] = ()
    learning: tuple[LearningData, ...] = ()
    failures: pd.DataFrame | None = None
    remarks: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    refused: Mapping[tuple[str, str], str] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def finite(self, outcome: str) -> pd.DataFrame:
        """Return the runs that gave a finite ``outcome``; all others are lost."""
        found: pd.DataFrame = self.runs[np.isfinite(self.runs[outcome].to_numpy(float))]
        return found

    def seeds_of(self, outcome: str) -> str:
        """Return how many distinct seeds the runs have that gave ``outcome``: ``3 seeds``."""
        return count(count_seeds(self.finite(outcome), self.spec.seed_policy == "common"), "seed")

    def counted(self, outcome: str) -> str:
        """Return how many runs gave ``outcome``: ``36 runs (21 executed)``."""
        told = self.finite(outcome)["run"]
        executed = executed_text(len(told), told.nunique())
        return f"{count(len(told), 'run')}{f' ({executed})' * bool(executed)}"

    def runs_of(self, outcome: str) -> str:
        """Return the same with their seeds: ``36 runs (21 executed) of 3 seeds``."""
        return f"{self.counted(outcome)} of {self.seeds_of(outcome)}"


#: of longer tables, so many rows are on the page
MOST_ROWS = 60
#: of wider tables, so many columns fit on paper (the style sheet knows, too)
PRINTED_COLUMNS = 13
_LONGEST_CELL = 400
_SHORT = 24


@dataclass(frozen=True)
class Table:
    """``frame`` under a ``caption``; ``name`` is that of its file, without ending.

    On the page are the first rows, at most ``most`` (0: a link to the file only), and those
    ``columns`` that there are (none named: all).
    """

    name: str
    caption: str
    frame: pd.DataFrame
    most: int = MOST_ROWS
    columns: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        return f"{self.name}.csv"

    def csv(self) -> str:
        """Return all rows, floats with all of their digits."""
        return self.frame.to_csv(index=False, lineterminator="\n")

    def markup(self) -> Safe:
        """Return the first rows in a box of their own, which scrolls if it is too wide."""
        if not self.most:
            link = tag("a", self.file, href=self.file)
            return tag("p", f"{self.caption}: {count(len(self.frame), 'row')} in ", link, class_="quiet")
        frame = self.frame
        if self.columns:
            frame = frame[[name for name in self.columns if name in frame]]
        headers = [str(name) for name in frame.columns]
        numeric = [all(_is_number(v) for v in frame[name]) for name in frame.columns]
        head = [
            tag("th", header, scope="col", class_="number" if right else None)
            for header, right in zip(headers, numeric, strict=True)
        ]
        body = [
            tag(
                "tr",
                *(_cell(i, value, right) for i, (value, right) in enumerate(zip(row, numeric, strict=True))),
            )
            for row in frame.head(self.most).itertuples(index=False, name=None)
        ]
        caption = tag(
            "caption", self.caption, *self._left_out(frame), " ", tag("a", self.file, href=self.file)
        )
        table = tag(
            "table", caption, tag("thead", tag("tr", *head)), tag("tbody", *body), id=f"table-{self.name}"
        )
        return tag("div", table, class_="scroll", role="region", aria_label=self.caption, tabindex="0")

    def _left_out(self, frame: pd.DataFrame) -> Iterator[object]:
        """Yield what the page, or its print, does not show."""
        if len(frame) > self.most:
            yield f": the first {self.most} of {len(frame):,} rows"
        if len(frame.columns) < len(self.frame.columns):
            yield "; more columns are in"
        elif len(frame.columns) > PRINTED_COLUMNS:
            yield tag(
                "span", f"; printed are {PRINTED_COLUMNS} of {len(frame.columns)} columns", class_="paper"
            )


def _cell(place: int, value: Any, right: bool) -> Safe:
    shown = cell(value)
    if len(shown) > _LONGEST_CELL:
        shown = f"{shown[: _LONGEST_CELL - 1]}\u2026"
    if place == 0:
        short = "short" if len(shown) <= _SHORT else None
        return tag("th", shown, scope="row", class_="number" if right else short)
    return tag("td", shown, class_="number" if right else None)


def _is_number(value: Any) -> bool:
    return value is None or (hasattr(value, "__float__") and not isinstance(value, bool | str))
