"""Reads ``factors``, ``zip`` and ``groups``: the factors of a design, and the axes of its sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment.canonical import canonical_json
from palaestrai_mosaik.experiment.fields import TEXT, Findings, Located, items_of, show
from palaestrai_mosaik.experiment.paths import Path

from . import distributions
from .merge import default_name
from .model import Axis, Distribution, Factor, Kind, did_you_mean_factor
from .vocabulary import CONTINUOUS, DISCRETE, FACTOR, PARAMETERS, RESERVED, TYPES, UNBOUNDED

_LONGEST_LABEL = 60
#: largest difference of the sum of weights from 1 at which they are not normalised, so that writing them out changes
#: nothing
_SUM = 1e-12


def read_factors(
    findings: Findings, at: Located | None, of_schedule: Sequence[Factor]
) -> tuple[list[Factor], list[Located]]:
    """Read the factors at ``at``.

    Args:
        findings: collects the problems.
        at: the section ``factors``, a list or a mapping; None if it is missing.
        of_schedule: the factors of the schedule.

    Returns:
        The valid factors, and where each is written.
    """
    if at is None:
        return [], []
    if isinstance(at.value, dict):
        items = [(str(key), at.child(key)) for key in at.value]
    elif isinstance(at.value, list):
        items = [("", at.child(index)) for index in range(len(at.value))]
    else:
        findings.error(at.place, f"factors must be a list, or a mapping from names, found {show(at.value)}")
        return [], []
    factors: list[Factor] = []
    written: list[Located] = []
    taken = {factor.name: "the schedule" for factor in of_schedule}
    for key, item in items:
        reader = _FactorReader(findings, item, key)
        factor, name = reader.factor(), reader.name
        if name and name in taken:
            findings.error(
                item.place,
                f"two factors have the name {name!r} (the other: {taken[name]}); give each its own 'name'",
            )
            continue
        if name:
            line = findings.lines.nearest(item.place)
            taken[name] = f"line {line}" if line else f"entry {item.place[-1]}"
        if factor is not None:
            factors.append(factor)
            written.append(item)
    return factors, written


class _FactorReader:
    """Reads one entry of ``factors``."""

    def __init__(self, findings: Findings, at: Located, key: str):
        self._findings = findings
        self._at = at
        self._errors = findings.count
        section = findings.section(at, FACTOR) or {}
        # null removes a value of a parent design
        self._parts = {word: part for word, part in section.items() if part.value is not None}
        self.name = self._name(key)

    def _error(self, key: str, message: str) -> None:
        part = self._parts.get(key)
        self._findings.error(part.place if part is not None else self._at.place, message)

    def _value(self, key: str) -> Any:
        """Read the value of a key that does not depend on others."""
        return FACTOR.keys[key].read(self._findings, self._parts.get(key), FACTOR.keys[key].title or key)

    def _name(self, key: str) -> str:
        part = self._parts.get("name")
        if part is not None:
            name = TEXT.read(self._findings, part, "a factor's name") or ""
            if key and name and key != name:
                self._error("name", f"the factor is called {key!r} by its key and {name!r} here; keep one")
        else:
            name = key or default_name(self._at.value)
        if name != name.strip() or any(not letter.isprintable() for letter in name) or len(name) > 100:
            self._error(
                "name",
                f"a factor's name has at most 100 printable characters, none of them at an end a space; "
                f"found {name!r}",
            )
        elif name.lower() in RESERVED:
            self._error(
                "name" if part is not None else "path",
                f"{name!r} is a column of the design's table; give the factor another 'name'",
            )
        return name

    def factor(self) -> Factor | None:
        """Read the factor; None if it is invalid."""
        findings, parts = self._findings, self._parts
        if not isinstance(self._at.value, dict) or findings.missing(self._at.place, parts, FACTOR):
            return None
        path = self._path()
        when, create, uncertain = (self._value(key) for key in ("when", "create", "uncertain"))
        fields: dict[str, Any] = self._levels() if "levels" in parts else self._continuous()
        if findings.count > self._errors or path is None:
            return None
        factor = Factor(self.name, path=path, create=create, when=when, uncertain=uncertain, **fields)
        fault = distributions.fault(factor) if factor.kind != "levels" else None
        if fault is not None:
            findings.error(self._at.place, fault)
            return None
        return factor

    def _path(self) -> str | None:
        text: str | None = self._value("path")
        if text is None:
            return None
        try:
            Path.parse(text)
        except DocumentError as error:
            self._error("path", error.problems[0].message)
            return None
        return text

    def _refuse(self, words: Sequence[str], instead: str) -> None:
        for word in words:
            if word in self._parts:
                self._error(word, f"{word!r} has no place in a factor with {instead}")

    # levels

    def _levels(self) -> dict[str, Any]:
        self._refuse(CONTINUOUS, "levels")
        at = self._parts["levels"]
        labels: list[str] = []
        if isinstance(at.value, dict):
            levels = list(at.value.values())
            labels = [str(key) for key in at.value]
            if "labels" in self._parts:
                self._error(
                    "labels", "levels given as a mapping have their keys as labels; leave 'labels' out"
                )
        elif isinstance(at.value, list):
            levels = at.value
            labels = self._labels(levels)
        else:
            self._error("levels", f"levels must be a list, or a mapping from labels, found {show(at.value)}")
            return {}
        if len(levels) < 2:
            self._error("levels", f"a factor needs at least two levels, found {len(levels)}")
        for index, label in enumerate(labels):
            if label in labels[:index]:
                self._error(
                    "labels" if "labels" in self._parts else "levels", f"two levels have the label {label!r}"
                )
        texts = [canonical_json(level) for level in levels]
        for index, text in enumerate(texts):
            first = texts.index(text)
            if first < index and labels[index : index + 1] != labels[first : first + 1]:
                self._error(
                    "levels", f"the level {show(levels[index])} is given twice; use 'weights' instead"
                )
        return {
            "kind": "levels",
            "levels": tuple(levels),
            "labels": tuple(labels),
            "weights": self._weights(len(levels)),
            "ordered": self._value("ordered"),
        }

    def _labels(self, levels: Sequence[Any]) -> list[str]:
        part = self._parts.get("labels")
        if part is None:
            labels = [level_text(level) for level in levels]
            if any(len(label) > _LONGEST_LABEL for label in labels):
                self._error("levels", f"levels of more than {_LONGEST_LABEL} characters need 'labels'")
            return labels
        if not isinstance(part.value, list) or len(part.value) != len(levels):
            self._error(
                "labels", f"labels must be a list of {len(levels)}, one for each level, found {_many(part)}"
            )
            return [str(number) for number in range(len(levels))]
        labels = []
        for index in range(len(part.value)):
            item = part.child(index)
            if (
                not isinstance(item.value, (str, int, float))
                or item.value == ""
                or isinstance(item.value, bool)
            ):
                self._findings.error(
                    item.place, f"a label must be a non-empty string, found {show(item.value)}"
                )
            labels.append(level_text(item.value))
        return labels

    def _weights(self, count: int) -> tuple[float, ...]:
        part = self._parts.get("weights")
        if part is None:
            return (1 / count,) * count if count else ()
        if not isinstance(part.value, list) or len(part.value) != count:
            self._error(
                "weights", f"weights must be a list of {count}, one for each level, found {_many(part)}"
            )
            return ()
        weights = [self._weight(part.child(index)) for index in range(count)]
        if any(math.isnan(weight) for weight in weights):
            return ()
        total = math.fsum(weights)
        if abs(total - 1) <= _SUM:
            return tuple(weights)
        return tuple(weight / total for weight in weights)

    def _weight(self, at: Located) -> float:
        if _is_number(at.value) and at.value > 0:
            return float(at.value)
        self._findings.error(at.place, f"a weight must be a number above 0, found {show(at.value)}")
        return math.nan

    # continuous values

    def _continuous(self) -> dict[str, Any]:
        self._refuse(DISCRETE, "low and high; leave these out, or give 'levels'")
        dist: Distribution = self._value("dist")
        kind: Kind = self._value("type")
        if "type" in self._parts and self._parts["type"].value not in TYPES:
            return {}
        low, high = self._number("low"), self._number("high")
        self._check_parameters(dist)
        params = {word: value for word in PARAMETERS[dist] if (value := self._number(word)) is not None}
        factor = {"kind": kind, "dist": dist, "low": low, "high": high, "params": params}
        if self._findings.count == self._errors:
            self._check(factor)
        if dist == "triangular" and "mode" not in params and low is not None and high is not None:
            params["mode"] = (low + high) / 2
        return factor

    def _check_parameters(self, dist: Distribution) -> None:
        """Report parameters that the distribution does not have, and those that are missing."""
        parts, parameters = self._parts, PARAMETERS[dist]
        for word in ("mean", "std", "mode"):
            if word in parts and word not in parameters:
                has = ", ".join(("low", "high", *parameters))
                self._error(word, f"{word!r} is no parameter of {dist}; its parameters: {has}")
        ends = () if dist in UNBOUNDED else ("low", "high")
        for word in (*ends, *parameters):
            if word not in parts and word != "mode":
                hint = "" if parameters or len(parts) > 2 else "; or give 'levels'"
                self._error(word, f"the factor {self.name!r} ({dist}) needs {word!r}{hint}")

    def _number(self, word: str) -> float | None:
        part = self._parts.get(word)
        if part is None:
            return None
        if not _is_number(part.value):
            self._error(word, f"{word} must be a finite number, found {show(part.value)}")
            return None
        return float(part.value)

    def _check(self, factor: Mapping[str, Any]) -> None:
        """Check the range and the parameters of a distribution, which are numbers or None."""
        dist, low, high, params = (factor[key] for key in ("dist", "low", "high", "params"))
        if low is not None:
            self._check_low(dist, low, high)
        if dist == "lognormal" and high is not None and high <= 0:
            self._error("high", f"high of lognormal must be above 0, found {high:g}")
        if params.get("std", 1.0) <= 0:
            self._error("std", f"std must be above 0, found {params['std']:g}")
        mode = params.get("mode")
        if None not in (mode, low, high) and not low <= mode <= high:
            self._error("mode", f"mode ({mode:g}) must lie from low ({low:g}) to high ({high:g})")
        for word in ("low", "high") if factor["kind"] == "int" else ():
            end = factor[word]
            if end is not None and not end.is_integer():
                self._error(word, f"{word} of an int factor must be a whole number, found {end:g}")

    def _check_low(self, dist: str, low: float, high: float | None) -> None:
        if high is not None and low >= high:
            self._error("low", f"low ({low:g}) must be below high ({high:g})")
        if dist == "loguniform" and low <= 0:
            self._error("low", f"low of loguniform must be above 0, found {low:g}")
        if dist == "lognormal" and low < 0:
            self._error("low", f"low of lognormal must be 0 or above, found {low:g}")


def level_text(level: Any) -> str:
    """Return the default label of a level: its text; of lists and mappings, their JSON."""
    if isinstance(level, str):
        return level
    if isinstance(level, float) and math.isfinite(level):
        return repr(level)
    return canonical_json(level)


def _is_number(value: Any) -> bool:
    """Return whether ``value`` is a number that a float can represent."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _many(at: Located) -> str:
    return f"{len(at.value)}" if isinstance(at.value, list) else show(at.value)


# --- axes ---------------------------------------------------------------------------------


def read_axes(
    findings: Findings, factors: Sequence[Factor], zipped: Located | None, groups: Located | None
) -> tuple[Axis, ...]:
    """Return the axes: one for each factor, and one for all zipped factors, at the position of the first of them.

    Args:
        findings: collects the problems.
        factors: the factors.
        zipped: the section ``zip``, if there is one.
        groups: the section ``groups``, if there is one.
    """
    partners: dict[str, Axis] = {}
    for axis in _zips(findings, factors, zipped):
        partners |= {factor.name: axis for factor in axis.factors}
    axes: list[Axis] = []
    for factor in factors:
        axis = partners.get(factor.name) or Axis(factor.name, (factor,))
        if factor is axis.factors[0]:
            axes.append(axis)
    group = _groups(findings, factors, axes, groups)
    return tuple(Axis(axis.name, axis.factors, group.get(axis.name)) for axis in axes)


def _zips(findings: Findings, factors: Sequence[Factor], at: Located | None) -> list[Axis]:
    """Return the axes of zipped factors, named by the keys of a mapping, or else after their factors."""
    if at is None or at.value is None:
        return []
    named = isinstance(at.value, dict)
    entries = list(at.value.values()) if named else at.value
    if not isinstance(entries, list) or not all(isinstance(member, list) for member in entries):
        findings.error(
            at.place,
            "zip must be a list of lists of factors, [[a, b], [c, d]], or a mapping from names to such "
            f"lists, {{ab: [a, b]}}, found {show(at.value)}",
        )
        return []
    taken: dict[str, str] = {}
    zips = []
    for key in at.value if named else range(len(entries)):
        item = at.child(key)
        members = sorted(_members(findings, factors, item, taken, "zip"), key=factors.index)
        name = key if named else "+".join(member.name for member in members)
        if len(item.value) < 2:
            findings.error(item.place, f"a zip needs at least two factors, found {len(item.value)}")
        elif len(members) < 2 or not _fit(findings, item, members):
            continue  # reported already
        elif not isinstance(name, str) or not name or any(name == factor.name for factor in factors):
            message = f"a zip's name must be a string that no factor has, found {show(name)}"
            findings.error(item.place, message)
        else:
            zips.append(Axis(name, tuple(members)))
    return zips


def _fit(findings: Findings, at: Located, members: Sequence[Factor]) -> bool:
    """Return whether factors can vary as one; report a problem if they cannot."""
    discrete = [factor for factor in members if factor.kind == "levels"]
    if not discrete:
        return True
    other = next((factor for factor in members if factor.kind != "levels"), None)
    if other is not None:
        findings.error(
            at.place,
            f"zipped factors must all have levels, or none of them: {discrete[0].name!r} has, {other.name!r} "
            "has not",
        )
        return False
    first = discrete[0]
    for factor in discrete[1:]:
        if len(factor.levels) != len(first.levels):
            findings.error(
                at.place,
                f"zipped factors must have as many levels: {first.name!r} has {len(first.levels)}, "
                f"{factor.name!r} has {len(factor.levels)}",
            )
            return False
        if factor.weights != first.weights:
            findings.error(
                at.place,
                f"zipped factors must have the same weights: {first.name!r} and {factor.name!r} differ",
            )
            return False
    return True


def _members(
    findings: Findings, factors: Sequence[Factor], at: Located, taken: dict[str, str], what: str
) -> list[Factor]:
    """Return the factors in a list; report those that are in another list of this kind, too."""
    by_name = {factor.name: factor for factor in factors}
    members: list[Factor] = []
    for item in items_of(at):
        name = item.value
        if not isinstance(name, str) or name not in by_name:
            near = did_you_mean_factor(name, factors) if isinstance(name, str) else ""
            findings.error(item.place, f"{what} names {show(name)}, which is no factor{near}")
        elif name in taken:
            twice = "twice in it" if taken[name] == str(at.place[-1]) else f"also in {what} {taken[name]}"
            findings.error(item.place, f"the factor {name!r} is {twice}; it can be in one {what} only")
        else:
            taken[name] = str(at.place[-1])
            members.append(by_name[name])
    return members


def _groups(
    findings: Findings, factors: Sequence[Factor], axes: Sequence[Axis], at: Located | None
) -> dict[str, str]:
    """Return the group of every axis in one; any of its factors puts the axis there."""
    if at is None or at.value is None:
        return {}
    if not isinstance(at.value, dict):
        findings.error(
            at.place, f"groups must be a mapping from names to lists of factors, found {show(at.value)}"
        )
        return {}
    axis_of = {factor.name: axis for axis in axes for factor in axis.factors}
    taken: dict[str, str] = {}
    groups: dict[str, str] = {}
    for name in at.value:
        item = at.child(name)
        if not isinstance(name, str) or not name:
            findings.error(item.place, f"a group's name must be a string, found {show(name)}")
            continue
        if name in axis_of:
            findings.error(
                item.place, f"a group and a factor have the same name, {name!r}; rename one of them"
            )
        if not isinstance(item.value, list) or not item.value:
            findings.error(item.place, f"a group must be a list of factors, found {show(item.value)}")
            continue
        for factor in _members(findings, factors, item, taken, "group"):
            axis = axis_of[factor.name]
            if groups.setdefault(axis.name, name) != name:
                findings.error(
                    item.place,
                    f"{factor.name!r} is zipped with a factor of group {groups[axis.name]!r}: they vary as one, "
                    "so they belong to one group",
                )
    return groups
