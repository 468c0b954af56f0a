"""How a run tells what it is doing: a bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from tqdm import tqdm


class Progress:
    """Told about a run by the runner. This one is silent."""

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
        self._shown = self._started = time.perf_counter()

    def begin_phase(self, name: str, workers: int, episodes: int | None) -> None:
        self._begin(name)

    def step(self, worker: int, episode: int, steps: int) -> None:
        self.total += steps > 0
        # looking at the clock costs more than it is worth in every step
        if not self.total & 31:
            now = time.perf_counter()
            if now - self._shown >= self.interval:
                rate = (self.total - self._done) / (now - self._shown)
                self._shown, self._done = now, self.total
                self.show(worker, episode, steps, rate)

    def episode(self, worker: int, episode: int, steps: int, objectives: dict[str, float]) -> None:
        self._objectives = " ".join(f"{name}={value:.4g}" for name, value in list(objectives.items())[:4])

    def show(self, worker: int, episode: int, steps: int, rate: float) -> None:
        """Show the state of affairs."""


class Lines(_Rated):
    """Plain lines, for a log: at most one every five seconds, and one per phase."""

    interval = 5.0

    def begin_phase(self, name: str, workers: int, episodes: int | None) -> None:
        super().begin_phase(name, workers, episodes)
        count = "?" if episodes is None else str(episodes)
        self._print(f"phase {name}: {workers} worker(s), {count} episode(s) each")

    def carry(self, name: str, episodes: int, steps: int, reason: str = "") -> None:
        done = f"was over before ({reason})" if reason else "goes on"
        self._print(f"phase {name}: {done}, {episodes} episodes and {steps} steps are done")

    def show(self, worker: int, episode: int, steps: int, rate: float) -> None:
        objective = f", last objectives {self._objectives}" if self._objectives else ""
        self._print(
            f"phase {self._phase}: worker {worker} episode {episode} step {steps}, {rate:.0f} steps/s{objective}"
        )

    def end_phase(self, name: str, reason: str) -> None:
        seconds = time.perf_counter() - self._started
        objective = f", last objectives {self._objectives}" if self._objectives else ""
        self._print(f"phase {name}: over ({reason}), {self.total} steps in {seconds:.1f} s{objective}")

    def _print(self, text: str) -> None:
        print(text, file=self.stream, flush=True)


class Bar(_Rated):
    """A bar over the episodes of a phase, with step, steps/s and objectives."""

    interval = 0.2

    def begin_phase(self, name: str, workers: int, episodes: int | None) -> None:
        super().begin_phase(name, workers, episodes)
        self.bar = tqdm(
            total=None if episodes is None else episodes * workers,
            desc=name,
            unit="episode",
            file=self.stream,
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} episodes [{elapsed}{postfix}]",
            dynamic_ncols=True,
        )

    def carry(self, name: str, episodes: int, steps: int, reason: str = "") -> None:
        if not reason:
            self.bar.update(episodes)

    def show(self, worker: int, episode: int, steps: int, rate: float) -> None:
        self.bar.set_postfix_str(f"step {steps}, {rate:.0f} steps/s {self._objectives}".strip())

    def episode(self, worker: int, episode: int, steps: int, objectives: dict[str, float]) -> None:
        super().episode(worker, episode, steps, objectives)
        self.bar.update()

    def end_phase(self, name: str, reason: str) -> None:
        seconds = time.perf_counter() - self._started
        self.bar.set_postfix_str(f"{self.total} steps in {seconds:.1f} s, {self._objectives or 'over'}")
        self.bar.close()


def make_progress(*, quiet: bool = False, stream: TextIO | None = None) -> Progress:
    """Return what suits ``stream`` (standard error): a bar on a terminal, else plain lines."""
    stream = sys.stderr if stream is None else stream
    if quiet:
        return Progress()
    return Bar(stream) if stream.isatty() else Lines(stream)
