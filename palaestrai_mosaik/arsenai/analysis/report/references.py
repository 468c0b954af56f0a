"""BibTeX entries of the software and the methods behind a report."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources

from palaestrai_mosaik import __version__
from palaestrai_mosaik.arsenai.design.samplers.adaptive import ADAPTIVE

from .data import ReportData

#: author and title of the software, as in CITATION.cff
AUTHOR, TITLE = "The palaestrai_mosaik developers", "palaestrai_mosaik"
#: the sources of each method of sensitivity analysis
METHODS = {
    "sobol": ("sobol2001", "saltelli2010"),
    "shapley": ("owen2014",),
    "morris": ("morris1991", "campolongo2007"),
    "fast": ("saltelli1999",),
    "rbd_fast": ("tarantola2006",),
    "delta": ("borgonovo2007", "plischke2013"),
    "pawn": ("pianosi2015", "pianosi2018"),
    "dgsm": ("sobol2009",),
    "anova": ("montgomery2017", "langsrud2003"),
}


def bibtex(data: ReportData) -> str:
    """Return the entries of the software and of the methods of a report, as BibTeX."""
    entries = dict(_entries())
    chosen = [entries[key] for key in dict.fromkeys(_keys(data))]
    return "\n\n".join([_software(), *chosen]) + "\n"


def _software() -> str:
    return (
        f"@software{{palaestrai_mosaik,\n  author = {{{{{AUTHOR}}}}},\n  title = {{{TITLE}}},\n"
        f"  version = {{{__version__}}}\n}}"
    )


def _entries() -> Iterator[tuple[str, str]]:
    """Yield the key and the text of each known entry."""
    text = (resources.files(__package__) / "templates" / "references.bib").read_text(encoding="utf-8")
    for entry in re.split(r"\n(?=@)", text.strip()):
        yield entry[entry.index("{") + 1 : entry.index(",")], entry


def _keys(data: ReportData) -> Iterator[str]:
    """Yield the keys of the sources, in the order of the report."""
    yield "steinbrink2019"
    if data.spec.search is None:
        yield from ("herman2017", "iwanaga2022")
    if data.search is not None:
        yield "akiba2019"
        if len(data.search.importances):
            yield "watanabe2023"
    for method in dict.fromkeys(data.sensitivity["method"]):
        yield from METHODS.get(method, ())
    if data.comparisons:
        yield from ("agarwal2021", "holm1979")
    if any(discovery.boxes for discovery in data.discoveries):
        yield from ("friedman1999", "breiman1984", "bryant2010")
        if data.spec.sampler.name == ADAPTIVE.name:
            yield "arzamasov2021"
    if data.robustness:
        yield "mcphail2018"
