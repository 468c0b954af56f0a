"""How far it is from an environment to a muscle: hops, calls and files.

Counted are the calls of this package's functions between the return of an environment's
``step`` and the call of a muscle's ``propose_actions``, and the files that they are in.
Not counted: mosaik, what executes its schedule in its stead (``simulation/scheduler``), and other libraries;
what plays the user's part (the dummy environment
and agent) and what only that calls; comprehensions, which are no functions from Python
3.12 on.

The budget: three hops, and at most 15 calls for one agent, in at most 4 files, or 5 where its brain learns
(``learner``); they include that its row is closed, that conditions are asked and that its brain thinks. The
conditions are classes that the document names: where these are the package's own, their
calls are counted, but their file is not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.documents import agent, document, phase

import palaestrai_mosaik
from palaestrai_mosaik.core.errors import did_you_mean
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.simulation import mosaik_internals as internals
from palaestrai_mosaik.simulation.coordinator import EpisodeCoordinator

ROOT = str(Path(palaestrai_mosaik.__file__).parent) + "/"
USERS = ("environment/dummy.py", "agent/library/dummy.py")
CONDITIONS = "simulation/conditions.py"
SCHEDULER = "simulation/scheduler/"
#: comprehensions, and the transform that mosaik 3.5 calls for each value, and later releases do not
NOT_COUNTED = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", internals._same.__name__)

Call = tuple[str, str]


@dataclass
class Way:
    """From an environment (or the muscle asked before) to a muscle.

    ``calls`` are (file, function); ``to_environment`` and ``to_muscle`` the functions of
    this package on the stack when the environment was stepped and the muscle asked.
    """

    calls: list[Call] = field(default_factory=list)
    from_environment: bool = False
    to_environment: list[str] = field(default_factory=list)
    to_muscle: list[str] = field(default_factory=list)

    @property
    def size(self) -> tuple[int, int]:
        """Calls and files."""
        return len(self.calls), len({file for file, _ in self.calls})

    def __str__(self) -> str:
        return "\n".join(f"{file}: {name}" for file, name in self.calls)


def _file(frame: FrameType) -> str | None:
    name = frame.f_code.co_filename
    file = name.removeprefix(ROOT)
    return file if name.startswith(ROOT) and not file.startswith(SCHEDULER) else None


def _stack(frame: FrameType) -> Iterator[FrameType]:
    above = frame.f_back
    while above is not None:
        yield above
        above = above.f_back


def _ours_on_stack(frame: FrameType) -> list[str]:
    """Return our functions that call ``frame``, innermost first, up to mosaik."""
    names = []
    for above in _stack(frame):
        file = _file(above)
        if file is None:
            break
        if file not in USERS:
            names.append(above.f_code.co_qualname)
    return names


class Profiler:
    """Notes the ways from environments to muscles while it is on."""

    def __init__(self) -> None:
        self.ways: list[Way] = []
        self._way: Way | None = None

    @contextmanager
    def on(self) -> Iterator[None]:
        """Profile this thread."""
        before = sys.getprofile()
        sys.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _event(self, frame: FrameType, event: str, arg: Any) -> None:
        file, name = _file(frame), frame.f_code.co_name
        if file is None:
            return
        if event == "return" and file == USERS[0] and name == "step":
            self._way = Way(from_environment=True, to_environment=_ours_on_stack(frame))
        elif event == "call" and self._way is not None:
            if name == "propose_actions":
                self._way.to_muscle = _ours_on_stack(frame)
                self.ways.append(self._way)
                self._way = Way()
            elif name not in NOT_COUNTED and not any(_file(f) in USERS for f in (frame, *_stack(frame))):
                self._way.calls.append((file, name))


def ways(agents: int, mode: str = "train") -> list[Way]:
    """Run the dummy document; return all ways but the first, on which memories are laid out."""
    parts = [agent("a"), agent("b", 5)][:agents]
    profiler = Profiler()
    with profiler.on():
        execute(document(phase(agents=parts, mode=mode)))
    found = profiler.ways[agents:]
    # ten steps: the first one is left out here, after the last one nobody acts
    assert len(found) == 8 * agents
    return found


@pytest.mark.parametrize("agents", [1, 2])
def test_three_hops(agents: int) -> None:
    """Environment -> bridge -> agent -> muscle, with nothing between them on the stack."""
    for way in ways(agents):
        if way.from_environment:
            assert way.to_environment == ["EnvironmentSimulator.step"]
        assert way.to_muscle == ["Body.act", "AgentSimulator.step"]


def from_environments(agents: int, mode: str = "train") -> list[Way]:
    return [way for way in ways(agents, mode) if way.from_environment]


@pytest.mark.parametrize("mode", ["test", "train"])
def test_the_budget_of_one_agent(mode: str) -> None:
    for way in from_environments(1, mode):
        calls, files = way.size
        assert calls <= 15, way
        assert files - any(file == CONDITIONS for file, _ in way.calls) <= (5 if mode == "train" else 4), way


def test_a_second_agent_costs_a_row_and_a_thought() -> None:
    """To the first muscle: six calls more, in no other file. From there to the second: seven."""
    for one, two in zip(from_environments(1), from_environments(2), strict=True):
        assert two.size[0] <= one.size[0] + 6, two
        assert two.size[1] == one.size[1], two
    for way in ways(2):
        if not way.from_environment:
            # five of them read the values of the first agent's five actuators
            assert way.size[0] <= 7 and way.size[1] <= 3, way


def test_a_detour_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def detour(self: EpisodeCoordinator, time: int, inputs: Any) -> Any:
        did_you_mean("x", [])
        return straight(self, time, inputs)

    before = [way.size for way in ways(1)]
    straight = EpisodeCoordinator.observe
    monkeypatch.setattr(EpisodeCoordinator, "observe", detour)
    # ``detour`` itself belongs to this test
    assert [way.size for way in ways(1)] == [(calls + 1, files + 1) for calls, files in before]
