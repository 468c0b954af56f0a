"""Checking and starting documents that are dropped into the page, and the status of started processes."""

from __future__ import annotations

import re
import socket
from datetime import timedelta
from typing import Any

import pandas as pd

from palaestrai_mosaik.core.errors import PalaestraiMosaikError
from palaestrai_mosaik.experiment import loads
from palaestrai_mosaik.experiment.paths import parse

from ..checking import is_design
from ..resources import Query, ResourceError, Source, resource
from ..workplace import Started, Workplace
from .registry import Body, Refused, action, workplace_of

#: the name of documents without a name
_NAME = "document.yml"
#: the recorded start of a process may be slightly earlier than the page's
_EARLIER = timedelta(seconds=2)


@resource("documents")
def documents(source: Source, query: Query) -> dict[str, Any]:
    """Return the rules under which documents are checked and started."""
    workplace = workplace_of(source)
    return {"directory": str(workplace.directory), "allow_modules": workplace.allow_modules}


@action("documents/check")
def check(source: Source, body: Body) -> dict[str, Any]:
    """Check a document; see :func:`~..checking.check_text`."""
    name = _name(body)
    findings = workplace_of(source).check(
        {"text": body.text("text"), "name": name, "settings": _settings(body)}
    )
    count = len(findings["problems"])
    return {**findings, "done": f"checked {name}: {'sound' if not count else f'{count} problems'}"}


@action("documents/start")
def start(source: Source, body: Body) -> dict[str, Any]:
    """Start a run of a document, with the body's settings."""
    workplace = workplace_of(source)
    text, name, settings = body.text("text"), _name(body), _settings(body)
    if is_design(text, name):
        raise Refused(
            "a design is executed from the command line: arsenai generate DESIGN.yml, then arsenai run"
        )
    # problems with keys are reported here; the process checks everything else before the run starts
    document = loads(text, name, parse(settings))
    path = workplace.write(name, text)
    arguments = ["start", str(path), *(argument for setting in settings for argument in ("--set", setting))]
    process = workplace.start(f"start {document.uid}", [*arguments, *allowed(workplace)])
    return {"done": f"started {document.uid!r} as process {process.process.pid}", "key": process.key}


@resource("started")
def started(source: Source, query: Query) -> dict[str, Any]:
    """Return the processes that the page has started, newest first.

    ``code`` is the exit code, ``None`` while the process runs; ``run`` is the instance that it records, once it is
    known.
    """
    workplace = workplace_of(source)
    return {"started": [_facts(source, workplace, process) for process in workplace.started()]}


@resource("started/{key}")
def one_started(source: Source, key: str, query: Query) -> dict[str, Any]:
    """Return one of the processes, with the last part of its output.

    Raises:
        ResourceError: the page has not started this process.
    """
    workplace = workplace_of(source)
    for process in workplace.started():
        if process.key == key:
            return _facts(source, workplace, process) | {"printed": process.printed()}
    raise ResourceError(f"the page has started no process {key!r}")


def allowed(workplace: Workplace) -> list[str]:
    """Return the option that limits the modules of documents; an empty list if all are allowed."""
    modules = workplace.allow_modules
    return [] if modules is None else ["--allow-modules", ",".join(modules)]


def _facts(source: Source, workplace: Workplace, process: Started) -> dict[str, Any]:
    # read the code first: an ended process has recorded everything, and the page does not ask again
    code = process.code
    if process.run is None and process.folder is None:
        if code is not None:
            source.look_again()
        process.run = _run_of(source, process)
    return {
        "key": process.key,
        "title": process.title,
        "since": process.since,
        "process": process.process.pid,
        "code": code,
        "run": process.run,
        "log": str(process.log.relative_to(workplace.files)),
    }


def _run_of(source: Source, process: Started) -> str | None:
    """Return the instance that a process records, if it has started one."""
    runs = source.store.runs()
    recent = pd.to_datetime(runs["started"], utc=True) >= process.since - _EARLIER
    matching = runs[recent & (runs["pid"] == process.process.pid) & (runs["host"] == socket.gethostname())]
    return None if matching.empty else str(matching["run"].iloc[-1])


def _name(body: Body) -> str:
    """Return the name of a document without folders and unprintable characters."""
    name = re.split(r"[/\\]", body.text("name", _NAME))[-1]
    return "".join(letter for letter in name if letter.isprintable())[:100] or _NAME


def _settings(body: Body) -> list[str]:
    seed = body.integer("seed")
    settings = body.texts("settings")
    if any("\0" in setting for setting in settings):
        raise PalaestraiMosaikError("settings must not have null characters")
    return settings if seed is None else [*settings, f"seed={seed}"]
