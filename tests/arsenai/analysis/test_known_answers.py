"""Sensitivity indices whose values are known: on our samples' points, and through the whole chain."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from sqlalchemy import text
from support.factors import function_design as design

from palaestrai_mosaik.arsenai.analysis.lost_runs import keep
from palaestrai_mosaik.arsenai.analysis.results import Results
from palaestrai_mosaik.arsenai.analysis.sensitivity import sensitivity, tidy
from palaestrai_mosaik.arsenai.design import from_mapping
from palaestrai_mosaik.arsenai.design.decode import decode
from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.design.methods import METHODS, Study
from palaestrai_mosaik.arsenai.design.samplers import sample
from palaestrai_mosaik.arsenai.execution import Settings, run_folder
from palaestrai_mosaik.cli.analyse import analyse
from palaestrai_mosaik.core.seeding import integer_seed
from palaestrai_mosaik.environment.functions import FUNCTIONS
from palaestrai_mosaik.store import Store

ISHIGAMI = {f"x{i}": {"low": -math.pi, "high": math.pi} for i in (1, 2, 3)}
SOBOL_G = {f"x{i}": {"low": 0.0, "high": 1.0} for i in range(1, 9)}
LINEAR = {f"x{i}": {"low": 0.0, "high": 1.0} for i in range(1, 5)}
ADDITIVE = {"x1": {"levels": [0, 1, 3]}, "x2": {"levels": [0, 2]}}


def evaluated(function, factors, sampler, *, method, coefficients=None, **keys):
    """Return the indices, by index and factors, of the formula on our sampler's points."""
    spec = from_mapping(design(function, factors, sampler, **keys))
    drawn = sample(spec)
    constants = [] if coefficients is None else [coefficients]
    y = [FUNCTIONS[function](list(values.values()), *constants) for values in decode(spec, drawn.unit)]
    return by_name(METHODS[method].analyse(study(spec, drawn, y, method)).rows)


def study(spec, drawn, y, method):
    names = tuple(axis.name for axis in spec.axes)
    groups = tuple(axis.group or axis.name for axis in spec.axes)
    seed = integer_seed(spec.seed, "analysis", "objective", method)
    told = (spec.sampler.name, drawn.arguments, spec.analysis.confidence, spec.analysis.resamples, seed)
    return Study(drawn.unit, np.array(y), drawn.block, names, groups, *told)


def by_name(rows):
    return {(row.index, *filter(None, (row.factor, row.factor2))): row.value for row in rows}


def close(found, index, wanted, within):
    values = [found[index, f"x{i}"] for i in range(1, len(wanted) + 1)]
    np.testing.assert_allclose(values, wanted, rtol=0, atol=within)


def test_ishigami_by_sobol_and_shapley():
    sampler = {"name": "sobol", "n": 1024}
    found = evaluated("ishigami", ISHIGAMI, sampler, method="sobol")
    close(found, "S1", [0.3139, 0.4424, 0.0], 0.05)
    close(found, "ST", [0.5576, 0.4424, 0.2437], 0.05)
    pairs = [found["S2", "x1", "x2"], found["S2", "x1", "x3"], found["S2", "x2", "x3"]]
    np.testing.assert_allclose(pairs, [0.0, 0.2437, 0.0], rtol=0, atol=0.07)
    found = evaluated("ishigami", ISHIGAMI, sampler, method="shapley")
    # of what x1 and x3 do together, each has one half
    close(found, "Sh", [0.3139 + 0.2437 / 2, 0.4424, 0.2437 / 2], 0.03)
    shares = [value for (index, *_), value in found.items() if index == "Sh"]
    assert sum(shares) == pytest.approx(1.0, abs=1e-12)


def test_ishigami_without_5_percent_of_its_runs():
    """With each of these goes a block of 8: a third of the sample, and what is left is within 0.05 still."""
    spec = from_mapping(design("ishigami", ISHIGAMI, {"name": "sobol", "n": 1024}))
    drawn = sample(spec)
    y = np.array([FUNCTIONS["ishigami"](list(values.values())) for values in decode(spec, drawn.unit)])
    finite = np.random.Generator(np.random.PCG64(5)).random(len(y)) >= 0.05
    kept = keep(np.where(finite, y, np.nan)[:, None], drawn.block, "block")
    assert 0.3 < kept.lost / len(y) < 0.4
    left = replace(drawn, unit=drawn.unit[kept.rows], block=drawn.block[kept.rows])
    found = by_name(METHODS["sobol"].analyse(study(spec, left, kept.y[kept.rows], "sobol")).rows)
    close(found, "S1", [0.3139, 0.4424, 0.0], 0.05)
    close(found, "ST", [0.5576, 0.4424, 0.2437], 0.05)


def test_sobol_g_by_sobol():
    found = evaluated("sobol_g", SOBOL_G, {"name": "sobol", "n": 1024, "second_order": False}, method="sobol")
    close(found, "ST", [0.7871, 0.2422, 0.0343, 0.0105, 0.0001, 0.0001, 0.0001, 0.0001], 0.03)
    partial = 1 / (3 * (1 + np.array([0, 1, 4.5, 9, 99, 99, 99, 99])) ** 2)
    close(found, "S1", partial / (np.prod(1 + partial) - 1), 0.03)


def test_ishigami_by_fast():
    found = evaluated("ishigami", ISHIGAMI, {"name": "fast", "n": 1024}, method="fast")
    close(found, "S1", [0.3139, 0.4424, 0.0], 0.05)
    close(found, "ST", [0.5576, 0.4424, 0.2437], 0.05)


def test_linear_by_morris():
    coefficients = [1.0, -2.0, 0.0, 5.0]
    sampler = {"name": "morris", "n": 10, "levels": 6}
    found = evaluated("linear", LINEAR, sampler, method="morris", coefficients=coefficients)
    close(found, "mu", coefficients, 1e-12)
    close(found, "mu_star", np.abs(coefficients), 1e-12)
    close(found, "sigma", [0.0] * 4, 1e-12)


def test_groups_are_told_apart_as_wholes():
    sampler = {"name": "sobol", "n": 512}
    groups = {"odd": ["x1", "x3"]}
    found = evaluated("ishigami", ISHIGAMI, sampler, method="sobol", groups=groups)
    # x1 and x3 together are all that x2 is not, and do nothing together with it
    assert found["S1", "odd"] == pytest.approx(1 - 0.4424, abs=0.05)
    assert found["ST", "odd"] == pytest.approx(1 - 0.4424, abs=0.05)
    assert found["S2", "odd", "x2"] == pytest.approx(0.0, abs=0.08)
    found = evaluated("ishigami", ISHIGAMI, sampler, method="shapley", groups=groups)
    shares = {names: value for names, value in found.items() if names[0] == "Sh"}
    assert shares == pytest.approx({("Sh", "odd"): 1 - 0.4424, ("Sh", "x2"): 0.4424}, abs=0.03)


def test_nominal_factors_by_anova_sobol_and_shapley():
    found = evaluated("linear", ADDITIVE, {"name": "factorial"}, method="anova")
    close(found, "eta2", [14 / 23, 9 / 23], 1e-12)
    assert found["eta2", "x1", "x2"] == pytest.approx(0.0, abs=1e-12)
    for method, index in (("sobol", "S1"), ("sobol", "ST"), ("shapley", "Sh")):
        close(
            evaluated("linear", ADDITIVE, {"name": "sobol", "n": 512}, method=method),
            index,
            [14 / 23, 9 / 23],
            0.03,
        )


def test_first_order_from_any_sample():
    found = evaluated("ishigami", ISHIGAMI, {"name": "lhs", "n": 1000}, method="rbd_fast")
    close(found, "S1", [0.3139, 0.4424, 0.0], 0.05)


def test_slopes_bound_total_indices():
    """dgsm of Ishigami: the means of the squared derivatives, times (2 pi)^2/(pi^2 V)."""
    found = evaluated("ishigami", ISHIGAMI, {"name": "finite_differences", "n": 1024}, method="dgsm")
    a, b = 7.0, 0.1
    variance = 0.5 + a**2 / 8 + b * math.pi**4 / 5 + b**2 * math.pi**8 / 18
    slopes = [
        0.5 * (1 + 2 * b * math.pi**4 / 5 + b**2 * math.pi**8 / 9),
        a**2 / 2,
        0.5 * 16 * b**2 * math.pi**6 / 7,
    ]
    wanted = 4 * np.array(slopes) / variance
    values = [found["dgsm", f"x{i}"] for i in (1, 2, 3)]
    np.testing.assert_allclose(values, wanted, rtol=0.05)
    assert (wanted > [0.5576, 0.4424, 0.2437]).all()


# The whole chain: a design document, its runs, mosaik, the store, the indices.


def generate(path, *arguments, **keys):
    document = path.with_suffix(".yml")
    document.write_text(yaml.safe_dump(design(*arguments, **keys), sort_keys=False))
    Design.load(document).generate(path)
    return DesignFolder.open(path)


def execute(folder):
    return run_folder(folder, settings=Settings(executor="inline"))


@pytest.fixture(scope="module")
def chain(tmp_path_factory) -> DesignFolder:
    """Ishigami by Sobol, 4 blocks of 8 runs."""
    path = tmp_path_factory.mktemp("chain") / "folder"
    folder = generate(path, "ishigami", ISHIGAMI, {"name": "sobol", "n": 4}, analysis={"resamples": 100})
    execute(folder)
    return folder


def expected(folder, method, y, **changed):
    """Return the values of a method on outcomes ``y`` that never saw a run document."""
    drawn = replace(folder.sample, **changed)
    return by_name(METHODS[method].analyse(study(folder.spec, drawn, y, method)).rows)


def formula(folder):
    return np.array([FUNCTIONS["ishigami"](list(values.values())) for values in folder.values()])


def values_of(result):
    columns = (result.frame[name] for name in ("index", "factor", "factor2", "value"))
    return {(index, *filter(None, names)): value for index, *names, value in zip(*columns, strict=True)}


def test_the_chain_gives_the_formula_at_every_row_and_its_indices(chain):
    results = Results(chain)
    frame = results.outcomes()
    assert (frame["status"] == "finished").all()
    np.testing.assert_allclose(frame["objective"], formula(chain), rtol=0, atol=1e-12)
    found = sensitivity(results)
    assert [one.method for one in found] == ["sobol", "shapley"]
    for one in found:
        assert (one.used, one.lost, one.refused) == (32, 0, "")
        assert values_of(one) == expected(chain, one.method, formula(chain))
        # (p values have no intervals)
        shown = one.frame.dropna()[["low", "value", "high"]].to_numpy()
        assert (shown[:, 0] <= shown[:, 1]).all()
        assert (shown[:, 1] <= shown[:, 2]).all()


def spoil(chain, path, change):
    """Copy the results into a store of their own, where ``change`` alters the instances of some runs."""
    shutil.copytree(chain.path / "results", path)
    with Store(path, create=True) as store, store.database.writing() as session:
        change(session)
    return path


def test_one_run_without_a_number_costs_its_block_and_nothing_else(chain, tmp_path):
    instance = Results(chain).outcomes()["instance"][19]  # in the third block
    query = """UPDATE outcomes SET sum = NULL WHERE phase_id IN (SELECT phases.id FROM phases
               JOIN instances ON instances.id = phases.instance_id WHERE instances.uid = :uid)"""
    place = spoil(chain, tmp_path / "store", lambda session: session.execute(text(query), {"uid": instance}))
    found = sensitivity(Results(chain, place), methods=["sobol"])[0]
    kept = np.delete(np.arange(32), range(16, 24))
    wanted = expected(
        chain, "sobol", formula(chain)[kept], unit=chain.sample.unit[kept], block=chain.sample.block[kept]
    )
    assert (found.used, found.lost, found.refused) == (24, 8, "")
    assert values_of(found) == wanted
    assert found.notes[0].startswith(
        "25.0% of the rows are left out (8 of 32): 1 row without a finite outcome"
    )
    assert "like the rest" in found.notes[1]


def test_with_nothing_left_the_command_says_so(chain, tmp_path, capsys):
    nothing = text("UPDATE outcomes SET sum = NULL")
    place = spoil(chain, tmp_path / "store", lambda session: session.execute(nothing))
    told = {"methods": ["sobol"], "outcomes": ["objective"], "output": str(tmp_path / "tables")}
    assert analyse(str(chain.path), store=str(place), **told) == 1
    printed = capsys.readouterr()
    assert "not computed: 100.0% of the rows are left out" in printed.out
    assert printed.err.startswith("warning: objective by sobol: 100.0% of the rows")
    assert pd.read_csv(tmp_path / "tables" / "sensitivity.csv")["value"].isna().all()


def test_a_method_that_only_does_not_fit_is_no_failure(tmp_path, capsys):
    """30 rows are enough for PAWN, not for RBD-FAST: a fault only where that was asked for."""
    unit = {f"x{i}": {"low": 0.0, "high": 1.0} for i in (1, 2)}
    folder = generate(
        tmp_path / "folder", "linear", unit, {"name": "lhs", "n": 30}, analysis={"resamples": 20}
    )
    execute(folder)
    told = {"store": None, "outcomes": [], "output": str(tmp_path / "tables")}
    assert analyse(str(folder.path), methods=[], **told) == 0
    printed = capsys.readouterr()
    assert "warning: objective by rbd_fast: 30 rows are too few" in printed.err
    assert "(irrelevant)" in printed.out
    assert analyse(str(folder.path), methods=["pawn"], **told) == 0
    assert analyse(str(folder.path), methods=["pawn", "rbd_fast"], **told) == 1


def test_runs_that_end_in_another_order_give_the_same_bytes(chain, tmp_path, capsys):
    """Runs of the second store are executed from the last to the first, in a process with another hash seed."""
    other = generate(
        tmp_path / "other", "ishigami", ISHIGAMI, {"name": "sobol", "n": 4}, analysis={"resamples": 100}
    )
    backwards = (
        "import sys; from palaestrai_mosaik.arsenai.design.folder import DesignFolder; "
        "from palaestrai_mosaik.arsenai.execution import Settings, run_folder; "
        "from palaestrai_mosaik.cli.analyse import analyse; "
        "folder = DesignFolder.open(sys.argv[1]); "
        "folder.runs = folder.runs[::-1]; "
        "run_folder(folder, settings=Settings(executor='inline')); "
        "sys.exit(analyse(sys.argv[1], store=None, methods=[], outcomes=[], output=sys.argv[2]))"
    )
    command = [sys.executable, "-c", backwards, str(other.path), str(tmp_path / "theirs")]
    subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "7"}, check=True, capture_output=True)
    assert analyse(str(chain.path), store=None, methods=[], outcomes=[], output=str(tmp_path / "ours")) == 0
    first = Results(other).outcomes()["instance"].tolist()
    assert first == sorted(first, reverse=True)  # the uid of an instance begins with its time
    for name in ("outcomes.csv", "sensitivity.csv"):
        assert Path(tmp_path, "ours", name).read_bytes() == Path(tmp_path, "theirs", name).read_bytes()
    printed = capsys.readouterr().out
    assert "objective by sobol (32 runs used)" in printed
    assert f"next: arsenai report {chain.path}" in printed
    table = pd.read_csv(tmp_path / "ours" / "outcomes.csv", dtype=str)
    assert table.columns.tolist() == [
        "row",
        "repetition",
        "uid",
        "run",
        "status",
        "x1",
        "x2",
        "x3",
        "objective",
    ]
    np.testing.assert_array_equal(table["objective"].astype(float), Results(chain).outcomes()["objective"])


def test_some_of_all_runs_fail(tmp_path, capsys):
    """Each run fails with a probability of 5 %: what is left still gives the answer, and the loss is told."""
    folder = generate(
        tmp_path / "folder",
        *("linear", {f"x{i}": {"low": 0.0, "high": 1.0} for i in (1, 2)}, {"name": "lhs", "n": 70}),
        params={"failures": 0.05, "coefficients": [2.0, 1.0]},
        seeds={"policy": "independent"},
        analysis={"methods": ["rbd_fast"], "resamples": 50},
    )
    summary = execute(folder)
    results = Results(folder)
    frame = results.outcomes()
    failed = frame["status"] == "failed"
    assert 0 < failed.sum() == len(summary.failures) < 10
    x1, x2 = (frame["row"].map(lambda row, i=i: folder.values()[row][f"x{i}"]) for i in (1, 2))
    np.testing.assert_allclose(frame["objective"][~failed], (2 * x1 + x2)[~failed], rtol=0, atol=1e-12)
    found = sensitivity(results)[0]
    assert (found.used, found.lost) == ((~failed).sum(), failed.sum())
    assert f"({failed.sum()} of 70)" in found.notes[0]
    frame = found.frame[found.frame["index"] == "S1"].set_index("factor")
    for name, share in (("x1", 0.8), ("x2", 0.2)):
        assert frame["low"][name] <= share <= frame["high"][name]
    assert analyse(str(folder.path), store=None, methods=[], outcomes=[], output=None) == 0
    assert f"70 runs ({failed.sum()} failed)" in capsys.readouterr().out


def test_nominal_levels_through_the_chain_with_repetitions(tmp_path):
    """The same seed makes the same error in every row: a block, which takes nothing from the shares."""
    folder = generate(
        tmp_path / "folder",
        *("linear", ADDITIVE, {"name": "factorial"}),
        params={"noise": 0.5},
        repetitions=2,
    )
    execute(folder)
    found = tidy(sensitivity(Results(folder)))
    shares = found[found["index"] == "eta2"].set_index("factor")["value"]
    between = 1 - shares["(repetition)"]
    assert shares["x1"].iloc[0] / between == pytest.approx(14 / 23, abs=1e-12)
    assert shares["x2"] / between == pytest.approx(9 / 23, abs=1e-12)
    assert shares["(repetition)"] > 0.001
    assert shares["(error)"] == pytest.approx(0.0, abs=1e-12)
