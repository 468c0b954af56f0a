"""Remarks on results: texts for readers, of a kind that code can ask for."""

from __future__ import annotations


class Remark(str):
    """A note or warning on a result, with its ``kind``.

    Args:
        kind: one of the kinds below.
        text: the text.
    """

    __slots__ = ("kind",)

    kind: str

    def __new__(cls, kind: str, text: str) -> Remark:
        remark = super().__new__(cls, text)
        remark.kind = kind
        return remark

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.kind, str(self)


#: runs were lost
LOST = "lost"
#: levels gave the same value in each pair of runs
IDENTICAL = "identical"
#: a difference is significant only if lost runs are left out
OPEN = "open"
#: one seed, or one row, gives no test
ALONE = "alone"
#: noise and interactions cannot be told apart
INSEPARABLE = "inseparable"
#: a method of discovery has no box
NO_BOX = "no box"


def kind_of(text: str) -> str:
    """Return the kind of a text, or an empty string if it has none."""
    return text.kind if isinstance(text, Remark) else ""
