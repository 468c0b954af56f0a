"""CITATION.cff is valid CFF 1.2 and cites this version, as pyproject.toml describes it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import palaestrai_mosaik

ROOT = Path(__file__).parents[2]

#: keys of CFF 1.2.0 that a citation may have, those that it must have, and those of a person or an entity
KEYS = {
    *(
        "abstract",
        "authors",
        "cff-version",
        "commit",
        "contact",
        "date-released",
        "doi",
        "identifiers",
        "keywords",
    ),
    *(
        "license",
        "license-url",
        "message",
        "preferred-citation",
        "references",
        "repository",
        "repository-artifact",
    ),
    *("repository-code", "title", "type", "url", "version"),
}
REQUIRED = {"authors", "cff-version", "message", "title"}
PERSON = {
    "affiliation",
    "alias",
    "email",
    "family-names",
    "given-names",
    "name",
    "name-particle",
    "orcid",
    "website",
}


def faults(citation: dict[str, Any]) -> list[str]:
    """Return what is wrong with a citation."""
    found = [f"unknown key {key}" for key in sorted(set(citation) - KEYS)]
    found += [f"no {key}" for key in sorted(REQUIRED - set(citation))]
    found += [
        f"{key} is no text"
        for key in ("message", "title", "version")
        if not isinstance(citation.get(key), str)
    ]
    if citation.get("cff-version") != "1.2.0":
        found.append("cff-version is not 1.2.0")
    for author in citation.get("authors") or [{}]:
        if not author or set(author) - PERSON or not {"name", "family-names"} & set(author):
            found.append(f"no author: {author}")
    return found


def citation() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8")))


def test_the_citation_is_valid() -> None:
    assert faults(citation()) == []


def test_it_cites_this_version_of_this_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = citation()
    assert found["version"] == palaestrai_mosaik.__version__
    assert found["license"] == project["license"]
    assert found["keywords"] == project["keywords"]
    assert [author["name"] for author in found["authors"]] == [
        author["name"] for author in project["authors"]
    ]


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("titel", "x", "unknown key titel"),
        ("title", None, "title is no text"),
        ("version", 0.1, "version is no text"),
        ("cff-version", "1.1.0", "cff-version is not 1.2.0"),
        ("authors", [], "no author: {}"),
        ("authors", [{"nickname": "x"}], "no author: {'nickname': 'x'}"),
    ],
)
def test_a_fault_is_found(key: str, value: object, fault: str) -> None:
    assert faults({**citation(), key: value}) == [fault]
