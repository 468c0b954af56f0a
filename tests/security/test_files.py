"""The one home of files: nothing in a folder leads a writer out of it, and no reader waits for ever."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from palaestrai_mosaik.core import files

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links and pipes are POSIX's")


@pytest.fixture(params=["folders are held", "folders are looked at"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the user has named, with a link in it to another one; as on POSIX, and as on Windows."""
    if request.param == "folders are looked at":
        monkeypatch.setattr(files, "_HAS_DIR_FD", False)
    folder = tmp_path / "root"
    (folder / "inner").mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    (folder / "link").symlink_to(tmp_path / "mine")
    files.add_root(folder)
    return folder


def mine(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (root.parent / "mine").iterdir()}


def _new_file(path: Path) -> None:
    with files.new_files(path.parent) as write:
        write(path.name, b"x")


WRITERS: dict[str, Callable[[Path], object]] = {
    "write_bytes": lambda path: files.write_bytes(path, b"x"),
    "write_text": lambda path: files.write_text(path, "x"),
    "open_new": files.open_new,
    "new_files": _new_file,
    "open_append": files.open_append,
    "open_update": files.open_update,
    "open_log": files.open_log,
    "make_folder": lambda path: files.make_folder(path / "new", parents=True),
    "make_hidden": lambda path: files.make_hidden(path.parent, ".x", ".y"),
    "remove": files.remove,
    "remove_tree": files.remove_tree,
    "move from": lambda path: files.move(path, path.parents[1] / "moved"),
    "move to": lambda path: files.move(path.parents[1] / "inner", path),
    "link": lambda path: files.link(path, path.parents[1] / "linked"),
    "copy_file": lambda path: files.copy_file(path, path.parents[1] / "copied"),
    "touch": files.touch,
    "file_system_time": files.file_system_time,
    "check_in_place": files.check_in_place,
}


READERS: dict[str, Callable[[Path], object]] = {
    "open_read": files.open_read,
    "open_text": files.open_text,
    "read_bytes": files.read_bytes,
    "read_text": files.read_text,
    "read_given": files.read_given,
}


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_goes_through_a_link_below_a_root(root: Path, reader: str) -> None:
    (root / "to-file").symlink_to(root.parent / "mine" / "file")
    for name in ("link/file", "to-file"):
        with pytest.raises(
            OSError, match=rf"link is a link|to-file is a link, and links below {root} are not"
        ):
            READERS[reader](root / name)
        # an input that a document names
        with files.open_read(root / name, follow=True) as file:
            assert file.read() == b"mine"
    # outside of all roots, the user has named the file
    (root.parent / "named").symlink_to(root.parent / "mine" / "file")
    assert files.read_text(root.parent / "named") == "mine"


def test_a_folder_below_a_root_is_no_root_that_a_link_leads_to(root: Path) -> None:
    for makes in (files.add_root, files.real_root):
        with pytest.raises(OSError, match=rf"link is a link, and links below {root} are not followed"):
            makes(root / "link")
        assert makes(root / "inner") == root / "inner"
        assert makes(root / "new" / "deeper") == root / "new" / "deeper"
        assert makes(root / "inner" / ".." / "inner") == root / "inner"
    with pytest.raises(OSError, match="link is a link"):
        files.write_text(root / "link" / "x", "x")
    (root.parent / "named").symlink_to(root)
    assert files.real_root(root.parent / "named") == root
    assert files.add_root(root.parent / "named") == root.parent / "named"


def written(path: Path) -> tuple[int, ...]:
    """Return what changes when a file is written, or another one is put in its place (not when it is read)."""
    found = path.stat()
    return found.st_mode, found.st_ino, found.st_nlink, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@pytest.mark.parametrize("writer", WRITERS)
def test_no_writer_goes_through_a_link_below_a_root(root: Path, writer: str) -> None:
    before = written(root.parent / "mine" / "file")
    with pytest.raises(OSError, match=rf"link is a link, and links below {root} are not followed"):
        WRITERS[writer](root / "link" / "file")
    assert mine(root) == {"file": "mine"}
    assert written(root.parent / "mine" / "file") == before


def test_new_files_are_written_whole_and_replace_nothing(root: Path) -> None:
    with files.new_files(root / "inner") as write:
        write("a", b"first")
        write("b", b"")
        with pytest.raises(FileExistsError):
            write("a", b"second")
        with pytest.raises(OSError, match="no name of a file"):
            write("../link/file", b"x")
    assert {path.name: path.read_bytes() for path in (root / "inner").iterdir()} == {"a": b"first", "b": b""}
    assert mine(root) == {"file": "mine"}


def test_a_link_that_the_user_has_named_is_followed(root: Path) -> None:
    named = root.parent / "named"
    named.symlink_to(root.parent / "mine")
    files.add_root(named)
    files.make_folder(named / "a" / "b", parents=True)
    files.write_text(named / "a" / "b" / "x", "x")
    assert (root.parent / "mine" / "a" / "b" / "x").read_text() == "x"


@pytest.mark.parametrize("root", ["folders are held"], indirect=True)
def test_a_folder_that_becomes_a_link_while_we_are_at_it_is_not_followed(root: Path) -> None:
    """Whoever exchanges a folder after it was opened leads us nowhere else, where folders can be held."""
    with files.writing(root / "inner" / "x") as file:
        file.write(b"x")
        (root / "inner").rename(root / "away")
        (root / "inner").symlink_to(root.parent / "mine")
    assert mine(root) == {"file": "mine"}
    assert (root / "away" / "x").read_bytes() == b"x"


def test_what_had_the_name_is_replaced_and_not_written_to(root: Path) -> None:
    target = root.parent / "mine" / "file"
    (root / "to-file").symlink_to(target)
    (root / "to-nothing").symlink_to(root.parent / "mine" / "new")
    os.link(target, root / "second-name")
    for name in ("to-file", "to-nothing", "second-name"):
        files.write_text(root / name, "new")
        assert not (root / name).is_symlink()
        assert (root / name).read_text() == "new"
    assert mine(root) == {"file": "mine"}


def test_a_writer_that_raises_leaves_nothing_and_the_old_file(root: Path) -> None:
    (root / "x").write_text("old")
    with pytest.raises(ValueError, match="on purpose"), files.writing(root / "x") as file:
        file.write(b"new")
        raise ValueError("on purpose")
    assert (root / "x").read_text() == "old"
    assert sorted(path.name for path in root.iterdir()) == ["inner", "link", "x"]


def test_names_of_files_that_are_being_written_cannot_be_guessed(root: Path) -> None:
    seen = set()
    for _ in range(3):
        with files.writing(root / "inner" / "x"):
            (name,) = os.listdir(root / "inner")
            seen.add(name)
            assert files.is_temporary(name)
        (root / "inner" / "x").unlink()
    assert len(seen) == 3
    assert files.is_temporary(files.temporary_path(root / "x").name)


@pytest.mark.parametrize("kind", ["link", "second name", "pipe", "device"])
def test_what_is_written_in_place_is_a_file_of_one_name(root: Path, kind: str) -> None:
    place, target = root / "x", root.parent / "mine" / "file"
    if kind == "link":
        place.symlink_to(target)
    elif kind == "second name":
        os.link(target, place)
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        try:
            os.mknod(place, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("devices are made by root alone")
    for opens in (files.open_append, files.open_update, files.check_in_place):
        with pytest.raises(FileExistsError, match="x is a"):
            opens(place)
    os.close(files.open_log(place))
    assert stat.S_ISREG(place.lstat().st_mode)
    assert mine(root) == {"file": "mine"}


def test_no_reader_waits_for_a_pipe_or_reads_for_ever(root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "endless").symlink_to("/dev/zero")
    for name, what in (("pipe", "a pipe"), ("endless", "a (device|link)")):
        for reads in (
            files.open_read,
            files.read_bytes,
            files.read_text,
            files.read_given,
            files.check_readable,
        ):
            with pytest.raises(OSError, match=f"{name} is {what}, (not a file|and links)"):
                reads(root / name)
        with pytest.raises(OSError, match=f"{name} is {what}, (not a file|and links)"):
            files.write_text(root / name, "x")


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/../../x", "/etc/x", "nul\0l", "a/..", None, 3, b"x", float("nan"), ["x"]],
)
def test_a_name_from_elsewhere_is_a_place_in_the_folder(root: Path, name: object) -> None:
    with pytest.raises(ValueError, match="is not a path in"):
        files.inside(root, name)
    assert files.inside(root, "a/b") == root / "a" / "b"


def test_a_tree_is_removed_up_to_its_links(root: Path) -> None:
    (root / "inner" / "deeper").mkdir()
    (root / "inner" / "deeper" / "link").symlink_to(root.parent / "mine")
    for name in ("inner", "link", "nothing"):
        files.remove_tree(root / name)
    assert list(root.iterdir()) == []
    assert mine(root) == {"file": "mine"}
