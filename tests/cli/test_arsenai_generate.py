"""``arsenai plan``, ``generate`` and ``schema``, called in this process."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.documents import VANILLA_RUN, agent, named, phase

from palaestrai_mosaik.arsenai.design.design import EMPTY_DATABASE
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.cli.arsenai import main

BASE = {
    "version": "3.5",
    "schedule": [{"phase_0": phase(agents=[agent("a", muscle=named("tuned_muscles:Tuned")), agent("b", 5)])}],
    "run_config": {"conditions": [named(VANILLA_RUN)]},
}
PARAMS = "schedule.phase_0.agents.a.muscle.params"
FACTORS = {
    "gain": {"path": f"{PARAMS}.gain", "create": True, "levels": [0.5, 1, 2]},
    "scheduler": {
        "path": "schedule.phase_0.simulation.scheduler",
        "levels": ["direct", "mosaik"],
        "create": True,
    },
    "width": {
        **{"path": f"{PARAMS}.width", "create": True, "levels": [1, 2], "labels": ["narrow", "wide"]},
        "when": "scheduler == 'direct'",
    },
}


MUSCLES = """
from palaestrai_mosaik.agent.library.dummy import DummyMuscle

class Tuned(DummyMuscle):
    def __init__(self, gain=1.0, width=1):
        super().__init__()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder; the muscle of the designs is elsewhere."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "tuned_muscles.py").write_text(MUSCLES)
    monkeypatch.syspath_prepend(tmp_path / "lib")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def written(uid: str = "study", **keys: Any) -> str:
    """Write a design of 12 rows into the working directory, 9 of them different; return its file."""
    data = {"uid": uid, "seed": 3, "version": "3.5", "base": BASE, "factors": FACTORS, "repetitions": 2}
    file = Path(f"{uid}.yml")
    file.write_text(yaml.safe_dump({**data, **keys}, sort_keys=False))
    return file.name


def test_plan_shows_what_there_is_to_do_and_writes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    design = written(constraints=["gain < 2 or scheduler == 'direct'"], execution={"jobs": 4})
    assert main(["plan", design, "--seconds-per-run", "90"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[:5] == [
        "study.yml: design 'study', factorial",
        "  factor     kind    values",
        "  gain       levels  3: 0.5, 1, 2",
        "  scheduler  levels  2: direct, mosaik",
        "  width      levels  2: narrow, wide",
    ]
    assert "rows       10 rows (2 of 12 rejected by constraints)\n" in out
    assert "runs       20 runs (2 repetitions each), common seeds\n" in out
    assert re.search(r"documents  16 documents \(4 runs identical to another, executed once\), 2\d kB\n", out)
    # 16 runs, 4 at a time: 4 rounds of 90 s
    assert "time       6 min 00 s: 1 min 30 s per run (as given), 4 at a time\n" in out
    assert out.endswith("next: arsenai generate study.yml\n")
    assert [file.name for file in here.iterdir()] == [design]


def test_plan_learns_from_earlier_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    design = written(execution={"jobs": 1})
    assert main(["generate", design, "--quiet"]) == 0
    jobs = here / "_outputs" / "study" / "jobs"
    jobs.mkdir()
    for number, seconds in enumerate((1.0, 2.0, 60.0, 7.0)):
        status = "failed" if seconds == 7 else "finished"
        (jobs / f"{number}.json").write_text(json.dumps({"status": status, "seconds": seconds}))
    (jobs / "cut.json").write_text('{"status": "fin')
    (jobs / "edited.json").write_text('{"status": "finished", "seconds": null}')
    results = jobs.parent / "results"
    (results / "instances" / "one").mkdir(parents=True)
    (results / "instances" / "one" / "data").write_bytes(bytes(3000))
    (results / "store.db").write_bytes(bytes(EMPTY_DATABASE + 1000))
    assert main(["plan", design]) == 0
    out = capsys.readouterr().out
    assert "time       36.0 s: 2.00 s per run (median of 3 earlier), 1 at a time\n" in out
    # 18 documents, each with a file in a folder of 3 kB, and 1 kB in the database
    expected = "results    72 kB in 36 files and folders, 18 kB of it in the database, as in earlier runs\n"
    assert expected in out


def test_generate(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    design = written()
    assert main(["generate", design]) == 0
    assert capsys.readouterr().out == (
        "_outputs/study: design 'study'\n"
        "  12 rows, 24 runs (2 repetitions each)\n"
        "  18 documents (6 runs identical to another, executed once)\n"
        "next: arsenai run _outputs/study\n"
    )
    assert len(DesignFolder.open("_outputs/study").documents) == 18
    assert main(["generate", design, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["generate", design]) == 0
    assert "_outputs/study: design 'study', unchanged\n" in capsys.readouterr().out

    other = written("other")
    assert main(["generate", other, "-o", "_outputs/study"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"holds another design: 'study' with hash [0-9a-f]{12}.*--force", err)
    assert main(["generate", other, "-o", "_outputs/study", "--force"]) == 0
    assert "_outputs/study: design 'other', replaced\n" in capsys.readouterr().out
    # the design in the folder makes that very folder
    assert main(["generate", "_outputs/study/design.yml", "-o", "_outputs/study"]) == 0
    assert "unchanged" in capsys.readouterr().out


def test_designs_with_one_output_have_folders_side_by_side(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for uid in ("one", "two"):
        assert main(["generate", written(uid, output="studies")]) == 0
        assert f"next: arsenai run studies/{uid}\n" in capsys.readouterr().out
    assert {path.name for path in Path("studies").iterdir()} == {"one", "two"}
    # how it is executed may change at any time, and -o names the folder itself
    assert main(["generate", written("one", execution={"jobs": 2}), "-o", "studies/one"]) == 0
    assert "studies/one: design 'one', updated\n" in capsys.readouterr().out
    Path("studies/one/manifest.json").write_text('{"format": 1, "design": {"uid": "one", "hash": ""}}')
    for command in (["run", "studies/one"], ["generate", "one.yml", "-o", "studies/one", "--force"]):
        assert main(command) == 2
        assert "the manifest of the design was edited: 'versions', 'sampler'" in capsys.readouterr().err


def test_an_unsound_row_is_told_and_nothing_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    factors = {"episodes": {"path": "schedule.phase_0.phase_config.episodes", "levels": [1, 0, -1]}}
    assert main(["generate", written(factors=factors)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    place = "schedule.0.phase_0.phase_config.episodes"
    lines = Path("study.yml").read_text().splitlines()
    line = lines.index("  episodes:") + 1
    assert err.splitlines()[:2] == [
        f"study.yml:{line}: {place}: episodes must be an integer of at least 1 "
        "or null, found the number 0 (in row 1, where episodes = 0)",
        f"study.yml:{line}: {place}: episodes must be an integer of at least 1 "
        "or null, found the number -1 (in row 2, where episodes = -1)",
    ]
    assert not (here / "_outputs").exists()


def test_warnings_of_documents_are_told_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agents = BASE["schedule"][0]["phase_0"]["agents"]
    base = {**BASE, "schedule": [{"phase_0": phase(agents=agents, sync_every=5)}]}
    for command in ("plan", "generate"):
        assert main([command, written(base=base)]) == 0
        err = capsys.readouterr().err
        assert (
            err.count("'sync_every' has no effect: with one worker, the brain learns after every step") == 1
        )


def test_schema(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed (extra 'test')")
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.validate(yaml.safe_load(Path(written()).read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"uid": 3}, schema)
