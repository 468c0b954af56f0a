"""Reads design documents from files, text or plain data, and looks up the paths of factors in their run documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any

from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment import DOCUMENT_VERSION
from palaestrai_mosaik.experiment.build import header
from palaestrai_mosaik.experiment.canonical import digest, plain_data
from palaestrai_mosaik.experiment.cascade import CascadedPhase, cascade
from palaestrai_mosaik.experiment.cascade import Definitions as RunDefinitions
from palaestrai_mosaik.experiment.fields import (
    TEXT,
    Findings,
    Located,
    integer,
    show,
    show_unquoted,
)
from palaestrai_mosaik.experiment.model import Place
from palaestrai_mosaik.experiment.paths import Changes, Keys, with_mappings
from palaestrai_mosaik.experiment.paths import Path as DocumentPath
from palaestrai_mosaik.experiment.vocabulary import TOP
from palaestrai_mosaik.experiment.yaml_text import Lines

from .arsenai_form import Schedule, read_schedule
from .expressions import Expression
from .factors import read_axes, read_factors
from .merge import Draft, MergedFindings, draft, read_file, read_text
from .model import (
    AnalysisSpec,
    Choice,
    DesignSpec,
    Factor,
    SamplerSpec,
    SeedPolicy,
    identity,
    resolved,
)
from .outcomes import PhaseNames, read_analysis, read_outcomes
from .search import SAMPLER as SEARCHED
from .search import read_search
from .vocabulary import DEFAULT_SAMPLER, DESIGN, IDENTITY, SEEDS, read_execution, read_key, read_texts

#: builds the run document of chosen alternatives
Documents = Callable[[Mapping[Choice, int]], Any]
#: largest number of documents to search for names
_MOST = 200
#: largest number of combinations of values to try an expression with
_TRIALS = 500


class Targets:
    """The documents of a design, one for every alternative of the schedule, varied one at a time.

    Args:
        findings: collects the problems.
        documents: builds the document of chosen alternatives.
        choices: the factors of the schedule.
    """

    def __init__(self, findings: Findings, documents: Documents, choices: Sequence[Factor]):
        self._findings = findings
        self._documents = documents
        self._slots = [(factor.choice, len(factor.levels)) for factor in choices if factor.choice is not None]
        varied = ({key: index} for key, count in self._slots for index in range(1, count))
        self._made = [(chosen, documents(chosen)) for chosen in [{}, *varied]]

    def check(self, factors: Sequence[Factor], places: Sequence[Place]) -> None:
        """Report factors with paths that lead nowhere in any document, and factors with overlapping paths."""
        taken: dict[int, dict[Keys, str]] = {}
        for factor, path in zip(factors, places, strict=True):
            fault = self._target_fault(factor, taken)
            if fault is not None:
                self._findings.error((*path, "path"), fault)

    def _target_fault(self, factor: Factor, taken: dict[int, dict[Keys, str]]) -> str | None:
        """Return the problem of a factor's path, or None.

        Args:
            factor: the factor.
            taken: for each document, the parts that factors set, by keys; those of this factor are added.
        """
        path = DocumentPath.parse(factor.path or "")
        if path.parts[0] in IDENTITY:
            return f"{path.text!r} is set by the design for every run; repetitions and 'seeds' vary the seed"
        targets = [path.find(document, factor.create) for _, document in self._made]
        sound = [(number, target.keys) for number, target in enumerate(targets) if target.fault is None]
        fault = None if sound else self._search(factor, path)
        if fault is not None:
            return f"the path {path.text!r} leads nowhere: {fault}"
        for number, keys in sound:
            other = _overlap(taken.get(number, {}), keys)
            if other is not None:
                return (
                    f"the factors {other!r} and {factor.name!r} set the same part of the document: one path is "
                    "the other, or lies inside it"
                )
        for number, keys in sound:
            taken.setdefault(number, {})[keys] = factor.name
        return None

    def _search(self, factor: Factor, path: DocumentPath) -> str | None:
        """Search a document in which the path leads to a target; return the path's fault if no document has one.

        Hill climbing from the document in which the path leads furthest: every alternative is tried, one at a time, as
        long as the path gets further.
        """
        reached = [(path.find(document, factor.create), chosen) for chosen, document in self._made]
        furthest, best = max(reached, key=lambda candidate: len(candidate[0].keys))
        improved = True
        while improved and furthest.fault is not None:
            improved = False
            for key, count in self._slots:
                for index in range(count):
                    chosen = {**best, key: index}
                    result = path.find(self._documents(chosen), factor.create)
                    if result.fault is None or len(result.keys) > len(furthest.keys):
                        best, furthest, improved = chosen, result, True
        return furthest.fault

    def phases(self, factors: Sequence[Factor]) -> tuple[PhaseNames, ...]:
        """Return the phases of the documents, each with every agent that it can have."""
        names: dict[str, dict[str, None]] = {}
        for document in islice(self._varied(factors), _MOST):
            for phase in cascaded(document):
                names.setdefault(phase.name, {}).update(dict.fromkeys(phase.agents))
        return tuple(PhaseNames(name, tuple(agents)) for name, agents in names.items())

    def _varied(self, factors: Sequence[Factor]) -> Iterator[Any]:
        """Yield the documents, and the first one with one factor at another level."""
        for _, document in self._made:
            yield document
        for factor in factors:
            if factor.path is None or factor.kind != "levels":
                continue
            target = DocumentPath.parse(factor.path).find(self._made[0][1], factor.create)
            for level in factor.levels if target.fault is None else ():
                changes = Changes()
                changes.set(target.keys, level)
                yield changes.applied(self._made[0][1])


def cascaded(document: Mapping[str, Any]) -> list[CascadedPhase]:
    """Return the phases of a run document, ignoring errors, which the check of the document reports."""
    ignored = Findings("", Lines())
    section = document.get("definitions")
    definitions = RunDefinitions(ignored, None if section is None else Located(section, ("definitions",)))
    return cascade(ignored, Located(document.get("schedule"), ("schedule",)), definitions)


def _overlap(taken: Mapping[Keys, str], keys: Keys) -> str | None:
    """Return the factor with keys that equal, contain or are contained in ``keys``; None without one."""
    for length in range(1, len(keys) + 1):
        if keys[:length] in taken:
            return taken[keys[:length]]
    return next((name for other, name in taken.items() if other[: len(keys)] == keys), None)


def check_conditions(findings: Findings, factors: Sequence[Factor], places: Mapping[str, Place]) -> None:
    """Check the ``when`` of every factor: it must be valid, name other factors, and not be circular."""
    needs: dict[str, tuple[str, ...]] = {}
    for factor in factors:
        if factor.when is None:
            continue
        path = (*places[factor.name], "when")
        expression = read_expression(findings, factor.when, factors, path)
        if expression is not None:
            needs[factor.name] = expression.names
    for name in needs:
        ring = _ring(name, needs)
        if ring:
            findings.error(
                (*places[name], "when"), f"factors depend on one another in a circle: {' -> '.join(ring)}"
            )


def _ring(start: str, needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the path from ``start`` back to itself, empty if there is no such path."""
    paths = [[start]]
    seen = set()
    while paths:
        path = paths.pop()
        for name in needs.get(path[-1], ()):
            if name == start:
                return [*path, name]
            if name not in seen:
                seen.add(name)
                paths.append([*path, name])
    return []


def read_expression(
    findings: Findings, text: str, factors: Sequence[Factor], path: Place
) -> Expression | None:
    """Read an expression, and try it with values of its factors. Return None and report the problem if it is invalid."""
    try:
        expression = Expression.parse(text, factors)
        if not expression.names:
            findings.error(path, f"the expression {text!r} names no factor, so it is always the same")
            return None
        by_name = {factor.name: factor for factor in factors}
        values = [_trial_values(by_name[name]) for name in expression.names]
        trials = list(islice(product(*values), _TRIALS))
        discrete = all(by_name[name].kind == "levels" for name in expression.names)
        holds = [_holds(expression, trial, discrete) for trial in trials]
        if discrete and len(trials) < _TRIALS and not any(holds):
            findings.error(path, f"the expression {text!r} is false for all levels of its factors")
            return None
    except DocumentError as error:
        findings.error(path, error.problems[0].message)
        return None
    return expression


def _holds(expression: Expression, trial: Sequence[Any], discrete: bool) -> bool:
    """Return whether ``expression`` holds for trial values; True if it cannot be computed for them.

    The trial value of a continuous range does not represent others: 1/a is valid except at 0.
    """
    try:
        return expression.evaluate(dict(zip(expression.names, trial, strict=True)))
    except DocumentError as error:
        if discrete or not isinstance(error.__context__, ArithmeticError):
            raise
        return True


def _trial_values(factor: Factor) -> tuple[Any, ...]:
    if factor.kind == "levels":
        return factor.row_levels
    if factor.low is not None and factor.high is not None:
        middle = (factor.low + factor.high) / 2
    else:
        middle = factor.params.get("mean", 0.0)
    return (round(middle) if factor.kind == "int" else middle,)


_BASE = replace(TOP, title="the base", required=("schedule",))


def load(path: str | Path) -> DesignSpec:
    """Read a design document, and the files that it names.

    Args:
        path: the file (YAML, UTF-8).

    Returns:
        The valid design.

    Raises:
        DocumentError: carries every problem found.
    """
    path = Path(path)
    return _design(draft(*read_file(path), path.parent, path))


def loads(text: str, source: str = "<string>", directory: str | Path | None = None) -> DesignSpec:
    """Read a design document from text.

    Args:
        text: the document as YAML.
        source: name of the text in messages.
        directory: folder that its paths to other files are relative to; None for the working directory.

    Returns:
        The valid design.

    Raises:
        DocumentError: carries every problem found.
    """
    return _design(draft(*read_text(text, source), Path(directory or ".")))


def from_mapping(
    data: Mapping[str, Any], source: str = "<mapping>", directory: str | Path | None = None
) -> DesignSpec:
    """Build a design from plain data.

    Args:
        data: the document as mappings, lists, numbers and texts.
        source: name of the document in messages.
        directory: folder that its paths to other files are relative to; None for the working directory.

    Returns:
        The valid design.

    Raises:
        DocumentError: carries every problem found.
    """
    findings = Findings(source, Lines())
    plain = plain_data(data, findings)
    if findings.errors:
        raise DocumentError(findings.errors)
    return _design(draft(plain, source, Lines(), Path(directory or ".")))


def _design(document: Draft) -> DesignSpec:
    findings = MergedFindings(document.source, document.lines, document.origins)
    spec = _Reader(findings, document).spec()
    if findings.errors or spec is None:
        raise DocumentError(findings.errors)
    return spec


#: keys that a design with a search must not have, each with the reason
_NOT_WITH_SEARCH = {
    "sampler": "a search proposes its settings itself (search.sampler)",
    "repetitions": "a search has search.seeds_per_setting",
    "max_runs": "a search has search.budget",
}


class _Reader:
    """Reads a design, section by section; problems are added to ``findings``."""

    def __init__(self, findings: MergedFindings, document: Draft):
        self._findings = findings
        #: names of the sampler's options without a value
        self._without_value: list[str] = []
        self._lines = document.lines
        self._parts = findings.section(Located(document.data, ()), DESIGN) or {}

    def _part(self, key: str) -> Located | None:
        """Return a part of the document, or None if it is missing or null."""
        part = self._parts.get(key)
        return None if part is None or part.value is None else part

    def spec(self) -> DesignSpec | None:
        """Read the design; None if it is invalid."""
        findings = self._findings
        findings.missing((), self._parts, DESIGN)
        uid, seed, version = self._header()
        errors = findings.count
        base = self._base()
        version = version or (base or {}).get("version") or DOCUMENT_VERSION
        schedule = None if base is not None else self._schedule(version)
        of_schedule = [] if schedule is None else schedule.factors()
        by_path, written = read_factors(findings, self._part("factors"), of_schedule)
        places = {factor.name: at.place for factor, at in zip(by_path, written, strict=True)}
        documents = _documents(base, schedule) if findings.count == errors else None
        spec = replace(self._without_factors(uid, seed, version), base=base)
        if schedule is not None:
            definitions, phases = (self._parts[key].value for key in ("definitions", "schedule"))
            spec = replace(spec, definitions=definitions, schedule=_phase_list(phases))
        at_execution = self._part("execution")
        execution = None if at_execution is None else read_execution(findings, at_execution)
        # sections that name factors or phases are read after these
        if documents is not None:
            targets = Targets(findings, documents, of_schedule)
            spec = self._joined(spec, [*of_schedule, *by_path], places, targets)
        return None if findings.errors else self._checked(spec, execution, places)

    def _header(self) -> tuple[str, int, str]:
        """Read uid, seed and version; a version of null is left out."""
        version = self._part("version")
        parts = {key: part for key, part in self._parts.items() if key != "version"}
        return header(self._findings, parts if version is None else {**parts, "version": version})

    def _without_factors(self, uid: str, seed: int, version: str) -> DesignSpec:
        """Read the sections that name neither factors nor parts of the documents."""
        search = read_search(self._findings, self._searched())
        return DesignSpec(
            uid=uid,
            seed=seed,
            version=version,
            repetitions=int(self._value("repetitions")) if search is None else search.seeds,
            max_runs=self._max_runs(),
            output=self._value("output"),
            base=None,
            definitions=None,
            schedule=(),
            axes=(),
            constraints=(),
            sampler=self._sampler(),
            seed_policy=self._policy(),
            outcomes=(),
            analysis=AnalysisSpec(),
            resolved={},
            search=search,
            source=self._findings.source,
        )

    def _joined(
        self, spec: DesignSpec, factors: Sequence[Factor], places: Mapping[str, Place], targets: Targets
    ) -> DesignSpec:
        """Add the factors to ``spec``, and the sections that name factors or parts of the documents."""
        findings = self._findings
        by_path = [factor for factor in factors if factor.choice is None]
        targets.check(by_path, [places[factor.name] for factor in by_path])
        check_conditions(findings, factors, places)
        outcomes = read_outcomes(findings, self._part("outcomes"), targets.phases(by_path), factors)
        search = spec.search
        if search is not None and not search.objectives and len(outcomes) == 1:
            search = replace(search, objectives=(outcomes[0].name,))
        return replace(
            spec,
            axes=read_axes(findings, factors, self._part("zip"), self._part("groups")),
            constraints=self._constraints(factors),
            outcomes=outcomes,
            search=search,
            analysis=read_analysis(
                findings,
                self._part("analysis"),
                factors,
                outcomes,
                given_points=search is None and spec.sampler.name == SEARCHED,
            ),
        )

    def _checked(
        self, spec: DesignSpec, execution: dict[str, Any] | None, places: Mapping[str, Place]
    ) -> DesignSpec:
        """Check ``spec`` as a whole, and add its resolved form, hash, warnings and lines."""
        from .rules import check_robustness, check_sampler, check_without_value

        wrong, doubtful = check_without_value(spec.sampler.name, self._without_value)
        for path, message in doubtful:
            self._findings.warn(path, message)
        spec = replace(spec, lines=self._lines, places=places)
        for path, message in (*wrong, *check_sampler(spec), *check_robustness(spec)):
            self._findings.error(spec.written_at(path), message)
        whole = resolved(spec, execution)
        return replace(
            spec,
            resolved=whole,
            hash=digest(identity(spec, whole)),
            warnings=self._findings.warnings,
        )

    # the documents

    def _base(self) -> dict[str, Any] | None:
        findings, at = self._findings, self._part("base")
        ours = [key for key in ("definitions", "schedule") if self._part(key) is not None]
        if at is None:
            if not ours:
                findings.error(
                    (), "a design needs 'base' (a run document to vary), or 'definitions' and 'schedule'"
                )
            return None
        if ours:
            findings.error(
                self._parts[ours[0]].place,
                f"a design has either 'base' or {' and '.join(map(repr, ours))}; the factors of 'factors' work "
                "on both",
            )
        if not isinstance(at.value, dict):
            findings.error(
                at.place,
                f"base must be the path of a run document, or the document itself, found {show_unquoted(at.value)}",
            )
            return {}
        parts = findings.section(at, _BASE) or {}
        findings.missing(at.place, parts, _BASE)
        base = {key: value for key, value in at.value.items() if key not in IDENTITY}
        if isinstance(base.get("schedule"), dict):
            base["schedule"] = list(_phase_list(base["schedule"]))
        return with_mappings(base)

    def _schedule(self, version: str) -> Schedule | None:
        findings = self._findings
        errors = findings.count
        for key, other in (("definitions", "schedule"), ("schedule", "definitions")):
            if self._part(key) is None and self._part(other) is not None:
                findings.error((), f"a design with {other!r} needs {key!r}, too")
        definitions, schedule = self._part("definitions"), self._part("schedule")
        if definitions is None or schedule is None:
            return None
        read = read_schedule(findings, definitions, schedule, version)
        return read if findings.count == errors else None

    # the rest

    def _constraints(self, factors: Sequence[Factor]) -> tuple[str, ...]:
        findings, at = self._findings, self._part("constraints")
        what, entry = "a list of expressions", "a constraint (an expression over factors)"
        return tuple(
            item.value
            for item in read_texts(findings, at, "constraints", what, entry)
            if read_expression(findings, item.value, factors, item.place) is not None
        )

    def _max_runs(self) -> int | None:
        at = self._part("max_runs")
        # arsenAI writes -1 for no limit
        limit: int | None = None if at is None or at.value == -1 else self._value("max_runs")
        return limit

    def _value(self, key: str) -> Any:
        return read_key(self._findings, DESIGN, self._parts, key)

    def _searched(self) -> Located | None:
        """Return the section ``search``; report the keys that do not go together with it."""
        at = self._part("search")
        for key, why in _NOT_WITH_SEARCH.items() if at is not None else ():
            part = self._part(key)
            if part is not None:
                self._findings.error(
                    part.place, f"{key} and search do not go together: {why}; leave one of them out"
                )
        return at

    def _sampler(self) -> SamplerSpec:
        at = self._part("sampler")
        if self._part("search") is not None:
            return SamplerSpec(SEARCHED)
        if at is None:
            return SamplerSpec(DEFAULT_SAMPLER)
        if isinstance(at.value, str):
            return SamplerSpec(at.value)
        if isinstance(at.value, dict):
            return self._sampler_section(at)
        message = f"sampler must be a name, or a mapping with name and n, found {show(at.value)}"
        self._findings.error(at.place, message)
        return SamplerSpec(DEFAULT_SAMPLER)

    def _sampler_section(self, at: Located) -> SamplerSpec:
        findings = self._findings
        options = {key: value for key, value in at.value.items() if value is not None}
        for key in options:
            if not isinstance(key, str):
                findings.error(
                    (*at.place, key), f"an option of a sampler must be a string, found {show(key)}"
                )
        self._without_value = [key for key in at.value if isinstance(key, str) and key not in options]
        name = n = None
        if "name" in options:
            name = TEXT.read(findings, at.child("name"), "the sampler's name")
        if "n" in options:
            n = integer(1).read(findings, at.child("n"), "n (the sampler's size)")
        if "name" not in options:
            findings.error(at.place, f"sampler needs the key 'name', which is missing{_name_hint(options)}")
        options = {key: value for key, value in options.items() if key not in ("name", "n")}
        return SamplerSpec(name or DEFAULT_SAMPLER, n, options)

    def _policy(self) -> SeedPolicy:
        at = self._part("seeds")
        parts = self._findings.section(at, SEEDS) or {} if at is not None else {}
        policy: SeedPolicy = SEEDS.values(self._findings, parts)["policy"]
        return policy


def _documents(base: dict[str, Any] | None, schedule: Schedule | None) -> Documents:
    """Return the function that builds the run document of chosen alternatives."""
    if schedule is not None:
        return schedule.document
    document = {"version": "", **(base or {})}
    return lambda _: document


def _name_hint(options: Mapping[Any, Any]) -> str:
    """Return a hint for a sampler that is written as a key: ``{lhs: 20}``."""
    from .samplers import SAMPLERS

    name = next((key for key in options if isinstance(key, str) and key in SAMPLERS), None)
    return "" if name is None else f"; write {{name: {name}, n: ...}}"


def _phase_list(schedule: Any) -> tuple[Any, ...]:
    """Return the phases of a schedule as a list of one-key mappings."""
    if isinstance(schedule, dict):
        return tuple({name: body} for name, body in schedule.items())
    return tuple(schedule)
