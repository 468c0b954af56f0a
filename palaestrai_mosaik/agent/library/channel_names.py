"""Names of channels among the parameters of a muscle, whatever incarnation its body sits in.

In a batched environment the channels of incarnation k are ``<environment>.<k>.<name>``. Alike
bodies have the same parameters, so the number means nothing there: ``{body}``, any number, or none
may be written for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from palaestrai_mosaik.errors import ContractError, did_you_mean

_NUMBER = re.compile(r"\.(\d+|\{body\})(?=\.)")


def without_number(name: str) -> str:
    """Return a uid (or a pattern of uids) without the number of the incarnation.

    That is the first part between two dots that is a number or ``{body}``.
    """
    return _NUMBER.sub("", name, count=1)


def match_channels(
    patterns: Iterable[str], uids: Sequence[str], where: str, what: str
) -> dict[str, list[str]]:
    """Return for each of ``patterns`` the ``uids`` that fit it; if none does, those that do without their number.

    Raises :class:`ContractError`, which names ``where`` the patterns are and ``what`` the uids are, for a
    pattern that fits none, or that differs from another one in a number that does not count.
    """
    patterns, found = list(patterns), {}
    for pattern in patterns:
        found[pattern] = [uid for uid in uids if fnmatchcase(uid, pattern)]
        if found[pattern]:
            continue
        plain = without_number(pattern)
        found[pattern] = [uid for uid in uids if fnmatchcase(without_number(uid), plain)]
        if not found[pattern]:
            raise ContractError(f"{where}: {pattern!r} fits no {what}{did_you_mean(pattern, uids)}")
        alike = [repr(other) for other in patterns if without_number(other) == plain]
        if len(alike) > 1:
            raise ContractError(
                f"{where}: {' and '.join(alike)} are one name: alike bodies share their parameters, so the number of "
                "an incarnation does not count. Bodies that differ are several entries of 'bodies'"
            )
    return found


def incarnation_prefix(uids: Sequence[str]) -> str:
    """Return what all ``uids`` begin with if all are of one incarnation: ``grid.3.``; else ``""``."""
    number = _NUMBER.search(uids[0]) if uids else None
    start = "" if number is None else uids[0][: number.end() + 1]
    return start if all(uid.startswith(start) for uid in uids) else ""
