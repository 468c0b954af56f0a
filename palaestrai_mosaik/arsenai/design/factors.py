"""Reads ``factors``, ``zip`` and ``groups``: the factors of a design, and the axes of its sample."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment.canonical import canonical_json
from palaestrai_mosaik.experiment.fields import TEXT, Findings, Located, items_of, show
from palaestrai_mosaik.experiment.paths import Path

from . import distributions
from .merge import default_name
from .model import Axis, Distribution, Factor, Kind, did_you_mean_factor, is_number
from .vocabulary import (
    CONTINUOUS,
    DISCRETE,
    FACTOR,
    PARAMETERS,
    RESERVED,
    TYPES,
    UNBOUNDED,
    read_key,
    read_parts,
)

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
    if not isinstance(at.value, dict | list):
        findings.error(at.place, f"factors must be a list, or a mapping from names, found {show(at.value)}")
        return [], []
    factors: list[Factor] = []
    written: list[Located] = []
    taken = {factor.name: "the schedule" for factor in of_schedule}
    for key, item in _entries(at):
        reader = _FactorReader(findings, item, "" if key is None else str(key))
        factor, name = reader.factor(), reader.name
        if name in taken:
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


def _entries(at: Located) -> list[tuple[Any, Located]]:
    """Return the entries of a list, or those of a mapping with their keys."""
    if isinstance(at.value, dict):
        return [(key, at.child(key)) for key in at.value]
    return [(None, item) for item in items_of(at)]


class _FactorReader:
    """Reads one entry of ``factors``."""

    def __init__(self, findings: Findings, at: Located, key: str):
        self._findings = findings
        self._at = at
        self._errors = findings.count
        # null removes a value of a parent design
        self._parts = read_parts(findings, at, FACTOR) or {}
        self.name = self._name(key)

    def _error(self, key: str, message: str) -> None:
        part = self._parts.get(key)
        self._findings.error(part.place if part is not None else self._at.place, message)

    def _value(self, key: str) -> Any:
        return read_key(self._findings, FACTOR, self._parts, key)

    def _name(self, key: str) -> str:
        part = self._parts.get("name")
        name = key or default_name(self._at.value)
        if part is not None:
            name = TEXT.read(self._findings, part, "a factor's name") or ""
            if key and name and key != name:
                self._error("name", f"the factor is called {key!r} by its key and {name!r} here; keep one")
        if name != name.strip() or not name.isprintable() or len(name) > 100:
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
        if "path" not in parts:
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
        if isinstance(at.value, dict):
            levels, labels = list(at.value.values()), list(map(str, at.value))
            if "labels" in self._parts:
                self._error(
                    "labels", "levels given as a mapping have their keys as labels; leave 'labels' out"
                )
        elif isinstance(at.value, list):
            levels, labels = at.value, self._labels(at.value)
        else:
            self._error("levels", f"levels must be a list, or a mapping from labels, found {show(at.value)}")
            return {}
        self._check_levels(levels, labels)
        return {
            "kind": "levels",
            "levels": tuple(levels),
            "labels": tuple(labels),
            "weights": self._weights(len(levels)),
            "ordered": self._value("ordered"),
        }

    def _check_levels(self, levels: Sequence[Any], labels: Sequence[str]) -> None:
        """Report too few levels, and levels or labels that are given twice."""
        if len(levels) < 2:
            self._error("levels", f"a factor needs at least two levels, found {len(levels)}")
        for index, label in enumerate(labels):
            if label in labels[:index]:
                self._error(
                    "labels" if "labels" in self._parts else "levels", f"two levels have the label {label!r}"
                )
        texts = [canonical_json(level) for level in levels]
        for index, text in enumerate(texts):
            if labels[index] != labels[texts.index(text)]:
                self._error(
                    "levels", f"the level {show(levels[index])} is given twice; use 'weights' instead"
                )

    def _for_levels(self, key: str, count: int) -> list[Located] | None:
        """Return the entries of a list with one for each level; None if it is missing or invalid."""
        part = self._parts.get(key)
        if part is None:
            return None
        items = items_of(part) if isinstance(part.value, list) else None
        if items is None or len(items) != count:
            many = show(part.value) if items is None else len(items)
            self._error(key, f"{key} must be a list of {count}, one for each level, found {many}")
            return None
        return items

    def _labels(self, levels: Sequence[Any]) -> list[str]:
        items = self._for_levels("labels", len(levels))
        if items is not None:
            return [self._label(item) for item in items]
        if "labels" in self._parts:
            return [str(number) for number in range(len(levels))]
        labels = [level_text(level) for level in levels]
        if any(len(label) > _LONGEST_LABEL for label in labels):
            self._error("levels", f"levels of more than {_LONGEST_LABEL} characters need 'labels'")
        return labels

    def _label(self, at: Located) -> str:
        if at.value == "" or not (isinstance(at.value, str) or is_number(at.value)):
            self._findings.error(at.place, f"a label must be a non-empty string, found {show(at.value)}")
        return level_text(at.value)

    def _weights(self, count: int) -> tuple[float, ...]:
        items = self._for_levels("weights", count)
        if items is None:
            return (1 / count,) * count if count else ()
        weights = []
        for item in items:
            if is_number(item.value) and 0 < item.value <= sys.float_info.max:
                weights.append(float(item.value))
            else:
                message = f"a weight must be a number above 0, found {show(item.value)}"
                self._findings.error(item.place, message)
        total = math.fsum(weights)
        return tuple(weights if abs(total - 1) <= _SUM else (weight / total for weight in weights))

    # continuous values

    def _continuous(self) -> dict[str, Any]:
        self._refuse(DISCRETE, "low and high; leave these out, or give 'levels'")
        dist: Distribution = self._value("dist")
        kind: Kind = self._value("type")
        if "type" in self._parts and self._parts["type"].value not in TYPES:
            return {}
        low, high = self._value("low"), self._value("high")
        self._check_parameters(dist)
        params = {word: value for word in PARAMETERS[dist] if (value := self._value(word)) is not None}
        if self._findings.count == self._errors:
            ends = math.nan if low is None else low, math.nan if high is None else high
            for word, message in (*_range_faults(dist, *ends), *_value_faults(kind, *ends, params)):
                self._error(word, message)
        if dist == "triangular" and "mode" not in params and low is not None and high is not None:
            params["mode"] = (low + high) / 2
        return {"kind": kind, "dist": dist, "low": low, "high": high, "params": params}

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


def _range_faults(dist: Distribution, low: float, high: float) -> Iterator[tuple[str, str]]:
    """Yield the problems of a distribution's range, NaN without an end; comparisons with NaN are false."""
    if low >= high:
        yield "low", f"low ({low:g}) must be below high ({high:g})"
    if dist == "loguniform" and low <= 0:
        yield "low", f"low of loguniform must be above 0, found {low:g}"
    if dist == "lognormal" and low < 0:
        yield "low", f"low of lognormal must be 0 or above, found {low:g}"
    if dist == "lognormal" and high <= 0:
        yield "high", f"high of lognormal must be above 0, found {high:g}"


def _value_faults(
    kind: Kind, low: float, high: float, params: Mapping[str, float]
) -> Iterator[tuple[str, str]]:
    """Yield the problems of a distribution's parameters, and of the ends of whole numbers."""
    std, mode = params.get("std", math.nan), params.get("mode", math.nan)
    if std <= 0:
        yield "std", f"std must be above 0, found {std:g}"
    if mode < low or mode > high:
        yield "mode", f"mode ({mode:g}) must lie from low ({low:g}) to high ({high:g})"
    for word, end in (("low", low), ("high", high)):
        if kind == "int" and math.isfinite(end) and not end.is_integer():
            yield word, f"{word} of an int factor must be a whole number, found {end:g}"


def level_text(level: Any) -> str:
    """Return the default label of a level: its text; of lists and mappings, their JSON."""
    if isinstance(level, str):
        return level
    if isinstance(level, float) and math.isfinite(level):
        return repr(level)
    return canonical_json(level)


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
    if at is None:
        return []
    entries = _entries(at)
    if not isinstance(at.value, dict | list) or any(not isinstance(item.value, list) for _, item in entries):
        findings.error(
            at.place,
            "zip must be a list of lists of factors, [[a, b], [c, d]], or a mapping from names to such "
            f"lists, {{ab: [a, b]}}, found {show(at.value)}",
        )
        return []
    taken: dict[str, str] = {}
    zips = [_zip(findings, factors, name, item, taken) for name, item in entries]
    return [axis for axis in zips if axis is not None]


def _zip(
    findings: Findings, factors: Sequence[Factor], name: Any, at: Located, taken: dict[str, str]
) -> Axis | None:
    """Return the axis of the factors in a list; None if they cannot vary as one."""
    members = sorted(_members(findings, factors, at, taken, "zip"), key=factors.index)
    if name is None:
        name = "+".join(member.name for member in members)
    if len(at.value) < 2:
        fault: str | None = f"a zip needs at least two factors, found {len(at.value)}"
    elif len(members) < 2:
        return None  # reported already
    else:
        fault = _misfit(members)
    if fault is None and (not isinstance(name, str) or not name or name in {f.name for f in factors}):
        fault = f"a zip's name must be a string that no factor has, found {show(name)}"
    if fault is not None:
        findings.error(at.place, fault)
        return None
    return Axis(name, tuple(members))


def _misfit(members: Sequence[Factor]) -> str | None:
    """Return why factors cannot vary as one, or None."""
    first = next((factor for factor in members if factor.kind == "levels"), None)
    if first is None:
        return None
    for factor in sorted(members, key=lambda member: member.kind == "levels"):
        if factor.kind != "levels":
            return (
                f"zipped factors must all have levels, or none of them: {first.name!r} has, {factor.name!r} "
                "has not"
            )
        if len(factor.levels) != len(first.levels):
            return (
                f"zipped factors must have as many levels: {first.name!r} has {len(first.levels)}, "
                f"{factor.name!r} has {len(factor.levels)}"
            )
        if factor.weights != first.weights:
            return f"zipped factors must have the same weights: {first.name!r} and {factor.name!r} differ"
    return None


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
    if at is None:
        return {}
    if not isinstance(at.value, dict):
        findings.error(
            at.place, f"groups must be a mapping from names to lists of factors, found {show(at.value)}"
        )
        return {}
    axis_of = {factor.name: axis.name for axis in axes for factor in axis.factors}
    taken: dict[str, str] = {}
    groups: dict[str, str] = {}
    for name, item in _entries(at):
        for factor in _group(findings, factors, name, item, taken):
            group = groups.setdefault(axis_of[factor.name], name)
            if group != name:
                findings.error(
                    item.place,
                    f"{factor.name!r} is zipped with a factor of group {group!r}: they vary as one, "
                    "so they belong to one group",
                )
    return groups


def _group(
    findings: Findings, factors: Sequence[Factor], name: Any, at: Located, taken: dict[str, str]
) -> list[Factor]:
    """Return the factors of a group; none if its name or its list is invalid."""
    if not isinstance(name, str) or not name:
        findings.error(at.place, f"a group's name must be a string, found {show(name)}")
        return []
    if any(name == factor.name for factor in factors):
        findings.error(at.place, f"a group and a factor have the same name, {name!r}; rename one of them")
    if not isinstance(at.value, list) or not at.value:
        findings.error(at.place, f"a group must be a list of factors, found {show(at.value)}")
        return []
    return _members(findings, factors, at, taken, "group")
