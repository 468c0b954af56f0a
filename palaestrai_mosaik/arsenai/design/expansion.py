"""Builds, checks and identifies the run documents of a design's rows.

Most factors set a parameter of a class. The check of documents ignores its value, and
the cascade passes it on unchanged. Documents that differ only in such values have the same
*structure*. It is built and checked once, with holes for these values, for the uid and the
seed; its YAML and its canonical JSON are then filled in for every run. All other values
(an agent, a list of sensors, the number of episodes) belong to the structure.

The holes have the same placeholders in the data of a document, its YAML and its canonical JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

from palaestrai_mosaik.core.errors import DocumentError, Problem
from palaestrai_mosaik.core.seeding import integer_seed
from palaestrai_mosaik.experiment import RunDocument, canonical_json, dumps, from_mapping
from palaestrai_mosaik.experiment.model import join
from palaestrai_mosaik.experiment.paths import Changes, Keys, Path

from .arsenai_form import schedule_of
from .model import INACTIVE, DesignSpec, Factor

#: path of a run's document, relative to the folder
_RUN_FILE = re.compile(r"runs/[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.yml")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
#: largest number of characters of a uid in a file name; file systems allow 255 bytes with all suffixes
_LONGEST = 100


def slug(uid: str) -> str:
    """Convert ``uid`` to a name for a file or folder, safe on every file system.

    A safe uid is kept. Any other is reduced to letters, digits and
    ``._-``, and ends with a digest of the whole, so that two uids never share a name.
    """
    name = _UNSAFE.sub("_", uid).strip("._-")[:_LONGEST]
    if name == uid:
        return name
    digest = hashlib.sha256(uid.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{name}-{digest}" if name else digest


def run_uid(design: str, row: int, repetition: int) -> str:
    """Return the uid of a run of the design with the uid ``design``, both numbers from 0."""
    return f"{design}-{row}-r{repetition}"


def is_run_file(name: str) -> bool:
    """Return whether ``name`` could be a result of :func:`run_file`.

    Other files of the run are named after it, so it must not lead out of its folder.
    """
    return _RUN_FILE.fullmatch(name) is not None


def run_file(design: str, row: int, repetition: int) -> str:
    """Return the path of a run's document, relative to the folder."""
    return f"runs/{run_uid(slug(design), row, repetition)}.yml"


#: largest number of characters in cached structures
_KEPT = 2**22
#: keys of classes that alone interpret their parameters, by topic of a phase
_CLASSES = {
    "environments": ("environment", "reward", "state_transformer"),
    "agents": ("brain", "muscle", "objective", "filters"),
}
#: numbers of the holes of the uid, the seed, and the first factor
_UID, _SEED, _FIRST = 0, 1, 2
#: uids of runs that need no quotes in YAML
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*-r[0-9]+")

Values = Mapping[str, Any]
#: Path of a row's seeds in the tree of seeds. Empty for common seeds, which all rows share. For independent seeds, the
#: row's values and the number of earlier rows with the same values, so that a row keeps its seeds wherever it is.
RowName = tuple[str | int, ...]


class _Sized(Protocol):
    @property
    def template(self) -> Template: ...


Made = TypeVar("Made", bound=_Sized)


class _Latest(Generic[Made]):
    """A cache of the most recently used templates, limited by their total size."""

    def __init__(self) -> None:
        self._made: OrderedDict[Any, Made] = OrderedDict()
        self._size = 0

    def get(self, key: Any, make: Callable[[], Made]) -> Made:
        """Return the entry of ``key``; call ``make`` if it is not cached."""
        if key in self._made:
            self._made.move_to_end(key)
            return self._made[key]
        entry = self._made[key] = make()
        self._size += entry.template.size
        while self._size > _KEPT and len(self._made) > 1:
            self._size -= self._made.popitem(last=False)[1].template.size
        return entry


@dataclass(frozen=True, slots=True)
class _Layout:
    """The YAML of documents; ``free`` are the factors with holes that the check ignores."""

    template: Template
    free: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Structure:
    """The canonical JSON of valid documents, and their warnings.

    ``closed`` documents name no other run, so that their uid does not matter.
    """

    template: Template
    closed: bool
    warnings: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """The documents of one row of a design, as filled templates: see :meth:`Expansion.row`."""

    text: Template
    canonical: Template
    written: list[str]
    hashed: list[str]
    closed: bool

    def document(self, uid: str, seed: int) -> tuple[str, str]:
        """Return YAML and hash of the row's document with this uid and seed."""
        self.written[_UID] = _header(uid)
        self.written[_SEED] = str(seed)
        return self.text.fill(self.written), self.hash(uid, seed)

    def content(self, seed: int) -> str | None:
        """Return the content of the row's document with this seed, or None if it depends on the uid.

        See :func:`~palaestrai_mosaik.experiment.content_digest`.
        """
        return self.hash("", seed) if self.closed else None

    def hash(self, uid: str, seed: int) -> str:
        """Return the hash of the row's document with this uid and seed."""
        self.hashed[_UID] = json_scalar(uid)
        self.hashed[_SEED] = str(seed)
        canonical = self.canonical.fill(self.hashed)
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


class Expansion:
    """Builds the run documents of ``spec``, with a cache of structures."""

    def __init__(self, spec: DesignSpec):
        self.spec = spec
        self._builder = DocumentBuilder(spec)
        # a document cannot contain the hash of its own design, so the mark is unique
        self._mark = f"hole-{spec.hash[:24]}"
        self._hole = re.compile(rf"{self._mark}-(\d+)-")
        self._json_hole = re.compile(rf'"{self._mark}-(\d+)-"')
        names = [factor.name for factor in spec.factors]
        self._holes = {name: f"{self._mark}-{number}-" for number, name in enumerate(names, _FIRST)}
        self._choices = frozenset(factor.name for factor in spec.factors if factor.choice is not None)
        self._layouts: _Latest[_Layout] = _Latest()
        self._structures: _Latest[_Structure] = _Latest()
        collections = [level for factor in spec.factors for level in factor.levels if not is_scalar(level)]
        self._levels = {id(level): (level, canonical_json(level)) for level in collections}
        self._seeds: dict[int, int] = {}
        self._warnings: dict[tuple[str, str], Problem] = {}

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Deduplicated warnings about the documents so far."""
        return tuple(self._warnings.values())

    def warn(self, problem: Problem) -> None:
        """Add a warning, unless there is an equal one."""
        self._warnings.setdefault((problem.path, problem.message), problem)

    def digest(self, values: Values) -> str:
        """Compute the SHA-256 (hex) of a row's active values, which identifies them."""
        active = {name: value for name, value in values.items() if value is not INACTIVE}
        return hashlib.sha256(canonical_json(active).encode("utf-8", "surrogatepass")).hexdigest()

    def seed(self, row: RowName, repetition: int) -> int:
        """Return the seed of a repetition of the row with this name; it depends on nothing else."""
        if row:
            return integer_seed(self.spec.seed, *row, "repetition", repetition)
        if repetition not in self._seeds:
            self._seeds[repetition] = integer_seed(self.spec.seed, "repetition", repetition)
        return self._seeds[repetition]

    def mapping(self, values: Values, uid: str, seed: int) -> dict[str, Any]:
        """Build the run document of a row with these values as plain data."""
        return self._document(self._builder.build(values), uid, seed)

    def factor_at(self, path: str, values: Values) -> Factor | None:
        """Return the factor that sets ``path`` in the document of ``values``.

        This is the factor with the longest path at or above ``path``. Without one, it is the factor below ``path``, if
        there is exactly one.
        """
        paths = {name: join(keys) for name, keys in self._builder.places(values).items()}
        around = [name for name, prefix in paths.items() if _is_in(path, prefix)]
        below = [name for name, prefix in paths.items() if _is_in(prefix, path)]
        if around:
            return self.spec.factor(max(around, key=lambda name: len(paths[name])))
        return self.spec.factor(below[0]) if len(below) == 1 else None

    def row(self, values: Values, number: int) -> Row:
        """Build the documents of a row.

        Documents of a search are returned even if they are invalid: their runs fail with the reason.

        Args:
            values: values of the factors.
            number: number of the row.

        Raises:
            DocumentError: a document is invalid.
        """
        written = ["", ""]
        holes: dict[str, str] = {}
        for name, hole in self._holes.items():
            value = values[name]
            text = yaml_scalar(value) if name not in self._choices and is_scalar(value) else None
            written.append(text or "")
            if text is not None:
                holes[name] = hole
        built: dict[str, Any] = {}

        def new_layout() -> _Layout:
            built.update(self._builder.build({**values, **holes}))
            return self._layout(built, holes)

        layout = self._layouts.get(self._keys_without(holes, values), new_layout)

        def new_structure() -> _Structure:
            if built and layout.free == holes.keys():
                return self._structure(built, values, number)
            free = {name: self._holes[name] for name in layout.free}
            return self._structure(self._builder.build({**values, **free}), values, number)

        key = self._keys_without(layout.free, values), layout.free
        structure = self._structures.get(key, new_structure)
        if not structure.closed:
            for repetition in range(self.spec.repetitions):
                self._check_run(values, number, repetition)
        for warning in structure.warnings:
            self.warn(warning)
        hashed = ["", ""]
        hashed += [json_scalar(values[name]) if name in layout.free else "" for name in self._holes]
        return Row(layout.template, structure.template, written, hashed, structure.closed)

    def _keys_without(self, holes: Container[str], values: Values) -> tuple[tuple[str, Any], ...]:
        """Return the names and keys of the values that are not in ``holes``."""
        return tuple((name, self._key(values[name])) for name in self._holes if name not in holes)

    def _key(self, value: Any) -> Any:
        """Return a key that distinguishes values; ``1``, ``1.0`` and ``True`` are different."""
        if value is INACTIVE:
            return INACTIVE
        if is_scalar(value):
            return type(value), repr(value)
        level = self._levels.get(id(value))
        return level[1] if level is not None else canonical_json(value)

    def _document(self, built: Mapping[str, Any], uid: str, seed: Any) -> dict[str, Any]:
        return {"uid": uid, "experiment_uid": self.spec.uid, "seed": seed, **built}

    def _checked(self, data: dict[str, Any], row: int, repetition: int) -> RunDocument:
        return from_mapping(data, run_file(self.spec.uid, row, repetition), text="", hashed=False)

    def _check_run(self, values: Values, row: int, repetition: int) -> None:
        # the seed does not matter for validity
        self._checked(self.mapping(values, run_uid(self.spec.uid, row, repetition), 0), row, repetition)

    def _layout(self, built: Mapping[str, Any], holes: Mapping[str, str]) -> _Layout:
        data = self._document(built, "", f"{self._mark}-{_SEED}-")
        del data["uid"]
        text = Template(f"{self._mark}-{_UID}-{yaml_text(data)}", self._hole)
        free = set(holes)
        names = {hole: name for name, hole in holes.items()}
        for position, hole in _holes_in(data, names, ()) if names else ():
            if not _is_parameter(position):
                free.discard(names[hole])
        return _Layout(text, frozenset(free))

    def _structure(self, built: Mapping[str, Any], values: Values, number: int) -> _Structure:
        uid = f"{self._mark}-{_UID}-"
        try:
            document = self._checked(self._document(built, uid, 0), number, 0)
        except DocumentError:
            if self.spec.search is not None:
                plain = canonical_json(self._document(built, uid, f"{self._mark}-{_SEED}-"))
                return _Structure(Template(plain, self._json_hole), True, ())
            # report problems of the real document, not of one with holes
            self._check_run(values, number, 0)
            raise
        text = canonical_json(document.canonical)
        placeholder = f'"seed":0,"uid":"{uid}"'
        text = text.replace(placeholder, f'"seed":"{self._mark}-{_SEED}-","uid":"{uid}"')
        return _Structure(Template(text, self._json_hole), _closed(document), document.warnings)


def _is_in(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}.")


def _header(uid: str) -> str:
    return f"uid: {uid}\n" if _PLAIN.fullmatch(uid) else dumps({"uid": uid})


def _holes_in(value: Any, holes: Mapping[str, str], position: tuple[Any, ...]) -> Iterator[tuple[Any, str]]:
    """Yield every hole in plain data, and its position."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _holes_in(item, holes, (*position, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _holes_in(item, holes, (*position, index))
    elif isinstance(value, str) and value in holes:
        yield position, value


def _is_parameter(position: Sequence[Any]) -> bool:
    """Return whether a position in a document is below the ``params`` of a class, which alone interprets them."""
    if position[0] != "schedule":
        return False
    # a phase is below its name, in a list also below its index; an item of a topic below its index
    topic, *below = (*(position[3:] if isinstance(position[1], int) else position[2:]), "")
    if topic == "agents" and below[1:2] == ["bodies"]:  # an entry has the same classes as the agent
        below = below[2:]
    _, key, *inside = (*below, "", "", "", "")
    if key not in _CLASSES.get(topic, ()):
        return False
    below = inside[1:] if key == "filters" else inside
    return below[0] in ("params", "parameters") and below[1] != ""


def _closed(document: RunDocument) -> bool:
    """Return whether no agent in the document loads a brain or trajectories of a named run."""
    agents = [agent for phase in document.phases for agent in phase.agents]
    return not any(
        (agent.load or {}).get("experiment_run") is not None
        or any(replay.experiment_run is not None for replay in agent.replay)
        for agent in agents
    )


class DocumentBuilder:
    """Builds the run documents of ``spec`` as plain data."""

    def __init__(self, spec: DesignSpec):
        self._spec = spec
        self._schedule = None if spec.base is not None else schedule_of(spec)
        self._base = dict(spec.base) if spec.base is not None else {}
        self._base.setdefault("version", spec.version)
        self._choices = [factor for factor in spec.factors if factor.choice is not None]
        self._paths = [
            (factor, Path.parse(factor.path)) for factor in spec.factors if factor.path is not None
        ]
        self._keys: dict[str, Keys] = {}
        if self._schedule is None:
            self._keys = {
                factor.name: self._keys_of(factor, path, self._base) for factor, path in self._paths
            }

    def build(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Build the run document for ``values``, without ``uid``, ``seed`` and ``experiment_uid``.

        The result shares its unchanged parts with other documents, so it must not be modified.

        Args:
            values: the value of every factor: the label of a factor of the schedule, the level of other levels, or
                ``INACTIVE``, which leaves the document unchanged.

        Raises:
            DocumentError: a path leads nowhere in the document of these values.
        """
        document = self._base if self._schedule is None else self._generated(values)
        changes = Changes()
        for factor, path in self._paths:
            value = values[factor.name]
            if value is not INACTIVE:
                keys = self._keys.get(factor.name) or self._keys_of(factor, path, document, values)
                changes.set(keys, value)
        built: dict[str, Any] = changes.applied(document)
        return built

    def places(self, values: Mapping[str, Any]) -> dict[str, Keys]:
        """Return the position that each active factor with a path sets in the document of ``values``, by factor name."""
        document = self._base if self._schedule is None else self._generated(values)
        return {
            factor.name: self._keys.get(factor.name) or self._keys_of(factor, path, document, values)
            for factor, path in self._paths
            if values[factor.name] is not INACTIVE
        }

    def _generated(self, values: Mapping[str, Any]) -> dict[str, Any]:
        chosen = {
            factor.choice: factor.labels.index(label)
            for factor in self._choices
            if factor.choice is not None and (label := values[factor.name]) is not INACTIVE
        }
        assert self._schedule is not None
        return self._schedule.document(chosen)

    def _keys_of(
        self, factor: Factor, path: Path, document: Any, values: Mapping[str, Any] | None = None
    ) -> Keys:
        target = path.find(document, factor.create)
        if target.fault is None:
            return target.keys
        row = ""
        if values is not None:
            row = " in the document of " + ", ".join(
                f"{choice.name}={values[choice.name]}" for choice in self._choices
            )
            row += "; exclude such rows with 'when'"
        message = f"the path of factor {factor.name!r} ({path.text}) leads nowhere{row}: {target.fault}"
        raise DocumentError([self._spec.problem(message, "factors", factor.name)])


# --- templates, and YAML written quickly --------------------------------------------------

#: longest key without an explicit key mark (the limits are 1024 in YAML 1.2, section 7.4.2, and 128 in PyYAML)
_LONGEST_KEY = 100


class Template:
    """A text with numbered holes; each may occur any number of times.

    Args:
        text: the text.
        hole: matches a hole; its only group is the hole's number.
    """

    def __init__(self, text: str, hole: re.Pattern[str]):
        parts = hole.split(text)
        self._fixed = parts[::2]
        self._numbers = [int(number) for number in parts[1::2]]
        self.size = len(text)

    def fill(self, values: Sequence[str]) -> str:
        """Fill ``values``, by number, into the holes."""
        fixed = self._fixed
        parts = [fixed[0]]
        for number, after in zip(self._numbers, fixed[1:], strict=True):
            parts += (values[number], after)
        return "".join(parts)


def is_scalar(value: Any) -> bool:
    """Return whether ``value`` is text, a number, a boolean or None."""
    return value is None or type(value) in (str, float, int, bool)


def yaml_scalar(value: Any) -> str | None:
    """Format a scalar as YAML, as :func:`~palaestrai_mosaik.experiment.dumps` does; None if it takes several lines."""
    if type(value) is float:
        text = repr(value)
        if "e" in text and "." not in text:
            return text.replace("e", ".0e")
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(text, text)
    if type(value) is int:
        return str(value)
    if type(value) is str:
        return _yaml_text(value)
    return {None: "null", True: "true", False: "false"}[value]


def json_scalar(value: Any) -> str:
    """Format a scalar as canonical JSON."""
    return json.dumps(value, ensure_ascii=False)


@lru_cache(maxsize=2**14)
def _yaml_text(text: str) -> str | None:
    written = dumps([text]).removeprefix("- ").removesuffix("\n")
    return None if "\n" in written else written


class _Unusual(Exception):
    """Raised if a scalar takes more than one line."""


def yaml_text(data: Any) -> str:
    """Format a mapping of plain data as YAML that reads back as the same data.

    The result is that of :func:`~palaestrai_mosaik.experiment.dumps`, in a third of the time, because most words repeat
    over thousands of documents. Data with texts of several lines is left to `dumps`.
    """
    lines: list[str] = []
    try:
        _write(data, "", "", lines.append)
    except _Unusual:
        return dumps(data)
    return "".join(lines)


def _write(value: Any, first: str, rest: str, add: Callable[[str], object]) -> None:
    """Add the lines of a non-empty collection.

    Args:
        value: the collection.
        first: prefix of its first line.
        rest: prefix of all other lines.
        add: called with each line.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            name = _word(key)
            if not item or not isinstance(item, (dict, list)):
                add(f"{first}{name}: {_word(item)}\n")
            else:
                add(f"{first}{name}:\n")
                inside = f"{rest}  " if isinstance(item, dict) else rest
                _write(item, inside, inside, add)
            first = rest
        return
    for item in value:
        if not item or not isinstance(item, (dict, list)):
            add(f"{first}- {_word(item)}\n")
        else:
            _write(item, f"{first}- ", f"{rest}  ", add)
        first = rest


def _word(value: Any) -> str:
    if type(value) is str:
        return _text_word(value)
    if isinstance(value, (dict, list)):
        return "{}" if isinstance(value, dict) else "[]"
    return _one_line(yaml_scalar(value))


@lru_cache(maxsize=2**14)
def _text_word(text: str) -> str:
    return _one_line(_yaml_text(text))


def _one_line(word: str | None) -> str:
    # a longer key needs an explicit mark
    if word is None or len(word) > _LONGEST_KEY:
        raise _Unusual
    return word
