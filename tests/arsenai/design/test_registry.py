"""Samplers and methods that other distributions bring."""

from __future__ import annotations

import sys

import pytest
import yaml
from support.factors import design, function_design, number

from palaestrai_mosaik.arsenai.analysis import Results, sensitivity
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.design.methods import METHODS
from palaestrai_mosaik.arsenai.design.rules import check_sampler
from palaestrai_mosaik.arsenai.design.samplers import SAMPLERS, sample
from palaestrai_mosaik.arsenai.design.samplers.lhs import LHS
from palaestrai_mosaik.cli import arsenai
from palaestrai_mosaik.core.errors import ContractError, NameResolutionError
from palaestrai_mosaik.core.importing import only_modules

#: a sampler: the midpoints of n equal parts of every axis, in one order
SAMPLER = """
import numpy as np
from palaestrai_mosaik.arsenai.design.samplers import Sampler, single_rows, size_of

def draw(spec):
    n = size_of(spec)
    column = (np.arange(n) + 0.5) / n
    return single_rows(np.tile(column[:, None], (1, len(spec.axes))), {"n": n})

MIDPOINTS = Sampler(NAME, "midpoints", draw, size_of, methods=(METHOD, "pawn"))
"""
#: a method: the coefficient of correlation with each axis
METHOD = """
import numpy as np
from palaestrai_mosaik.arsenai.design.methods import Index, Indices, Method

def correlation(study):
    rows = zip(study.names, study.unit.T)
    return Indices([Index("r", name, float(np.corrcoef(column, study.y)[0, 1])) for name, column in rows])

CORRELATION = Method(NAME, correlation, ("r",), samplers=("lhs",), why="it needs independent rows")
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs a distribution with one module, for this test."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def make(name, source, **entry_points):
        module = name.replace("-", "_")
        (site / f"{module}.py").write_text(source)
        info = site / f"{module}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        groups = {"sampler": "samplers", "method": "analysis_methods"}
        text = "".join(
            f"[palaestrai_mosaik.{groups[kind]}]\n{entry} = {module}:{target}\n"
            for kind, (entry, target) in entry_points.items()
        )
        (info / "entry_points.txt").write_text(text)

    return make


def sampler(name, method="pawn"):
    return SAMPLER.replace("NAME", repr(name)).replace("METHOD", repr(method))


def method(name):
    return METHOD.replace("NAME", repr(name))


def test_a_sampler_and_a_method_of_installed_distributions_work_from_end_to_end(install, tmp_path, capsys):
    install("halves", sampler("halves", "slopes"), sampler=("halves", "MIDPOINTS"))
    install("slopes", method("slopes"), method=("slopes", "CORRELATION"))
    document = tmp_path / "design.yml"
    factors = {"x1": {"low": 0.0, "high": 1.0}}
    document.write_text(yaml.safe_dump(function_design("linear", factors, {"name": "halves", "n": 4})))
    folder = tmp_path / "folder"
    assert arsenai.main(["generate", str(document), "-o", str(folder)]) == 0
    assert [row["x1"] for row in DesignFolder.open(folder).values()] == [0.125, 0.375, 0.625, 0.875]
    assert arsenai.main(["run", str(folder), "--executor", "inline", "--quiet"]) == 0
    results = Results(DesignFolder.open(folder))
    found = sensitivity(results)
    # (PAWN refuses so few rows)
    assert [one.method for one in found] == ["slopes", "pawn"]
    assert found[0].frame[["index", "factor", "value"]].values.tolist() == [["r", "x1", pytest.approx(1.0)]]
    assert arsenai.main(["report", str(folder), "-o", str(tmp_path / "report")]) == 0
    assert "slopes" in (tmp_path / "report" / "index.html").read_text()


def test_a_method_of_another_distribution_fits_what_it_names_and_what_names_it(install):
    install("named", method("named"), method=("named", "CORRELATION"))
    install("naming", sampler("naming", "named"), sampler=("naming", "MIDPOINTS"))
    assert check_sampler(design([number()], "lhs", 8, methods=["named"])) == []
    assert check_sampler(design([number()], "naming", 8, methods=["named", "pawn"])) == []
    ((place, message),) = check_sampler(design([number()], "random", 8, methods=["named"]))
    assert place == ("analysis", "methods", 0)
    assert message.startswith(
        "named does not fit the sampler random: it needs independent rows (lhs, naming)"
    )
    ((_, message),) = check_sampler(design([number()], "naming", 8, methods=["sobol"]))
    assert message.endswith("methods that fit naming: pawn, named")


def test_names_of_other_distributions_are_suggested(install):
    install("weyl", sampler("weyl_points"), sampler=("weyl_points", "MIDPOINTS"))
    ((_, message),) = check_sampler(design([number()], "weyl_point", 8))
    assert "did you mean 'weyl_points'?" in message
    assert message.endswith("points, weyl_points")
    assert len(SAMPLERS) == len(list(SAMPLERS)) > 10
    assert "weyl_points" in SAMPLERS
    assert "weyl_points" not in METHODS


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nowhere_at_all", "'faulty' of the distribution broken 1.5 cannot be loaded: 'faulty'"),
        (
            "MIDPOINTS = print",
            "must be a palaestrai_mosaik.arsenai.design.samplers.sampler:Sampler, found builtin",
        ),
        (sampler("fault"), "of the distribution broken 1.5 calls itself 'fault'"),
    ],
)
def test_a_faulty_distribution_is_named(install, monkeypatch, source, message):
    install("broken", source, sampler=("faulty", "MIDPOINTS"))
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    ((place, found),) = check_sampler(design([number()], "faulty", 8))
    assert place == ("sampler",)
    assert message in found


def test_a_name_of_two_distributions_is_refused(install):
    install("first", sampler("twice"), sampler=("twice", "MIDPOINTS"))
    install("second", sampler("twice"), sampler=("twice", "MIDPOINTS"))
    with pytest.raises(NameResolutionError, match=r"several distributions .*: first 1\.5, second 1\.5"):
        SAMPLERS["twice"]


def test_a_name_of_this_package_is_not_replaced(install):
    install("replacing", sampler("lhs"), sampler=("lhs", "MIDPOINTS"))
    assert SAMPLERS["lhs"] is LHS
    assert list(SAMPLERS).count("lhs") == 1


def test_a_document_whose_modules_are_limited_loads_no_other_distribution(install):
    install("limited", sampler("limited"), sampler=("limited", "MIDPOINTS"))
    with only_modules(["elsewhere"]), pytest.raises(NameResolutionError, match="'limited' is not allowed"):
        SAMPLERS["limited"]
    assert "limited" not in sys.modules


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("/ n\n", "/ n + 1\n", r"has coordinates outside of \[0, 1\]"),
        ("np.arange(n)", "np.arange(n + 1)", r"has the shape \(9, 1\), not \(8, 1\)"),
    ],
)
def test_a_sample_that_is_none_is_refused(install, monkeypatch, old, new, message):
    monkeypatch.delitem(sys.modules, "odd", raising=False)
    name = f"odd_{len(message)}"
    install("odd", sampler(name).replace(old, new), sampler=(name, "MIDPOINTS"))
    with pytest.raises(ContractError, match=message):
        sample(design([number()], name, 8))
