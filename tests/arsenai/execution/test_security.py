"""What crosses a trust boundary: pickles, paths, names on terminals and in pictures; and the table that says so."""

from __future__ import annotations

import ast
import json
import os
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from xml.dom import minidom

import numpy as np
import pytest
import sqlalchemy as sa
import yaml
from arsenai.execution.folders import make_folder
from support.documents import MAX_EPISODES, agent, document, environment, named, phase

import palaestrai_mosaik
from palaestrai_mosaik.agent.dumper import FileBrainDumper
from palaestrai_mosaik.arsenai.analysis.report.wording import printable
from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.expansion import slug
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.execution import Settings, job_records, run_folder
from palaestrai_mosaik.arsenai.execution.cluster.submission import Submission, Submissions, TaskRun
from palaestrai_mosaik.arsenai.execution.job import now
from palaestrai_mosaik.cli.execution import resume
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import (
    CheckpointError,
    DocumentError,
    ExecutionError,
    PrivateKeyError,
    StoreError,
)
from palaestrai_mosaik.core.printing import escape_control_characters
from palaestrai_mosaik.plot.figures import draw_panels, save_figure
from palaestrai_mosaik.plot.series import Curve, Panel
from palaestrai_mosaik.runner import checkpoint, execute, user_key
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.verify import verify

ROOT = Path(palaestrai_mosaik.__file__).parent
PAGE = ROOT.parent / "docs" / "security.md"

#: no text that a file could hold
HALF = "half \ud800"
#: what a user, or somebody else, may name a run, an agent, an environment, a phase
HOSTILE = (
    "../../x",
    "/etc/x",
    "..",
    ".",
    "a/../../b",
    "nul\0l",
    "x" * 300,
    "line\nend",
    "$(touch planted)",
    "`touch planted`; touch planted",
    "--planted",
    "\u202egnp.exe",
    "\x1b[2J\x1b]0;planted\x07",
    "CON",
    "a\\..\\b",
    "C:\\x",
    "<script>planted</script>",
    r"$\frac{a$",
    "_hidden",
    "=cmd|'/c planted'!A1",
    HALF,
)


# --- what can run code ----------------------------------------------------------------------

_MODULES = {"pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "runpy", "subprocess", "ctypes"}
_MODULES |= {"multiprocessing", "pty", "code"}
_NAMES = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "torch.load", "numpy.load"}
_NAMES |= {"importlib.import_module", "importlib.metadata.entry_points", "importlib.util.module_from_spec"}
_NAMES |= {"numpy.lib.format.open_memmap", "pandas.read_pickle", "gymnasium.make", "numba.njit", "numba.jit"}
_NAMES |= {
    f"yaml.{name}" for name in ("load", "load_all", "full_load", "unsafe_load", "Loader", "UnsafeLoader")
}
_NAMES |= {"parsl.providers", "parsl.executors.HighThroughputExecutor"}
_NAMES |= {f"pandapower.{name}" for name in ("from_json", "from_json_string", "from_pickle", "from_excel")}
#: constants and exceptions of these modules
_HARMLESS = {
    *("DEVNULL", "PIPE", "STDOUT", "TimeoutExpired", "CalledProcessError", "HIGHEST_PROTOCOL"),
    "PicklingError",
}


def uses_in(text: str) -> set[str]:
    """Return the dotted names in a module's text that can make code of data, or start a program."""
    tree = ast.parse(text)
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                known[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def dotted(node: ast.AST) -> str:
        if isinstance(node, ast.Name):
            return known.get(node.id, node.id if node.id in _NAMES else "")
        if isinstance(node, ast.Attribute):
            before = dotted(node.value)
            return f"{before}.{node.attr}" if before else ""
        return ""

    found = set()
    for node in ast.walk(tree):
        name = dotted(node)
        first, _, rest = name.partition(".")
        last = rest.rpartition(".")[2]
        listed = first in _MODULES and rest and last not in _HARMLESS and f"{first}.connection" != name
        if listed or name in _NAMES or name.startswith(("os.exec", "os.spawn", "os.posix_spawn")):
            found.add(name)
        if isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant):
            unsafe = {"shell": True, "allow_pickle": True, "weights_only": False}
            if node.arg in unsafe and node.value.value is unsafe[node.arg]:
                found.add(f"{node.arg}={node.value.value}")
    return found


def test_all_that_can_run_code_is_in_the_table_of_the_docs() -> None:
    rows = re.findall(r"^\| `([\w/.]+\.py)` \| ([^|]+) \|", PAGE.read_text(encoding="utf-8"), flags=re.M)
    told = {(file, use) for file, uses in rows for use in re.findall(r"`([^`]+)`", uses)}
    files = {str(path.relative_to(ROOT)): path for path in ROOT.rglob("*.py")}
    found = {(name, use) for name, path in files.items() for use in uses_in(path.read_text(encoding="utf-8"))}
    assert found == told, "docs/security.md, 'What can run code': say who writes what it is given"


@pytest.mark.parametrize(
    ("text", "use"),
    [
        ("import pickle\npickle.loads(b'')", "pickle.loads"),
        ("from pickle import loads as read\nf = read", "pickle.loads"),
        ("import numpy as np\nnp.load('x')", "numpy.load"),
        ("import numpy as np\nnp.savez('x', allow_pickle=True)", "allow_pickle=True"),
        ("def f():\n    from subprocess import run\n    run('x', shell=True)", "subprocess.run"),
        ("import subprocess as s\ns.run('x', shell=True)", "shell=True"),
        ("x = eval('1')", "eval"),
        ("import os\nos.system('x')", "os.system"),
        ("import torch\ntorch.load(f, weights_only=False)", "weights_only=False"),
        ("import yaml\nyaml.load('x', yaml.Loader)", "yaml.load"),
        ("from importlib import import_module as get\nget('x')", "importlib.import_module"),
    ],
)
def test_a_new_use_would_be_found(text: str, use: str) -> None:
    assert use in uses_in(text)


# --- checkpoints ----------------------------------------------------------------------------


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, file: str):
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (self.file,)


def written(directory: Path, state: Any) -> Path:
    directory.mkdir()
    checkpoint.Checkpoints(directory, "hash", {}, 1.0).write(state, {}, 0.0)
    return directory / checkpoint.FOLDER / "000000"


def read(directory: Path) -> Any:
    return next(checkpoint.whole_checkpoints(directory, "hash", {})).state()


def test_a_checkpoint_that_somebody_else_has_written_is_not_unpickled(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PALAESTRAI_MOSAIK_KEY", str(tmp_path / "theirs"))
    written(tmp_path / "from-elsewhere", Bomb(str(tmp_path / "exploded")))
    monkeypatch.setenv("PALAESTRAI_MOSAIK_KEY", str(tmp_path / "mine"))
    with pytest.raises(CheckpointError, match="was written by another user, or on another computer"):
        read(tmp_path / "from-elsewhere")
    written(tmp_path / "own", "state")
    with pytest.raises(CheckpointError, match="was written by another user"):
        read(tmp_path / "from-elsewhere")
    assert read(tmp_path / "own") == "state"

    # what was mine is exchanged: with the right digests, but nobody else has the key
    place = tmp_path / "own" / checkpoint.FOLDER / "000000"
    bomb = pickle.dumps(Bomb(str(tmp_path / "exploded")))
    head, _, body = (place / "manifest.json").read_bytes().partition(b"\n")
    forged = json.dumps(json.loads(body) | {"state": checkpoint._digest(bomb)}).encode()
    (place / "state.pickle").write_bytes(bomb)
    for signature in (head.split()[1], b"", b"0" * 64, "\u00e9".encode()):
        digest = checkpoint._digest(forged).encode()
        (place / "manifest.json").write_bytes(digest + b" " + signature + b"\n" + forged)
        with pytest.raises(CheckpointError, match="was written by another user"):
            read(tmp_path / "own")
    assert not (tmp_path / "exploded").exists()
    # with their key it is read, and does what it says: else nothing above could fail
    monkeypatch.setenv("PALAESTRAI_MOSAIK_KEY", str(tmp_path / "theirs"))
    read(tmp_path / "from-elsewhere")
    assert (tmp_path / "exploded").is_dir()


def test_the_key_is_made_once_and_is_its_users_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("PALAESTRAI_MOSAIK_KEY", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    file = tmp_path / "palaestrai_mosaik" / "checkpoint.key"
    assert user_key.key_file() == file
    with ThreadPoolExecutor(16) as many:
        assert len(set(many.map(lambda _: user_key.sign(b"x"), range(64)))) == 1
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert file.stat().st_mode & 0o777 == 0o600
    for text, said in (("no key", "is not a private key"), ("ab" * 31, "is not a private key")):
        file.write_text(text)
        user_key._read.cache_clear()
        with pytest.raises(PrivateKeyError, match=said):
            user_key.sign(b"x")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert user_key.key_file().is_relative_to(Path.home())
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    file.write_text("ab" * 32)
    others = os.stat_result((0o100600, 0, 0, 1, os.geteuid() + 1, 0, 64, 0, 0, 0))
    with monkeypatch.context() as patched, pytest.raises(PrivateKeyError, match="belongs to another user"):
        patched.setattr(user_key.os, "fstat", lambda _: others)
        user_key.sign(b"x")
    for mode in (0o604, 0o660, 0o640, 0o620, 0o602):
        file.chmod(mode)
        with pytest.raises(PrivateKeyError, match="may be read or written by others: chmod 600"):
            user_key.sign(b"x")
    file.chmod(0o600)
    monkeypatch.setenv("PALAESTRAI_MOSAIK_KEY", str(tmp_path / "file" / "key"))
    (tmp_path / "file").write_text("")
    with pytest.raises(PrivateKeyError, match="cannot be written"):
        user_key.sign(b"x")


@pytest.mark.skipif(os.name != "posix", reason="rights are POSIX's")
def test_a_key_that_others_can_replace_is_refused(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "open" / "inner"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PALAESTRAI_MOSAIK_KEY", str(folder / "key"))
    user_key.sign(b"x")
    for place, mode in ((folder, 0o777), (folder, 0o707), (tmp_path / "open", 0o777)):
        before = place.stat().st_mode
        place.chmod(mode)
        user_key._read.cache_clear()
        with pytest.raises(
            PrivateKeyError, match=f"by others, who may write to {place}: chmod go-w {place}, or"
        ):
            user_key.sign(b"x")
        place.chmod(before)
    # in /tmp and the like only owners rename; a group may be this user's alone
    folder.chmod(0o1777)
    user_key.sign(b"x")
    user_key._read.cache_clear()
    folder.chmod(0o770)
    for private in (True, False):
        monkeypatch.setattr(user_key, "_is_private_group", lambda gid, private=private: private)
        with nullcontext() if private else pytest.raises(PrivateKeyError, match="can be replaced by others"):
            user_key.sign(b"x")
        user_key._read.cache_clear()
    # in a container without rights of root, folders of the host's root seem to be nobody's
    nobody = os.stat_result((0o40755, 0, 0, 1, 65534, 65534, 0, 0, 0, 0))
    for ids, refused in (("0 0 4294967295", True), ("1000 1000 1", False)):
        told = {"/proc/self/uid_map": ids, "/proc/sys/kernel/overflowuid": "65534\n"}
        with monkeypatch.context() as patched:
            patched.setattr(user_key.files, "read_text", told.__getitem__)
            assert user_key._is_open_to_others(nobody) == refused
    # also where the name is a link, and what it leads to lies well
    (tmp_path / "well").mkdir(mode=0o700)
    (folder / "key").rename(tmp_path / "well" / "key")
    (folder / "key").symlink_to(tmp_path / "well" / "key")
    with pytest.raises(PrivateKeyError, match="can be replaced by others"):
        user_key.sign(b"x")


# --- modules --------------------------------------------------------------------------------


def test_runs_of_a_folder_are_held_to_the_modules_that_are_allowed(tmp_path) -> None:
    folder = make_folder(tmp_path / "f", ["well", "well"])
    for which, allowed, status, said in (
        ("missing", ("json", "execute"), "failed", "the module 'arsenai.execution.parts' is not allowed"),
        ("failed", ("execution",), "finished", None),
    ):
        run_folder(folder, which=which, settings=Settings(jobs=1, allow_modules=allowed))
        records = job_records(folder).values()
        assert {(record.status, record.attempt) for record in records} == {(status, 1 if said else 2)}
        assert len(records) == 2
        assert said is None or all(said in str(record.error) for record in records)


def test_resume_keeps_the_limit_of_a_submission_and_takes_no_commands_of_its_file(tmp_path) -> None:
    folder = make_folder(tmp_path / "f", ["well", "well"])
    submissions = Submissions(folder.path)
    tasks = [[TaskRun(run.uid, run.hash, run.file) for run in folder.runs]]
    planted = tmp_path / "planted"
    given = {"allow_modules": ("nothing.here",), "limited": True}
    for settings, limit, said in (
        ({"prologue": [f"touch {planted}"]}, {}, r"submission was made with execution\.slurm\.prologue"),
        ({"python": str(planted)}, given, r"submission was made with execution\.slurm\.python"),
    ):
        submissions.begin(Submission(1, "slurm", "x-1", now(), 1, 2, settings, **limit), tasks)
        with pytest.raises(ExecutionError, match=said):
            resume(str(folder.path), allow_modules=None if limit else "execution", ignore_queue=True)
    submissions.begin(Submission(1, "slurm", "x-1", now(), 1, 2, **given), tasks)
    assert resume(str(folder.path), executor="inline", ignore_queue=True) == 1
    errors = [str(record.error) for record in job_records(folder).values()]
    assert [("'arsenai.execution.parts' is not allowed" in error) for error in errors] == [True, True]
    assert resume(str(folder.path), executor="inline", allow_modules="execution", ignore_queue=True) == 0


# --- paths ----------------------------------------------------------------------------------


def everything_below(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def test_no_name_leads_out_of_the_folder_that_is_written(tmp_path, monkeypatch) -> None:
    """A run whose document, phases, environments and agents have each of the hostile names."""
    inner = tmp_path / "one" / "two" / "three"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    names = [name for name in HOSTILE if name != HALF]
    worlds = [environment(f"{name}", max_iter=2) for name in names]
    agents = [agent(name, count=1, uid=name) for name in names]
    phases = [{name: phase(worlds, agents)} for name in names[:2]]
    from palaestrai_mosaik.experiment import from_mapping

    run = from_mapping(
        {
            "uid": names[0],
            "experiment_uid": names[4],
            "seed": 1,
            "version": "3.5",
            "schedule": phases,
            "run_config": {"conditions": [named(MAX_EPISODES)]},
        }
    )
    with Store("store", create=True) as store:
        execute(run, store=store)
        assert set(store.agents("latest")["agent"]) == {name.replace("\0", r"\x00") for name in names}
    assert main(["export", "latest", "exported", "--store", "store"]) == 0
    assert main(["plot", "latest", "--store", "store", "--output", "plot.svg"]) == 0
    minidom.parseString((inner / "plot.svg").read_text(encoding="utf-8"))
    dumper = FileBrainDumper(inner / "brains", *names[:3])
    for name in names:
        FileBrainDumper(inner / "brains", name, name, name).save_all({name: b"model"})
        dumper.save_all({name: b"model"})
        assert dumper.load(name).read() == b"model"
    outside = everything_below(tmp_path) - everything_below(inner)
    assert outside == {tmp_path / "one", tmp_path / "one" / "two", inner}
    assert not [path for path in everything_below(inner) if path.name == "planted"]


_STEPS = "schedule[0].p.environments[0].environment.params.max_iter"


@pytest.mark.parametrize("uid", HOSTILE)
def test_the_folder_of_a_design_is_below_its_output_whatever_its_uid(tmp_path, uid) -> None:
    inner = tmp_path / "one" / "two"
    design = Design.from_mapping(
        {
            "uid": uid,
            "seed": 1,
            "version": "3.5",
            "output": str(inner),
            "base": {
                "schedule": [{"p": phase([environment(max_iter=2)])}],
                "run_config": {"conditions": [named(MAX_EPISODES)]},
            },
            "factors": {"steps": {"path": _STEPS, "levels": [2, 3]}},
        }
    )
    if uid == HALF:
        with pytest.raises(DocumentError, match=r"'half .ud800' cannot be written to a file"):
            design.generate()
        return
    folder = design.generate()
    assert folder.path == inner / slug(uid)
    assert [path.name for path in inner.iterdir() if not path.name.startswith(".")] == [slug(uid)]
    for run in folder.runs:
        assert (folder.path / run.file).parent == folder.path / "runs"
        TaskRun(run.uid, run.hash, run.file)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}", slug(uid))


NO_FILES = (
    *("", ".", "runs", "runs/", "runs/..", "runs/../x.yml", "../runs/x.yml", "/runs/x.yml", "runs//x.yml"),
    *("runs/a/b.yml", "runs/.hidden.yml", "runs/-x.yml", "runs/x.json", "runs/x.yml\n", "runs/\0.yml"),
    *("runs/$(x).yml", "runs/a b.yml", "runs\\x.yml", f"runs/{'x' * 300}.yml", "Runs/x.yml"),
)


def test_files_of_tasks_and_tables_lie_in_runs(tmp_path) -> None:
    for file in NO_FILES:
        with pytest.raises(ValueError, match="is no document in runs/"):
            TaskRun("x", "hash", file)
    submissions = Submissions(tmp_path)
    submissions.begin(Submission(1, "slurm", "x-1", "", 1, 1), [[TaskRun("x", "hash", "runs/x.yml")]])
    tasks = submissions.path / "0001.tasks"
    tasks.write_text(tasks.read_text().replace("runs/x.yml", "runs/../../x.yml"))
    with pytest.raises(ExecutionError, match=r"'runs/../../x.yml' is no document in runs/"):
        submissions.task(1, 0)
    folder = make_folder(tmp_path / "f", ["well", "well"])
    table = folder.path / "design.csv"
    text = table.read_text()
    for file in ("runs/../doing-0-r0.yml", "../x.yml", "/x.yml", "runs/.lock"):
        table.write_text(text.replace("runs/doing-0-r0.yml", file))
        with pytest.raises(DocumentError, match=re.escape(f"{file!r} in line 2 is no file in runs/")):
            DesignFolder.open(folder.path)


def test_a_log_is_not_written_through_a_link(tmp_path) -> None:
    folder = make_folder(tmp_path / "f", ["raise", "well"])
    outside = tmp_path / "outside"
    outside.write_text("mine")
    log = folder.path / "jobs" / f"{Path(folder.runs[0].file).stem}.log"
    log.parent.mkdir(exist_ok=True)
    log.symlink_to(outside)
    run_folder(folder, settings=Settings(jobs=1))
    assert outside.read_text() == "mine"
    assert "has had enough" in log.read_text() and not log.is_symlink()


def test_tasks_print_into_no_folder_that_was_there_before(tmp_path) -> None:
    """What Slurm writes there is opened by name: links may lie in it, where somebody has guessed its number."""
    submissions = Submissions(tmp_path)
    assert submissions.next_number() == 1
    (tmp_path / "submissions" / "0007").mkdir(parents=True)
    (tmp_path / "submissions" / "0007" / "1_0.log").symlink_to(tmp_path / "mine")
    (tmp_path / "submissions" / "x").write_text("")
    assert submissions.next_number() == 8
    submissions.begin(Submission(8, "slurm", "x-1", now(), 1, 1), [])
    assert submissions.next_number() == 9
    assert os.listdir(submissions.output(8)) == []


def test_a_database_from_elsewhere_leads_nowhere_else(tmp_path) -> None:
    with Store(tmp_path / "store", create=True) as store:
        execute(document(phase([environment(max_iter=2)])), store=store)

        def change(table: str, column: str, value: str) -> None:
            with store.database.writing() as session:
                session.execute(sa.text(f"UPDATE {table} SET {column} = :value"), {"value": value})

        (before,) = set(store.streams("latest")["folder"][:1])
        (tmp_path / "store" / "planted").mkdir()
        for path in (store.instance_directory(store.find_run("latest")) / before).iterdir():
            (tmp_path / "store" / "planted" / path.name).write_bytes(path.read_bytes())
        change("streams", "folder", "../../planted")
        refused = r"the store names '\.\./\.\./planted', which is not a path in"
        readers: list[Any] = [
            lambda: store.export("latest", tmp_path / "a" / "b", "parquet"),
            lambda: store.steps("latest"),
            lambda: store.environment_states("latest"),
            lambda: store.statistics("latest"),
            lambda: store.body_episodes("latest", 0, "a"),
        ]
        for reads in readers:
            with pytest.raises(StoreError, match=refused):
                reads()
        damage = verify(store, "latest").damage
        # (of agents and environments; and the marker has other digests)
        assert len([one for one in damage if re.match(refused, one)]) >= 2, damage
        for uid in ("../../x", "/x", "", "a/../../x", "nul\0l"):
            with pytest.raises(StoreError, match="which is not a path in"):
                store.instance_directory(uid)
        change("instances", "uid", "../../x")
        with pytest.raises(StoreError, match=r"the store names '\.\./\.\./x', which is not a path in"):
            store.export("latest", tmp_path / "c", "parquet")
    assert not list(tmp_path.rglob("planted.parquet"))


# --- what is shown --------------------------------------------------------------------------


def test_a_terminal_obeys_no_name(tmp_path, monkeypatch, capsys) -> None:
    """Control characters in the name of a run, of its parts, and in the error it failed with."""
    monkeypatch.chdir(tmp_path)
    evil = "\x1b]0;planted\x07\u202e\x9b2J\r"
    muscle = named("arsenai.execution.parts:Doing", do="raise", number=evil)
    run = {
        "uid": f"uid {evil}",
        "seed": 1,
        "version": "3.5",
        "schedule": [
            {evil: phase([environment(evil, max_iter=9)], [agent(evil, count=1, uid=evil, muscle=muscle)])}
        ],
        "run_config": {"conditions": [named(MAX_EPISODES)]},
    }
    Path("run.yml").write_text(yaml.safe_dump(run))
    assert main(["start", "run.yml", "--store", "s", "--quiet"]) == 1
    for call in (["list"], ["show", "latest"]):
        assert main([*call, "--store", "s"]) == 0
    assert main(["check", "run.yml"]) == 0
    del run["schedule"][0][evil]["environments"]
    Path("run.yml").write_text(yaml.safe_dump(run))
    assert main(["check", "run.yml"]) == 2
    assert main(["show", evil, "--store", "s"]) == 2
    told = capsys.readouterr()
    printed = told.out + told.err
    assert "uid \\x1b]0;planted\\x07\\u202e\\x9b2J\\r" in told.out
    assert f"number {escape_control_characters(evil)} has had enough" in printed
    assert printed == escape_control_characters(printed), "and tabs and line ends are left"
    assert escape_control_characters("a\tb\nä漢\u200f") == "a\tb\nä漢\\u200f"


@pytest.mark.parametrize("name", HOSTILE)
def test_pictures_show_names_as_they_are(tmp_path, name) -> None:
    """A formula that is none would raise; a control character would make no XML."""
    x = np.arange(5.0)
    short = name[:60]
    panel = Panel(
        short, short, short, (Curve(short, x, x), Curve("b", x, x)), ((1.0, short), (3.0, "q")), short
    )
    save_figure(draw_panels([panel], name), tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text(encoding="utf-8")
    minidom.parseString(text)
    assert "<script" not in text
    # (the letters are paths; what they say is a comment: two titles, two axes, a mark, a note, a curve)
    if name == "_hidden":
        assert text.count("_hidden") == 7


def test_a_page_shows_no_text_in_another_order() -> None:
    assert printable("a\u202eb\u2066c\x1bd\ud800") == "a\ufffdb\ufffdc\ufffdd\ufffd"
    assert printable("\u05d0\u200f") == "\u05d0\u200f"
