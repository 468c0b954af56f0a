"""Merges files into one design: the design, the designs that it extends, and the run document that it varies.

Mappings are merged key by key, and the nearer file wins; other values are replaced. ``factors`` are merged by
name, as a list or as a mapping; a null factor is dropped. A ``base`` that
names a file replaces the parent's, a ``base`` that is a mapping is merged with it. A ``sampler`` with
another name replaces the parent's. Every part keeps its original file and line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import DocumentError, Problem, did_you_mean
from palaestrai_mosaik.experiment.fields import Findings, show, show_unquoted
from palaestrai_mosaik.experiment.load import cannot_be_read
from palaestrai_mosaik.experiment.model import Place, join
from palaestrai_mosaik.experiment.paths import Path as DocumentPath
from palaestrai_mosaik.experiment.yaml_text import MAX_BYTES, Lines, decode, read

#: origin of a part: (file, its lines, path in it)
Origin = tuple[str, Lines, Place]


class MergedFindings(Findings):
    """Findings of a document that was merged from several files."""

    def __init__(self, source: str, lines: Lines, origins: Mapping[Place, Origin]):
        super().__init__(source, lines)
        self._origins = origins

    def origin(self, path: Place) -> Origin:
        """Return where ``path`` was written."""
        # a part that is missing from all files is reported for the nearest one
        for length in range(len(path), -1 if path else 0, -1):
            if path[:length] in self._origins:
                source, lines, written = self._origins[path[:length]]
                return source, lines, (*written, *path[length:])
        return self.source, self.lines, path

    def _problem(self, path: Place, message: str, line: int | None) -> Problem:
        source, lines, written = self.origin(path)
        return Problem(message, join(written), source, line or lines.nearest(written))


@dataclass
class Draft:
    """A design as plain data, and the origins of its parts."""

    data: dict[str, Any]
    source: str
    lines: Lines
    directory: Path
    origins: dict[Place, Origin] = field(default_factory=dict)


def read_file(path: Path) -> tuple[Any, str, Lines]:
    """Read the YAML file at ``path``.

    Returns:
        Its plain data, its name for messages, and its lines.

    Raises:
        DocumentError: the file cannot be read, is too large, or is invalid YAML.
    """
    source = str(path)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise DocumentError(
                [Problem(f"the file has {size:,} bytes; at most {MAX_BYTES:,} are read", "", source)]
            )
        text = decode(files.read_given(path), source)
    except OSError as error:
        raise DocumentError([Problem(cannot_be_read(path, error), "", source)]) from None
    return read_text(text, source)


def read_text(text: str, source: str) -> tuple[Any, str, Lines]:
    """Parse YAML.

    Returns:
        Its plain data, ``source``, and its lines.

    Raises:
        DocumentError: the text is invalid YAML.
    """
    reading = read(text, source)
    if reading.problems:
        findings = Findings(source, reading.lines)
        for path, message, line in reading.problems:
            findings.error(path, message, line)
        raise DocumentError(findings.errors)
    return reading.value, source, reading.lines


def draft(value: Any, source: str, lines: Lines, directory: Path, path: Path | None = None) -> Draft:
    """Merge a design with the designs that it extends and the run document that it varies.

    Args:
        value: the design as plain data.
        source: name of the design in messages.
        lines: its lines.
        directory: folder that its paths to other files are relative to.
        path: file of the design, if there is one.

    Raises:
        DocumentError: it is no mapping, a file cannot be read, or designs extend each other in a circle.
    """
    return _draft(value, source, lines, directory, () if path is None else (path.resolve(),))


def _draft(value: Any, source: str, lines: Lines, directory: Path, chain: tuple[Path, ...]) -> Draft:
    if not isinstance(value, dict):
        raise _error(
            source, lines, (), f"a design is a mapping (uid, seed, ...), found {show_unquoted(value)}"
        )
    design = Draft(dict(value), source, lines, directory)
    base_is_file = isinstance(value.get("base"), str)
    if base_is_file:
        _take_base(design)
    _take_points(design)
    parent = design.data.pop("extends", None)
    if parent is None:
        return design
    if not isinstance(parent, str) or not parent:
        message = f"extends must be the path of another design, found {show(parent)}"
        raise _error(source, lines, ("extends",), message)
    path = directory / parent
    resolved = path.resolve()
    if resolved in chain:
        ring = " -> ".join(design.name for design in (*chain[chain.index(resolved) :], resolved))
        raise _error(source, lines, ("extends",), f"designs extend one another in a circle: {ring}")
    data, name, parent_lines = _other(path, source, lines, "extends")
    above = _draft(data, name, parent_lines, path.parent, (*chain, resolved))
    return _merged(above, design, base_is_file)


def _other(path: Path, source: str, lines: Lines, key: str) -> tuple[Any, str, Lines]:
    """Read the file that ``key`` names; a missing file is reported there."""
    if path.is_file():
        return read_file(path)
    near = did_you_mean(path.name, [file.name for file in path.parent.glob("*.y*ml")])
    raise _error(source, lines, (key,), f"there is no file {str(path)!r}{near}")


def _error(source: str, lines: Lines, path: Place, message: str) -> DocumentError:
    return DocumentError([Problem(message, join(path), source, lines.nearest(path))])


def _take_base(document: Draft) -> None:
    path = document.directory / document.data["base"]
    data, name, lines = _other(path, document.source, document.lines, "base")
    document.data["base"] = data
    document.origins["base",] = (name, lines, ())


def _take_points(document: Draft) -> None:
    """Replace the name of a table of points by its contents, because they are a part of the design."""
    sampler = document.data.get("sampler")
    is_points = isinstance(sampler, dict) and sampler.get("name", "points") == "points"
    if isinstance(sampler, dict) and is_points and isinstance(sampler.get("file"), str):
        from .samplers.points import inlined

        document.data["sampler"] = inlined(sampler, document.directory)


def _merged(above: Draft, below: Draft, replaces_base: bool) -> Draft:
    """Return ``above`` (the parent), updated by ``below``."""
    merged = Draft(
        dict(above.data), below.source, below.lines, below.directory, {(): (above.source, above.lines, ())}
    )
    merged.origins.update(above.origins)
    for key, value in below.data.items():
        if key == "factors":
            _merge_factors(merged, below, value)
        elif (key == "base" and replaces_base) or (key == "sampler" and _is_another(above.data, value)):
            _replace(merged, below, (key,), merged.data, value)
        else:
            _merge(merged, below, (key,), merged.data, value)
    return merged


def _is_another(above: dict[str, Any], sampler: Any) -> bool:
    """Return whether a sampler has another name than the parent's, so that the parent's options do not apply."""
    name, parent_name = (
        (section.get("name") if isinstance(section, dict) else section)
        for section in (sampler, above.get("sampler"))
    )
    return name is not None and name != parent_name


def _replace(merged: Draft, below: Draft, path: Place, holder: dict[Any, Any], value: Any) -> None:
    holder[path[-1]] = value
    _trace(merged, below, path, path)


def _trace(merged: Draft, below: Draft, path: Place, source: Place) -> None:
    """Record that ``path`` of ``merged`` was written at ``source`` in ``below``."""
    for old in [key for key in merged.origins if key[: len(path)] == path]:
        del merged.origins[old]
    merged.origins[path] = _origin_of(below, source)
    for inner, origin in below.origins.items():
        if inner[: len(source)] == source:
            merged.origins[(*path, *inner[len(source) :])] = origin


def _origin_of(document: Draft, path: Place) -> Origin:
    return MergedFindings(document.source, document.lines, document.origins).origin(path)


def _merge(merged: Draft, below: Draft, path: Place, holder: dict[Any, Any], value: Any) -> None:
    before = holder.get(path[-1])
    if not isinstance(before, dict) or not isinstance(value, dict):
        _replace(merged, below, path, holder, value)
        return
    inner = holder[path[-1]] = dict(before)
    for key, item in value.items():
        _merge(merged, below, (*path, key), inner, item)


def _merge_factors(merged: Draft, below: Draft, factors: Any) -> None:
    before = merged.data.get("factors")
    old, new = named_factors(before), named_factors(factors)
    if before is None or old is None or new is None:
        _replace(merged, below, ("factors",), merged.data, factors)
        return
    above = Draft({}, merged.source, merged.lines, merged.directory, dict(merged.origins))
    entries: dict[str, Any] = {}
    _trace(merged, below, ("factors",), ("factors",))
    for name, (key, entry) in old.items():
        entries[name] = entry
        _trace(merged, above, ("factors", name), ("factors", key))
    for name, (key, entry) in new.items():
        if isinstance(entries.get(name), dict) and isinstance(entry, dict):
            entries[name] = {**entries[name], **entry}
            for word in entry:
                _trace(merged, below, ("factors", name, word), ("factors", key, word))
        else:
            entries[name] = entry
            _trace(merged, below, ("factors", name), ("factors", key))
    merged.data["factors"] = {name: entry for name, entry in entries.items() if entry is not None}


def named_factors(factors: Any) -> dict[str, tuple[Any, Any]] | None:
    """Return the factors of a list or mapping by name, each with its key there.

    Returns:
        Pairs of key and entry by name; None if the factors have no unique names, or are neither list nor mapping.
    """
    if isinstance(factors, dict):
        pairs = [(str(key), key, entry) for key, entry in factors.items()]
    elif isinstance(factors, list):
        pairs = [(default_name(entry), index, entry) for index, entry in enumerate(factors)]
    else:
        return None
    named = {name: (key, entry) for name, key, entry in pairs}
    return named if len(named) == len(pairs) and "" not in named else None


def default_name(entry: Any) -> str:
    """Return the name of a factor: its ``name``, or the last key of its path; empty if it has neither."""
    if not isinstance(entry, dict):
        return ""
    name = entry.get("name")
    if name is not None:
        return name if isinstance(name, str) else ""
    path = entry.get("path")
    if not isinstance(path, str):
        return ""
    try:
        parts = DocumentPath.parse(path).parts
    except DocumentError:
        return ""
    name = ""
    for part in reversed(parts):
        name = f"[{part}]{name}" if isinstance(part, int) else f"{part}{name}"
        if isinstance(part, str):
            break
    return name
