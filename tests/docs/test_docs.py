"""Every command and snippet of the documentation is executed, every link followed.

The blocks of a page run from top to bottom in one temporary directory that holds a copy of
``scenarios/``:

* ``python`` in one namespace per page; ``bash`` with ``-e``, the package's commands on PATH
  (:mod:`tests.support.commands`);
* ``yaml`` must be a complete run document and pass the check; ``yaml fragment`` must parse;
* a block of any language with ``file=NAME`` is written to that file instead (and checked
  as well, if it is a run document);
* ``text output`` must equal what the block before it printed (``...`` stands for anything);
* ``bash exits=2`` must end with that exit code; what it printed includes its errors then;
* in the pages of ``SHOWN``, every block that prints is followed by what it printed;
* ``needs=slurm``, ``needs=parsl``, ``needs=postgresql``, ``needs=discovery`` or ``needs=rl`` before it: where that part is not to be had,
  the page's test is skipped from there on. Slurm is the one of ``PALAESTRAI_MOSAIK_TEST_SLURM``;
  ``RESULTS_URL`` is then a new database of the tests' PostgreSQL.

A block below a comment ``<!-- not run: reason -->`` is left alone.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import importlib.util
import io
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from arsenai.execution.slurm_cluster import VARIABLE as SLURM_VARIABLE
from arsenai.execution.slurm_cluster import slurm_jobs  # noqa: F401
from support.waiting import HANG

from palaestrai_mosaik.arsenai import design
from palaestrai_mosaik.arsenai.analysis.outcomes import SOURCES
from palaestrai_mosaik.arsenai.design import folder as design_folder
from palaestrai_mosaik.arsenai.design import vocabulary as design_vocabulary
from palaestrai_mosaik.arsenai.design.methods import METHODS
from palaestrai_mosaik.arsenai.design.samplers import SAMPLERS
from palaestrai_mosaik.arsenai.design.vocabulary import EXECUTION, EXECUTORS, PARSL, PROVIDERS, SLURM
from palaestrai_mosaik.arsenai.execution import RunStatus, Settings
from palaestrai_mosaik.arsenai.execution.settings import ParslSettings, SlurmSettings
from palaestrai_mosaik.cli import arsenai, main
from palaestrai_mosaik.experiment import loads, vocabulary
from palaestrai_mosaik.experiment.yaml_text import read
from palaestrai_mosaik.runner import inspect
from palaestrai_mosaik.simulation import conditions
from palaestrai_mosaik.store.models import Base
from tests.support import commands, postgresql
from tests.support.pages import ROOT, Block, blocks_of, messages

pytest.importorskip("pandapower", reason="pages need the extra 'grid'")

from palaestrai_mosaik.environment.grid.channels import ACTUATOR_GROUPS, SENSOR_GROUPS
from palaestrai_mosaik.environment.grid.rewards import _TERMS

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SAME_BUT_FOR_DOTS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Page:
    """Executes the blocks of one page."""

    def __init__(self, name: str, directory: Path):
        self.name = name
        self.directory = directory
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.printed = ""
        #: lines of blocks that printed what the page does not show
        self.silent: list[int] = []
        self._open: int | None = None

    def run(self, block: Block) -> None:
        if block.language in ("python", "bash") and block.file is None:
            self.finish()
            self._execute(block)
            # a command that draws prints the name of the file
            self._open = block.line if len(self.printed.split()) > 1 else None
        else:
            self._execute(block)

    def finish(self) -> None:
        """Note whether the last block printed what is not shown."""
        if self._open is not None:
            self.silent.append(self._open)
        self._open = None

    def _execute(self, block: Block) -> None:
        if block.file is not None:
            (self.directory / block.file).write_text(block.text, encoding="utf-8")
        if block.language == "yaml":
            self._yaml(block)
        elif block.file is not None:
            return
        elif block.language == "python":
            self._python(block)
        elif block.language == "bash":
            self._bash(block)
        elif block.words == ("text", "output"):
            assert block.text.replace("...", "").strip(), "it shows nothing"
            self._open = None
            same = doctest.OutputChecker().check_output(block.text, self.printed, _SAME_BUT_FOR_DOTS)
            assert same, f"printed was\n{self.printed}"
        else:
            assert block.words in ((), ("text",)), f"a block of {' '.join(block.words)!r} is not executed"

    def _python(self, block: Block) -> None:
        # line numbers of a traceback are then those of the page
        code = compile("\n" * (block.line - 1) + block.text, self.name, "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, self.namespace)
        self.printed = printed.getvalue()

    def _bash(self, block: Block) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=HANG,  # ends a hang
            check=False,
        )
        assert done.returncode == block.exits, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        self.printed = done.stdout + (done.stderr if block.exits else "")

    def _yaml(self, block: Block) -> None:
        if "fragment" in block.words:
            assert not read(block.text, self.name).problems
            return
        if "design" in block.words:
            design.loads(block.text, self.name, directory=self.directory)
            return
        value = read(block.text, self.name).value
        assert isinstance(value, dict) and {"uid", "schedule"} <= set(value), (
            "no complete run document: tag the block 'yaml fragment'"
        )
        problems = inspect(loads(block.text, self.name))
        assert not problems, "\n".join(map(str, problems))


@pytest.fixture(scope="module")
def programs() -> Iterator[Path]:
    """A folder of the package's commands, which start at once."""
    with commands.commands() as folder:
        yield folder


@pytest.fixture
def directory(tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory from which modules are imported and the commands are found."""
    for folder in ("scenarios", "designs"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("PALAESTRAI_MOSAIK_STORE", raising=False)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{Path(sys.executable).parent}", prepend=os.pathsep)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


_RL = ("gymnasium", "pettingzoo", "stable_baselines3")

#: what a block may need -> why it cannot be had here, if it cannot (conftest knows these words)
_MISSING: dict[str, Callable[[], str | None]] = {
    "slurm": lambda: (
        None if os.environ.get(SLURM_VARIABLE) else f"Slurm: {SLURM_VARIABLE} names no slurm.conf"
    ),
    "parsl": lambda: None if importlib.util.find_spec("parsl") else "parsl: it is not installed",
    "discovery": lambda: (
        None if importlib.util.find_spec("sklearn") else "the extra 'discovery': it is not installed"
    ),
    "postgresql": lambda: None if postgresql.URL else "PostgreSQL: there is none to test with",
    "rl": lambda: next(
        (f"'rl': {name} is not installed" for name in _RL if not importlib.util.find_spec(name)), None
    ),
}


@contextlib.contextmanager
def _part(name: str, request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the blocks of a page use a part that is there."""
    if name == "slurm":
        request.getfixturevalue("slurm_jobs")
    if name == "postgresql":
        with postgresql.fresh_database() as url:
            request.getfixturevalue("monkeypatch").setenv("RESULTS_URL", url)
            yield
    else:
        yield


#: pages that show what their commands print
SHOWN = ("docs/tutorial.md", "docs/tutorial-learning.md")
#: its blocks are cells: tests/docs/test_notebook.py
_NOTEBOOK = "docs/notebook.md"


@pytest.mark.parametrize("name", [name for name in NAMES if name != _NOTEBOOK])
def test_the_blocks_of_a_page_work(name: str, directory: Path, request: pytest.FixtureRequest) -> None:
    page, parts = Page(name, directory), set[str]()
    with contextlib.ExitStack() as stack:
        for block in blocks_of((ROOT / name).read_text(encoding="utf-8")):
            if not block.runs:
                continue
            for part in set(block.needs) - parts:
                missing = _MISSING[part]()
                if missing:
                    pytest.skip(f"from line {block.line} on, {name} needs {missing}")
                stack.enter_context(_part(part, request))
                parts.add(part)
            try:
                page.run(block)
            except BaseException as error:
                error.add_note(f"in the block of {name}, line {block.line}")
                raise
    page.finish()
    assert name not in SHOWN or not page.silent, f"{name} does not show what these lines print"


def test_a_block_that_does_not_work_is_found(directory: Path) -> None:
    fence = "`" * 3
    for block, what in (
        (f"{fence}python\nassert False, 'planted'\n{fence}", "planted"),
        (f"{fence}bash\nfalse; true\n{fence}", "exit code 1"),
        (f"{fence}yaml fragment\na: 1\na: 2\n{fence}", "given twice"),
        (f"{fence}yaml\na: 1\n{fence}", "no complete run document"),
        (f"{fence}bash exits=2\ntrue\n{fence}", "exit code 0"),
        (f"{fence}text output\nsomething\n{fence}", "printed was"),
        (f"{fence}text output\n...\n{fence}", "shows nothing"),
        (f"{fence}cobol\n{fence}", "is not executed"),
    ):
        (found,) = blocks_of(block)
        with pytest.raises(AssertionError, match=what):
            Page("planted", directory).run(found)
    page = Page("planted", directory)
    for block in (
        "bash\necho a b",
        "bash\necho a b; exit 3",
        "text output\na b",
        "bash\necho file",
        "bash\necho c d",
    ):
        language, text = block.split("\n")
        exits = " exits=3" if "exit 3" in text else ""
        (found,) = blocks_of(f"{fence}{language}{exits}\n{text}\n{fence}")
        page.run(found)
    page.finish()
    assert len(page.silent) == 2
    (skipped,) = blocks_of(f"<!-- not run: planted -->\n{fence}bash\nfalse\n{fence}")
    assert not skipped.runs


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that a page's headings have on the usual hosts."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", [*NAMES, "CONTRIBUTING.md"])
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for link in _LINK.findall(text):
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            assert anchor in anchors_of(target), f"{link}: {target.name} has no such heading"


def test_the_index_lists_every_page() -> None:
    listed = set(_LINK.findall((ROOT / "docs" / "index.md").read_text(encoding="utf-8")))
    assert {page.name for page in PAGES[1:]} - {"index.md"} <= listed


def test_the_index_calls_pages_by_their_titles() -> None:
    """A reader who follows a link finds the words of the link."""
    listing = (ROOT / "docs" / "index.md").read_text(encoding="utf-8").split("## All pages")[1]
    found = re.findall(r"^- \[([^\]]*)\]\(([^)]+)\):", listing, flags=re.M)
    assert len(found) > 40
    for name, page in found:
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        if text.startswith(":::{include}"):
            text = (ROOT / "docs" / text.split()[1]).read_text(encoding="utf-8")
        assert text.startswith(f"# {name}\n"), page


def test_figures_of_the_race_are_the_same_everywhere() -> None:
    """The first page includes rows of the table in race.md; README, which cannot include, repeats them."""
    texts = {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in ("README.md", "docs/index.md", "docs/race.md")
    }
    start, end = re.findall(r'^:(?:start-after|end-before): "(.*)"$', texts["docs/index.md"], flags=re.M)
    rows = texts["docs/race.md"].split(start)[1].split(end)[0].strip()
    assert rows.count("\n") > 5
    assert f"\n\n{rows}\n\n" in texts["README.md"]


def test_pictures_have_texts_for_those_who_do_not_see_them() -> None:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    pictures = [found for text in texts for found in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", text)]
    assert len(pictures) > 4
    for text, file in pictures:
        assert len(text) > 60, f"{file}: what does it show?"


_DIRECTIVE = re.compile(r"^\.\. auto(?P<kind>\w+):: (?P<name>[\w.]+)", re.M)


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "reference").glob("*.rst")), ids=lambda page: page.stem
)
def test_the_reference_names_what_is_there(page: Path) -> None:
    """A renamed class would else be missed until the site is built."""
    for found in _DIRECTIVE.finditer(page.read_text(encoding="utf-8")):
        module, way, missing = "palaestrai_mosaik", found["name"].split(".")[1:], ""
        while way:
            try:
                importlib.import_module(f"{module}.{way[0]}")
            except ModuleNotFoundError as error:
                if str(error.name).startswith(module):
                    break  # a class or function: from here on attributes
                missing = str(error)
            except ImportError as error:  # what an extra is for is not installed
                missing = str(error)
            if missing:
                pytest.skip(missing)
            module, way = f"{module}.{way[0]}", way[1:]
        pkgutil.resolve_name(f"{module}:{'.'.join(way)}" if way else module)


def _commands() -> Iterator[str]:
    for parser in (main.parser(), arsenai.parser()):
        (commands,) = [action for action in parser._actions if hasattr(action, "choices") and action.choices]
        for name, sub in dict(commands.choices or {}).items():
            yield f"{parser.prog} {name}"
            for action in sub._actions:
                yield from (option for option in action.option_strings if option.startswith("--"))


def _keys(module: ModuleType) -> Iterator[str]:
    for section in vars(module).values():
        if isinstance(section, vocabulary.Section):
            yield from section.words


def _design_words() -> Iterator[str]:
    yield from _keys(design_vocabulary)
    yield from design_vocabulary.DISTRIBUTIONS
    yield from design_vocabulary.FOLDS
    yield from design_vocabulary.POLICIES
    yield from design_vocabulary.TYPES
    yield from design_vocabulary.BETTER
    yield from design_vocabulary.OF_WORDS
    yield from (f"{word}.{what}" for word, what in SOURCES.items())
    for sampler in SAMPLERS.values():
        yield from (sampler.name, *(option.name for option in sampler.options))
    yield from METHODS
    yield from (index for method in METHODS.values() for index in method.indices)
    yield from (*design_folder.COLUMNS, *design_folder.GENERATED)
    for table in (EXECUTION, SLURM, PARSL):
        yield from table.keys
    yield from (*EXECUTORS, *PROVIDERS)


#: page -> what the code offers and the page must name
NAMED = {
    "cli.md": set(_commands()),
    "run-document.md": {*_keys(vocabulary), *vocabulary.MODES, *vocabulary.BRIDGES},
    "design-document.md": set(_design_words()),
    "executing.md": {*(field.name for field in fields(Settings)), *RunStatus, *EXECUTORS},
    "cluster.md": {*RunStatus, *PROVIDERS},
    "flow-control.md": {
        name for name, found in vars(conditions).items() if name.endswith("TerminationCondition") and found
    },
    "store.md": {
        name
        for table in Base.metadata.tables.values()
        for name in (table.name, *(column.name for column in table.columns))
    },
    "grid.md": {*SENSOR_GROUPS, *ACTUATOR_GROUPS, *_TERMS},
}


@pytest.mark.parametrize("page", NAMED)
def test_a_reference_page_names_all_that_there_is(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    words = set(re.findall(r"--?[\w-]+|[\w.]+", text)) | {
        f"{prog} {name}" for prog, name in re.findall(r"(palaestrai-mosaik|arsenai) ([a-z]+)", text)
    }
    missing = sorted(name for name in NAMED[page] if name not in words and f"`{name}`" not in text)
    assert not missing


@pytest.mark.parametrize("section", [SlurmSettings, ParslSettings])
def test_the_keys_of_clusters_stand_in_a_table_with_their_defaults(section: type[Any]) -> None:
    text = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    name = section.__name__.removesuffix("Settings").lower()
    table = text.split(f"\n| key of `{name}` | default | |\n|---|---|---|\n")[1].split("\n\n")[0]
    told = dict(re.findall(r"^\| `(\w+)` \| `?([^|`]*)`? \|", table, flags=re.M))
    defaults = {field.name: field.default for field in fields(section)}
    assert list(told) == list(defaults)
    for key, default in defaults.items():
        # what is no plain value is told in words
        assert default in (None, ()) or told[key] == str(default), key


def _texts_of_the_package() -> str:
    """Return all texts that the package could print, without what is inserted into them; docstrings are none."""
    texts = [(ROOT / "Makefile").read_text(encoding="utf-8")]
    for module in sorted((ROOT / "palaestrai_mosaik").rglob("*.py")):
        nodes = list(ast.walk(ast.parse(module.read_text(encoding="utf-8"))))
        alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                parts = [n.value if isinstance(n, ast.Constant) else "\0" for n in node.values]
                texts.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
                texts.append(node.value)
    return "\n".join(texts)


def test_the_messages_of_troubleshooting_exist() -> None:
    texts = _texts_of_the_package()
    assert len(messages()) > 25
    for message in messages():
        # names in quotes, numbers, the kind of a channel, its value and the verb of a count are inserted
        inserted = r"\.\.\.|'[^']*'|[\d.]+|NaN|(?:readings?|values) of (?:sensor|reward)|sensor|reward|are (?=outside)"
        fragments = [part.strip(" ;:,()?'") for part in re.split(inserted, message)]
        for fragment in fragments:
            assert len(fragment) < 4 or fragment in texts, f"{message!r}: no text has {fragment!r}"
