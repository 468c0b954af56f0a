"""From the rows of a design to run documents: each made, checked and identified.

Most factors set a parameter of a class: the check of documents does not look at its value, and
the cascade hands it on as it is. Documents that differ in such values only have one
*structure*: it is built and checked once, with holes for these values, for the uid and the
seed. Its YAML and its canonical JSON are then filled in for every run. All other values
(an agent, a list of sensors, the number of episodes) belong to the structure.

The placeholders are the same in the data of a document, its YAML and its canonical JSON, which write
them unchanged.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

from palaestrai_mosaik.errors import DocumentError, Problem
from palaestrai_mosaik.experiment import RunDocument, canonical_json, dumps, from_mapping
from palaestrai_mosaik.experiment.model import join
from palaestrai_mosaik.experiment.paths import Changes, Keys, Path
from palaestrai_mosaik.seeding import integer_seed

from .arsenai_form import SlotKey, schedule_of
from .model import INACTIVE, DesignSpec, Factor
from .run_names import run_file, run_uid

#: characters of structures that are kept at a time
_KEPT = 2**22
#: classes whose parameters nothing but they themselves look at, by topic of a phase
_CLASSES = {
    "environments": ("environment", "reward", "state_transformer"),
    "agents": ("brain", "muscle", "objective", "filters"),
}
#: the numbers of the holes of the uid, the seed, and the first factor
_UID, _SEED, _FIRST = 0, 1, 2
#: uids of runs that YAML takes without quotes
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*-r[0-9]+")

Values = Mapping[str, Any]
#: the names in the tree of seeds below which those of a row hang. Common seeds: none, they are those
#: of every row. Independent ones: its values, and how many earlier rows have the same ones; so a row
#: keeps its seeds wherever it stands
RowName = tuple[str | int, ...]


class _Sized(Protocol):
    @property
    def template(self) -> Template: ...


Made = TypeVar("Made", bound=_Sized)


class _Latest(Generic[Made]):
    """What was made for the latest keys, up to a size in all."""

    def __init__(self) -> None:
        self._made: OrderedDict[Any, Made] = OrderedDict()
        self._size = 0

    def get(self, key: Any, make: Callable[[], Made]) -> Made:
        """Return what ``make`` gives for ``key``, or gave before."""
        if key in self._made:
            self._made.move_to_end(key)
            return self._made[key]
        made = self._made[key] = make()
        self._size += made.template.size
        while self._size > _KEPT and len(self._made) > 1:
            self._size -= self._made.popitem(last=False)[1].template.size
        return made


@dataclass(frozen=True, slots=True)
class _Layout:
    """The YAML of documents, and which of its holes (by factor) the check does not look at."""

    template: Template
    free: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Structure:
    """The canonical JSON of documents that were found sound; ``warnings``: what they are told.

    ``closed``: nothing in them names another run, so that the own uid is of no importance.
    """

    template: Template
    closed: bool
    warnings: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """The documents of one row of a design, a template filled in: see :meth:`Expansion.row`."""

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
        """Return the content of the row's document with this seed; ``None`` where that depends on the uid.

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
    """Makes the run documents of ``spec``."""

    def __init__(self, spec: DesignSpec):
        self.spec = spec
        self._builder = DocumentBuilder(spec)
        # that nobody's document holds the hash of its own design is certain
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
        """What is to be told of the documents so far, each thing once."""
        return tuple(self._warnings.values())

    def digest(self, values: Values) -> str:
        """Return what tells a row's values from others': SHA-256 (hex) of those that are active."""
        active = {name: value for name, value in values.items() if value is not INACTIVE}
        return hashlib.sha256(canonical_json(active).encode("utf-8", "surrogatepass")).hexdigest()

    def seed(self, row: RowName, repetition: int) -> int:
        """Return the seed of a repetition of the row with this name.

        It depends on nothing but the names in its path.
        """
        if row:
            return integer_seed(self.spec.seed, *row, "repetition", repetition)
        if repetition not in self._seeds:
            self._seeds[repetition] = integer_seed(self.spec.seed, "repetition", repetition)
        return self._seeds[repetition]

    def mapping(self, values: Values, uid: str, seed: int) -> dict[str, Any]:
        """Return the run document of a row with these values as plain data."""
        return self._document(self._builder.build(values), uid, seed)

    def factor_at(self, path: str, values: Values) -> Factor | None:
        """Return the factor that sets what is at ``path`` of the document of ``values``, or the only one below it."""
        places = {name: join(keys) for name, keys in self._builder.places(values).items()}
        around = [name for name, place in places.items() if _is_in(path, place)]
        below = [name for name, place in places.items() if _is_in(place, path)]
        if around:
            return self.spec.factor(max(around, key=lambda name: len(places[name])))
        return self.spec.factor(below[0]) if len(below) == 1 else None

    def row(self, values: Values, number: int) -> Row:
        """Return the documents of the row ``number`` with these values of the factors.

        Raises :class:`~palaestrai_mosaik.errors.DocumentError` where they are not sound.
        """
        written = ["", ""]
        holes: dict[str, str] = {}
        for name, hole in self._holes.items():
            value = values[name]
            text = yaml_scalar(value) if name not in self._choices and is_scalar(value) else None
            written.append(text or "")
            if text is not None:
                holes[name] = hole
        rest = tuple((name, self._key(values[name])) for name in self._holes if name not in holes)
        built: dict[str, Any] = {}

        def new_layout() -> _Layout:
            built.update(self._builder.build({**values, **holes}))
            return self._layout(built, holes)

        layout = self._layouts.get(rest, new_layout)
        held = tuple((name, self._key(values[name])) for name in self._holes if name not in layout.free)

        def new_structure() -> _Structure:
            if not built or layout.free != holes.keys():
                free = {name: self._holes[name] for name in layout.free}
                return self._structure(self._builder.build({**values, **free}), values, number)
            return self._structure(built, values, number)

        structure = self._structures.get((held, layout.free), new_structure)
        if not structure.closed:
            for repetition in range(self.spec.repetitions):
                self._check_run(values, number, repetition)
        for warning in structure.warnings:
            self._warnings.setdefault((warning.path, warning.message), warning)
        hashed = ["", ""]
        hashed += [json_scalar(values[name]) if name in layout.free else "" for name in self._holes]
        return Row(layout.template, structure.template, written, hashed, structure.closed)

    def _key(self, value: Any) -> Any:
        """Return what tells ``value`` from others: ``1``, ``1.0`` and ``True`` are three."""
        if value is INACTIVE:
            return INACTIVE
        if is_scalar(value):
            return type(value), repr(value)
        known = self._levels.get(id(value))
        return known[1] if known is not None else canonical_json(value)

    def _document(self, built: Mapping[str, Any], uid: str, seed: Any) -> dict[str, Any]:
        return {"uid": uid, "experiment_uid": self.spec.uid, "seed": seed, **built}

    def _checked(self, data: dict[str, Any], row: int, repetition: int) -> RunDocument:
        return from_mapping(data, run_file(self.spec.uid, row, repetition), text="", hashed=False)

    def _check_run(self, values: Values, row: int, repetition: int) -> None:
        # any seed is as sound as another
        self._checked(self.mapping(values, run_uid(self.spec.uid, row, repetition), 0), row, repetition)

    def _layout(self, built: Mapping[str, Any], holes: Mapping[str, str]) -> _Layout:
        data = self._document(built, "", f"{self._mark}-{_SEED}-")
        del data["uid"]
        text = Template(f"{self._mark}-{_UID}-{yaml_text(data)}", self._hole)
        free = set(holes)
        names = {hole: name for name, hole in holes.items()}
        for place, hole in _holes_in(data, names, ()) if names else ():
            if not _is_parameter(place):
                free.discard(names[hole])
        return _Layout(text, frozenset(free))

    def _structure(self, built: Mapping[str, Any], values: Values, number: int) -> _Structure:
        uid = f"{self._mark}-{_UID}-"
        try:
            document = self._checked(self._document(built, uid, 0), number, 0)
        except DocumentError:
            # told of the real document, not of one with holes
            self._check_run(values, number, 0)
            raise
        text = canonical_json(document.canonical)
        own = f'"seed":0,"uid":"{uid}"'
        text = text.replace(own, f'"seed":"{self._mark}-{_SEED}-","uid":"{uid}"')
        return _Structure(Template(text, self._json_hole), _closed(document), document.warnings)


def _is_in(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}.")


def _header(uid: str) -> str:
    return f"uid: {uid}\n" if _PLAIN.fullmatch(uid) else dumps({"uid": uid})


def _holes_in(value: Any, holes: Mapping[str, str], place: tuple[Any, ...]) -> Iterator[tuple[Any, str]]:
    """Yield every hole in plain data, and where it is."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _holes_in(item, holes, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _holes_in(item, holes, (*place, index))
    elif isinstance(value, str) and value in holes:
        yield place, value


def _is_parameter(place: Sequence[Any]) -> bool:
    """Whether this place of a document is below the ``params`` of a class that alone looks at them."""
    if place[0] != "schedule":
        return False
    # a phase is below its name, in a list also below its index; an item of a topic below its index
    topic, *below = (*(place[3:] if isinstance(place[1], int) else place[2:]), "")
    if topic == "agents" and below[1:2] == ["bodies"]:  # an entry has classes as the agent itself has
        below = below[2:]
    _, key, *inside = (*below, "", "", "", "")
    if key not in _CLASSES.get(topic, ()):
        return False
    below = inside[1:] if key == "filters" else inside
    return below[0] in ("params", "parameters") and below[1] != ""


def _closed(document: RunDocument) -> bool:
    """Whether nothing in the document names the run of which it takes a brain or trajectories."""
    agents = [agent for phase in document.phases for agent in phase.agents]
    return not any(
        (agent.load or {}).get("experiment_run") is not None
        or any(replay.experiment_run is not None for replay in agent.replay)
        for agent in agents
    )


class DocumentBuilder:
    """Makes the run documents of ``spec``."""

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
            self._keys = {factor.name: self._found(factor, path, self._base) for factor, path in self._paths}

    def build(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the run document for ``values``, without ``uid``, ``seed`` and ``experiment_uid``.

        ``values`` has for every factor its value (of a factor of the schedule the label, of
        other levels the level), or ``INACTIVE``, which leaves the document as it is there. The
        document is plain data, fresh where it is changed; the rest is shared with other
        documents, so nobody may write to it. Raises
        :class:`~palaestrai_mosaik.errors.DocumentError` where a path leads nowhere in the
        document of these values.
        """
        document = self._base if self._schedule is None else self._generated(values)
        changes = Changes()
        for factor, path in self._paths:
            value = values[factor.name]
            if value is not INACTIVE:
                keys = self._keys.get(factor.name) or self._found(factor, path, document, values)
                changes.set(keys, value)
        built: dict[str, Any] = changes.applied(document)
        return built

    def places(self, values: Mapping[str, Any]) -> dict[str, Keys]:
        """Return where the active factors with a path set something in the document of ``values``, by their names."""
        document = self._base if self._schedule is None else self._generated(values)
        return {
            factor.name: self._keys.get(factor.name) or self._found(factor, path, document, values)
            for factor, path in self._paths
            if values[factor.name] is not INACTIVE
        }

    def _generated(self, values: Mapping[str, Any]) -> dict[str, Any]:
        chosen: dict[SlotKey, int] = {}
        for factor in self._choices:
            choice, label = factor.choice, values[factor.name]
            if choice is not None and label is not INACTIVE:
                chosen[choice.phase, choice.topic, choice.agent] = factor.labels.index(label)
        assert self._schedule is not None
        return self._schedule.document(chosen)

    def _found(
        self, factor: Factor, path: Path, document: Any, values: Mapping[str, Any] | None = None
    ) -> Keys:
        found = path.find(document, factor.create)
        if found.fault is None:
            return found.keys
        row = ""
        if values is not None:
            row = " in the document of " + ", ".join(
                f"{one.name}={values[one.name]}" for one in self._choices
            )
            row += "; exclude such rows with 'when'"
        message = f"the path of factor {factor.name!r} ({path.text}) leads nowhere{row}: {found.fault}"
        raise DocumentError([self._spec.problem(message, "factors", factor.name)])


# --- templates, and YAML written quickly --------------------------------------------------

#: characters of a key that needs no mark before it (YAML 1.2, 7.4.2: 1024; PyYAML: 128)
_LONGEST_KEY = 100


class Template:
    """A text with numbered holes, each any number of times."""

    def __init__(self, text: str, hole: re.Pattern[str]):
        """``hole`` matches a hole and has its number as its only group."""
        parts = hole.split(text)
        self._fixed = parts[::2]
        self._numbers = [int(number) for number in parts[1::2]]
        self.size = len(text)

    def fill(self, values: Sequence[str]) -> str:
        """Return the text with ``values`` by number in its holes."""
        fixed = self._fixed
        parts = [fixed[0]]
        for number, after in zip(self._numbers, fixed[1:], strict=True):
            parts += (values[number], after)
        return "".join(parts)


def is_scalar(value: Any) -> bool:
    """Whether ``value`` is text, a number, a boolean or nothing."""
    return value is None or type(value) in (str, float, int, bool)


def yaml_scalar(value: Any) -> str | None:
    """Return a scalar as it stands in YAML, ``None`` where it takes more than one line.

    It is written as :func:`~palaestrai_mosaik.experiment.dumps` writes it.
    """
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
    """Return a scalar as it stands in canonical JSON."""
    return json.dumps(value, ensure_ascii=False)


@lru_cache(maxsize=2**14)
def _yaml_text(text: str) -> str | None:
    written = dumps([text]).removeprefix("- ").removesuffix("\n")
    return None if "\n" in written else written


class _Unusual(Exception):
    """Something takes more than one line."""


def yaml_text(data: Any) -> str:
    """Return a mapping of plain data as YAML text which reads back as the same data.

    As :func:`~palaestrai_mosaik.experiment.dumps`, to which it leaves texts of several lines, but
    in a third of the time: thousands of documents are mostly the same words.
    """
    lines: list[str] = []
    try:
        _write(data, "", "", lines.append)
    except _Unusual:
        return dumps(data)
    return "".join(lines)


def _write(value: Any, first: str, rest: str, add: Callable[[str], object]) -> None:
    """Add the lines of a collection that is not empty, with what stands before its first line and the rest."""
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
    # a longer key must be marked as one
    if word is None or len(word) > _LONGEST_KEY:
        raise _Unusual
    return word
