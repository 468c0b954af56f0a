"""Reading of run documents, from a file, a text or plain data.

The steps: read (:mod:`.yaml_text`), override (:mod:`.paths`), complete each phase (:mod:`.cascade`), build the model
(:mod:`.build`), check across its parts (:mod:`.check`), hash (:mod:`.canonical`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from palaestrai_mosaik.core import collector, files
from palaestrai_mosaik.core.errors import DocumentError, Problem, did_you_mean
from palaestrai_mosaik.core.printing import listed

from .build import ModelBuilder, header, run_config_of
from .canonical import canonical_document, digest, plain_data
from .cascade import CascadedPhase, Definitions, cascade
from .check import check_document, check_sources
from .fields import Findings, Located, show, show_unquoted
from .model import PartialDocument, RunDocument
from .paths import Overrides, overridden
from .vocabulary import TOP
from .yaml_text import MAX_BYTES, Lines, decode, dumps, read

#: the maximum number of a folder's documents that a message names
_DOCUMENTS = 8
#: a run document: its file, its plain data, or the loaded document
AnyDocument = str | os.PathLike[str] | Mapping[str, Any] | RunDocument


def as_document(document: AnyDocument, overrides: Overrides | None = None) -> RunDocument:
    """Load a run document from a file or plain data; a loaded document is returned unchanged.

    Args:
        document: the path of a file, a mapping, or a run document.
        overrides: other values at some paths of the document (:func:`~.paths.overridden`).

    Returns:
        The run document.

    Raises:
        DocumentError: the document is unsound; the error lists all problems.
        TypeError: ``document`` is of another type.
    """
    if isinstance(document, RunDocument):
        if not overrides:
            return document
        return loads(document.text, document.source, overrides, uid=document.uid)
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
        overrides: other values at some paths of the document (:func:`~.paths.overridden`).

    Returns:
        The run document.

    Raises:
        DocumentError: the document is unsound; the error lists all problems.
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
    return loads(decode(data, source), source, overrides, uid=path.stem)


def cannot_be_read(path: Path, error: OSError) -> str:
    """Explain why the document at ``path`` cannot be read; if it is missing, list the others in its folder."""
    message, folder = f"cannot be read: {error.strerror}", path.parent
    if not isinstance(error, FileNotFoundError):
        return message
    if not folder.is_dir():
        return f"{message}: there is no folder {str(folder)!r}"
    names = sorted(entry.name for entry in folder.iterdir())
    documents = [name for name in names if name.endswith((".yml", ".yaml"))]
    near = did_you_mean(path.name, documents) or did_you_mean(path.name, names)
    if near or not documents:
        return message + near
    return f"{message}; the documents in {str(folder)!r} are {listed(documents, _DOCUMENTS)}"


def loads(
    text: str, source: str = "<string>", overrides: Overrides | None = None, *, uid: str | None = None
) -> RunDocument:
    """Read a run document from a text.

    Args:
        text: the document as YAML.
        source: the name of the text in messages.
        overrides: other values at some paths of the document (:func:`~.paths.overridden`).
        uid: the uid for a document without one, with a warning; ``None``: a missing uid is an error.

    Returns:
        The run document.

    Raises:
        DocumentError: the document is unsound; the error lists all problems.
    """
    # a large document is millions of objects: the collector's passes over them would take a third of the time
    with collector.paused():
        reading = read(text, source)
        findings = Findings(source, reading.lines)
        for path, message, line in reading.problems:
            findings.error(path, message, line)
        if overrides:
            value = overridden(reading.value, overrides, source)
            return _document(value, findings, dumps(value), default_uid=uid)
        return _document(reading.value, findings, text, default_uid=uid)


def from_mapping(
    data: Mapping[str, Any], source: str = "<mapping>", *, text: str | None = None, hashed: bool = True
) -> RunDocument:
    """Build a run document from plain data.

    Args:
        data: the document as mappings, lists, numbers and texts.
        source: the name of the document in messages.
        text: the document as YAML, if you have it; ``None``: it is generated from ``data``. That takes longer than
            all the rest, so pass ``""`` if it will not be used.
        hashed: compute the hash; otherwise it is ``""``.

    Returns:
        The run document.

    Raises:
        DocumentError: the document is unsound; the error lists all problems.
    """
    findings = Findings(source, Lines())
    plain = plain_data(data, findings)
    if findings.errors:
        raise DocumentError(findings.errors)
    return _document(plain, findings, dumps(plain) if text is None else text, hashed)


def _document(
    data: Any, findings: Findings, text: str, hashed: bool = True, default_uid: str | None = None
) -> RunDocument:
    """Cascade, build and check the document with these ``data``."""
    parts = _top(data, findings, default_uid)
    uid, seed, version = header(findings, parts)
    experiment = TOP.keys["experiment_uid"].read(findings, parts.get("experiment_uid"), "experiment_uid")
    definitions = Definitions(findings, parts.get("definitions"))
    schedule = cascade(findings, parts["schedule"], definitions) if "schedule" in parts else []
    builder = ModelBuilder(findings)
    phases = builder.phases(schedule)
    check_sources(findings, uid, schedule)
    agents = schedule[-1].agents if schedule else ()
    document = RunDocument(
        uid=uid,
        seed=seed,
        version=version,
        phases=phases,
        conditions=builder.run_conditions(run_config_of(findings, parts, definitions), agents),
        canonical={},
        hash="",
        source=findings.source,
        text=text,
        experiment_uid=experiment,
        lines=findings.lines,
        origins=builder.origins,
    )
    check_document(findings, document, schedule, builder.run_condition_items)
    if findings.count:
        raise _unsound(findings, document, schedule)
    canonical = canonical_document(document)
    return replace(
        document,
        canonical=canonical,
        hash=digest(canonical) if hashed else "",
        warnings=findings.warnings,
        notes=findings.notes,
    )


def _top(data: Any, findings: Findings, default_uid: str | None) -> dict[str, Located]:
    """Split a document into its parts by key. Raises :class:`DocumentError` if it is no mapping."""
    if not isinstance(data, dict):
        message = (
            f"a run document is a mapping (uid, seed, version, schedule, ...), found {show_unquoted(data)}"
        )
        findings.error((), message)
        raise DocumentError(findings.errors)
    parts = findings.section(Located(data, ()), TOP) or {}
    if default_uid and ("uid" not in parts or parts["uid"].value is None):
        parts["uid"] = Located(default_uid, ("uid",))
        findings.warn(
            ("uid",),
            f"the document has no 'uid', which identifies its results: that of its file, {default_uid!r}, is taken",
        )
    findings.missing((), parts, TOP)
    return parts


def _unsound(findings: Findings, document: RunDocument, schedule: Sequence[CascadedPhase]) -> DocumentError:
    """Build the error for an unsound document, with its readable parts."""
    if not document.phases or findings.refused:
        return DocumentError(findings.errors)
    whole = tuple(
        len(phase.environments) == len(entry.environments) and "environments" not in entry.faulty
        for phase, entry in zip(document.phases, schedule, strict=True)
    )
    return DocumentError(
        findings.errors, PartialDocument(replace(document, warnings=findings.warnings), whole)
    )
