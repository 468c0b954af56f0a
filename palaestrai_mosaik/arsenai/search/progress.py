"""The progress of a search: settings, the best outcome so far, and the spent budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from palaestrai_mosaik.arsenai.design.model import DesignSpec, OutcomeSpec
from palaestrai_mosaik.arsenai.design.search import sought
from palaestrai_mosaik.arsenai.design.settings import SettingRecord
from palaestrai_mosaik.arsenai.execution import FolderProgress, make_progress
from palaestrai_mosaik.arsenai.execution.job import JobRecord
from palaestrai_mosaik.core.printing import count
from palaestrai_mosaik.core.progress import Display

from .ranking import is_better


class SearchProgress(FolderProgress):
    """Receives the events of a search. The base class is silent."""

    #: receives the events while the best settings are confirmed
    confirming = FolderProgress()

    def begin_search(self, spec: DesignSpec, settings: Sequence[SettingRecord], processes: int) -> None:
        """A search begins, or goes on with ``settings``."""

    def settled(self, setting: SettingRecord) -> None:
        """A setting is complete, pruned, or failed."""


class ShownProgress(SearchProgress):
    """Shows a bar over the runs of the budget, or of the settings so far, with the best outcome; or lines.

    Lines are printed every five seconds, and at the end.
    """

    def __init__(self, stream: TextIO | None = None):
        self.display = Display(stream)
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
        self._last = -1
        self.display.restart()
        at_once = f"up to {count(processes, 'run')} at the same time"
        self.display.line(f"search with {spec.search.sampler}, {at_once}")
        total = self._budget.runs
        form = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
        self.display.begin(total, "search", "run", bar_format=form if total else None)
        self.display.advance(self.runs)

    def ended(self, record: JobRecord) -> None:
        self.runs += record.status != "interrupted"
        self.display.advance(record.status != "interrupted")

    def settled(self, setting: SettingRecord) -> None:
        self._count(setting)
        self.display.say(*reversed(self._parts()), count(self.done, "setting"))
        if self.display.due() is not None:
            self._print_line()

    def wait(self) -> None:
        self.confirming.wait()

    def end(self) -> None:
        if self._last != self.done:
            self._print_line()
        self.display.close()

    def _print_line(self) -> None:
        self._last = self.done
        settings = count(self.done, "setting")
        self.display.line(f"{settings}, {self._used()}{', ' * bool(self.text)}{self.text}")

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
        return ", ".join(self._parts())

    def _parts(self) -> list[str]:
        """Return the parts of the summary, the best setting last."""
        parts = [f"{self.pruned} pruned"] * (self.pruned > 0) + [f"{self.failed} failed"] * (self.failed > 0)
        if self.best is not None:
            parts.append(
                f"best {self._sought[0].name} {self.best.values[0]:.6g} (setting {self.best.number})"
            )
        return parts

    def _used(self) -> str:
        limits = []
        if self._budget.runs is not None:
            limits.append(f"{self.runs} of {count(self._budget.runs, 'run')}")
        if self._budget.steps is not None:
            limits.append(f"{self.steps} of {count(self._budget.steps, 'step')}")
        return ", ".join(limits) or count(self.runs, "run")


def make_search_progress(*, quiet: bool = False, stream: TextIO | None = None) -> SearchProgress:
    """Return the progress for a stream (``None``: standard error): a bar on a terminal, else plain lines."""
    return SearchProgress() if quiet else ShownProgress(stream)
