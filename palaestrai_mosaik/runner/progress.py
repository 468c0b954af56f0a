"""The progress of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from palaestrai_mosaik.printing import Bar
from palaestrai_mosaik.progress import LINES, Pace, choose, print_line

if TYPE_CHECKING:
    from palaestrai_mosaik.experiment import PhaseSpec

    from .worker import EpisodeReport


class Progress:
    """Callbacks for the progress of a run. This base class prints nothing."""

    def begin_run(self, instance: str) -> None:
        """Begin a recorded run. Not called without a store.

        Args:
            instance: the uid of the run.
        """

    def begin_phase(self, name: str, workers: int, episodes: int | None) -> None:
        """Begin a phase.

        Args:
            name: its name.
            workers: the number of workers.
            episodes: the number of episodes per worker, ``None`` if unknown.
        """

    def carry(self, name: str, episodes: int, steps: int, reason: str = "") -> None:
        """Add the episodes and steps that an earlier process of this run did in a phase.

        Args:
            name: the name of the phase.
            episodes: the number of episodes.
            steps: the number of steps.
            reason: why the phase ended; empty for the phase that has just begun and continues here.
        """

    def step(self, worker: int, episode: int, steps: int) -> None:
        """Report the steps of an episode, at its start and after each step.

        Args:
            worker: the number of the worker.
            episode: the number of the episode.
            steps: the number of steps so far, 0 at the start.
        """

    def episode(self, worker: int, episode: int, steps: int, objectives: dict[str, float]) -> None:
        """Report the end of an episode.

        Args:
            worker: the number of the worker.
            episode: the number of the episode.
            steps: its number of steps.
            objectives: the mean objective of each agent.
        """

    def reports(self, phase: PhaseSpec, reports: Sequence[EpisodeReport]) -> None:
        """Report recorded episodes.

        Args:
            phase: the phase.
            reports: training episodes, or all episodes of one evaluation.
        """

    def end_phase(self, name: str, reason: str) -> None:
        """End a phase.

        Args:
            name: its name.
            reason: why it ended.
        """


class _Rated(Progress):
    """Counts steps and shows their rate at most once per ``interval`` seconds."""

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
        # reading the clock in every step would be too slow
        if not self.total & 31:
            seconds = self._pace.due()
            if seconds is not None:
                rate = (self.total - self._done) / seconds
                self._done = self.total
                self.show(worker, episode, steps, rate)

    def episode(self, worker: int, episode: int, steps: int, objectives: dict[str, float]) -> None:
        self._objectives = " ".join(f"{name}={value:.4g}" for name, value in list(objectives.items())[:4])

    def show(self, worker: int, episode: int, steps: int, rate: float) -> None:
        """Show the current position and rate."""


class Lines(_Rated):
    """Plain lines for a log: at most one per five seconds, and one at the end of each phase."""

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


class PhaseBar(_Rated):
    """A bar for the episodes of a phase, with step, steps/s and objectives."""

    interval = 0.2

    def begin_phase(self, name: str, workers: int, episodes: int | None) -> None:
        super().begin_phase(name, workers, episodes)
        total = None if episodes is None else episodes * workers
        form = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} episodes [{elapsed}{postfix}]"
        self.bar = Bar(self.stream, total, name, "episode", bar_format=form)

    def carry(self, name: str, episodes: int, steps: int, reason: str = "") -> None:
        if not reason:
            self.bar.update(episodes)

    def show(self, worker: int, episode: int, steps: int, rate: float) -> None:
        self.bar.say(f"step {steps}, {rate:.0f} steps/s {self._objectives}".strip())

    def episode(self, worker: int, episode: int, steps: int, objectives: dict[str, float]) -> None:
        super().episode(worker, episode, steps, objectives)
        self.bar.update()

    def end_phase(self, name: str, reason: str) -> None:
        seconds = self._pace.seconds
        self.bar.say(f"{self.total} steps in {seconds:.1f} s, {self._objectives or 'over'}")
        self.bar.close()


def make_progress(*, quiet: bool = False, stream: TextIO | None = None) -> Progress:
    """Create a progress display.

    Args:
        quiet: show nothing.
        stream: where to show it; ``None``: standard error.

    Returns:
        A bar on a terminal, lines in a log, or callbacks that show nothing.
    """
    return choose(Progress, PhaseBar, Lines, quiet=quiet, stream=stream)
