"""The cyclic garbage collector, kept from looking where there is nothing to collect."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Pause the collector for code that makes many objects and no cycle: its passes over them are all for nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def importing() -> Iterator[None]:
    """Pause the collector while modules are imported, and exempt all that exists then from later passes.

    Modules, classes and functions stay until the process ends. To look at them again and again, and once more at
    the end, takes a third of the time of a command that executes a short run.
    """
    with paused():
        yield
        gc.freeze()


def program(module: str) -> str:
    """Return what a new interpreter executes (``-c``) to call ``main`` of ``module``, after :func:`importing` it."""
    return f"""\
from palaestrai_mosaik import collector
with collector.importing():
    from {module} import main
main()"""
