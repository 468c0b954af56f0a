"""The record of a run in the page: document, failures, warnings, log, versions, digests, world."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd

from palaestrai_mosaik.core.text import escape_control_characters
from palaestrai_mosaik.store import Store

from ..concerned import marks
from ..resources import Query, Source, resource
from ..world_picture import picture


@resource("run/{run}/record")
def record(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the run document, failures and their lines in the document, warnings, versions and digests."""
    store = source.store
    uid = store.find_run(run)
    facts = store.runs(uid).iloc[0]
    text = store.document_text(uid).replace("\r\n", "\n")
    phases, streams = store.phases(uid), store.streams(uid)
    # a failure without a phase belongs to the newest one, because no phase starts after a failure
    newest = int(phases["phase"].max()) if len(phases) else None
    failures = [
        {
            **{name: row[name] for name in ("phase", "kind", "message", "traceback", "time")},
            "marks": [
                asdict(mark)
                for mark in marks(
                    text,
                    f"{row['traceback'] or ''}\n{row['message']}",
                    newest if row["phase"] is None else row["phase"],
                )
            ],
        }
        for row in _rows(store.errors(uid))
    ]
    columns = ["phase", "kind", "name", "group", "evaluation", "rows", "digest"]
    result: dict[str, Any] = visible(
        {
            "document": text.removesuffix("\n").split("\n"),
            "failures": failures,
            "warnings": _rows(store.warnings(uid)),
            "facts": {
                name: facts[name]
                for name in ("run", "document", "experiment", "seed", "version", "host", "pid", "hash")
            },
            "packages": facts["packages"] or {},
            "again": again(store, uid),
            # wall-clock streams differ each time, so they have no digests; frames have none either
            "streams": _rows(streams.loc[~streams["kind"].isin(("wall", "frames")), columns]),
            "phases": _rows(phases[["phase", "name"]]),
        }
    )
    return result


@resource("run/{run}/log")
def log(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the log from the character ``from`` on, and the position for the next request."""
    text = source.store.log(run)
    start = query.integer("from", 0)
    # leave out the last line while it is still being written
    stop = len(text) if text.endswith("\n") or not text else text.rfind("\n") + 1
    return {"text": escape_control_characters(text[start:stop]), "next": max(start, stop)}


@resource("run/{run}/world")
def world(source: Source, run: str, query: Query) -> dict[str, Any] | None:
    """Return the world of a phase (default: the newest with a world), as data and as boxes and arrows."""
    recorded = source.store.world(run, query.integer("phase"))
    return None if recorded is None else visible({**recorded, "picture": picture(recorded)})


def again(store: Store, run: str) -> str:
    """Return the command that executes the document of a run again."""
    is_file = store.database.name.startswith("sqlite")
    option = ["--store", str(store.directory) if is_file else store.database.name]
    folder = f"exported-{run}"
    export = shlex.join(["palaestrai-mosaik", "export", run, folder, *option])
    return f"{export} && {shlex.join(['palaestrai-mosaik', 'start', f'{folder}/document.yml', *option])}"


def visible(value: Any) -> Any:
    """Return plain data with control characters escaped, because terminals would obey them if they are pasted."""
    if isinstance(value, str):
        return escape_control_characters(value)
    if isinstance(value, Mapping):
        return {escape_control_characters(str(name)): visible(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [visible(item) for item in value]
    return value


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows: Iterable[Mapping[Any, Any]] = frame.to_dict("records")
    return [{str(name): None if _is_missing(value) else value for name, value in row.items()} for row in rows]


def _is_missing(value: Any) -> bool:
    return bool(pd.api.types.is_scalar(value) and pd.isna(value))
