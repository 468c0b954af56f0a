"""Channel names in the parameters of a muscle, independent of its body's incarnation.

In a batched environment the channels of incarnation k are ``<environment>.<k>.<name>``. Identical
bodies share their parameters, so the number has no meaning there: it may be ``{body}``, any number, or
left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from palaestrai_mosaik.core.errors import ContractError, did_you_mean

_NUMBER = re.compile(r"\.(\d+|\{body\})(?=\.)")


def without_number(name: str) -> str:
    """Return a uid (or a pattern of uids) without the number of the incarnation.

    That is the first part between two dots that is a number or ``{body}``.
    """
    return _NUMBER.sub("", name, count=1)


def match_channels(
    patterns: Iterable[str], uids: Sequence[str], where: str, what: str
) -> dict[str, list[str]]:
    """Match each of ``patterns`` with ``uids``; if none fits, ignore the numbers of incarnations.

    Raises :class:`ContractError`, with ``where`` for the patterns' location and ``what`` for the kind of
    uids, if a pattern fits none, or differs from another one only in an ignored number.
    """
    patterns, matches = list(patterns), {}
    for pattern in patterns:
        matches[pattern] = [uid for uid in uids if fnmatchcase(uid, pattern)]
        if matches[pattern]:
            continue
        plain = without_number(pattern)
        matches[pattern] = [uid for uid in uids if fnmatchcase(without_number(uid), plain)]
        if not matches[pattern]:
            raise ContractError(f"{where}: {pattern!r} fits no {what}{did_you_mean(pattern, uids)}")
        same = [repr(other) for other in patterns if without_number(other) == plain]
        if len(same) > 1:
            raise ContractError(
                f"{where}: {' and '.join(same)} are one name: alike bodies share their parameters, so the number of "
                "an incarnation does not count. Bodies that differ are several entries of 'bodies'"
            )
    return matches


def incarnation_prefix(uids: Sequence[str]) -> str:
    """Return the common prefix of ``uids`` that are all of one incarnation, such as ``grid.3.``, else ``""``."""
    number = _NUMBER.search(uids[0]) if uids else None
    start = "" if number is None else uids[0][: number.end() + 1]
    return start if all(uid.startswith(start) for uid in uids) else ""
