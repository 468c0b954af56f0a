"""Reading run documents: from a file, from text, from plain data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from palaestrai_mosaik import collector, files
from palaestrai_mosaik.errors import DocumentError, Problem, did_you_mean
from palaestrai_mosaik.text import listed

from .brain_sources import check_sources, warn_of_snapshots
from .canonical import canonical_document, digest, plain_data
from .cascade import Definitions, cascade
from .check import ModelBuilder, header, run_config_of
from .conditions import check_evaluations, check_phase_averages
from .fields import items_of
from .hints import hint, warn_of_no_effect, warn_of_slips
from .located import Findings, Lines, Located, show
from .model import PartialDocument, RunDocument
from .overrides import Overrides, overridden
from .vocabulary import TOP
from .yaml_text import MAX_BYTES, decode, dumps, read

#: of the documents in a folder, so many are named
_DOCUMENTS = 8
#: a run document: its file, its plain data, or as it was read
AnyDocument = str | os.PathLike[str] | Mapping[str, Any] | RunDocument


def as_document(document: AnyDocument, overrides: Overrides | None = None) -> RunDocument:
    """Return the run document: a file is read, plain data is checked, what was read already stays as it is.

    Args:
        document: the path of a file, a mapping, or a run document.
        overrides: other values at some paths of the document (:func:`~.overrides.overridden`).

    Raises:
        DocumentError: carries every problem found.
        TypeError: ``document`` is something else.
    """
    if isinstance(document, RunDocument):
        return loads(document.text, document.source, overrides) if overrides else document
    if isinstance(document, Mapping):
        return from_mapping(overridden(document, overrides, "<mapping>") if overrides else document)
    if isinstance(document, str | os.PathLike):
        return load(Path(document), overrides)
    raise TypeError(
        f"a run document is a path, a mapping or what experiment.load() returns, found {show(document)}"
    )


def load(path: str | Path, overrides: Overrides | None = None) -> RunDocument:
    """Read a run document from a file.

    Args:
        path: the file (YAML, UTF-8).
        overrides: other values at some paths of the document (:func:`~.overrides.overridden`).

    Raises:
        DocumentError: carries every problem found.
    """
    path = Path(path)
    source = str(path)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            problem = f"the file has {size:,} bytes; at most {MAX_BYTES:,} are read"
            raise DocumentError([Problem(problem, file=source)])
        data = files.read_given(path)
    except OSError as error:
        raise DocumentError([Problem(cannot_be_read(path, error), file=source)]) from None
    return loads(decode(data, source), source, overrides)


def cannot_be_read(path: Path, error: OSError) -> str:
    """Return why the document at ``path`` cannot be read; of a missing one, which others there are."""
    message, folder = f"cannot be read: {error.strerror}", path.parent
    if not isinstance(error, FileNotFoundError):
        return message
    if not folder.is_dir():
        return f"{message}: there is no folder {str(folder)!r}"
    names = sorted(other.name for other in folder.iterdir())
    documents = [name for name in names if name.endswith((".yml", ".yaml"))]
    near = did_you_mean(path.name, documents) or did_you_mean(path.name, names)
    if near or not documents:
        return message + near
    return f"{message}; the documents in {str(folder)!r} are {listed(documents, _DOCUMENTS)}"


def loads(text: str, source: str = "<string>", overrides: Overrides | None = None) -> RunDocument:
    """Read a run document from a text.

    Args:
        text: the document as YAML.
        source: what messages call the text.
        overrides: other values at some paths of the document (:func:`~.overrides.overridden`).

    Raises:
        DocumentError: carries every problem found.
    """
    # a large document is millions of objects: the collector's passes over them would take a third of the time
    with collector.paused():
        reading = read(text, source)
        found = Findings(source, reading.lines)
        for place, message, line in reading.problems:
            found.error(place, message, line)
        if overrides:
            value = overridden(reading.value, overrides, source)
            return _document(value, found, dumps(value))
        return _document(reading.value, found, text)


def from_mapping(
    data: Mapping[str, Any], source: str = "<mapping>", *, text: str | None = None, hashed: bool = True
) -> RunDocument:
    """Make a run document of plain data.

    Args:
        data: the document as mappings, lists, numbers and texts.
        source: what messages call the document.
        text: the document as YAML, if you have it; ``None``: it is made of ``data``. That takes longer than
            all the rest, so give ``""`` where nobody will ask for it.
        hashed: compute the hash; without, it is ``""``.

    Raises:
        DocumentError: carries every problem found.
    """
    found = Findings(source, Lines())
    plain = plain_data(data, found)
    if found.errors:
        raise DocumentError(found.errors)
    return _document(plain, found, dumps(plain) if text is None else text, hashed)


def _document(data: Any, found: Findings, text: str, hashed: bool = True) -> RunDocument:
    if not isinstance(data, dict):
        found.error(
            (), f"a run document is a mapping (uid, seed, version, schedule, ...), found {show(data)}"
        )
        raise DocumentError(found.errors)
    root = Located(data, ())
    parts = found.section(root, TOP) or {}
    found.missing((), parts, TOP)
    uid, seed, version = header(found, parts)
    experiment = TOP.keys["experiment_uid"].read(found, parts.get("experiment_uid"), "experiment_uid")
    definitions = Definitions(found, parts.get("definitions"))
    raw = cascade(found, parts["schedule"], definitions) if "schedule" in parts else []
    builder = ModelBuilder(found)
    phases = [builder.phase(index, phase) for index, phase in enumerate(raw)]
    check_sources(found, uid, raw)
    agents = raw[-1].agents if raw else ()
    conditions = builder.run_conditions(run_config_of(found, parts, definitions), agents, ("run_config",))
    sound = tuple(phase for phase in phases if phase is not None)
    check_phase_averages(
        found, [items_of(phase.simulation.get("conditions")) for phase in raw], builder.run_condition_items
    )
    if not found.errors:
        check_evaluations(found, builder.run_condition_items, sound)
    make = partial(
        RunDocument,
        uid=uid,
        seed=seed,
        version=version,
        conditions=conditions,
        source=found.source,
        text=text,
        experiment_uid=experiment,
        lines=found.lines,
        origins=builder.origins,
    )
    if found.errors:
        # the phases before the first one of which nothing can be said, and of these those with all environments
        count = phases.index(None) if None in phases else len(phases)
        readable = tuple(phase for phase in phases[:count] if phase is not None)
        whole = [
            phase is not None
            and len(phase.environments) == len(entry.environments)
            and "environments" not in entry.faulty
            for phase, entry in zip(phases, raw, strict=True)
        ]
        document = make(phases=readable, canonical={}, hash="")
        raise DocumentError(
            found.errors, PartialDocument(document, tuple(whole)) if readable and not found.refused else None
        )
    warn_of_no_effect(found, raw, sound)
    warn_of_slips(found, seed, parts, raw)
    hint(found, raw)
    warn_of_snapshots(found, uid, raw)
    canonical = canonical_document(uid, seed, version, sound, conditions)
    return make(
        phases=sound,
        canonical=canonical,
        hash=digest(canonical) if hashed else "",
        warnings=found.warnings,
    )
