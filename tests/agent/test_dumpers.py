"""Brain dumps as files: any name is harmless, writing is atomic, what is missing or damaged is said."""

from __future__ import annotations

import hashlib
import os
import pickle
import time
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.agent import BrainDumper, FileBrainDumper, dump_arrays, load_arrays
from palaestrai_mosaik.core import files as home
from palaestrai_mosaik.core.errors import BrainDumpError

HOSTILE = [
    "..",
    ".",
    "../..",
    "../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "..\\..\\b",
    "C:\\b",
    "~",
    "$HOME",
    "a\0b",
    "a\nb",
    "*?[x]",
    "-rf",
    "brain.bin",
    "brain.tmp1",
    "ä ö 🧠",
    "%2E%2E",
    "NUL:",
    " ",
    "\ud800",
]

NAMES = st.text(min_size=1, max_size=8)


def dumper(
    base: Path, run: str = "run", phase: str = "phase_0", agent: str = "agent", snapshot: str = ""
) -> FileBrainDumper:
    return FileBrainDumper(base, run, phase, agent, snapshot)


def files(base: Path) -> list[str]:
    return sorted(str(p.relative_to(base)) for p in base.rglob("*") if p.is_file())


def everything_in(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("place", ["run", "phase", "agent", "snapshot", "tag"])
def test_hostile_names_stay_in_the_folder(tmp_path: Path, name: str, place: str) -> None:
    base = tmp_path / "a" / "brains"
    base.mkdir(parents=True)
    outside = everything_in(tmp_path)
    names = {place: name} if place != "tag" else {}
    tag = name if place == "tag" else ""
    dumper(base, **names).save(BytesIO(b"content"), tag)
    (written,) = everything_in(tmp_path) - outside - {p for p in base.rglob("*") if p.is_dir()}
    # run / phase / agent / file: no name makes a level more or less
    assert len(written.relative_to(base).parts) == (5 if place == "snapshot" else 4)
    assert written.resolve() == written
    assert dumper(base, **names).load(tag).read() == b"content"


@settings(max_examples=60)
@given(
    st.lists(st.tuples(NAMES, NAMES, NAMES, st.text(max_size=4), NAMES), min_size=2, max_size=4, unique=True)
)
@example([("a/b", "c", "d", "", "t"), ("a", "b/c", "d", "", "t")])
@example([("a.b", "c", "d", "", "t"), ("a%2Eb", "c", "d", "", "t")])
@example([("a", "c", "d", "", "t.bin"), ("a", "c", "d", "", "t")])
@example([("a", "c", "d", "s", "t"), ("a", "c", "d/snapshot-s", "", "t"), ("a", "c", "d", "snapshot-s", "t")])
@example([("A b", "c", "d", "", "t"), ("A+b", "c", "d", "", "t"), ("A%20b", "c", "d", "", "t")])
def test_distinct_names_are_distinct_dumps(tmp_path_factory: Any, names: list[tuple[str, ...]]) -> None:
    base = tmp_path_factory.mktemp("brains")
    for i, (*place, tag) in enumerate(names):
        dumper(base, *place).save(BytesIO(str(i).encode()), tag)
    for i, (*place, tag) in enumerate(names):
        assert dumper(base, *place).load(tag).read() == str(i).encode()
    assert len(files(base)) == len(names)


def test_plain_names_are_readable(tmp_path: Path) -> None:
    one = dumper(tmp_path, "my run-1", "phase_0", "agent_a")
    one.save(BytesIO(b"x"))
    one.save(BytesIO(b"y"), "actor")
    dumper(tmp_path, "my run-1", "phase_0", "agent_a", "best").save(BytesIO(b"z"))
    assert files(tmp_path) == [
        "my run-1/phase_0/agent_a/brain-actor.bin",
        "my run-1/phase_0/agent_a/brain.bin",
        "my run-1/phase_0/agent_a/snapshot-best/brain.bin",
    ]


def test_a_file_is_one_line_and_the_dump(tmp_path: Path) -> None:
    dumper(tmp_path).save(BytesIO(b"first\nsecond"))
    content = dumper(tmp_path).directory.joinpath("brain.bin").read_bytes()
    digest = hashlib.sha256(b"first\nsecond").hexdigest()
    assert content == f"palaestrai-mosaik-brain sha256={digest} bytes=12\nfirst\nsecond".encode()


def test_a_dump_is_replaced(tmp_path: Path) -> None:
    one = dumper(tmp_path)
    for content in (b"a long first dump", b"short"):
        one.save(BytesIO(content), "actor")
        assert one.load("actor").read() == content
    assert len(files(tmp_path)) == 1


def test_a_dump_is_saved_from_its_current_position(tmp_path: Path) -> None:
    dump = BytesIO(b"header|body")
    dump.seek(7)
    dumper(tmp_path).save(dump)
    assert dumper(tmp_path).load().read() == b"body"


class Torn(BytesIO):
    """Cannot be read."""

    def read(self, *args: Any) -> bytes:
        raise OSError("torn")


def test_a_dump_that_cannot_be_read_leaves_the_old_one(tmp_path: Path) -> None:
    one = dumper(tmp_path)
    one.save(BytesIO(b"old"))
    with pytest.raises(OSError, match="torn"):
        one.save(Torn())
    assert one.load().read() == b"old"
    assert len(files(tmp_path)) == 1


def test_a_write_that_breaks_off_leaves_the_old_dump(tmp_path: Path, monkeypatch: Any) -> None:
    one = dumper(tmp_path)
    one.save(BytesIO(b"old"))

    def half(source: str, target: str, **folders: Any) -> None:
        # while it is being written, a reader finds the old dump and nothing else
        assert one.load().read() == b"old"
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", half)
    with pytest.raises(OSError, match="disk full"):
        one.save(BytesIO(b"the new dump"))
    assert one.load().read() == b"old"
    assert len(files(tmp_path)) == 1


def test_the_first_write_that_breaks_off_leaves_no_dump(tmp_path: Path, monkeypatch: Any) -> None:
    def nothing(source: str, target: str, **folders: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", nothing)
    with pytest.raises(OSError, match="disk full"):
        dumper(tmp_path).save(BytesIO(b"dump"))
    assert files(tmp_path) == []
    with pytest.raises(BrainDumpError):
        dumper(tmp_path).load()


def damaged(content: bytes) -> list[Any]:
    """Return what may become of a file: cut, longer, other bytes, another file."""
    head = content.index(b"\n") + 1
    flipped = bytearray(content)
    flipped[-1] ^= 1
    return [
        pytest.param(content[:-1], "it holds 10 bytes, 11 were written", id="cut"),
        pytest.param(content[:head], "it holds 0 bytes, 11 were written", id="cut to its first line"),
        pytest.param(content + b"x", "it holds 12 bytes, 11 were written", id="longer"),
        pytest.param(bytes(flipped), "its SHA-256 is [0-9a-f]{64}, but [0-9a-f]{64} was", id="a bit"),
        pytest.param(content[:40], "it does not begin with 'palaestrai-mosaik-brain'", id="cut in its head"),
        pytest.param(b"", "it does not begin with", id="empty"),
        pytest.param(b"PK\3\4 from elsewhere", "it does not begin with", id="no dump"),
    ]


HEAD = f"palaestrai-mosaik-brain sha256={hashlib.sha256(b'the content').hexdigest()} bytes=11\n"


@pytest.mark.parametrize(("content", "message"), damaged(HEAD.encode() + b"the content"))
def test_a_damaged_dump_is_refused_by_name(tmp_path: Path, content: bytes, message: str) -> None:
    one = dumper(tmp_path)
    one.save(BytesIO(b"the content"), "actor")
    path = one.directory / "brain-actor.bin"
    assert path.read_bytes() == HEAD.encode() + b"the content"
    path.write_bytes(content)
    with pytest.raises(BrainDumpError, match=message) as caught:
        one.load("actor")
    assert f"the brain dump of agent 'agent' is damaged: {str(path)!r}" in str(caught.value)
    # that another dumper has one does not make it good
    with pytest.raises(BrainDumpError, match="damaged"):
        BrainDumper.load_brain_dump([one, Kept(b"other")], "actor")


def test_what_is_missing_and_what_exists_is_said(tmp_path: Path) -> None:
    one = dumper(tmp_path)
    for tag in ("actor", "critic", "a.b"):
        one.save(BytesIO(b"x"), tag)
    dumper(tmp_path, snapshot="best").save(BytesIO(b"x"))

    def message(tag: str = "", **place: str) -> str:
        with pytest.raises(BrainDumpError) as caught:
            dumper(tmp_path, **place).load(tag)
        return str(caught.value)

    found = message("actr")
    assert str(one.directory / "brain-actr.bin") in found
    assert "no dump with the tag 'actr' (did you mean 'actor'?); it has 'a.b', 'actor', 'critic'" in found
    assert "it has the snapshots 'best'" in found
    assert "phase_0' has no agent 'agnt' (did you mean 'agent'?); it has 'agent'" in message(agent="agnt")
    assert "run' has no phase 'other'; it has 'phase_0'" in message(phase="other")
    assert "has no experiment run 'another'; it has 'run'" in message(run="another")
    assert "has no snapshot 'bst' (did you mean 'best'?); it has 'best'" in message(snapshot="bst")
    assert "has no dump with the tag 'x'; it has one without a tag" in message("x", snapshot="best")
    # there is a snapshot, but no dump of the phase's end
    dumper(tmp_path, agent="b", snapshot="episode-2").save(BytesIO(b"x"))
    assert "has no dump without a tag; it has none; it has the snapshots 'episode-2'" in message(agent="b")
    with pytest.raises(BrainDumpError, match=r"there is no folder '.*nowhere'"):
        dumper(tmp_path / "nowhere").load()


ARRAYS: dict[str, Any] = {
    "weights": np.arange(6.0).reshape(2, 3),
    "count": 7,
    "flags": np.array([True, False]),
    "a.b/c d": np.zeros((0, 4), dtype=np.float32),
    "names": np.array(["x", "yz"]),
}


def test_arrays_come_back_as_they_were() -> None:
    kept = Kept()
    dump_arrays(ARRAYS, [kept], "filters")
    found = load_arrays([kept], "filters")
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == np.asarray(array).dtype
        assert found[name].shape == np.shape(array)


def test_equal_arrays_are_equal_bytes(monkeypatch: Any) -> None:
    one, other = Kept(), Kept()
    dump_arrays(ARRAYS, [one])
    monkeypatch.setattr(time, "localtime", lambda *_: time.gmtime(2e9))
    turned = {name: np.asarray(value, order="F") for name, value in reversed(ARRAYS.items())}
    dump_arrays(turned, [other])
    assert one.content == other.content
    with zipfile.ZipFile(BytesIO(one.content or b"")) as archive:
        assert archive.testzip() is None
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


class Trap:
    """Says so when it is unpickled."""

    def __reduce__(self) -> Any:
        return (pytest.fail, ("it was unpickled",))


def test_nothing_is_pickled_or_unpickled() -> None:
    with pytest.raises(ValueError, match="'trap' is no array of numbers"):
        dump_arrays({"trap": np.array([Trap()], dtype=object)}, [Kept()])
    archive = BytesIO()
    np.savez(archive, trap=np.array([Trap()], dtype=object))
    for content in (archive.getvalue(), pickle.dumps(Trap())):
        with pytest.raises(BrainDumpError, match="'filters' holds no named arrays"):
            load_arrays([Kept(content)], "filters")


def single_array() -> bytes:
    file = BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize("content", [b"", b"{}", b"PK\3\4" + bytes(50), single_array()])
def test_what_is_no_archive_is_refused(content: bytes) -> None:
    with pytest.raises(BrainDumpError, match="without a tag holds no named arrays"):
        load_arrays([Kept(content)])


class Kept(BrainDumper):
    """Keeps one dump in memory."""

    def __init__(self, content: bytes | None = None):
        self.content = content

    def save(self, dump: BinaryIO, tag: str = "") -> None:
        self.content = dump.read()

    def load(self, tag: str = "") -> BinaryIO:
        if self.content is None:
            raise BrainDumpError(f"nothing kept under {tag!r}")
        return BytesIO(self.content)


def test_every_dumper_gets_the_whole_dump() -> None:
    dumpers = [Kept(), Kept()]
    dump = BytesIO(b"--content")
    dump.seek(2)
    BrainDumper.store_brain_dump(dump, dumpers)
    assert [d.content for d in dumpers] == [b"content", b"content"]


def test_the_first_dumper_that_has_the_dump_gives_it() -> None:
    found = BrainDumper.load_brain_dump([Kept(), Kept(b"second"), Kept(b"third")], "actor")
    assert found.read() == b"second"


def test_all_dumpers_say_what_they_lack() -> None:
    with pytest.raises(BrainDumpError, match=r"nothing kept under 'actor'; nothing kept under 'actor'"):
        BrainDumper.load_brain_dump([Kept(), Kept()], "actor")
    with pytest.raises(BrainDumpError, match="nowhere to load a brain from"):
        BrainDumper.load_brain_dump([])


def archive(name: str, content: bytes) -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as entries:
        entries.writestr(name, content)
    return file.getvalue()


def forged(shape: str) -> bytes:
    """Return the head of an array of this shape, and nothing of its content."""
    told = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(told).to_bytes(2, "little") + told


@pytest.mark.parametrize(
    "content",
    [
        archive("a.txt", b"hello"),
        archive("a.npy", b"hello"),
        archive("a.npy", forged("(1000000000000000,)")),
        archive("a.npy", forged("(10000000000, 10000000000)")),
    ],
)
def test_an_archive_of_other_things_is_refused(content: bytes) -> None:
    with pytest.raises(BrainDumpError, match="holds no named arrays"):
        load_arrays([Kept(content)])


def test_a_snapshot_is_replaced_as_one(tmp_path: Path) -> None:
    best = dumper(tmp_path, snapshot="best")
    best.save_all({"": b"1", "actor": b"1", "critic": b"1"})
    best.save_all({"": b"2", "actor": b"2"})
    assert files(best.directory) == ["brain-actor.bin", "brain.bin"]
    assert [best.load(tag).read() for tag in ("", "actor")] == [b"2", b"2"]
    assert [path.name for path in best.directory.parent.iterdir()] == ["snapshot-best"]


class Killed(BaseException):
    """Ends a process in the middle of something."""


@pytest.mark.parametrize("step", range(4))
def test_whoever_is_killed_leaves_one_whole_snapshot(tmp_path: Path, monkeypatch: Any, step: int) -> None:
    """Steps: two files, the old folder goes, the new one comes; before each of them the process ends."""
    best = dumper(tmp_path, snapshot="best")
    best.save_all({"": b"old", "actor": b"old"})
    done = 0

    def until(do: Any) -> Any:
        def instead(*args: Any, **options: Any) -> Any:
            nonlocal done
            if done == step:
                raise Killed
            done += 1
            return do(*args, **options)

        return instead

    with monkeypatch.context() as patch:
        patch.setattr(home, "write_bytes", until(home.write_bytes))
        patch.setattr(home, "move", until(home.move))
        with pytest.raises(Killed):
            best.save_all({"": b"new", "actor": b"new"})
    assert [best.load(tag).read() for tag in ("", "actor")] == [b"old", b"old"]
    with pytest.raises(BrainDumpError, match=r"no snapshot 'bst'.*; it has ('best'|none)$"):
        dumper(tmp_path, snapshot="bst").load()
    best.save_all({"": b"new"})
    assert best.load().read() == b"new"
    assert [path.name for path in best.directory.parent.iterdir()] == ["snapshot-best"]


def test_all_dumps_of_a_phases_end_leave_the_snapshots(tmp_path: Path) -> None:
    dumper(tmp_path, snapshot="best").save_all({"": b"best"})
    dumper(tmp_path).save_all({"": b"end", "actor": b"end"})
    assert dumper(tmp_path, snapshot="best").load().read() == b"best"
    assert dumper(tmp_path).load("actor").read() == b"end"
