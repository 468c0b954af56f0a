"""Imports for documents: only this module imports the names in documents, and can limit them to chosen modules.

Importing a class runs code, and a document can name any importable class. For a
document from elsewhere, :func:`only_modules` limits the modules that it may name.
This package's own classes are always allowed, but not the names in their ``params`` (the
function in ``build``, the class to copy, a simulator, the module of a
Gymnasium id, the contents of a grid's file), so each of these comes through here, too.
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
from types import FunctionType
from typing import Any

from palaestrai_mosaik.core.errors import NameResolutionError, did_you_mean

OURS = "palaestrai_mosaik"
#: pseudo-modules that allow simulators started by a command line, and running
#: simulators reached over the network
COMMANDS, CONNECTIONS = "cmd:", "connect:"

#: folders of files that no user has written
_LIBRARIES = (
    os.path.dirname(os.path.dirname(__file__)),
    *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")),
)
_IDENTIFIER = r"[^\W\d]\w*"
_MODULE = re.compile(rf"{_IDENTIFIER}(\.{_IDENTIFIER})*")

#: the allowed modules of the active blocks. All of them apply, to all threads: no block can be left early, and no
#: thread is forgotten
_limits: list[tuple[str, ...]] = []
#: the modules outside of this package that documents have named in this process
_others: set[str] = set()


@contextmanager
def only_modules(modules: Iterable[str] | None) -> Iterator[None]:
    """Limit documents to names from ``modules`` within the block.

    A module is allowed if it is in ``modules`` or inside one of them (``mypackage`` allows ``mypackage.agents``); so
    are this package's classes. ``cmd:`` and ``connect:`` allow simulators that are not Python classes, ``cmd:`` also
    environments in other interpreters. ``None`` limits nothing. Nested blocks limit further. The limit holds in this
    process; :func:`limit` returns it for another one.

    Raises :class:`NameResolutionError` if an entry is not the name of a module.
    """
    if modules is None:
        yield
        return
    mine = check_modules(modules)
    _limits.append(mine)
    try:
        yield
    finally:
        # this may remove an equal entry of another thread, which makes no difference
        _limits.remove(mine)


def check_modules(modules: Iterable[str]) -> tuple[str, ...]:
    """Check and deduplicate ``modules``. Raises :class:`NameResolutionError` if one is not the name of a module."""
    names = tuple(dict.fromkeys(modules))
    for name in names:
        if name not in (COMMANDS, CONNECTIONS) and not _MODULE.fullmatch(name):
            raise NameResolutionError(
                f"{name!r} is no module's name such as 'mypackage' or 'mypackage.agents', nor "
                f"{COMMANDS!r} or {CONNECTIONS!r}{did_you_mean(name, (COMMANDS, CONNECTIONS))}"
            )
    return names


def limit() -> tuple[str, ...] | None:
    """Return the modules that all blocks of :func:`only_modules` allow; ``None`` if there is no such block."""
    allowed: tuple[str, ...] | None = None
    for modules in _limits:
        if allowed is None:
            allowed = modules
        else:
            both = [name for name in allowed if _within(name, modules)]
            allowed = tuple(dict.fromkeys([*both, *(name for name in modules if _within(name, allowed))]))
    return allowed


def refusal(module: str, *, ours: bool = True) -> str | None:
    """Explain why a document may not name ``module`` now; ``None`` if it may.

    ``module`` may also be ``cmd:`` or ``connect:``. Without ``ours``, modules of this package count
    as any other: its classes are made for documents, its functions are not.
    """
    note_module(module)
    allowed = limit()
    if allowed is None or _within(module, allowed) or (ours and _within(module, (OURS,))):
        return None
    listing = ", ".join([*([OURS] if ours else []), *allowed]) or "none"
    subject = f"the module {module!r} is" if module not in (COMMANDS, CONNECTIONS) else f"{module!r} is"
    return f"{subject} not allowed for this document; allowed: {listing} (--allow-modules)"


def note_module(module: str, *, library: str = OURS) -> None:
    """Note that a document has named ``module``, unless it is within the package ``library`` or this one."""
    if not _within(module, (OURS, library)):
        _others.add(module)


def named_users_code() -> bool:
    """Whether a document has named any module outside of this package in this process."""
    return bool(_others)


def load(name: str, *, ours: bool = True, kind: str = "class") -> Any:
    """Import a class or function by name.

    The working directory is importable. Under :func:`only_modules`, the module must be allowed, and
    the object must be a class or a function that was defined in the same package, or in an
    allowed module: names that a module has itself imported are not its own.

    Args:
        name: of the form ``package.module:Name``.
        ours: see :func:`refusal`.
        kind: the word for the object in messages.

    Raises:
        NameResolutionError: there is no such object, it is not allowed, or the import raised; then its traceback is
            in the message.
    """
    module_name, _, attribute = name.partition(":")
    module = import_module(module_name, ours=ours)
    target = getattr(module, attribute, None)
    if target is None:
        fits = inspect.isclass if kind == "class" else callable
        offered = [key for key, value in vars(module).items() if fits(value)]
        near = did_you_mean(attribute, {*offered, *getattr(module, "__all__", ())})
        raise NameResolutionError(f"the module {module_name!r} has no {kind} {attribute!r}{near}")
    check_origin(target, name, ours=ours)
    return target


def check_origin(target: Any, name: str, *, ours: bool = True) -> None:
    """Raise :class:`NameResolutionError` if ``target`` was defined in a module that is not allowed.

    See :func:`load`; ``name`` begins with the module that ``target`` was taken from.
    """
    if limit() is None:
        return
    package = name.partition(":")[0].partition(".")[0]
    # modules and some C functions have none
    home = getattr(target, "__module__", None)
    if not isinstance(home, str):
        raise NameResolutionError(
            f"{name!r} is a {type(target).__name__}; a document whose modules are limited (--allow-modules) may "
            "name classes and functions only"
        )
    fault = None if _within(home, (package,)) else refusal(home, ours=ours)
    if fault is not None:
        raise NameResolutionError(f"{name!r} is defined elsewhere, and {fault}")


def import_module(module_name: str, *, ours: bool = True) -> Any:
    """Import a module that a document names; the working directory is importable.

    Raises :class:`NameResolutionError`, also if the module is not allowed (see
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
            # our modules name the missing requirement themselves, and how to install it
            raise NameResolutionError(str(error)) from error
        raise NameResolutionError(f"importing {module_name!r} raised\n{traceback_of(error)}") from error


def load_entry_point(entry: EntryPoint) -> Any:
    """Import the object of an installed distribution's entry point, if its module is allowed (see
    :func:`only_modules`).

    Raises :class:`NameResolutionError`; if the import itself raised, its traceback is in the message.
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
    """Whether a package or module of this name is installed."""
    return importlib.util.find_spec(package) is not None


def needed(error: ImportError) -> str:
    """Name the requirement of an import that has raised ``error``: a module, or else the error's own message."""
    return error.name or f"what cannot be imported ({error})"


def misfit(maker: Callable[..., Any], kwargs: Mapping[str, Any]) -> str | None:
    """Explain why ``maker`` does not take ``kwargs``; ``None`` if it does, or if its signature is unknown."""
    try:
        signature = inspect.signature(maker)
    except (TypeError, ValueError):  # some are written in C
        return None
    try:
        signature.bind(**kwargs)
    except TypeError as error:
        return str(error)
    return None


def broken_overrides(kind: type, base: type) -> Iterator[str]:
    """Yield for each method of ``kind`` why it cannot be called like the one that it overrides.

    The contract is declared by ``base`` and by abstract classes of this package between the two.
    """
    for name, method in _contract(kind, base).items():
        override = inspect.getattr_static(kind, name)
        if override is not method and not _within(getattr(override, "__module__", None) or "", (OURS,)):
            fault = _override_fault(name, method, override)
            if fault is not None:
                yield fault


def _contract(kind: type, base: type) -> dict[str, FunctionType]:
    """Collect the public methods that a class must be able to override, by name."""
    return {
        name: method
        for cls in reversed(kind.__mro__)
        if cls is base or (inspect.isabstract(cls) and _within(cls.__module__, (OURS,)))
        for name, method in vars(cls).items()
        if inspect.isfunction(method) and (name == "__call__" or not name.startswith("_"))
    }


def _override_fault(name: str, method: FunctionType, override: Any) -> str | None:
    """Explain why ``override`` cannot be called like ``method``; ``None`` if it can, or if that is unknown."""
    parameters = [
        p for p in inspect.signature(method).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    required = [p for p in parameters if p.default is p.empty]
    names = ", ".join(p.name for p in required)
    is_function = hasattr(override, "__get__")
    if isinstance(override, property) or not (callable(override) or is_function):
        kind = type(override).__name__
        return f"{name!r} is a {kind}, but must be a method: write `def {name}({names}):`, or rename it"
    is_unbound = isinstance(override, staticmethod) or not is_function
    if isinstance(override, staticmethod | classmethod):
        override = override.__func__
    try:
        signature = inspect.signature(override)
    except (TypeError, ValueError):  # some are written in C, or find out what they take when they are called
        return None
    if any(_takes(signature, count - is_unbound) for count in {len(required), len(parameters)}):
        return None
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    takes = signature.replace(parameters=bare, return_annotation=signature.empty)
    return f"{name!r} takes {takes}, but is called with ({names}): write `def {name}({names}):`"


def _takes(signature: inspect.Signature, count: int) -> bool:
    """Whether this signature accepts ``count`` arguments by position."""
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def class_name(kind: type) -> str:
    """Format the name of a class like in documents, ``package.module:Class``."""
    return f"{kind.__module__}:{kind.__qualname__}"


def raised_at(error: BaseException) -> str:
    """Format an error of users' code on one line, with the file and line of theirs that is nearest to it."""
    first: BaseException = error
    while first.__cause__ is not None or first.__context__ is not None:
        first = first.__cause__ or first.__context__  # type: ignore[assignment]
    frames = traceback.extract_tb(first.__traceback__)
    location = users_place(first) or (f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else "")
    return f"{type(first).__name__}: {first}{location}"


def users_place(error: BaseException) -> str:
    """Format the line of users' code nearest to an error as `` (file:line)``; "" if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    return f" ({users[-1].filename}:{users[-1].lineno})" if users else ""


def traceback_of(error: BaseException) -> str:
    """Format the traceback without the frames of the importers."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    # The source line of a syntax error comes with the exception itself.
    return "".join(traceback.format_list(frames) + traceback.format_exception_only(error)).rstrip()


def _within(module: str, modules: Collection[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in modules)


def _siblings(module_name: str) -> list[str]:
    """List the modules beside a missing one."""
    package, _, _ = module_name.rpartition(".")
    if not package:
        return [*_top_level_modules(os.getcwd()), *sys.stdlib_module_names]
    path = getattr(sys.modules.get(package), "__path__", None)
    return [f"{package}.{module.name}" for module in pkgutil.iter_modules(path)] if path else []


@cache
def _top_level_modules(directory: str) -> tuple[str, ...]:
    return tuple(module.name for module in pkgutil.iter_modules())
