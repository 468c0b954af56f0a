"""Which modules a document names: in its classes, and in what some classes are given in ``params``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from palaestrai_mosaik.importing import COMMANDS, CONNECTIONS, OURS, refusal

from .classes import named_classes
from .model import Place, RunDocument
from .names import named_modules

#: a module, or ``cmd:`` or ``connect:``; where below a class it is named; whether ours are allowed anyway
Naming = tuple[str, Place, bool]


def naming(name: str, params: Mapping[str, Any]) -> Iterator[Naming]:
    """Yield the modules that a class and its ``params`` name, places relative to the class's own.

    What is not as its class wants it is left to the class to tell.
    """
    for module in named_modules(name):
        yield module, ("name",), True
        inside = _INSIDE.get(name.rpartition(":")[2]) if module.partition(".")[0] == OURS else None
        if inside is not None:
            for found, place, ours in inside(params):
                yield found, ("params", *place), ours


def _in_copies(params: Mapping[str, Any]) -> Iterator[Naming]:
    inner = params.get("params")
    if isinstance(params.get("name"), str):
        yield from naming(params["name"], inner if isinstance(inner, Mapping) else {})


def _in_gymnasium(params: Mapping[str, Any]) -> Iterator[Naming]:
    module, colon, _ = str(params.get("id")).rpartition(":")
    if colon:
        yield module, ("id",), True


def _in_described(params: Mapping[str, Any]) -> Iterator[Naming]:
    yield from _module_of(params.get("build"), ("build",))
    simulators = params.get("simulators")
    for uid, simulator in simulators.items() if isinstance(simulators, Mapping) else ():
        if isinstance(simulator, Mapping):
            place = ("simulators", uid)
            yield from _module_of(simulator.get("python"), (*place, "python"))
            for key, word in (("cmd", COMMANDS), ("connect", CONNECTIONS)):
                if simulator.get(key):
                    yield word, (*place, key), False


def _in_mosaik(params: Mapping[str, Any]) -> Iterator[Naming]:
    module = params.get("module")
    if isinstance(module, str):
        yield module.partition(":")[0], ("module",), False
    yield from _module_of(params.get("terminal_condition"), ("terminal_condition",))


def _in_pettingzoo(params: Mapping[str, Any]) -> Iterator[Naming]:
    yield from _module_of(params.get("id"), ("id",))


def _module_of(name: Any, place: Place) -> Iterator[Naming]:
    if isinstance(name, str) and ":" in name:
        yield name.partition(":")[0], place, False


#: classes of this package whose ``params`` name more
_INSIDE: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Naming]]] = {
    "Copies": _in_copies,
    "DescribedCoSimulation": _in_described,
    "GymnasiumEnvironment": _in_gymnasium,
    "MosaikEnvironment": _in_mosaik,
    "PettingZooEnvironment": _in_pettingzoo,
}


def refusals(name: str, params: Mapping[str, Any]) -> Iterator[tuple[str, Place]]:
    """Yield what a class and its ``params`` name and may not, places relative to the class's own.

    Nothing is imported. See :func:`~palaestrai_mosaik.importing.only_modules`.
    """
    for module, place, ours in naming(name, params):
        fault = refusal(module, ours=ours)
        if fault is not None:
            yield fault, place


def modules_of(document: RunDocument) -> set[str]:
    """Return the modules that ``document`` names, without this package's own classes.

    ``cmd:`` and ``connect:`` are among them where it has such simulators. It is what
    :func:`~palaestrai_mosaik.importing.only_modules` has to allow for it; what parts of a grid's
    file are made of is not known here.
    """
    return {
        module
        for _, name, params, _ in named_classes(document)
        for module, _, ours in naming(name, params)
        if not (ours and module.partition(".")[0] == OURS)
    }
