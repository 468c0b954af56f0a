"""Who writes files, and who resolves links: ``palaestrai_mosaik.core.files`` alone, so that no link in a folder leads out of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import palaestrai_mosaik

ROOT = Path(palaestrai_mosaik.__file__).parent
HOME = "core/files.py"

#: methods of paths, frames, figures and archives that write, make, move or delete what they are given by name
METHODS = {
    *(
        "write_text",
        "write_bytes",
        "touch",
        "unlink",
        "rmdir",
        "mkdir",
        "rename",
        "symlink_to",
        "hardlink_to",
    ),
    *("to_csv", "to_parquet", "to_json", "to_pickle", "to_feather", "to_hdf", "to_excel", "savefig", "chmod"),
    *("savez", "savez_compressed", "savetxt", "tofile", "extractall", "extract"),
}
#: functions of modules that do; ``os.open`` with a flag that writes is seen apart
FUNCTIONS = {
    "os": {
        *(
            "replace",
            "rename",
            "renames",
            "remove",
            "unlink",
            "rmdir",
            "removedirs",
            "mkdir",
            "makedirs",
            "link",
        ),
        *("symlink", "mkfifo", "mknod", "truncate", "chmod", "utime"),
    },
    "shutil": {"rmtree", "copy", "copy2", "copyfile", "copytree", "move", "make_archive", "unpack_archive"},
    "tempfile": {
        *("mkstemp", "mkdtemp", "mktemp", "NamedTemporaryFile", "TemporaryFile"),
        *("SpooledTemporaryFile", "TemporaryDirectory"),
    },
    "np": {"save", "memmap"},
    "numpy": {"save", "memmap"},
    "torch": {"save"},
    "pq": {"ParquetWriter", "write_table", "write_to_dataset"},
    "csv": {"CSVWriter", "write_csv"},
    "zipfile": {"ZipFile"},
    "logging": {"FileHandler"},
    "pa": {"OSFile", "output_stream", "memory_map"},
}
#: names of the standard library's functions when they are imported from their modules
FROM = {name: module for module in ("os", "shutil", "tempfile") for name in FUNCTIONS[module]}
#: whose methods have such a name, and write no file: frames, axes, our own home
HOLDERS = {"files"}
_WRITING = set("wax+")

#: file -> what it does by itself, and why that is no harm
JUDGED: dict[str, dict[str, str]] = {
    "agent/dumper.py": {"zipfile.ZipFile": "into memory"},
    "agent/library/sb3/model.py": {"torch.save": "into memory"},
    "plot/series.py": {".rename": "columns of a frame"},
    "arsenai/analysis/comparison/compare.py": {".rename": "columns of a frame"},
    "plot/learning.py": {".rename": "columns of a frame"},
    "plot/notebook.py": {".savefig": "into memory"},
    "plot/figures.py": {".savefig": "into a file that files.writing gives"},
    "arsenai/analysis/report/tables.py": {".to_csv": "into memory"},
    "arsenai/analysis/report/pictures/canvas.py": {".savefig": "into memory"},
    "cli/analyse.py": {".to_csv": "into a file that files.writing_text gives"},
    "environment/grid/network.py": {".savez": "into memory", ".to_json": "gives text"},
    "arsenai/execution/cluster/interchange.py": {
        "os.open": "a script that must not import the package; the file is the driver's own, no link is followed",
        "os.utime": "of the same file, no link is followed",
    },
    "arsenai/execution/run_store.py": {
        "tempfile.TemporaryDirectory": "a folder of this user alone, of a random name"
    },
    "arsenai/execution/fork_server.py": {
        "tempfile.TemporaryDirectory": "a folder of this user alone, of a random name"
    },
    "core/printing.py": {"os.open": "the null device"},
    "cli/output.py": {".to_json": "gives text"},
    "interop/palaestrai/brain.py": {
        "tempfile.TemporaryDirectory": "a folder of this user alone, of a random name",
        "zipfile.ZipFile": "into memory, and from it",
        ".extractall": "into such a folder; names that lead out of it are made harmless",
    },
    "arsenai/analysis/report/paper.py": {
        "tempfile.TemporaryDirectory": "a folder of this user alone, of a random name"
    },
    "interop/rl/driver.py": {"tempfile.TemporaryDirectory": "a folder of this user alone, of a random name"},
    "runner/preflight.py": {"tempfile.TemporaryDirectory": "a folder of this user alone, of a random name"},
    "runner/runner.py": {"tempfile.TemporaryDirectory": "a folder of this user alone, of a random name"},
    "cli/serve.py": {"tempfile.TemporaryDirectory": "a folder of this user alone, of a random name"},
    "web/resources.py": {"tempfile.TemporaryDirectory": "a folder of this user alone, of a random name"},
    "simulation/world_graph.py": {".savefig": "into a file that files.writing gives"},
    "interop/mosaik/simulators/power_flow.py": {".to_json": "gives text"},
    "store/query/export.py": {
        ".to_csv": "into a file that files.writing_text gives",
        ".to_parquet": "into a file that files.writing gives",
        "csv.CSVWriter": "into a file that files.writing gives",
        "pq.ParquetWriter": "into a file that files.writing gives",
    },
    "store/parts.py": {"pq.ParquetWriter": "into memory"},
    "store/query/runs.py": {".rename": "columns of a frame"},
    "web/data/curves.py": {".rename": "columns of a frame"},
    "testing/filters.py": {".savez": "into memory"},
}


def _mode(call: ast.Call, position: int) -> str:
    """Return the mode of a call of ``open``, ``"r"`` where it says none, ``"?"`` where it is computed."""
    given = [call.args[position]] if len(call.args) > position else []
    given += [word.value for word in call.keywords if word.arg == "mode"]
    if not given:
        return "r"
    return str(given[0].value) if isinstance(given[0], ast.Constant) else "w?"


def _flags(call: ast.Call) -> set[str]:
    return {
        node.attr for node in ast.walk(call) if isinstance(node, ast.Attribute) and node.attr.startswith("O_")
    }


def writes_in(text: str) -> set[str]:
    """Return what in a module's text writes, makes, moves or deletes files by their names."""
    found = set()
    tree = ast.parse(text)
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        if isinstance(call.func, ast.Name):
            name = imported.get(call.func.id, call.func.id)
            module, _, last = name.rpartition(".")
            if (name in {"open", "io.open"} and _WRITING & set(_mode(call, 1))) or last in FUNCTIONS.get(
                module, ()
            ):
                found.add(name)
        elif isinstance(call.func, ast.Attribute):
            holder, name = ast.unparse(call.func.value), call.func.attr
            if holder in HOLDERS:
                continue
            if holder == "os" and name == "open":
                if not _flags(call) <= {"O_RDONLY"} or not _flags(call):
                    found.add("os.open")
            elif name in FUNCTIONS.get(holder, ()):
                found.add(f"{holder}.{name}")
            elif name == "open" and _WRITING & set(_mode(call, 0)) and isinstance(call.args[:1], list):
                if (
                    call.args
                    and isinstance(call.args[0], ast.Constant)
                    and set(str(call.args[0].value)) <= set("rwaxbt+")
                ):
                    found.add(".open")
            elif name in METHODS:
                found.add(f".{name}")
    return found


def test_nobody_else_writes_files() -> None:
    files = {path.relative_to(ROOT).as_posix(): path for path in ROOT.rglob("*.py")}
    found = {
        name: writes_in(path.read_text(encoding="utf-8")) for name, path in files.items() if name != HOME
    }
    judged = {name: set(uses) for name, uses in JUDGED.items()}
    assert {name: uses for name, uses in found.items() if uses} == judged, (
        "files are written by palaestrai_mosaik.core.files; what writes none is judged here"
    )


@pytest.mark.parametrize(
    ("text", "use"),
    [
        ("open('x', 'w')", "open"),
        ("open('x', mode='ab')", "open"),
        ("open('x', mode)", "open"),
        ("path.open('w')", ".open"),
        ("path.write_text('x')", ".write_text"),
        ("import os\nos.replace('x', 'y')", "os.replace"),
        ("import os\nos.open('x', os.O_WRONLY | os.O_CREAT)", "os.open"),
        ("import os\nos.open('x', flags)", "os.open"),
        ("from os import replace as put\nput('x', 'y')", "os.replace"),
        ("from tempfile import mkdtemp\nmkdtemp()", "tempfile.mkdtemp"),
        ("import shutil\nshutil.rmtree('x')", "shutil.rmtree"),
        ("frame.to_csv('x')", ".to_csv"),
        ("pq.ParquetWriter('x', schema)", "pq.ParquetWriter"),
        ("figure.savefig('x')", ".savefig"),
        ("(folder / 'x').mkdir()", ".mkdir"),
    ],
)
def test_a_new_writer_would_be_found(text: str, use: str) -> None:
    assert use in writes_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "open('x')",
        "open('x', 'rb')",
        "path.open(encoding='utf-8')",
        "import os\nos.open(os.devnull, os.O_RDONLY)",
        "from palaestrai_mosaik.core import files\nfiles.remove('x')",
        "DesignFolder.open(path)",
    ],
)
def test_what_reads_is_none(text: str) -> None:
    assert writes_in(text) == set()


#: what replaces a path by where its links lead, and the method of paths that does, without arguments
RESOLVERS, RESOLVE = {"realpath", "readlink"}, "resolve"
#: what makes a folder a root, below which no link is followed: a folder that the user has named, not a place in it
ROOTS = {"add_root", "real_root", "trust"}

#: file -> why links are resolved there; nothing is written to the result
RESOLVES = {
    "arsenai/design/merge.py": "documents that extend one another in a circle",
    "arsenai/execution/cluster/submit.py": "whether a job of the scheduler executes the script of this folder",
    "interop/palaestrai/results/database.py": "a database of palaestrAI, which is read",
    "runner/user_key.py": "who can write to the folders above the user's key",
    "simulation/remote_environment.py": "folders that another interpreter imports from",
    "web/access.py": "which store it is, by whatever name: the token of its page",
    "web/data/design_analysis.py": "whether two stores are the same",
}
#: file -> why a joined path is a root there
JOINS = {
    "arsenai/design/folder.py": "the search's folder is above the one that confirms it, and is a root as well",
    "environment/grid/network.py": "the cache of the user, of which the file is named",
}


def resolvers_in(text: str) -> set[str]:
    """Return what in a module's text replaces paths by where their links lead."""
    tree = ast.parse(text)
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "os.path")
        for alias in node.names
    }
    called = {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args
    }
    return (RESOLVERS & names) | ({RESOLVE} & called)


def joined_roots_in(text: str) -> set[str]:
    """Return the calls in a module's text that make a root of something below or beside another folder."""
    found = set()
    for call in ast.walk(ast.parse(text)):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in ROOTS and not all(_is_name(argument) for argument in call.args):
            found.add(ast.unparse(call))
    return found


def _is_name(argument: ast.expr) -> bool:
    """Whether an argument is a folder that has a name already: ``folder``, ``self.folder``, ``Path(folder)``."""
    if isinstance(argument, ast.Call) and ast.unparse(argument.func) == "Path":
        return len(argument.args) == 1 and _is_name(argument.args[0])
    if isinstance(argument, ast.Attribute):
        return argument.attr not in ("parent", "parents") and _is_name(argument.value)
    return isinstance(argument, ast.Name)


def _modules() -> dict[str, str]:
    return {
        name: path.read_text(encoding="utf-8")
        for path in ROOT.rglob("*.py")
        if (name := path.relative_to(ROOT).as_posix()) != HOME
    }


def test_nobody_else_resolves_links() -> None:
    """A place below a folder that the user has named is reached through ``files``, which follows no link to it."""
    found = {name for name, text in _modules().items() if resolvers_in(text)}
    assert found == set(RESOLVES), (
        "files.real_root resolves what the user has named; other uses are judged here"
    )


def test_a_place_in_a_folder_is_no_root_of_its_own() -> None:
    found = {name for name, text in _modules().items() if joined_roots_in(text)}
    assert found == set(JOINS), "a root is a folder that the user has named; other uses are judged here"


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.path.realpath(folder / 'x')",
        "from os.path import realpath as real\nreal(folder)",
        "from os.path import realpath",
        "(folder / 'x').resolve()",
        "path.readlink()",
        "import os\nos.readlink(path)",
        "list(map(os.path.realpath, paths))",
    ],
)
def test_a_new_resolver_would_be_found(text: str) -> None:
    assert resolvers_in(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("files.add_root(folder)", False),
        ("files.real_root(self.path)", False),
        ("add_root(Path(folder))", False),
        ("files.add_root(folder / 'confirm')", True),
        ("files.real_root(folder.parent)", True),
        ("files.add_root(Path(folder, 'confirm'))", True),
        ("files.add_root(folder.joinpath('confirm'))", True),
        ("files.add_root(os.path.join(folder, name))", True),
        ("trust(path.parents[1])", True),
    ],
)
def test_a_new_root_below_another_one_would_be_found(text: str, found: bool) -> None:
    assert bool(joined_roots_in(text)) == found
