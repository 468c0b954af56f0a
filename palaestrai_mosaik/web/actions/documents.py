"""Documents that are dropped into the page: checked, and started; and what has become of what was started."""

from __future__ import annotations

import re
import socket
from datetime import timedelta
from typing import Any

import pandas as pd

from palaestrai_mosaik.errors import PalaestraiMosaikError
from palaestrai_mosaik.experiment import loads
from palaestrai_mosaik.experiment.overrides import parse

from ..checking import is_design
from ..resources import Query, ResourceError, Source, resource
from ..workplace import Started, Workplace
from .registry import Body, Refused, action, workplace_of

#: of a document that has no name of its own
_NAME = "document.yml"
#: a process may have noted its start a little earlier than the page did
_EARLIER = timedelta(seconds=2)


@resource("documents")
def documents(source: Source, query: Query) -> dict[str, Any]:
    """Return under which rules documents are checked and started."""
    workplace = workplace_of(source)
    return {"directory": str(workplace.directory), "allow_modules": workplace.allow_modules}


@action("documents/check")
def check(source: Source, body: Body) -> dict[str, Any]:
    """Check a document; see :func:`~..checking.check_text`."""
    name = _name(body)
    found = workplace_of(source).check({"text": body.text("text"), "name": name, "settings": _settings(body)})
    count = len(found["problems"])
    return {**found, "done": f"checked {name}: {'sound' if not count else f'{count} problems'}"}


@action("documents/start")
def start(source: Source, body: Body) -> dict[str, Any]:
    """Start a run of a document, with other values if the body has some."""
    workplace = workplace_of(source)
    text, name, settings = body.text("text"), _name(body), _settings(body)
    if is_design(text, name):
        raise Refused(
            "a design is executed from the command line: arsenai generate DESIGN.yml, then arsenai run"
        )
    # what is wrong with its keys is reported here; the process checks the rest before the run begins
    document = loads(text, name, parse(settings))
    path = workplace.write(name, text)
    arguments = ["start", str(path), *(part for one in settings for part in ("--set", one))]
    one = workplace.start(f"start {document.uid}", [*arguments, *allowed(workplace)])
    return {"done": f"started {document.uid!r} as process {one.process.pid}", "key": one.key}


@resource("started")
def started(source: Source, query: Query) -> dict[str, Any]:
    """Return the processes that the page has started, the newest first.

    ``code`` is the exit code, ``None`` while a process runs; ``run`` is the instance that it records, as soon as it is known.
    """
    workplace = workplace_of(source)
    return {"started": [_facts(source, workplace, one) for one in workplace.started()]}


@resource("started/{key}")
def one_started(source: Source, key: str, query: Query) -> dict[str, Any]:
    """Return one of the processes, with the end of what it has printed."""
    workplace = workplace_of(source)
    for one in workplace.started():
        if one.key == key:
            return _facts(source, workplace, one) | {"printed": one.printed()}
    raise ResourceError(f"the page has started no process {key!r}")


def allowed(workplace: Workplace) -> list[str]:
    """Return the option that limits what documents may name, where the page is limited."""
    modules = workplace.allow_modules
    return [] if modules is None else ["--allow-modules", ",".join(modules)]


def _facts(source: Source, workplace: Workplace, one: Started) -> dict[str, Any]:
    # (asked first: what has ended has recorded all that there will be, and the page does not ask again)
    code = one.code
    if one.run is None and one.folder is None:
        if code is not None:
            source.look_again()
        one.run = _run_of(source, one)
    return {
        "key": one.key,
        "title": one.title,
        "since": one.since,
        "process": one.process.pid,
        "code": code,
        "run": one.run,
        "log": str(one.log.relative_to(workplace.files)),
    }


def _run_of(source: Source, one: Started) -> str | None:
    """Return the instance that a process records, if it has begun."""
    runs = source.store.runs()
    begun = pd.to_datetime(runs["started"], utc=True) >= one.since - _EARLIER
    here = runs[begun & (runs["pid"] == one.process.pid) & (runs["host"] == socket.gethostname())]
    return None if here.empty else str(here["run"].iloc[-1])


def _name(body: Body) -> str:
    """Return the name of a document, without folders and what a terminal would obey."""
    name = re.split(r"[/\\]", body.text("name", _NAME))[-1]
    return "".join(letter for letter in name if letter.isprintable())[:100] or _NAME


def _settings(body: Body) -> list[str]:
    seed = body.integer("seed")
    settings = body.texts("settings")
    if any("\0" in one for one in settings):
        raise PalaestraiMosaikError("settings must not have null characters")
    return settings if seed is None else [*settings, f"seed={seed}"]
