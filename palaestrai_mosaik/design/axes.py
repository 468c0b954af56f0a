"""From factors to the coordinates of a sample: ``zip`` and ``groups``."""

from __future__ import annotations

from collections.abc import Sequence

from palaestrai_mosaik.experiment.fields import items_of
from palaestrai_mosaik.experiment.located import Findings, Located, show

from .factors import did_you_mean_factor
from .model import Axis, Factor


def read_axes(
    found: Findings, factors: Sequence[Factor], zipped: Located | None, groups: Located | None
) -> tuple[Axis, ...]:
    """Return the axes: one for each factor, one for all that are zipped, at its first one's place."""
    partners: dict[str, Axis] = {}
    for axis in _zips(found, factors, zipped):
        partners |= {factor.name: axis for factor in axis.factors}
    axes: list[Axis] = []
    for factor in factors:
        axis = partners.get(factor.name) or Axis(factor.name, (factor,))
        if factor is axis.factors[0]:
            axes.append(axis)
    group = _groups(found, factors, axes, groups)
    return tuple(Axis(axis.name, axis.factors, group.get(axis.name)) for axis in axes)


def _zips(found: Findings, factors: Sequence[Factor], at: Located | None) -> list[Axis]:
    """Return the axes of zipped factors: by the names of a mapping, or those of a list by their factors'."""
    if at is None or at.value is None:
        return []
    named = isinstance(at.value, dict)
    entries = list(at.value.values()) if named else at.value
    if not isinstance(entries, list) or not all(isinstance(one, list) for one in entries):
        found.error(
            at.place,
            "zip must be a list of lists of factors, [[a, b], [c, d]], or a mapping from names to such "
            f"lists, {{ab: [a, b]}}, found {show(at.value)}",
        )
        return []
    taken: dict[str, str] = {}
    zips: list[Axis] = []
    names = {factor.name for factor in factors}
    for key in at.value if named else range(len(entries)):
        item = at.child(key)
        members = _members(found, factors, item, taken, "zip")
        if len(members) < 2:
            if len(item.value) < 2:
                found.error(item.place, f"a zip needs at least two factors, found {len(item.value)}")
            continue
        if not _fit(found, item, members):
            continue
        together = tuple(sorted(members, key=factors.index))
        name = key if named else "+".join(one.name for one in together)
        if not isinstance(name, str) or not name or name in names:
            found.error(item.place, f"a zip's name must be a string that no factor has, found {show(name)}")
            continue
        zips.append(Axis(name, together))
    return zips


def _fit(found: Findings, at: Located, members: Sequence[Factor]) -> bool:
    """Tell whether factors can vary as one; report where they cannot."""
    discrete = [factor for factor in members if factor.kind == "levels"]
    if not discrete:
        return True
    other = next((factor for factor in members if factor.kind != "levels"), None)
    if other is not None:
        found.error(
            at.place,
            f"zipped factors must all have levels, or none of them: {discrete[0].name!r} has, {other.name!r} "
            "has not",
        )
        return False
    first = discrete[0]
    for factor in discrete[1:]:
        if len(factor.levels) != len(first.levels):
            found.error(
                at.place,
                f"zipped factors must have as many levels: {first.name!r} has {len(first.levels)}, "
                f"{factor.name!r} has {len(factor.levels)}",
            )
            return False
        if factor.weights != first.weights:
            found.error(
                at.place,
                f"zipped factors must have the same weights: {first.name!r} and {factor.name!r} differ",
            )
            return False
    return True


def _members(
    found: Findings, factors: Sequence[Factor], at: Located, taken: dict[str, str], what: str
) -> list[Factor]:
    """Return the factors that a list names; one that is in another list of this kind is reported."""
    by_name = {factor.name: factor for factor in factors}
    members: list[Factor] = []
    for item in items_of(at):
        name = item.value
        if not isinstance(name, str) or name not in by_name:
            near = did_you_mean_factor(name, factors) if isinstance(name, str) else ""
            found.error(item.place, f"{what} names {show(name)}, which is no factor{near}")
        elif name in taken:
            twice = "twice in it" if taken[name] == str(at.place[-1]) else f"also in {what} {taken[name]}"
            found.error(item.place, f"the factor {name!r} is {twice}; it can be in one {what} only")
        else:
            taken[name] = str(at.place[-1])
            members.append(by_name[name])
    return members


def _groups(
    found: Findings, factors: Sequence[Factor], axes: Sequence[Axis], at: Located | None
) -> dict[str, str]:
    """Return the group of every axis that has one: any of its factors puts it there."""
    if at is None or at.value is None:
        return {}
    if not isinstance(at.value, dict):
        found.error(
            at.place, f"groups must be a mapping from names to lists of factors, found {show(at.value)}"
        )
        return {}
    axis_of = {factor.name: axis for axis in axes for factor in axis.factors}
    taken: dict[str, str] = {}
    groups: dict[str, str] = {}
    for name in at.value:
        item = at.child(name)
        if not isinstance(name, str) or not name:
            found.error(item.place, f"a group's name must be a string, found {show(name)}")
            continue
        if name in axis_of:
            found.error(item.place, f"a group and a factor have the same name, {name!r}; rename one of them")
        if not isinstance(item.value, list) or not item.value:
            found.error(item.place, f"a group must be a list of factors, found {show(item.value)}")
            continue
        for factor in _members(found, factors, item, taken, "group"):
            axis = axis_of[factor.name]
            if groups.setdefault(axis.name, name) != name:
                found.error(
                    item.place,
                    f"{factor.name!r} is zipped with a factor of group {groups[axis.name]!r}: they vary as one, "
                    "so they belong to one group",
                )
    return groups
