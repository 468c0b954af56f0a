"""From files to one mapping: the design, what it extends, and the run document it varies.

Mappings merge key by key, the nearer file wins; anything else is replaced. ``factors`` merge by
the factors' names, as a list or as a mapping; a factor that is null is dropped. A ``base`` that
names a file replaces a parent's, a ``base`` that is a mapping merges with it. A ``sampler`` of
another name replaces the parent's. Every part keeps the file and line where it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import DocumentError, Problem, did_you_mean
from palaestrai_mosaik.experiment.load import cannot_be_read
from palaestrai_mosaik.experiment.located import Findings, Lines, show
from palaestrai_mosaik.experiment.model import Place, join
from palaestrai_mosaik.experiment.paths import Path as DocumentPath
from palaestrai_mosaik.experiment.yaml_text import MAX_BYTES, decode, read

#: where something was written: (file, its lines, the place there)
Origin = tuple[str, Lines, Place]


class MergedFindings(Findings):
    """Findings of a document that was put together of several files."""

    def __init__(self, source: str, lines: Lines, origins: Mapping[Place, Origin]):
        super().__init__(source, lines)
        self._origins = origins

    def origin(self, place: Place) -> Origin:
        """Return where ``place`` was written."""
        # what is missing from the whole is missing from the nearest file
        for length in range(len(place), -1 if place else 0, -1):
            known = self._origins.get(place[:length])
            if known is not None:
                source, lines, there = known
                return source, lines, (*there, *place[length:])
        return self.source, self.lines, place

    def _problem(self, place: Place, message: str, line: int | None) -> Problem:
        source, lines, there = self.origin(place)
        return Problem(message, join(there), source, line or lines.nearest(there))


@dataclass
class Draft:
    """A design as plain data, and where its parts come from."""

    data: dict[str, Any]
    source: str
    lines: Lines
    directory: Path
    origins: dict[Place, Origin] = field(default_factory=dict)


def read_file(path: Path) -> tuple[Any, str, Lines]:
    """Return the plain data of the YAML file at ``path``, its name for messages, its lines.

    Raises :class:`~palaestrai_mosaik.errors.DocumentError`.
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
    """Return the plain data of ``text``, ``source``, and its lines. Raises ``DocumentError``."""
    reading = read(text, source)
    if reading.problems:
        found = Findings(source, reading.lines)
        for place, message, line in reading.problems:
            found.error(place, message, line)
        raise DocumentError(found.errors)
    return reading.value, source, reading.lines


def draft(value: Any, source: str, lines: Lines, directory: Path, path: Path | None = None) -> Draft:
    """Return the design ``value`` with what it extends and varies in it.

    ``directory`` is where its paths to other files start; ``path`` is its own, if it has one.
    Raises :class:`~palaestrai_mosaik.errors.DocumentError`.
    """
    return _draft(value, source, lines, directory, () if path is None else (path.resolve(),))


def _draft(value: Any, source: str, lines: Lines, directory: Path, chain: tuple[Path, ...]) -> Draft:
    if not isinstance(value, dict):
        raise _error(source, lines, (), f"a design is a mapping (uid, seed, ...), found {show(value)}")
    one = Draft(dict(value), source, lines, directory)
    given_file = isinstance(value.get("base"), str)
    if given_file:
        _take_base(one)
    _take_points(one)
    parent = one.data.pop("extends", None)
    if parent is None:
        return one
    if not isinstance(parent, str) or not parent:
        message = f"extends must be the path of another design, found {show(parent)}"
        raise _error(source, lines, ("extends",), message)
    path = directory / parent
    resolved = path.resolve()
    if resolved in chain:
        ring = " -> ".join(one.name for one in (*chain[chain.index(resolved) :], resolved))
        raise _error(source, lines, ("extends",), f"designs extend one another in a circle: {ring}")
    data, name, there = _other(path, source, lines, "extends")
    above = _draft(data, name, there, path.parent, (*chain, resolved))
    return _merged(above, one, given_file)


def _other(path: Path, source: str, lines: Lines, key: str) -> tuple[Any, str, Lines]:
    """Return the file that ``key`` names; one that cannot be read is told where it is named."""
    if path.is_file():
        return read_file(path)
    near = did_you_mean(path.name, [one.name for one in path.parent.glob("*.y*ml")])
    raise _error(source, lines, (key,), f"there is no file {str(path)!r}{near}")


def _error(source: str, lines: Lines, place: Place, message: str) -> DocumentError:
    return DocumentError([Problem(message, join(place), source, lines.nearest(place))])


def _take_base(one: Draft) -> None:
    path = one.directory / one.data["base"]
    data, name, there = _other(path, one.source, one.lines, "base")
    one.data["base"] = data
    one.origins["base",] = (name, there, ())


def _take_points(one: Draft) -> None:
    """Put the points of a table in the place of its name: they are a part of the design."""
    sampler = one.data.get("sampler")
    given = isinstance(sampler, dict) and sampler.get("name", "points") == "points"
    if isinstance(sampler, dict) and given and isinstance(sampler.get("file"), str):
        from .samplers.points import inlined

        one.data["sampler"] = inlined(sampler, one.directory)


def _merged(above: Draft, below: Draft, replaces_base: bool) -> Draft:
    """Return ``above`` (the parent) with all that ``below`` gives."""
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
    """Whether a sampler has another name than the parent's, whose options then mean nothing to it."""
    given, before = (
        (one.get("name") if isinstance(one, dict) else one) for one in (sampler, above.get("sampler"))
    )
    return given is not None and given != before


def _replace(merged: Draft, below: Draft, place: Place, holder: dict[Any, Any], value: Any) -> None:
    holder[place[-1]] = value
    _trace(merged, below, place, place)


def _trace(merged: Draft, below: Draft, place: Place, there: Place) -> None:
    """Note that ``place`` of ``merged`` is what stands at ``there`` in ``below``."""
    for old in [one for one in merged.origins if one[: len(place)] == place]:
        del merged.origins[old]
    merged.origins[place] = _origin_of(below, there)
    for inner, origin in below.origins.items():
        if inner[: len(there)] == there:
            merged.origins[(*place, *inner[len(there) :])] = origin


def _origin_of(one: Draft, place: Place) -> Origin:
    return MergedFindings(one.source, one.lines, one.origins).origin(place)


def _merge(merged: Draft, below: Draft, place: Place, holder: dict[Any, Any], value: Any) -> None:
    before = holder.get(place[-1])
    if not isinstance(before, dict) or not isinstance(value, dict):
        _replace(merged, below, place, holder, value)
        return
    inner = holder[place[-1]] = dict(before)
    for key, item in value.items():
        _merge(merged, below, (*place, key), inner, item)


def _merge_factors(merged: Draft, below: Draft, given: Any) -> None:
    before = merged.data.get("factors")
    old, new = named_factors(before), named_factors(given)
    if before is None or old is None or new is None:
        _replace(merged, below, ("factors",), merged.data, given)
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

    ``None`` where they have no names that differ, or are neither.
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
    """Return the name of a factor: as given, else the last key of its path; empty if it has none."""
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
