"""The progress of a run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, TextIO

from palaestrai_mosaik.core.printing import count, shorten_word
from palaestrai_mosaik.core.progress import Display
from palaestrai_mosaik.types.endings import ending

if TYPE_CHECKING:
    from palaestrai_mosaik.experiment import PhaseSpec

    from .worker import EpisodeReport

#: the maximum number of agents whose objectives are shown, and the width of their names behind a bar
_AGENTS, _NAME_WIDTH = 4, 20


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


class ShownProgress(Progress):
    """Shows a bar for the episodes of each phase, with step, steps/s and objectives, or lines.

    Lines are printed every five seconds, and at the beginning and end of each phase.
    """

    def __init__(self, stream: TextIO | None = None):
        self.display = Display(stream, refresh=0.2)
        self._begin("")

    def _begin(self, phase: str) -> None:
        self._phase = phase
        self._objectives: dict[str, float] = {}
        self.total = self._done = 0
        self.display.restart()

    def begin_phase(self, name: str, workers: int, episodes: int | None) -> None:
        self._begin(name)
        each = "any number of episodes" if episodes is None else count(episodes, "episode")
        self.display.line(f"phase {name}: {count(workers, 'worker')}, {each}{' each' * (workers > 1)}")
        total = None if episodes is None else episodes * workers
        form = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} episodes [{elapsed}{postfix}]"
        self.display.begin(total, name, "episode", bar_format=form)

    def carry(self, name: str, episodes: int, steps: int, reason: str = "") -> None:
        done = f"had ended before, {ending(reason)}" if reason else "continues"
        self.display.line(
            f"phase {name}: {done}, {count(episodes, 'episode')} and {count(steps, 'step')} done"
        )
        if not reason:
            self.display.advance(episodes)

    def step(self, worker: int, episode: int, steps: int) -> None:
        self.total += steps > 0
        # reading the clock in every step would be too slow
        if self.total & 31:
            return
        seconds = self.display.due()
        if seconds is not None:
            rate = (self.total - self._done) / seconds
            self._done = self.total
            position = f"worker {worker} episode {episode} step {steps}"
            self.display.line(f"phase {self._phase}: {position}, {rate:.0f} steps/s{self._last_objectives()}")
            self._say(f"step {steps}", f"{rate:.0f} steps/s")

    def episode(self, worker: int, episode: int, steps: int, objectives: dict[str, float]) -> None:
        self._objectives = dict(islice(objectives.items(), _AGENTS))
        self.display.advance()

    def end_phase(self, name: str, reason: str) -> None:
        done = f"{count(self.total, 'step')} in {self.display.seconds:.1f} s"
        self.display.line(f"phase {name}: over, {ending(reason)}, {done}{self._last_objectives()}")
        self._say(done)
        self.display.close()

    def _last_objectives(self) -> str:
        objectives = " ".join(f"{name}={value:.4g}" for name, value in self._objectives.items())
        return f", last objectives {objectives}" if objectives else ""

    def _say(self, *texts: str) -> None:
        """Show the objectives, with short names, and ``texts`` behind the bar."""
        names = [f"{shorten_word(name, _NAME_WIDTH)}={value:.4g}" for name, value in self._objectives.items()]
        self.display.say(*names, *texts, needed=len(names))


def make_progress(*, quiet: bool = False, stream: TextIO | None = None) -> Progress:
    """Create a progress display.

    Args:
        quiet: show nothing.
        stream: where to show it; ``None``: standard error.

    Returns:
        A bar on a terminal, lines in a log, or callbacks that show nothing.
    """
    return Progress() if quiet else ShownProgress(stream)
