"""The targets of factors: their paths, looked up in the documents that a design can produce."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any

from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment.cascade import CascadedPhase, cascade
from palaestrai_mosaik.experiment.cascade import Definitions as RunDefinitions
from palaestrai_mosaik.experiment.fields import Findings, Located
from palaestrai_mosaik.experiment.model import Place
from palaestrai_mosaik.experiment.paths import Changes, Keys
from palaestrai_mosaik.experiment.paths import Path as DocumentPath
from palaestrai_mosaik.experiment.yaml_text import Lines

from .arsenai_form import SlotKey
from .expressions import Expression
from .model import Factor
from .outcomes import PhaseNames
from .vocabulary import IDENTITY

#: builds the run document of chosen alternatives
Documents = Callable[[Mapping[SlotKey, int]], Any]
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
        self._slots: list[tuple[SlotKey, int]] = [
            ((factor.choice.phase, factor.choice.topic, factor.choice.agent), len(factor.levels))
            for factor in choices
            if factor.choice is not None
        ]
        varied = ({key: index} for key, count in self._slots for index in range(1, count))
        self._made = [(chosen, documents(chosen)) for chosen in [{}, *varied]]

    def check(self, factors: Sequence[Factor], places: Sequence[Place]) -> None:
        """Report factors with paths that lead nowhere in any document, and factors with overlapping paths."""
        taken: dict[int, dict[Keys, str]] = {}
        for factor, position in zip(factors, places, strict=True):
            path = DocumentPath.parse(factor.path or "")
            if path.parts[0] in IDENTITY:
                self._findings.error(
                    (*position, "path"),
                    f"{path.text!r} is set by the design for every run; repetitions and 'seeds' vary the seed",
                )
                continue
            results = [path.find(document, factor.create) for _, document in self._made]
            sound = [(number, result.keys) for number, result in enumerate(results) if result.fault is None]
            if not sound:
                fault = self._search(factor, path)
                if fault is not None:
                    self._findings.error(
                        (*position, "path"), f"the path {path.text!r} leads nowhere: {fault}"
                    )
            other = next(
                (name for number, keys in sound if (name := _overlap(taken.get(number, {}), keys))), None
            )
            if other is not None:
                self._findings.error(
                    (*position, "path"),
                    f"the factors {other!r} and {factor.name!r} set the same part of the document: one path is "
                    "the other, or lies inside it",
                )
                continue
            for number, keys in sound:
                taken.setdefault(number, {})[keys] = factor.name

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
        return factor.labels if factor.choice is not None else factor.levels
    if factor.low is not None and factor.high is not None:
        middle = (factor.low + factor.high) / 2
    else:
        middle = factor.params.get("mean", 0.0)
    return (round(middle) if factor.kind == "int" else middle,)
