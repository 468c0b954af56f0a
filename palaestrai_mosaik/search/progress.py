"""The progress of a search: settings, the best outcome so far, and the spent budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from palaestrai_mosaik.design.model import DesignSpec, OutcomeSpec
from palaestrai_mosaik.design.search import sought
from palaestrai_mosaik.design.settings_table import SettingRecord
from palaestrai_mosaik.execution import FolderProgress, make_progress
from palaestrai_mosaik.execution.job import JobRecord
from palaestrai_mosaik.printing import Bar
from palaestrai_mosaik.progress import LINES, Pace, choose, print_line
from palaestrai_mosaik.text import count

from .ranking import is_better


class SearchProgress(FolderProgress):
    """Receives the events of a search. The base class is silent."""

    #: receives the events while the best settings are confirmed
    confirming = FolderProgress()

    def begin_search(self, spec: DesignSpec, settings: Sequence[SettingRecord], processes: int) -> None:
        """A search begins, or goes on with ``settings``."""

    def settled(self, setting: SettingRecord) -> None:
        """A setting is complete, pruned, or failed."""


class _Counting(SearchProgress):
    def __init__(self, stream: TextIO):
        self.stream = stream
        self.confirming = make_progress(stream=stream)
        self.runs = self.steps = self.done = self.pruned = self.failed = 0
        self.best: SettingRecord | None = None
        self._sought: tuple[OutcomeSpec, ...] = ()

    def begin_search(self, spec: DesignSpec, settings: Sequence[SettingRecord], processes: int) -> None:
        assert spec.search is not None
        self._sought, self._budget = sought(spec), spec.search.budget
        for setting in settings:
            # Retried settings do not count for the budget.
            if setting.state == "retried":
                self.done += 1
                continue
            if setting.state not in ("running", "lost"):
                self._count(setting)
            self.runs += setting.runs

    def ended(self, record: JobRecord) -> None:
        self.runs += record.status != "interrupted"

    def settled(self, setting: SettingRecord) -> None:
        self._count(setting)

    def wait(self) -> None:
        make_progress(quiet=False, stream=self.stream).wait()

    def _count(self, setting: SettingRecord) -> None:
        self.done += 1
        self.steps += setting.steps
        self.pruned += setting.state == "pruned"
        self.failed += setting.state == "failed"
        if setting.state != "complete" or len(self._sought) > 1:
            return
        if self.best is None or is_better(setting.values[0], self.best.values[0], self._sought[0]):
            self.best = setting

    @property
    def text(self) -> str:
        """A summary of the settings."""
        parts = [f"{self.pruned} pruned"] * (self.pruned > 0) + [f"{self.failed} failed"] * (self.failed > 0)
        if self.best is not None:
            parts.append(
                f"best {self._sought[0].name} {self.best.values[0]:.6g} (setting {self.best.number})"
            )
        return ", ".join(parts)

    def _used(self) -> str:
        limits = []
        if self._budget.runs is not None:
            limits.append(f"{self.runs} of {self._budget.runs} runs")
        if self._budget.steps is not None:
            limits.append(f"{self.steps} of {self._budget.steps} steps")
        return ", ".join(limits) or f"{self.runs} runs"


class SearchLines(_Counting):
    """Plain lines for a log: at most one every five seconds, and one at the end."""

    def begin_search(self, spec: DesignSpec, settings: Sequence[SettingRecord], processes: int) -> None:
        super().begin_search(spec, settings, processes)
        self._pace, self._last = Pace(LINES), -1
        print_line(
            self.stream,
            f"search with {spec.search.sampler if spec.search else ''}, up to {count(processes, 'run')} at the same time",
        )

    def settled(self, setting: SettingRecord) -> None:
        super().settled(setting)
        if self._pace.due() is not None:
            self._show()

    def end(self) -> None:
        if self._last != self.done:
            self._show()

    def _show(self) -> None:
        self._last = self.done
        print_line(
            self.stream, f"{count(self.done, 'setting')}, {self._used()}{', ' * bool(self.text)}{self.text}"
        )


class SearchBar(_Counting):
    """A bar over the runs of the budget (or of the settings so far), with the best outcome."""

    def begin_search(self, spec: DesignSpec, settings: Sequence[SettingRecord], processes: int) -> None:
        super().begin_search(spec, settings, processes)
        total = self._budget.runs
        form = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
        self.bar = Bar(self.stream, total, "search", "run", bar_format=form if total else None)
        self.bar.update(self.runs)

    def ended(self, record: JobRecord) -> None:
        super().ended(record)
        self.bar.update(record.status != "interrupted")

    def settled(self, setting: SettingRecord) -> None:
        super().settled(setting)
        self.bar.say(f"{count(self.done, 'setting')}, {self.text}".rstrip(", "))

    def end(self) -> None:
        self.bar.close()


def make_search_progress(*, quiet: bool = False, stream: TextIO | None = None) -> SearchProgress:
    """Return the progress for a stream (``None``: standard error): a bar on a terminal, else plain lines."""
    return choose(SearchProgress, SearchBar, SearchLines, quiet=quiet, stream=stream)
