"""A design that has grown, or shares runs with another one: what was executed is not executed again."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import yaml
from arsenai.execution.folders import make_folder
from support.documents import agent, environment, named, phase

from palaestrai_mosaik.arsenai.analysis import Results
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.execution import InlineExecutor, RunStatus, Settings, run_folder
from palaestrai_mosaik.arsenai.execution.cluster.submission import run_store_location
from palaestrai_mosaik.arsenai.execution.job import Job
from palaestrai_mosaik.arsenai.execution.status import job_path, run_file_stem
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.store import Store

INLINE = ("--executor", "inline", "--quiet")
PARAMS = "schedule.only.environments.formula.environment.params"


def factor(name, *levels, **keys):
    return {name: {"path": f"{PARAMS}.{name}", "levels": list(levels), **keys}}


def design(factors, uid="grown", **keys):
    """Return a design of runs of one step, each with noise of its own."""
    formula = environment(
        "formula",
        "palaestrai_mosaik.environment.functions:FunctionEnvironment",
        **{"function": "linear", "noise": 0.1, "x1": 0.0, "x2": 0.0},
    )
    idle = {
        "name": "nobody",
        "muscle": {"name": "palaestrai_mosaik.agent.library.idle:IdleMuscle"},
        "sensors": [],
        "actuators": ["formula.idle"],
    }
    conditions = "palaestrai_mosaik.simulation.conditions"
    only = phase([formula], [idle], [named(f"{conditions}:EnvironmentTerminationCondition")], mode="test")
    run = {"condition": {"name": f"{conditions}:VanillaRunGovernorTerminationCondition"}}
    return {
        "uid": uid,
        "seed": 3,
        "base": {"schedule": [{"only": only}], "run_config": run},
        "factors": factors,
        "outcomes": {"y": {"of": "reward.y"}},
        **keys,
    }


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def generated(what, folder="f"):
    Path("d.yml").write_text(yaml.safe_dump(what, sort_keys=False))
    assert main(["generate", "d.yml", "-o", folder, "--force", "--quiet"]) == 0
    return DesignFolder.open(folder)


def executed(folder="f", *options, results=None):
    """Execute what is missing; return how many runs were executed."""
    before = instances(results or f"{folder}/results")
    assert main(["run", folder, *INLINE, *options]) == 0
    return len(instances(results or f"{folder}/results")) - len(before)


def instances(results):
    if not Path(results, "store.db").exists():
        return []
    with Store(results, create=False) as store:
        return list(store.runs()["run"])


def counts(capsys, *options):
    """Return what ``arsenai status`` counts."""
    capsys.readouterr()
    assert main(["status", *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["counts"]


def outcomes(folder="f", store=None):
    """Return the outcome of every row and repetition, by its factors and the repetition."""
    table = Results(folder, store).table()
    assert (table["status"] == "finished").all()
    names = sorted(name for name in table if name.startswith("x"))
    keys = zip(*(table[name].map(str) for name in names), table["repetition"], strict=True)
    return dict(zip(keys, table["y"], strict=True))


X2 = factor("x2", 0, 1)
UNIT = {name: {"path": f"{PARAMS}.{name}", "low": 0.0, "high": 1.0} for name in ("x1", "x2")}
GROWTHS = {
    "a level in the middle": (
        design(factor("x1", 0, 2) | X2),
        design(factor("x1", 0, 1, 2) | X2),
        2,
    ),
    "a level in front of a fast factor": (
        design(factor("x1", 0, 2) | X2),
        design(factor("x1", 0, 2) | factor("x2", -1, 0, 1)),
        2,
    ),
    "levels in another order": (design(factor("x1", 0, 1, 2) | X2), design(factor("x1", 2, 0, 1) | X2), 0),
    "factors in another order": (design(factor("x1", 0, 1) | X2), design(X2 | factor("x1", 0, 1)), 0),
    "fewer levels": (design(factor("x1", 0, 1, 2) | X2), design(factor("x1", 1, 2) | X2), 0),
    "a factor at its old value": (
        design(factor("x1", 0, 1)),
        design(factor("x1", 0, 1) | factor("x2", 0.0, 1.0)),
        2,
    ),
    "more repetitions": (
        design(factor("x1", 0, 1) | X2, repetitions=2),
        design(factor("x1", 0, 1) | X2, repetitions=3),
        4,
    ),
    "without a constraint": (
        design(factor("x1", 0, 1, 2) | X2, constraints=["x1 + x2 != 1"]),
        design(factor("x1", 0, 1, 2) | X2),
        2,
    ),
    "zipped levels": (
        design(factor("x1", 0, 1) | X2, zip=[["x1", "x2"]]),
        design(factor("x1", 5, 0, 1) | factor("x2", 5, 0, 1), zip=[["x1", "x2"]]),
        1,
    ),
    "an inactive factor": (
        design(factor("x1", 0, 1) | factor("x2", 1, 2, when="x1 == 1")),
        design(factor("x1", 2, 0, 1) | factor("x2", 1, 3, 2, when="x1 == 1")),
        2,
    ),
    "another name": (design(factor("x1", 0, 1)), design(factor("x1", 0, 1), uid="other"), 0),
    "twice as many Sobol' points": (
        design(UNIT, sampler={"name": "sobol", "n": 4}),
        design(UNIT, sampler={"name": "sobol", "n": 8}),
        16,
    ),
}


@pytest.mark.parametrize(
    ("growth", "policy"),
    [
        *((growth, "common") for growth in GROWTHS),
        *(
            (growth, "independent")
            for growth in ("a level in the middle", "zipped levels", "more repetitions")
        ),
    ],
)
def test_a_design_that_has_grown_executes_what_is_new(growth, policy, capsys):
    before, after, new = copy.deepcopy(GROWTHS[growth])
    for one in (before, after):
        one["seeds"] = {"policy": policy}
    first = generated(before)
    assert executed() == len(first.documents)
    measured = outcomes()
    grown = generated(after)
    expected = {"finished": len(grown.documents) - new} | ({"waiting": new} if new else {})
    assert counts(capsys, "f") == expected
    assert executed() == new
    assert counts(capsys, "f") == {"finished": len(grown.documents)}
    assert executed() == 0
    now = outcomes()
    # (a factor that is new is in the keys)
    common = measured.keys() & now.keys()
    assert common or len(after["factors"]) > len(before["factors"])
    assert all(measured[key] == now[key] for key in common)


def test_two_designs_share_the_runs_that_they_have_in_common(capsys):
    generated(design(factor("x1", 0, 1, 2), uid="one", repetitions=2), "one")
    generated(design(factor("x1", 1, 2, 3), uid="two", repetitions=2), "two")
    assert executed("one", "--store", "shared", results="shared") == 6
    assert counts(capsys, "two", "--store", "shared") == {"finished": 4, "waiting": 2}
    assert executed("two", "--store", "shared", results="shared") == 2
    one, two = outcomes("one", "shared"), outcomes("two", "shared")
    common = one.keys() & two.keys()
    assert len(common) == 4
    assert all(one[key] == two[key] for key in common)
    assert executed("one", "--store", "shared", results="shared") == 0


def test_a_run_whose_files_are_in_another_folder_is_executed_here():
    """Of a database that folders share, only the tables are shared: what reads trajectories needs the files."""
    url = f"sqlite:///{Path('shared.db').absolute()}"
    for name in ("one", "two"):
        generated(design(factor("x1", 0, 1), uid=name), name)
        assert main(["run", name, *INLINE, "--store", url]) == 0
        assert len(list(Path(name, "results", "instances").iterdir())) == 2


def test_the_name_of_a_run_changes_nothing_that_is_computed():
    found = []
    for name in ("one", "two"):
        folder = generated(design(factor("x1", 0, 1), uid=name), name)
        executed(name)
        assert folder.documents[1].uid == f"{name}-1-r0"
        with Store(f"{name}/results", create=False) as store:
            runs = store.runs()
            digests = [
                store.streams(run).set_index("folder")["digest"].dropna().to_dict() for run in runs["run"]
            ]
        found.append((list(runs["seed"]), digests))
    assert found[0] == found[1]
    assert all(found[0][1])


def test_what_failed_is_left_out_after_the_design_has_grown_and_resumed(capsys):
    formula = {"path": f"{PARAMS}.failures", "create": True, "levels": [0.0, 1.0]}
    generated(design({"failures": formula}))
    assert main(["run", "f", *INLINE]) == 1
    generated(design({"failures": formula} | factor("x1", 7.0, 0.0)))
    capsys.readouterr()
    assert main(["status", "f", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["counts"] == {"finished": 1, "failed": 1, "waiting": 2}
    (failed,) = told["failed"]
    assert failed["run"] == "grown-3-r0"
    assert "failures" in failed["error"]
    # the log is that of the run under its name then
    assert Path(failed["log"]) == Path("f/jobs/grown-1-r0.log")
    assert "Traceback" in Path(failed["log"]).read_text()
    assert main(["run", "f", *INLINE]) == 1
    assert len(instances("f/results")) == 4
    assert main(["resume", "f", *INLINE]) == 1
    assert len(instances("f/results")) == 6


def test_an_interrupted_run_goes_on_from_its_checkpoint_under_another_name(caplog, tmp_path):
    def slow(*levels):
        one = agent("a", count=1, muscle=named("arsenai.execution.parts:Doing", do="slow", number=0))
        del one["brain"]
        ten = phase([environment(max_iter=5)], [one], episodes=10)
        what = design(
            {"number": {"path": "schedule.only.agents.a.muscle.params.number", "levels": list(levels)}}
        )
        what["base"]["schedule"] = [{"only": ten}]
        del what["outcomes"]
        return what

    settings = {"jobs": 1, "timeout": 0.8, "checkpoint_every": 0.01}
    cut = run_folder(generated(slow(1, 2)), rows={0}, settings=Settings(**settings))
    assert cut.ended == {RunStatus.FAILED: 1}
    (instance,) = instances("f/results")
    grown = generated(slow(0, 1, 2))
    assert run_folder(grown, which="failed", settings=Settings(executor="inline")).whole is False
    assert instances("f/results") == [instance]
    assert "from the beginning" not in caplog.text
    undisturbed = generated(slow(1, 2), "g")
    run_folder(undisturbed, rows={0}, settings=Settings(executor="inline"))
    with Store("f/results", create=True) as mine, Store("g/results", create=True) as other:
        digests = [
            store.streams("latest").set_index("folder")["digest"].dropna().to_dict()
            for store in (mine, other)
        ]
    assert digests[0] == digests[1] != {}


def test_what_ended_in_stores_of_its_own_counts_after_the_design_has_grown(capsys):
    """As a cluster leaves it: nothing was collected, and the names of these runs are those of others now."""
    first = generated(design(factor("x1", 0, 1), repetitions=2))
    alone(first, first.documents)
    grown = generated(design(factor("x1", 5, 0, 1), repetitions=2))
    assert counts(capsys, "f") == {"waiting": 2, "finished": 4}
    # one that takes the place of another does not hide it
    alone_again = run_folder(grown, rows={0}, settings=Settings(executor="inline"))
    assert alone_again.ended == {RunStatus.FINISHED: 2}
    assert counts(capsys, "f") == {"finished": 6}
    assert executed() == 0
    assert len(outcomes()) == 6
    assert len(instances("f/results")) == 6


def alone(folder, runs):
    """Execute runs as a task of a cluster does: each in a store of its own."""
    for part in ("jobs", "stores"):
        (folder.path / part).mkdir(exist_ok=True)
    jobs = [
        Job(
            run.uid,
            run.hash,
            folder.path.absolute() / run.file,
            job_path(folder.path, run),
            run_store_location(folder.path, run_file_stem(run)),
            own_store=True,
        )
        for run in runs
    ]
    assert [record.status for record in InlineExecutor().run(iter(jobs))] == ["finished"] * len(jobs)


def test_no_document_is_made_again_where_nothing_is_found_by_content(monkeypatch):
    """Most folders have a store of their own and did not grow: they do not pay for it."""
    folder = make_folder("f", ["well", "well", "well"])
    monkeypatch.setattr(DesignFolder, "contents", lambda *_: pytest.fail("documents were made again"))
    run_folder(folder, rows={0}, settings=Settings(executor="inline"))
    assert run_folder(folder, settings=Settings(executor="inline")).whole
    assert (Results(folder).runs()["status"] == "finished").all()
