"""The progress of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from palaestrai_mosaik.progress import LINES, Pace, choose, new_bar, print_line

if TYPE_CHECKING:
    from palaestrai_mosaik.experiment import PhaseSpec

    from .worker import EpisodeReport


class Progress:
    """Is called by the runner with what happens. This one is silent."""

    def begin_run(self, instance: str) -> None:
        """A run begins, and is recorded as ``instance`` (not called without a store)."""

    def begin_phase(self, name: str, workers: int, episodes: int | None) -> None:
        """A phase begins (``episodes`` per worker, ``None``: not known)."""

    def carry(self, name: str, episodes: int, steps: int, reason: str = "") -> None:
        """An earlier process of this run has done so much of a phase, which ended for ``reason``.

        Without a reason it is the phase that has just begun, which goes on here.
        """

    def step(self, worker: int, episode: int, steps: int) -> None:
        """``steps`` steps of an episode are done; called at its start (0) and after each."""

    def episode(self, worker: int, episode: int, steps: int, objectives: dict[str, float]) -> None:
        """An episode is over; ``objectives`` gives each agent's mean."""

    def reports(self, phase: PhaseSpec, reports: Sequence[EpisodeReport]) -> None:
        """Episodes of a phase are over, and recorded: training ones, or those of one evaluation."""

    def end_phase(self, name: str, reason: str) -> None:
        """A phase is over."""


class _Rated(Progress):
    """Counts steps and their rate, and shows them at most every ``interval`` seconds."""

    interval = 1.0

    def __init__(self, stream: TextIO):
        self.stream = stream
        self._begin("")

    def _begin(self, phase: str) -> None:
        self._phase = phase
        self._objectives = ""
        self.total = self._done = 0
        self._pace = Pace(self.interval)

    def begin_phase(self, name: str, workers: int, episodes: int | None) -> None:
        self._begin(name)

    def step(self, worker: int, episode: int, steps: int) -> None:
        self.total += steps > 0
        # looking at the clock costs more than it is worth in every step
        if not self.total & 31:
            seconds = self._pace.due()
            if seconds is not None:
                rate = (self.total - self._done) / seconds
                self._done = self.total
                self.show(worker, episode, steps, rate)

    def episode(self, worker: int, episode: int, steps: int, objectives: dict[str, float]) -> None:
        self._objectives = " ".join(f"{name}={value:.4g}" for name, value in list(objectives.items())[:4])

    def show(self, worker: int, episode: int, steps: int, rate: float) -> None:
        """Show the state of affairs."""


class Lines(_Rated):
    """Plain lines, for a log: at most one every five seconds, and one per phase."""

    interval = LINES

    def begin_phase(self, name: str, workers: int, episodes: int | None) -> None:
        super().begin_phase(name, workers, episodes)
        count = "?" if episodes is None else str(episodes)
        print_line(self.stream, f"phase {name}: {workers} worker(s), {count} episode(s) each")

    def carry(self, name: str, episodes: int, steps: int, reason: str = "") -> None:
        done = f"had ended before ({reason})" if reason else "continues"
        print_line(self.stream, f"phase {name}: {done}, {episodes} episodes and {steps} steps done")

    def show(self, worker: int, episode: int, steps: int, rate: float) -> None:
        objective = f", last objectives {self._objectives}" if self._objectives else ""
        print_line(
            self.stream,
            f"phase {self._phase}: worker {worker} episode {episode} step {steps}, {rate:.0f} steps/s{objective}",
        )

    def end_phase(self, name: str, reason: str) -> None:
        seconds = self._pace.seconds
        objective = f", last objectives {self._objectives}" if self._objectives else ""
        print_line(
            self.stream, f"phase {name}: over ({reason}), {self.total} steps in {seconds:.1f} s{objective}"
        )


class Bar(_Rated):
    """A bar over the episodes of a phase, with step, steps/s and objectives."""

    interval = 0.2

    def begin_phase(self, name: str, workers: int, episodes: int | None) -> None:
        super().begin_phase(name, workers, episodes)
        total = None if episodes is None else episodes * workers
        form = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} episodes [{elapsed}{postfix}]"
        self.bar = new_bar(self.stream, total, name, "episode", bar_format=form)

    def carry(self, name: str, episodes: int, steps: int, reason: str = "") -> None:
        if not reason:
            self.bar.update(episodes)

    def show(self, worker: int, episode: int, steps: int, rate: float) -> None:
        self.bar.set_postfix_str(f"step {steps}, {rate:.0f} steps/s {self._objectives}".strip())

    def episode(self, worker: int, episode: int, steps: int, objectives: dict[str, float]) -> None:
        super().episode(worker, episode, steps, objectives)
        self.bar.update()

    def end_phase(self, name: str, reason: str) -> None:
        seconds = self._pace.seconds
        self.bar.set_postfix_str(f"{self.total} steps in {seconds:.1f} s, {self._objectives or 'over'}")
        self.bar.close()


def make_progress(*, quiet: bool = False, stream: TextIO | None = None) -> Progress:
    """Return what suits ``stream`` (standard error): a bar on a terminal, else plain lines."""
    return choose(Progress, Bar, Lines, quiet=quiet, stream=stream)
