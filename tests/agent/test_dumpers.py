"""Brain dumps as files: any name is harmless, writing is atomic, what is missing is said."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.agent import BrainDumper, FileBrainDumper
from palaestrai_mosaik.errors import BrainDumpError

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
]

NAMES = st.text(min_size=1, max_size=8)


def dumper(base: Path, run: str = "run", phase: str = "phase_0", agent: str = "agent") -> FileBrainDumper:
    return FileBrainDumper(base, run, phase, agent)


def files(base: Path) -> list[str]:
    return sorted(str(p.relative_to(base)) for p in base.rglob("*") if p.is_file())


def everything_in(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("place", ["run", "phase", "agent", "tag"])
def test_hostile_names_stay_in_the_folder(tmp_path: Path, name: str, place: str) -> None:
    base = tmp_path / "a" / "brains"
    base.mkdir(parents=True)
    outside = everything_in(tmp_path)
    names = {place: name} if place != "tag" else {}
    tag = name if place == "tag" else ""
    dumper(base, **names).save(BytesIO(b"content"), tag)
    (written,) = everything_in(tmp_path) - outside - {p for p in base.rglob("*") if p.is_dir()}
    # run / phase / agent / file: no name makes a level more or less
    assert len(written.relative_to(base).parts) == 4
    assert written.resolve() == written
    assert dumper(base, **names).load(tag).read() == b"content"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NAMES, NAMES, NAMES, NAMES), min_size=2, max_size=4, unique=True))
@example([("a/b", "c", "d", "t"), ("a", "b/c", "d", "t")])
@example([("a.b", "c", "d", "t"), ("a%2Eb", "c", "d", "t")])
@example([("a", "c", "d", "t.bin"), ("a", "c", "d", "t")])
@example([("A b", "c", "d", "t"), ("A+b", "c", "d", "t"), ("A%20b", "c", "d", "t")])
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
    assert files(tmp_path) == [
        "my run-1/phase_0/agent_a/brain-actor.bin",
        "my run-1/phase_0/agent_a/brain.bin",
    ]


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
    write = Path.write_bytes

    def half(self: Path, data: bytes) -> int:
        write(self, data[: len(data) // 2])
        # while it is being written, a reader finds the old dump and nothing else
        assert one.load().read() == b"old"
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="disk full"):
        one.save(BytesIO(b"the new dump"))
    assert one.load().read() == b"old"
    assert len(files(tmp_path)) == 1


def test_the_first_write_that_breaks_off_leaves_no_dump(tmp_path: Path, monkeypatch: Any) -> None:
    def nothing(self: Path, data: bytes) -> int:
        self.touch()
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", nothing)
    with pytest.raises(OSError, match="disk full"):
        dumper(tmp_path).save(BytesIO(b"dump"))
    assert files(tmp_path) == []
    with pytest.raises(BrainDumpError):
        dumper(tmp_path).load()


def test_what_is_missing_and_what_exists_is_said(tmp_path: Path) -> None:
    one = dumper(tmp_path)
    for tag in ("actor", "critic"):
        one.save(BytesIO(b"x"), tag)
    with pytest.raises(BrainDumpError) as tag_error:
        one.load("actr")
    assert str(one.directory / "brain-actr.bin") in str(tag_error.value)
    assert "holds brain-actor.bin, brain-critic.bin" in str(tag_error.value)
    with pytest.raises(BrainDumpError, match="phase_0' holds agent"):
        dumper(tmp_path, agent="agnt").load()
    with pytest.raises(BrainDumpError, match="holds run"):
        dumper(tmp_path, run="another").load()
    with pytest.raises(BrainDumpError, match="holds nothing"):
        dumper(tmp_path / "run" / "phase_0" / "agent" / "new").directory.mkdir(parents=True)
        dumper(tmp_path / "run" / "phase_0" / "agent" / "new").load()


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
