"""The wording of documentation and code: phrases of translated idiom, and what to write instead.

``python -m tests.support.prose`` (``make lint``) checks README, CONTRIBUTING, ``docs/*.md`` and what is unreleased in the
changelog. Code, and messages quoted as code, are left out. General linters (vale, proselint) know clichés; only a list of
our own finds translated idiom.

In docstrings and comments of the package, the same words are often right ("the class of which ..."), so only their share
is limited. Optuna, Stable-Baselines3, Starlette, submitit, mosaik, SALib and vessim have 1.2 to 4.3 %.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: a phrase (regular expression, any case) -> what to write instead
PHRASES = {
    r"(?:is|are|be|been) told(?! apart)": "gets, is warned, is reported",
    r"told of|tells? of": "reports",
    r"told": "reported, given, said",
    r"alike": "identical, equal, both",
    r"anew": "again, for each",
    r"afresh": "from the start",
    r"beg[iau]ns? again|begun again": "restart",
    r"whose": "with, of which; or a second sentence",
    r"lived? through": "replay, record",
    r"in the midst": "unfinished, during",
    r"(?:is|are) taken for": "is treated as",
    r"(?:can|may|to) be had": "is available",
    r"what is there": "what exists",
    r"(?:all|whatever) that must hold": "all checks",
    r"in (?:its|their) stead": "instead",
    r"(?:is|are) at hand": "is available",
    r"came? into being": "is created",
    r"of one's own": "your own",
    r"he who|who wants to": "you",
}
_FOUND = re.compile(
    "|".join(rf"(?P<p{i}>\b(?:{phrase})\b)" for i, phrase in enumerate(PHRASES)).replace(" ", r"\s+"),
    re.IGNORECASE,
)

#: markers of translated idiom in docstrings and comments; each is a place to look, not a verdict
MARKERS = re.compile(
    "|".join(
        (
            r"\b[Ww]hat (is|was|are|were|has|have|had|can|cannot|may|must|nobody|somebody|it|they|an?|the|there|this|that)\b",
            r"\b[Ww]here (there|it|they|nothing|nobody|this|that|one|an?|the|somebody|some|such|no)\b",
            r"\b(?i:somebody|nobody|anybody|whoever|those who|one who|who (acts|does|begins|has|is|wants|looks|can|may))\b",
            r"\b([Oo]f which|of whom|from which|in (its|their) (stead|place)|whose|thereof|therein)\b",
            r"\b(?i:(is|are|was|be) told|tells?( of)?|begins? (again|anew)|as (it|they) (is|are)|are none|is none|alike)\b",
            r"\b(?i:else the|so that nobody|said (of|to|by))\b",
            r"^#:?\s*\([a-z]",
        )
    ),
    re.MULTILINE,
)
#: the largest share of the package's docstrings and comments with a marker
SHARE = 0.02

_FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
_CODE = re.compile(r"`[^`\n]+`")


@dataclass(frozen=True)
class Finding:
    """A phrase in a line of a page."""

    page: str
    line: int
    phrase: str
    instead: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.phrase!r}; instead: {self.instead}"


def findings(page: str, text: str) -> Iterator[Finding]:
    """Yield the phrases of a page that are to be written otherwise."""
    for pattern in (_FENCE, _CODE):
        # line numbers stay
        text = pattern.sub(lambda found: re.sub(r"[^\n]", "x", found[0]), text)
    instead = list(PHRASES.values())
    for found in _FOUND.finditer(text):
        number = int(str(found.lastgroup)[1:])
        yield Finding(
            page, text.count("\n", 0, found.start()) + 1, found[0].replace("\n", " "), instead[number]
        )


def pages() -> dict[str, str]:
    """Return the text of every page by its path."""
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    end = re.search(r"^## \[\d", changelog, flags=re.M)
    found["CHANGELOG.md"] = changelog[: end.start()] if end else changelog
    return found


def docstrings_and_comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring and comment of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(
            ("#!", "# type", "# noqa", "# ruff")
        ):
            yield token.start[0], token.string


def marked(folder: Path) -> tuple[list[str], float]:
    """Find the docstrings and comments with a marker.

    Returns:
        A line for each of them, and their share of all docstrings and comments below ``folder``.
    """
    lines, total = [], 0
    for path in sorted(folder.rglob("*.py")):
        for line, text in docstrings_and_comments(path.read_text(encoding="utf-8")):
            total += 1
            if marker := MARKERS.search(text):
                lines.append(f"{path.relative_to(folder.parent)}:{line}: {marker[0]!r}")
    return lines, len(lines) / max(total, 1)


def main() -> int:
    """Print the findings in all pages and, if they are too many, in the package; return the exit code."""
    faults = [str(finding) for name, text in pages().items() for finding in findings(name, text)]
    lines, share = marked(ROOT / "palaestrai_mosaik")
    if share > SHARE:
        faults += [*lines, f"{share:.1%} of docstrings and comments have a marker; at most {SHARE:.0%} may"]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
