"""Importing what a document names: the one place that does, and what holds it to chosen modules.

To import a class is to run code, and a document can name any class that can be imported. Where a
document comes from elsewhere, :func:`only_modules` says of which modules it may name something.
This package's own classes are always allowed; what they can be given in ``params`` is not (the
function that ``build`` names, the class that copies are made of, a simulator, the module of a
Gymnasium id, what a grid's file has been made of), so each of these comes through here, too.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any

from palaestrai_mosaik.errors import NameResolutionError, did_you_mean

OURS = "palaestrai_mosaik"
#: these stand among the modules for simulators that are started by a command line, and for those
#: that run already and are reached over the network
COMMANDS, CONNECTIONS = "cmd:", "connect:"

#: where files lie that no user has written
_LIBRARIES = (os.path.dirname(__file__), *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
_IDENTIFIER = r"[^\W\d]\w*"
_MODULE = re.compile(rf"{_IDENTIFIER}(\.{_IDENTIFIER})*")

#: of the blocks that go on. All of them hold, for all threads: none can be left early, and no
#: thread is forgotten
_limits: list[tuple[str, ...]] = []
#: the modules outside of this package that documents have named in this process
_others: set[str] = set()


@contextmanager
def only_modules(modules: Iterable[str] | None) -> Iterator[None]:
    """Let documents, while the block goes on, name classes and functions of ``modules`` only.

    A module is allowed if it is one of them or inside of one (``mypackage`` allows
    ``mypackage.agents``); so are this package's classes. ``cmd:`` and ``connect:`` allow simulators
    that are no Python classes, ``cmd:`` also environments in other interpreters. ``None`` limits nothing. Blocks inside of others limit further. It
    holds in this process; :func:`limit` is what to hand to another one.

    Raises :class:`NameResolutionError` for what is no module's name.
    """
    if modules is None:
        yield
        return
    mine = check_modules(modules)
    _limits.append(mine)
    try:
        yield
    finally:
        # this one, and no equal one of another thread: which of these goes makes no difference
        _limits.remove(mine)


def check_modules(modules: Iterable[str]) -> tuple[str, ...]:
    """Return ``modules``, each once. Raises :class:`NameResolutionError` for what is none."""
    found = tuple(dict.fromkeys(modules))
    for name in found:
        if name not in (COMMANDS, CONNECTIONS) and not _MODULE.fullmatch(name):
            raise NameResolutionError(
                f"{name!r} is no module's name such as 'mypackage' or 'mypackage.agents', nor "
                f"{COMMANDS!r} or {CONNECTIONS!r}{did_you_mean(name, (COMMANDS, CONNECTIONS))}"
            )
    return found


def limit() -> tuple[str, ...] | None:
    """Return the modules that all blocks of :func:`only_modules` allow; ``None``: there is no such block."""
    allowed: tuple[str, ...] | None = None
    for one in _limits:
        if allowed is None:
            allowed = one
        else:
            both = [name for name in allowed if _within(name, one)]
            allowed = tuple(dict.fromkeys([*both, *(name for name in one if _within(name, allowed))]))
    return allowed


def refusal(module: str, *, ours: bool = True) -> str | None:
    """Return why nothing of ``module`` may be named now, ``None`` if it may.

    ``module`` may be ``cmd:`` or ``connect:``, too. Without ``ours``, modules of this package count
    as any other: its classes are made for documents, its functions are not.
    """
    note_module(module)
    allowed = limit()
    if allowed is None or _within(module, allowed) or (ours and _within(module, (OURS,))):
        return None
    shown = ", ".join([*([OURS] if ours else []), *allowed]) or "none"
    what = f"the module {module!r} is" if module not in (COMMANDS, CONNECTIONS) else f"{module!r} is"
    return f"{what} not allowed for this document; allowed: {shown} (--allow-modules)"


def note_module(module: str, *, known: str = OURS) -> None:
    """Note that a document has named something of ``module``; not if it is within the package ``known`` or this one."""
    if not _within(module, (OURS, known)):
        _others.add(module)


def named_users_code() -> bool:
    """Whether a document has named, in this process, anything of a module outside of this package."""
    return bool(_others)


def load(name: str, *, ours: bool = True, kind: str = "class") -> Any:
    """Import what ``name``, of the form ``package.module:Name``, stands for: a ``kind``, as messages say.

    The working directory is importable. Under :func:`only_modules`, the module must be allowed, and
    what is found must be a class or a function that was defined in the same package, or in an
    allowed module: what a module has itself imported is not its own. ``ours``: see :func:`refusal`.

    Raises :class:`NameResolutionError`; where the import itself raised, its traceback is in the
    message.
    """
    module_name, _, attribute = name.partition(":")
    module = import_module(module_name, ours=ours)
    found = getattr(module, attribute, None)
    if found is None:
        fits = inspect.isclass if kind == "class" else callable
        offered = [key for key, value in vars(module).items() if fits(value)]
        near = did_you_mean(attribute, {*offered, *getattr(module, "__all__", ())})
        raise NameResolutionError(f"the module {module_name!r} has no {kind} {attribute!r}{near}")
    check_origin(found, name, ours=ours)
    return found


def check_origin(found: Any, name: str, *, ours: bool = True) -> None:
    """Raise :class:`NameResolutionError` if what ``name`` stands for may not be taken from where it is.

    See :func:`load`; ``name`` begins with the module that it was found in.
    """
    if limit() is None:
        return
    package = name.partition(":")[0].partition(".")[0]
    # a module has none, nor have some functions that are written in C
    home = getattr(found, "__module__", None)
    if not isinstance(home, str):
        raise NameResolutionError(
            f"{name!r} is a {type(found).__name__}; a document whose modules are limited (--allow-modules) may "
            "name classes and functions only"
        )
    fault = None if _within(home, (package,)) else refusal(home, ours=ours)
    if fault is not None:
        raise NameResolutionError(f"{name!r} is defined elsewhere, and {fault}")


def import_module(module_name: str, *, ours: bool = True) -> Any:
    """Import a module that a document names; the working directory is importable.

    Raises :class:`NameResolutionError`, also where the module is not allowed (see
    :func:`only_modules`): then it was not imported.
    """
    fault = refusal(module_name, ours=ours)
    if fault is not None:
        raise NameResolutionError(fault)
    directory = os.getcwd()
    if directory not in sys.path and "" not in sys.path:
        sys.path.insert(0, directory)
        importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise NameResolutionError(
                f"there is no module {missing!r}{did_you_mean(missing, _siblings(missing))}"
            ) from None
        raise NameResolutionError(
            f"importing {module_name!r} needs the module {missing!r}, which is not installed\n"
            f"{traceback_of(error)}"
        ) from error
    except (Exception, SystemExit) as error:
        if isinstance(error, ImportError) and module_name.partition(".")[0] == OURS:
            # one of ours says itself what it needs, and how to install it
            raise NameResolutionError(str(error)) from error
        raise NameResolutionError(f"importing {module_name!r} raised\n{traceback_of(error)}") from error


def load_entry_point(entry: EntryPoint) -> Any:
    """Import what an installed distribution has registered, if its module is allowed (see :func:`only_modules`).

    Raises :class:`NameResolutionError`; where the import itself raised, its traceback is in the message.
    """
    fault = refusal(entry.module)
    if fault is not None:
        raise NameResolutionError(f"{entry.name!r} stands for {entry.value!r}: {fault}")
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        raise NameResolutionError(
            f"{entry.name!r}: loading {entry.value!r} raised\n{traceback_of(error)}"
        ) from error


def importable(package: str) -> bool:
    """Whether there is a package or module of this name."""
    return importlib.util.find_spec(package) is not None


def needed(error: ImportError) -> str:
    """Return what an import needs that has raised ``error``: a module, or else what the error says itself."""
    return error.name or f"what cannot be imported ({error})"


def misfit(maker: Callable[..., Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return why ``maker`` does not take ``kwargs``, ``None`` where it does or does not tell what it takes."""
    try:
        signature = inspect.signature(maker)
    except (TypeError, ValueError):  # some are written in C
        return None
    try:
        signature.bind(**kwargs)
    except TypeError as error:
        return str(error)
    return None


def raised_at(error: BaseException) -> str:
    """Return an error of users' code on one line, with the file and line of theirs that is nearest to it."""
    first: BaseException = error
    while first.__cause__ is not None or first.__context__ is not None:
        first = first.__cause__ or first.__context__  # type: ignore[assignment]
    frames = traceback.extract_tb(first.__traceback__)
    users = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)] or frames
    place = f" ({users[-1].filename}:{users[-1].lineno})" if users else ""
    return f"{type(first).__name__}: {first}{place}"


def traceback_of(error: BaseException) -> str:
    """Return the traceback's text without the frames of the importers."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    # The source line of a syntax error comes with the exception itself.
    return "".join(traceback.format_list(frames) + traceback.format_exception_only(error)).rstrip()


def _within(module: str, modules: Collection[str]) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in modules)


def _siblings(module_name: str) -> list[str]:
    """Return the names of the modules beside a missing one."""
    package, _, _ = module_name.rpartition(".")
    if not package:
        return [*_top_level_modules(os.getcwd()), *sys.stdlib_module_names]
    path = getattr(sys.modules.get(package), "__path__", None)
    return [f"{package}.{module.name}" for module in pkgutil.iter_modules(path)] if path else []


@cache
def _top_level_modules(directory: str) -> tuple[str, ...]:
    return tuple(module.name for module in pkgutil.iter_modules())
