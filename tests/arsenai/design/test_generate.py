"""From a design to its run documents: what stands in them, which are equal, which are refused."""

import csv
import hashlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.documents import agent, environment, named, phase
from support.factors import base, checked_documents, over_base, refused

from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.expansion import Expansion, yaml_text
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.design.model import INACTIVE
from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.core.seeding import integer_seed
from palaestrai_mosaik.experiment import canonical_json, dumps, from_mapping, load, loads
from palaestrai_mosaik.experiment.yaml_text import read

MUSCLE = "schedule.phase_0.agents.a.muscle.params"


def made(factors: dict[str, Any], *phases: dict[str, Any], **keys: Any) -> Design:
    """Return a design over the dummy document."""
    return Design.from_mapping(over_base(factors, *phases, **keys))


def gain(**keys: Any) -> dict[str, Any]:
    """Return a factor that is a new parameter of the muscle of agent a."""
    return {"path": f"{MUSCLE}.gain", "create": True, **(keys or {"levels": [0.5, 2]})}


def table(folder: DesignFolder) -> list[dict[str, str]]:
    """Return the lines of design.csv."""
    with (folder.path / "design.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_what_a_folder_holds(tmp_path: Path) -> None:
    factors = {
        "gain": gain(),
        "sensors": {
            "path": "schedule.phase_0.agents.b.sensors",
            "levels": [["myenv.1"], ["myenv.1", "myenv.2"]],
            "labels": ["one", "two"],
        },
    }
    folder = made(factors, repetitions=2).generate(tmp_path / "out")

    assert [(run.uid, run.row, run.repetition) for run in folder.runs] == [
        (f"d-{row}-r{repetition}", row, repetition) for row in range(4) for repetition in range(2)
    ]
    assert sorted(file.name for file in folder.path.iterdir()) == [
        *("SHA256SUMS", "design.csv", "design.yml", "manifest.json", "runs", "unit_sample.csv"),
    ]
    lines = table(folder)
    assert [(line["gain"], line["sensors"]) for line in lines[::2]] == [
        *(("0.5", "one"), ("0.5", "two"), ("2", "one"), ("2", "two")),
    ]
    values = folder.values()
    assert [row["gain"] for row in values] == [0.5, 0.5, 2, 2]
    assert (type(values[0]["gain"]), type(values[3]["gain"])) == (float, int)
    assert values[1]["sensors"] == ["myenv.1", "myenv.2"]
    for run, line in zip(folder.runs, lines, strict=True):
        document = load(folder.path / run.file)
        row = values[run.row]
        assert (document.uid, document.hash) == (run.uid, run.hash) == (line["uid"], line["hash"])
        assert document.seed == run.seed == integer_seed(7, "repetition", run.repetition)
        assert "\nexperiment_uid: d\n" in document.text
        for agents in (document.phases[0].agents, document.phases[1].agents):
            assert agents[0].muscle.params == {"gain": row["gain"]}
            assert list(agents[1].sensors) == row["sensors"]
    assert folder.sample.unit.tolist() == [[0.25, 0.25], [0.25, 0.75], [0.75, 0.25], [0.75, 0.75]]
    assert folder.sample.block.tolist() == [0, 1, 2, 3]
    assert folder.verify() == []
    manifest = folder.manifest
    assert manifest["design"] == {"uid": "d", "hash": folder.spec.hash, "seed": 7, "version": "3.5"}
    assert manifest["axes"][1] == {"name": "sensors", "factors": ["sensors"], "group": None}
    assert manifest["counts"]["documents"] == 8


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["two words " * 12, "1e5", "on", "~", "- a", "a: b", "hole-0-", " ", "a\n\nb"]),
)
plain = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)
HOLES = {
    "gain": gain(low=0, high=1),
    "brain": {"path": "schedule.phase_0.agents.a.brain.params.store", "low": 0, "high": 1, "create": True},
    "world": {"path": "schedule.phase_0.environments.myenv.environment.params.x", "low": 0, "high": 1},
    "second": {"path": "schedule.phase_1.agents.a.objective.params.deep.w", "low": 0, "high": 1},
    "episodes": {"path": "schedule.phase_0.phase_config.episodes", "low": 1, "high": 9, "type": "int"},
    "scheduler": {
        "path": "schedule.phase_0.simulation.scheduler",
        "levels": ["direct", "mosaik"],
        "create": True,
    },
    "condition": {"path": "run_config.conditions[0].params.n", "low": 0, "high": 1, "create": True},
}
TWO_PHASES = (
    phase([environment(x=1)]),
    {"agents": [{"name": "a", "objective": named("p.m:O", deep={"w": 1})}]},
)
EXPANSION = Expansion(made(HOLES, *TWO_PHASES, sampler={"name": "random", "n": 1}).spec)


@settings(max_examples=60)
@given(
    st.fixed_dictionaries(
        {
            "gain": plain | st.just(INACTIVE),
            "brain": scalars,
            "world": scalars,
            "second": plain,
            "episodes": st.integers(1, 3),
            "scheduler": st.sampled_from(["direct", "mosaik", INACTIVE]),
            "condition": scalars,
        }
    ),
    st.integers(0, 3),
)
def test_a_filled_structure_is_the_document(values: dict[str, Any], repetition: int) -> None:
    """Text and hash are those that the document has when it is made and read as a whole."""
    uid, seed = f"d-5-r{repetition}", EXPANSION.seed((), repetition)
    expected = from_mapping(EXPANSION.mapping(values, uid, seed))
    text, hash_ = EXPANSION.row(values, 5).document(uid, seed)
    assert hash_ == expected.hash
    assert loads(text).hash == expected.hash


@settings(max_examples=60)
@given(st.dictionaries(st.text(max_size=9) | st.just("x" * 120), plain, min_size=1, max_size=3))
@example({"x": [1e22, 1e-5, -0.0, math.inf, -math.inf, math.nan, [[1], []], {}]})
def test_text_reads_back(data: dict[str, Any]) -> None:
    text = yaml_text(data)
    assert canonical_json(read(text, "").value) == canonical_json(data)
    usual = dumps(data)
    # it breaks long lines, and marks keys that hold line breaks
    if all(len(line) < 90 for line in text.splitlines()) and "? " not in usual:
        assert text == usual


def test_structures_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were parameters no holes, nothing above would be tested, and all would be slow."""
    checked = checked_documents(monkeypatch)
    expansion = Expansion(EXPANSION.spec)
    values = {"gain": 1, "brain": 1, "world": 1, "second": 1, "episodes": 1, "scheduler": "direct"}
    for number in range(20):
        expansion.row({**values, "gain": number, "world": str(number), "condition": 0}, number)
    assert len(checked) == 1
    expansion.row({**values, "condition": 1, "episodes": 2}, 20)
    assert len(checked) == 2


def test_equal_documents_are_executed_once(tmp_path: Path) -> None:
    """Where gain is off, it sets nothing, and two rows are equal."""
    factors = {
        "gain": gain(levels=[1, 2, 3]) | {"when": "scheduler == 'direct'"},
        "scheduler": {
            "path": "schedule.phase_0.simulation.scheduler",
            "levels": ["direct", "mosaik"],
            "create": True,
        },
    }
    folder = made(factors, repetitions=2).generate(tmp_path / "common")
    assert {run.uid: run.run for run in folder.runs if run.run != run.uid} == {
        **{"d-3-r0": "d-1-r0", "d-3-r1": "d-1-r1", "d-5-r0": "d-1-r0", "d-5-r1": "d-1-r1"}
    }
    assert len(folder.documents) == len(list((folder.path / "runs").iterdir())) == 8
    assert folder.manifest["duplicates"] == {"3": 1, "5": 1}
    assert (
        folder.manifest["counts"] | {"drawn": 6, "documents": 8, "duplicates": 4} == folder.manifest["counts"]
    )
    for run in folder.runs:
        document = load(folder.path / run.file)
        assert (document.uid, document.hash, document.seed) == (run.run, run.hash, run.seed)
    assert table(folder)[6]["gain"] == ""
    assert folder.values()[3]["gain"] is INACTIVE

    other = made(factors, repetitions=2, seeds={"policy": "independent"}).generate(tmp_path / "own")
    assert len(other.documents) == 12
    named_by = hashlib.sha256(b'{"gain":2,"scheduler":"direct"}').hexdigest()
    assert other.runs[5].seed == integer_seed(7, "row", named_by, 0, "repetition", 1)


def test_independent_seeds_stay_with_their_configuration(tmp_path: Path) -> None:
    """Rows that come before, between or go change nobody's seed; equal rows have different ones."""

    def seeds(name: str, rows: list[list[float]], **keys: Any) -> dict[tuple[float, float], list[int]]:
        factors = {"a": gain(low=0, high=9), "b": gain(low=0, high=9) | {"path": f"{MUSCLE}.b"}}
        sampler = {"name": "points", "columns": ["a", "b"], "rows": rows}
        keys = {"sampler": sampler, "seeds": {"policy": "independent"}, "repetitions": 2, **keys}
        folder = made(factors, **keys).generate(tmp_path / name)
        values = folder.values()
        found: dict[tuple[float, float], list[int]] = {}
        for run in folder.runs:
            assert run.run == run.uid
            found.setdefault((values[run.row]["a"], values[run.row]["b"]), []).append(run.seed)
        return found

    few = seeds("few", [[1, 2], [2, 1], [1, 2]])
    more = seeds("more", [[0, 5], [1, 2], [3, 3], [1, 2], [2, 1], [0, 1]])
    assert few == {point: more[point] for point in few}
    assert len(few[1, 2]) == len(set(few[1, 2])) == 4
    assert len({seed for found in more.values() for seed in found}) == 12
    less = seeds("less", [[0, 5], [1, 2], [3, 3], [1, 2], [2, 1], [0, 1]], constraints=["a >= 1"])
    assert less == {point: more[point] for point in ((1, 2), (3, 3), (2, 1))}


def test_a_design_of_far_too_many_runs_is_refused() -> None:
    design = made({"gain": gain()}, repetitions=10**12)
    message = "repetitions: the design makes 2,000,000,000,000 runs .2 rows, 1,000,000,000,000 repetitions"
    with pytest.raises(DocumentError, match=message):
        design.plan()


def test_more_rows_and_repetitions_change_no_document(tmp_path: Path) -> None:
    def files(n: int, repetitions: int) -> dict[str, bytes]:
        design = made(
            {"gain": gain(low=0, high=1)}, sampler={"name": "random", "n": n}, repetitions=repetitions
        )
        folder = design.generate(tmp_path / f"{n}-{repetitions}")
        return {file.name: file.read_bytes() for file in (folder.path / "runs").iterdir()}

    small, large = files(3, 2), files(5, 3)
    assert len(small) == 6 and len(large) == 15
    assert small.items() <= large.items()


def test_a_design_without_factors_is_one_document(tmp_path: Path) -> None:
    folder = made({}, repetitions=3).generate(tmp_path / "out")
    assert [run.file for run in folder.documents] == [
        f"runs/d-0-r{repetition}.yml" for repetition in range(3)
    ]
    assert folder.values() == [{}]
    assert folder.sample.unit.shape == (1, 0)


def test_constraints_leave_rows_out(tmp_path: Path) -> None:
    factors = {"low": gain(levels=[1, 2, 3]), "high": gain(levels=[1, 2, 3]) | {"path": f"{MUSCLE}.high"}}
    folder = made(factors, constraints=["low < high"]).generate(tmp_path / "out")
    assert [tuple(row.values()) for row in folder.values()] == [(1, 2), (1, 3), (2, 3)]
    assert [run.uid for run in folder.runs] == ["d-0-r0", "d-1-r0", "d-2-r0"]
    counts = folder.manifest["counts"]
    assert (counts["drawn"], counts["rejected"], counts["rows"]) == (9, 6, 3)
    factors = {"gain": gain(low=0, high=1)}
    none = made(factors, constraints=["gain > 0.99999"], sampler={"name": "random", "n": 9})
    with pytest.raises(DocumentError, match=r"the constraints reject all 9 rows: gain > 0\.99999"):
        none.generate(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_faults_of_rows_are_told_once(tmp_path: Path) -> None:
    """One is in half of the rows, one in all but the number that it names: two problems."""
    factors = {
        "gain": gain(low=0, high=1),
        "sensors": {"path": "schedule.phase_0.agents.a.sensors", "levels": [["myenv.1"], ["noenv.1"]]},
        "episodes": {"path": "schedule.phase_0.phase_config.episodes", "low": -9, "high": -1, "type": "int"},
    }
    design = made(factors, sampler={"name": "random", "n": 40})
    error = refused(design.generate, tmp_path / "out")
    sensors, episodes = sorted(error.problems, key=lambda problem: problem.message)
    assert "'noenv.1' must start with the uid" in sensors.message
    assert sensors.path == "schedule.0.phase_0.agents.0.sensors.0"
    assert "gain = 0." in sensors.message and "sensors = ['noenv.1']" in sensors.message
    assert "(in row 0 and 39 others, where gain = " in episodes.message
    assert "hole" not in str(error)
    assert list(tmp_path.iterdir()) == []


def test_a_document_that_names_another_run_is_checked_for_itself(tmp_path: Path) -> None:
    """Row 0 would load from itself a phase that does not exist; for row 1 that is another run."""
    load_from = {"experiment_run": "d-0-r0", "phase": 7}
    agents = [agent("a", load=load_from), agent("b", 5)]
    design = made({"gain": gain()}, phase(), phase(agents=agents))
    with pytest.raises(DocumentError, match=r"there is no phase 7.*\(in row 0, where gain = 0\.5\)"):
        design.plan()


def test_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    design = tmp_path / "design.json"
    factors = {"gain": gain(low=0, high=1), "x": gain(levels=["a", "b", "c"]) | {"path": f"{MUSCLE}.x"}}
    sampler = {"name": "random", "n": 6}
    design.write_text(
        json.dumps(
            {"uid": "d", "seed": 1, "version": "3.5", "base": base(), "factors": factors, "sampler": sampler}
        )
    )
    code = "import sys; from palaestrai_mosaik.arsenai.design.design import Design as D; D.load(sys.argv[1]).generate(sys.argv[2])"
    digests = set()
    for seed in ("1", "2"):
        out = tmp_path / seed
        subprocess.run(
            [sys.executable, "-c", code, design, out], check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        files = sorted(file for file in out.rglob("*") if file.is_file())
        digests.add(hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest())
        assert len(files) == 11
    assert len(digests) == 1
