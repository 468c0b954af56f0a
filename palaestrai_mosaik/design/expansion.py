"""From the rows of a design to run documents: each made, checked and identified.

Most factors set a parameter of a class: the check of documents does not look at its value, and
the cascade hands it on as it is. Documents that differ in such values only have one
*structure*: it is built and checked once, with holes for these values, for the uid and the
seed. Its YAML and its canonical JSON are then filled in for every run. All other values
(an agent, a list of sensors, the number of episodes) belong to the structure.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from palaestrai_mosaik.errors import DocumentError, Problem
from palaestrai_mosaik.experiment import RunDocument, canonical_json, dumps, from_mapping
from palaestrai_mosaik.seeding import integer_seed

from .documents import DocumentBuilder
from .model import INACTIVE, DesignSpec
from .run_names import run_file, run_uid
from .templates import Template, is_scalar, json_scalar, yaml_scalar, yaml_text

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
