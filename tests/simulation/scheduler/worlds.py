"""Small mosaik worlds as plain descriptions, and the simulators that act them out.

A :class:`Scenario` is a frozen dataclass whose ``repr`` can be pasted into a test: only what differs from the
default is printed. :func:`build` makes a mosaik world of it, in which every call to a simulator is noted in a log.

All simulators have the same four attributes; the kind decides what they mean:

    ====  ==========  ===========  ==========
    attr  time-based  event-based  hybrid
    ====  ==========  ===========  ==========
    m     input       trigger      input
    e     input       trigger      trigger
    p     persistent  event        persistent
    n     persistent  event        event
    ====  ==========  ===========  ==========
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import mosaik
import mosaik_api_v3

from palaestrai_mosaik.simulation.scheduler.versions import compile_world


class _Short:
    """Prints the fields that differ from their defaults."""

    def __repr__(self) -> str:
        said = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING or value != field.default:
                said.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(said)})"


@dataclass(frozen=True, repr=False)
class Sim(_Short):
    """One simulator. Cycles are used up one item a step and begin again at their end."""

    name: str
    kind: str = "time-based"
    #: cycle: until its next step; ``None``: it asks for no step; ``"leap"``: to the end of max_advance
    steps: tuple[int | str | None, ...] = (1,)
    #: cycle: the attributes that it has values for, and ``+k`` for an output time k ahead ("x": one unknown
    #: to mosaik)
    emits: tuple[str, ...] = ("pn",)
    #: events leave it in the first so many steps of one time only
    rounds: int | None = None
    #: the groups that it is in, from the outermost
    group: tuple[int, ...] = ()
    entities: int = 1
    #: what its step asks of mosaik: "set_data A", "get_data A", "get_progress", "get_related_entities",
    #: "set_event 3"
    requests: tuple[str, ...] = ()
    #: (method, number of the call, what goes wrong): the name of an exception, or "now", "float" or "none" for what
    #: step returns, or "past" for the time of the outputs
    fault: tuple[str, int, str] | None = None
    api: str = "3.0"
    #: it always returns the same dict, changed in place
    shares: bool = False
    #: it empties the inputs that it is given
    empties: bool = False
    #: its values can not be written as JSON
    opaque: bool = False


@dataclass(frozen=True, repr=False)
class Link(_Short):
    """One connection; without attributes it is there for requests only."""

    src: str
    dest: str
    src_attr: str = ""
    dest_attr: str = ""
    shift: int = 0
    weak: bool = False
    initial: Any = None
    transform: str = ""
    src_entity: int = 0
    dest_entity: int = 0
    requests: bool = False


@dataclass(frozen=True, repr=False)
class Scenario(_Short):
    sims: tuple[Sim, ...]
    links: tuple[Link, ...] = ()
    until: int = 4
    initial_events: tuple[tuple[str, int], ...] = ()
    cache: bool = True
    lazy: bool = True
    max_loop_iterations: int = 100
    debug: bool = False


def _picky(value: Any) -> Any:
    """Take the first values only."""
    if "2" in str(value):
        raise ValueError(f"{value} is not wanted")
    return value


def _missing(value: Any) -> Any:
    """Fail at the second value in a way that mosaik takes for something else: that there is none."""
    if "2" in str(value):
        raise KeyError(f"{value} is missing")
    return value


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "": lambda value: value,
    "twice": lambda value: value and value + value,
    "boxed": lambda value: [value],
    "picky": _picky,
    "missing": _missing,
}


class _NotJSON:
    """Stands beside a text in a value to make it opaque."""

    def __repr__(self) -> str:
        return "?"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _NotJSON)

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Call:
    """One call of a simulator's method, and what came of it."""

    sid: str
    method: str
    arguments: tuple[Any, ...] = ()
    #: "raised" where nothing was returned
    result: Any = "raised"
    #: what the step asked of mosaik, and its answers
    answers: list[Any] = dataclasses.field(default_factory=list)


EXCEPTIONS: dict[str, type[Exception]] = {
    one.__name__: one
    for one in (ValueError, TypeError, AssertionError, ConnectionError, KeyError, StopIteration, RuntimeError)
}
_MODEL = {"public": True, "params": [], "attrs": ["m", "e", "p", "n"]}
_META: dict[str, dict[str, Any]] = {
    "time-based": {**_MODEL},
    "event-based": {**_MODEL},
    "hybrid": {**_MODEL, "trigger": ["e"], "non-persistent": ["n"]},
}


class Actor(mosaik_api_v3.Simulator):
    """Acts out a :class:`Sim` and notes every call in a log that it shares with the others."""

    def __init__(self) -> None:
        super().__init__({})
        self.calls: dict[str, int] = {}
        self.time = -1
        self.round = 0
        self.shared: dict[str, Any] = {}

    def play(self, sim: Sim, log: list[Call]) -> Any:
        self.it, self.log = sim, log
        self.meta = {"api_version": sim.api, "models": {"Model": _META[sim.kind]}}
        if sim.api.startswith("3"):
            self.meta["type"] = sim.kind
        return self.meta

    def init(self, sid: str, time_resolution: float = 1.0, **params: Any) -> Any:
        return self.play(**params)

    def create(self, num: int, model: str, **params: Any) -> list[dict[str, Any]]:
        return [{"eid": f"{number}", "type": model} for number in range(num)]

    def note(self, method: str, *arguments: Any) -> Call:
        """Note a call, and raise what it is to raise."""
        call = Call(self.it.name, method, deepcopy(arguments))
        self.log.append(call)
        self.calls[method] = self.calls.get(method, 0) + 1
        wrong = self.wrong(method)
        if wrong in EXCEPTIONS:
            raise EXCEPTIONS[wrong](f"{self.it.name} fails in its {method} {self.calls[method]}")
        return call

    def wrong(self, method: str) -> str:
        if self.it.fault is None or self.it.fault[:2] != (method, self.calls[method]):
            return ""
        return self.it.fault[2]

    def setup_done(self) -> None:
        self.note("setup_done").result = None

    def finalize(self) -> None:
        self.note("finalize").result = None

    def next_step(self, time: int, max_advance: int) -> Any:
        wrong = self.wrong("step")
        if wrong in ("now", "float", "none"):
            return {"now": time, "float": time + 1.0, "none": None}[wrong]
        step = self.it.steps[(self.calls["step"] - 1) % len(self.it.steps)]
        if step == "leap":
            return max(time, max_advance) + 1
        return None if step is None else time + step

    def before(self, time: int, inputs: Any, max_advance: int) -> Call:
        self.round = self.round + 1 if time == self.time else 1
        self.time = time
        return self.note("step", time, inputs, max_advance)

    def after(self, call: Call, inputs: Any) -> Any:
        time, _, max_advance = call.arguments
        call.result = self.next_step(time, max_advance)
        if self.it.empties:
            for attrs in inputs.values():
                for values in attrs.values():
                    values.clear()
                attrs.clear()
            inputs.clear()
        return call.result

    def step(self, time: int, inputs: Any, max_advance: int) -> Any:
        return self.after(self.before(time, inputs, max_advance), inputs)

    def emitted(self, entity: int) -> tuple[str, int]:
        """Return the attributes that an entity has values for now, and how far ahead."""
        said = self.it.emits[(self.calls.get("step", 0) - 1 + entity) % len(self.it.emits)]
        attrs, _, ahead = said.partition("+")
        if self.it.rounds is not None and self.round > self.it.rounds:
            events = {"time-based": "", "hybrid": "n", "event-based": "pn"}[self.it.kind]
            attrs = "".join(attr for attr in attrs if attr not in events)
        return attrs, int(ahead or 0)

    def value(self, attr: str) -> Any:
        text = f"{attr}{self.calls.get('step', 0)}"
        return [text, _NotJSON()] if self.it.opaque else text

    def get_data(self, outputs: Any) -> Any:
        call = self.note("get_data", outputs)
        data: dict[str, Any] = self.shared if self.it.shares else {}
        for eid, attrs in outputs.items():
            values = data.setdefault(eid, {})
            values.clear()
            emitted, _ = self.emitted(int(eid))
            values.update({attr: self.value(attr) for attr in attrs if attr in emitted})
            if "x" in emitted:
                values["x"] = "unknown"
        ahead = -1 if self.wrong("get_data") == "past" else self.emitted(0)[1]
        if ahead:
            data["time"] = self.time + ahead
        call.result = deepcopy(data)
        return data


class AskingActor(Actor):
    """Its step is a generator function, which asks mosaik for things."""

    def step(self, time: int, inputs: Any, max_advance: int) -> Any:  # type: ignore[override]
        call = self.before(time, inputs, max_advance)
        for request in self.it.requests:
            what, _, whom = request.partition(" ")
            if what == "set_data":
                value = self.value("set")
                asked = self.mosaik.set_data({f"{self.it.name}.0": {f"{whom}.0": {"m": value}}})
            elif what == "get_data":
                asked = self.mosaik.get_data({f"{whom}.0": ["p", "n"]})
            elif what == "set_event":
                asked = self.mosaik.set_event(int(whom))
            elif what == "get_related_entities":
                asked = self.mosaik.get_related_entities(f"{self.it.name}.0")
            else:
                asked = self.mosaik.get_progress()
            call.answers.append(deepcopy((yield asked)))
        return self.after(call, inputs)


class OldActor(Actor):
    """As simulators were before version 3: without time_resolution and max_advance."""

    def init(self, sid: str, sim: Sim, log: list[Call]) -> Any:
        return self.play(sim, log)

    def step(self, time: int, inputs: Any) -> Any:  # type: ignore[override]
        call = self.before(time, inputs, time)
        return self.after(call, inputs)


def _actor(sim: Sim) -> type[Actor]:
    if not sim.api.startswith("3"):
        return OldActor
    return AskingActor if sim.requests else Actor


def build(scenario: Scenario, log: list[Call], **world_arguments: Any) -> mosaik.World:
    """Make the world that a scenario describes; raises what mosaik raises where it refuses it."""
    starters = {
        sim.name: {"python": f"{__name__}:{_actor(sim).__name__}", "api_version": sim.api}
        for sim in scenario.sims
    }
    world = mosaik.World(
        starters,
        cache=scenario.cache,
        debug=scenario.debug,
        max_loop_iterations=scenario.max_loop_iterations,
        skip_greetings=True,
        configure_logging=False,
        **world_arguments,
    )
    try:
        entities: dict[str, list[Any]] = {}
        _start(world, scenario.sims, log, entities)
        for link in scenario.links:
            _connect(world, link, entities)
        for name, time in scenario.initial_events:
            world.set_initial_event(name, time)
        compile_world(world._async_world)
    except BaseException:
        # its simulators may be meant to fail in their finalize; what counts is why there is no world
        with contextlib.suppress(Exception):
            world.shutdown()
        raise
    return world


def _start(
    world: mosaik.World, sims: tuple[Sim, ...], log: list[Call], entities: dict[str, Any], depth: int = 0
):
    """Start simulators in their order, those of one group when the first of them is met."""
    for sim in sims:
        if sim.name in entities:
            continue
        if len(sim.group) > depth:
            mates = tuple(one for one in sims if one.group[: depth + 1] == sim.group[: depth + 1])
            # groups of one name (or of none) are one group to mosaik if the same group holds them
            with world.group(str(sim.group[: depth + 1])):
                _start(world, mates, log, entities, depth + 1)
        else:
            with contextlib.redirect_stdout(io.StringIO()):  # of what is printed about old simulators
                factory = world.start(sim.name, sim.name, sim=sim, log=log)
            entities[sim.name] = factory.Model.create(sim.entities)


def _connect(world: mosaik.World, link: Link, entities: dict[str, Any]) -> None:
    given: dict[str, Any] = {}
    if link.initial is not None:
        given["initial_data"] = {link.src_attr: link.initial}
    if link.transform:
        given["transform"] = TRANSFORMS[link.transform]
    src, dest = entities[link.src][link.src_entity], entities[link.dest][link.dest_entity]
    attrs = [(link.src_attr, link.dest_attr)] if link.src_attr else []
    world.connect(
        src, dest, *attrs, async_requests=link.requests, time_shifted=link.shift, weak=link.weak, **given
    )
