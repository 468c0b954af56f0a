"""Writing the folder of a design: all or nothing, and nothing but it; opening what is not whole."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.documents import phase
from support.factors import over_base, refused

from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.expansion import slug
from palaestrai_mosaik.arsenai.design.folder import DesignFolder, execution_lock
from palaestrai_mosaik.arsenai.design.samplers import sampler
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import DocumentError


def design(uid: str = "d", levels: int = 3, **keys: Any) -> Design:
    """Return a design of some documents."""
    path = "schedule.phase_0.agents.a.muscle.params.gain"
    factors = {"gain": {"path": path, "create": True, "levels": list(range(levels))}}
    return Design.from_mapping(over_base(factors, phase(), **{"uid": uid, **keys}))


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return every file below ``folder`` with its time of change."""
    return {
        str(file.relative_to(folder)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in folder.rglob("*")
        if file.is_file()
    }


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return where to write: a folder in a folder that is not there."""
    return tmp_path / "new" / "out"


def test_the_same_design_again_changes_nothing(out: Path) -> None:
    assert design().write(out).outcome == "new"
    before = contents(out)
    assert design().write(out).outcome == "unchanged"
    assert design().write(out, force=True).outcome == "unchanged"
    assert contents(out) == before
    # nor does the version that it is done with, though the manifest names it
    manifest = (out / "manifest.json").read_text()
    (out / "manifest.json").write_text(manifest.replace('"palaestrai_mosaik": "', '"palaestrai_mosaik": "9.'))
    before = contents(out)
    assert design().write(out).outcome == "unchanged"
    assert contents(out) == before


def test_another_design_needs_force_and_leaves_no_stale_file(out: Path) -> None:
    first = design(levels=5).generate(out)
    for name in ("jobs/d-4-r0.json", "results/store.db", "analysis/own.csv"):
        (out / name).parent.mkdir()
        (out / name).write_text("kept")
    before = contents(out)
    other = design("e", levels=2)
    message = str(refused(lambda: other.generate(out)))
    assert f"another design: 'd' with hash {first.spec.hash[:12]}" in message
    assert "--force (its analysis/ and report/ go, its results/ and jobs/ stay)" in message
    assert contents(out) == before

    other.generate(out, force=True)
    assert sorted(file.name for file in (out / "runs").iterdir()) == ["e-0-r0.yml", "e-1-r0.yml"]
    # what was said of the other design's results is gone, the results are not
    assert {name for name in contents(out) if (out / name).read_text() == "kept"} == {
        *("jobs/d-4-r0.json", "results/store.db")
    }
    assert not (out / "analysis").exists()
    assert not [entry for entry in (*out.iterdir(), *out.parent.iterdir()) if entry.name.startswith(".")]


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_of_something_else_is_never_touched(out: Path, force: bool) -> None:
    out.mkdir(parents=True)
    (out / "thesis.tex").write_text("all of it")
    assert "is not empty and no design's folder (thesis.tex)" in str(
        refused(lambda: design().generate(out, force))
    )
    assert list(contents(out)) == ["thesis.tex"]
    (out / "manifest.json").write_text("{}")
    assert "not the manifest of a design" in str(refused(lambda: design().generate(out, force)))
    file = out / "thesis.tex"
    assert "there is a file of this name" in str(refused(lambda: design().generate(file, force)))
    assert sorted(contents(out)) == ["manifest.json", "thesis.tex"]


def test_edits_are_noticed_and_not_overwritten(out: Path) -> None:
    folder = design().generate(out)
    edited, remarked, gone = (out / run.file for run in folder.documents)
    edited.write_text(edited.read_text().replace("gain: 0", "gain: 9"))
    remarked.write_text("# looked at\n" + remarked.read_text())
    gone.unlink()
    (out / "runs" / "mine.yml").write_text("")
    found = {Path(problem.file).name: problem.message for problem in folder.verify()}
    assert found == {
        edited.name: found[edited.name],
        gone.name: "cannot be read: No such file or directory",
        "mine.yml": "no run of the design has this document",
    }
    assert "edited since it was generated: its hash is" in found[edited.name]
    message = str(refused(lambda: design().generate(out)))
    assert "4 of its files are not as it makes them (runs/d-0-r0.yml, runs/d-1-r0.yml" in message
    (out / "analysis").mkdir()
    (out / "analysis" / "notes.txt").write_text("of this design, and mine")
    assert design().write(out, force=True).outcome == "replaced"
    assert DesignFolder.open(out).verify() == []
    assert not (out / "runs" / "mine.yml").exists()
    assert (out / "analysis" / "notes.txt").exists()


def test_what_is_no_part_of_the_identity_needs_no_force(out: Path) -> None:
    design().generate(out)
    for name in ("jobs", "results", "analysis", "report"):
        (out / name).mkdir()
        (out / name / "kept").write_text("")
    before = contents(out)
    parallel = design(execution={"jobs": 2}, output="elsewhere")
    assert parallel.write(out).outcome == "updated"
    assert parallel.write(out).outcome == "unchanged"
    folder = DesignFolder.open(out)
    assert folder.verify() == []
    assert (folder.spec.output, folder.spec.resolved["execution"]["jobs"]) == ("elsewhere", 2)
    after = contents(out)
    assert {name for name in before if before[name][0] != after[name][0]} == {"design.yml", "SHA256SUMS"}
    assert before.keys() == after.keys()
    # an edit is an edit, even if the design is the same
    (out / "design.yml").write_text("# mine\n" + (out / "design.yml").read_text())
    assert "1 of its files are not as it makes them (design.yml)" in str(refused(lambda: parallel.write(out)))
    assert "(SHA256SUMS, design.yml)" in str(refused(lambda: design().write(out)))


def test_one_at_a_time_generates_into_a_folder(out: Path) -> None:
    """Another one begins while the first is at work: into a new folder, and into one that is there."""
    others: list[str] = []

    def listen(done: int, total: int) -> None:
        others.append(str(refused(lambda: design("e").generate(out, force=True))))

    design(levels=2).generate(out, progress=listen)
    before = contents(out)
    design(levels=2).generate(out, force=True, progress=listen)
    assert contents(out) == before
    assert len(others) == 4
    for message in others:
        assert f"the folder is being generated by process {os.getpid()} on host" in message
    assert [entry.name for entry in out.parent.iterdir()] == ["out"]

    # one whose name begins alike is another one, however long they are
    def beside(done: int, total: int) -> None:
        for name in ("x" * 201, "x" * 200 + ".y", "x"):
            design("e").generate(out.parent / name)

    design().generate(out.parent / ("x" * 200), progress=beside)
    assert not [entry for entry in out.parent.iterdir() if entry.name.startswith(".")]


def test_a_folder_that_comes_in_between_is_not_written_over(out: Path) -> None:
    def elsewhere(done: int, total: int) -> None:
        if done == 1:
            out.mkdir()
            design("e").generate(out)

    message = str(refused(lambda: design().generate(out, progress=elsewhere)))
    assert "the folder holds another design: 'e'" in message
    assert DesignFolder.open(out).verify() == []
    assert [entry.name for entry in out.parent.iterdir()] == ["out"]
    assert not [entry for entry in out.iterdir() if entry.name.startswith(".")]


def test_documents_do_not_change_while_they_are_executed(out: Path) -> None:
    design().generate(out)
    opened = DesignFolder.open(out)
    with execution_lock(out):
        before = contents(out)
        message = str(refused(lambda: design("e").generate(out, force=True)))
        assert f"the folder is being executed by process {os.getpid()} on host" in message
        assert contents(out) == before
        # to see that nothing is to be done disturbs nobody
        assert design().write(out).outcome == "unchanged"
    assert opened.verify() == []
    # the same names, other seeds: who has opened it before must not execute these
    design(seed=8).generate(out, force=True)
    assert ["generated anew since it was opened" in problem.message for problem in opened.verify()] == [True]
    assert not list((out / "jobs").iterdir())


def interrupting(at: int) -> Callable[[int, int], None]:
    """Return a listener that is interrupted at a run."""

    def listen(done: int, total: int) -> None:
        if done >= at:
            raise KeyboardInterrupt

    return listen


def test_an_interrupt_leaves_nothing_and_an_old_folder_as_it_was(out: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        design().generate(out, progress=interrupting(2))
    assert list(out.parent.parent.iterdir()) == []
    out.mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt):
        design().generate(out, progress=interrupting(2))
    assert list(out.iterdir()) == []
    design().generate(out)
    before = contents(out)
    with pytest.raises(KeyboardInterrupt):
        design("e").generate(out, force=True, progress=interrupting(2))
    assert contents(out) == before
    assert [entry.name for entry in out.parent.iterdir()] == ["out"]


def test_an_exchange_that_fails_anywhere_is_undone(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every renaming of the exchange fails once, the first to the last."""
    design().generate(out)
    (out / "results").mkdir()
    before, rename, calls = contents(out), files.move, 0

    def failing(path: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == fail_at:
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(files, "move", failing)
    for fail_at in range(1, 15):
        calls = 0
        message = str(refused(lambda: design("e").generate(out, force=True)))
        assert "the folder cannot be written: No space left on device" in message
        assert contents(out) == before, fail_at
        assert not [entry for entry in (*out.iterdir(), *out.parent.iterdir()) if entry.name.startswith(".")]
    fail_at = 15  # there are 14
    assert design("e").write(out, force=True).outcome == "replaced"


@pytest.mark.parametrize("at", [3, 8, 11, 14])
def test_what_a_killed_process_leaves_is_mended(out: Path, at: int) -> None:
    """Killed in the middle of the exchange, the former files come back at the next attempt."""
    design().generate(out)
    before = contents(out)
    design("e").generate(out.parent / "e")
    code = f"""
import os, signal, sys
from palaestrai_mosaik.core import files
from palaestrai_mosaik.arsenai.design.design import Design
rename, calls = files.move, 0
def killed(path, target):
    global calls
    calls += 1
    if calls == {at}:
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(path, target)
files.move = killed
Design.load(sys.argv[1]).generate(sys.argv[2], force=True)
"""
    run = subprocess.run([sys.executable, "-c", code, out.parent / "e" / "design.yml", out], check=False)
    assert run.returncode == -signal.SIGKILL
    assert "was cut off; do it again" in str(refused(lambda: DesignFolder.open(out)))
    assert "another design" in str(refused(lambda: design("f").generate(out)))
    assert {name: entry for name, entry in contents(out).items() if not name.startswith(".")} == before
    assert DesignFolder.open(out).verify() == []


@pytest.mark.parametrize("there", [False, True])
def test_what_a_killed_process_was_writing_goes(out: Path, there: bool) -> None:
    """A new folder and one that is there; what another process writes beside it stays."""
    place = out if there else out.parent
    design().generate(out if there else out.parent / "source")
    beside = out.parent / ".out.y.abcdefgh.generating"
    beside.mkdir()
    code = """
import os, signal, sys
from palaestrai_mosaik.arsenai.design.design import Design
def kill(done, total):
    os.kill(os.getpid(), signal.SIGKILL)
Design.load(sys.argv[1]).generate(sys.argv[2], progress=kill)
"""
    source = (out if there else out.parent / "source") / "design.yml"
    run = subprocess.run([sys.executable, "-c", code, source, out], check=False)
    assert run.returncode == -signal.SIGKILL
    left = {entry.name for entry in place.iterdir() if entry.name.startswith(".out.")} - {beside.name}
    assert len(left) == 2  # the hidden folder and the lock
    assert design().write(out).outcome == ("unchanged" if there else "new")
    assert not left & {entry.name for entry in place.iterdir()}
    assert beside.exists()


@pytest.mark.parametrize(
    "uid",
    [
        "../escape",
        "/etc/passwd",
        "a b\nc: d",
        "x" * 300,
        "..",
        "Gr\u00f6\u00dfe \U0001f600",
        "1e5",
        "- a",
        '"',
        "null",
    ],
)
def test_hostile_uids(out: Path, uid: str) -> None:
    folder = design(uid, levels=2).generate(out)
    assert [run.uid for run in folder.runs] == [f"{uid}-0-r0", f"{uid}-1-r0"]
    assert folder.verify() == []
    assert len(list((out / "runs").iterdir())) == 2
    assert [entry.name for entry in out.parent.parent.iterdir()] == ["new"]
    assert [entry.name for entry in out.parent.iterdir()] == ["out"]
    place = design(uid).folder
    assert design(uid, output="studies").folder == Path("studies", place.name)
    assert place.parent == Path("_outputs") and ".." not in place.parts and len(place.name) < 130


@given(st.text(min_size=1, max_size=130), st.text(min_size=1, max_size=130))
def test_names_of_uids(first: str, second: str) -> None:
    names = {slug(first).casefold(), slug(second).casefold()}
    assert (len(names) == 1) <= (first.casefold() == second.casefold())
    for name in names:
        assert name and name[0] not in ".-" and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")


def test_a_link_leads_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    design().generate(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "manifest.json").is_file()
    # links below it are not followed
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "real" / "runs").rename(elsewhere)
    (tmp_path / "real" / "runs").symlink_to(elsewhere)
    with pytest.raises(DocumentError, match=r"runs is a link, and links below .* are not followed"):
        design("e").generate(tmp_path / "real", force=True)
    assert len(list(elsewhere.iterdir())) == 3


def test_folders_that_are_not_whole(out: Path) -> None:
    def opened() -> str:
        return str(refused(lambda: DesignFolder.open(out)))

    assert "there is no such folder" in opened()
    design().generate(out)
    files = {file.name: file.read_text() for file in out.iterdir() if file.is_file()}

    def with_file(name: str, text: str) -> str:
        (out / name).write_text(text)
        try:
            return str(refused(lambda: DesignFolder.open(out).sample))
        finally:
            (out / name).write_text(files[name])

    newer = json.dumps({**json.loads(files["manifest.json"]), "format": 2})
    assert "has format 2, this version reads up to 1: made by a newer version" in with_file(
        "manifest.json", newer
    )
    assert "no JSON" in with_file("manifest.json", files["manifest.json"][:100])
    damaged: list[dict[str, Any]] = [
        {"design": {"uid": "d"}},
        {"design": {"hash": "0" * 64}},
        {"counts": []},
        {"counts": {"runs": "3"}},
        {"axes": [3]},
        {"sampler": {"arguments": {}, "warnings": [], "blocks": 0}},
    ]
    for part in damaged:
        text = json.dumps({**json.loads(files["manifest.json"]), **part})
        assert f"was edited: '{next(iter(part))}' is not as" in with_file("manifest.json", text)
    seed = files["design.yml"].replace("seed: 7", "seed: 8")
    assert "the design was edited since the folder was generated" in with_file("design.yml", seed)
    assert "2 runs stand here, 3 were generated" in with_file(
        "design.csv", files["design.csv"].rpartition("2,0,")[0]
    )
    assert "no file in runs/" in with_file(
        "design.csv", files["design.csv"].replace("runs/d-1", "runs/../d-1")
    )
    assert "line 2 is no line of" in with_file("design.csv", files["design.csv"].replace("\n0,0,", "\n0,x,"))
    assert "not a table of numbers" in with_file(
        "unit_sample.csv", files["unit_sample.csv"].replace("0.", "o.")
    )
    assert "the columns must be row, gain" in with_file("unit_sample.csv", "row,other\n")
    (out / "SHA256SUMS").unlink()
    assert "SHA256SUMS: this part of the design's folder is missing" in opened()
    (out / "manifest.json").unlink()
    assert "there is no manifest.json in it" in opened()


def test_a_place_that_may_not_be_written_to() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        # as root, who may write everywhere, be somebody else meanwhile; what is imported late is imported before
        design().generate(place / "before")
        place.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            message = str(refused(lambda: design().generate(place / "out")))
        finally:
            if root:
                os.seteuid(0)
            place.chmod(0o700)
    assert "cannot be written: Permission denied" in message


@given(st.lists(st.integers(1, 4), max_size=8), st.integers(0, 5))
def test_blocks_in_short(lengths: list[int], first: int) -> None:
    """Numbers may be left out, by rejected rows: what belongs together is what counts."""
    block = np.repeat(np.arange(len(lengths), dtype=np.int64) * 2 + first, lengths)
    unpacked = sampler.unpack(sampler.pack(block), len(block))
    assert (np.diff(unpacked) == np.diff(block).astype(bool)).all()
    assert unpacked.tolist() == np.repeat(np.arange(len(lengths)), lengths).tolist()
