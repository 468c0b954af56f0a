"""The progress of long commands: a bar on a terminal, lines in a log, nothing for programs or with ``--quiet``."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path

import pytest
from support.documents import WALK
from support.terminals import terminal

from palaestrai_mosaik.cli import arsenai, main, output
from palaestrai_mosaik.core import printing, progress
from palaestrai_mosaik.core.errors import FINISHED
from palaestrai_mosaik.core.progress import CountProgress, PartsProgress
from palaestrai_mosaik.runner import make_progress

DESIGN = """
uid: study
seed: 1
base: walk.yml
sampler: {name: morris, n: 3}
factors:
  slip: {path: schedule.train.environments.slippery_grid.environment.params.slip, low: 0.0, high: 0.5, create: true}
outcomes:
  steps: {of: steps, episode: mean}
  place: {of: reading.*, step: median}
analysis: {resamples: 10}
"""


def write_documents() -> None:
    Path("walk.yml").write_text(WALK)
    Path("study.yml").write_text(DESIGN)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_documents()
    return tmp_path


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an executed design, and a store of some runs."""
    place = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(place)
        write_documents()
        for line in ("generate study.yml -o study", "run study --executor inline"):
            assert arsenai.main([*line.split(), "-q"]) == FINISHED
        for _ in range(3):
            assert main.main(["start", "walk.yml", "-q"]) == FINISHED
    return place


@pytest.fixture
def executed(here: Path, results: Path) -> None:
    """Have a copy of these results."""
    shutil.copytree(results, here, dirs_exist_ok=True)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show all progress, however short the work is."""
    monkeypatch.setattr(progress, "LINES", 0.0)
    monkeypatch.setattr(progress, "_BAR", 0.0)


#: commands after each other, and the bars and lines of each: its name, what is done, of what
COMMANDS = (
    ("arsenai plan study.yml", ("plan", "runs planned"), ("check", "rows checked")),
    ("arsenai generate study.yml -o again", ("check", "rows checked"), ("generate", "runs generated")),
    ("arsenai analyse study", ("outcomes", "values read"), ("analyse", "resamples drawn")),
    ("arsenai compare study --by slip", ("outcomes", "values read"), ("compare", "resamples drawn")),
    ("arsenai report study", ("outcomes", "values read"), ("analyse", "resamples drawn")),
    ("palaestrai-mosaik verify --all", ("verify", "runs read")),
    ("palaestrai-mosaik verify latest", ("verify", "parts read")),
    ("palaestrai-mosaik export latest there", ("export", "parts copied")),
    ("palaestrai-mosaik delete latest --yes", ("delete", "run deleted")),
)


def call(line: str, *more: str) -> int:
    program, *arguments = line.split()
    return {"arsenai": arsenai, "palaestrai-mosaik": main}[program].main([*arguments, *more])


@pytest.mark.parametrize(("line", "shown"), [(line, shown) for line, *shown in COMMANDS])
def test_a_command_has_a_bar_on_a_terminal_and_lines_in_a_log(
    line: str,
    shown: list[tuple[str, str]],
    executed: None,
    at_once: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(line) == FINISHED
    err = capsys.readouterr().err
    for _, text in shown:
        assert re.search(rf"^[\d,]+ of [\d,]+ {text}$", err, re.MULTILINE), (text, err)
    with terminal(monkeypatch) as got:
        assert call(line.replace("there", "elsewhere")) == FINISHED
    for name, _ in shown:
        # a bar begins its line, and leaves nothing
        assert re.search(rf"\r{name}: +\d+%\|.+\| \d+/\d+ \[", got()), (name, got())
    assert not re.search(r"\| \d+/\d+ \[[^\r]*\n", got())


@pytest.mark.parametrize("line", [line for line, *_ in COMMANDS])
def test_short_work_has_no_lines(line: str, executed: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(line) == FINISHED
    assert not re.search(r"\d of \d", capsys.readouterr().err)


@pytest.mark.parametrize("line", [line for line, *_ in COMMANDS])
def test_quiet_commands_show_no_progress(
    line: str, executed: None, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal(monkeypatch) as got:
        assert call(line, "-q") == FINISHED
    assert "%|" not in got()


@pytest.mark.parametrize("line", [line for line, *_ in COMMANDS if not re.search("export|delete", line)])
def test_with_json_no_progress_is_shown(
    line: str, executed: None, at_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(line, "--json") == FINISHED
    out, err = capsys.readouterr()
    assert json.loads(out)
    assert not re.search(r"\d of \d", err)


def test_json_of_runs_has_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["start", "walk.yml", "--json"]) == FINISHED
    assert arsenai.main(["generate", "study.yml", "-o", "study", "-q"]) == FINISHED
    assert arsenai.main(["run", "study", "--executor", "inline", "--json"]) == FINISHED
    assert capsys.readouterr().err == ""


def test_what_is_printed_beside_a_bar_has_lines_of_its_own(
    at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal(monkeypatch) as got, output.count_progress("import", "imported", "row") as shown:
        assert shown is not None
        shown(1, 3)
        output.say("one run")
        shown(2, 3)
    screen = got().replace("\r\n", "\n")
    # the bar is wiped, the line stands where it was, and the bar is drawn again below
    assert re.search(r"1/3 \[[^\r\n]*\r +\rone run\n\rimport: +33%\|", screen), screen
    assert screen.endswith("\r") and "2/3" in screen


def test_a_bar_is_gone_where_the_work_fails(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        terminal(monkeypatch) as got,
        pytest.raises(KeyboardInterrupt),
        output.count_progress("a", "b") as one,
    ):
        assert one is not None
        one(1, 3)
        raise KeyboardInterrupt
    assert "1/3" in got() and got().endswith("\r")
    assert printing._giving_way == []


def test_lines_come_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    log = io.StringIO()
    with CountProgress(log, "import", "imported", "row") as shown:
        now[0] = 200.0  # (time before the work begins does not count)
        for done in range(1, 1300):
            shown(done, 1300)
            now[0] += 0.0078125
        shown(1300, 1300)
    assert log.getvalue() == "641 of 1,300 rows imported\n1,281 of 1,300 rows imported\n"


def test_parts_add_up() -> None:
    calls: list[tuple[int, int]] = []
    counted = PartsProgress(lambda *numbers: calls.append(numbers), 5)
    counted(1, 2)
    counted.add(1)
    counted.add(1)
    counted.end(2)
    inner = PartsProgress(counted, 3)
    inner.end()
    assert calls == [(0, 5), (1, 5), (2, 5), (3, 5), (2, 5), (2, 5), (3, 5)]
    PartsProgress(None, 5).end()


def drawn(monkeypatch: pytest.MonkeyPatch, columns: int, **objectives: float) -> str:
    """Return the last bar of a phase on a terminal."""
    with terminal(monkeypatch, columns) as got:
        shown = make_progress()
        shown.begin_phase("train", 1, 2)
        for episode in range(2):
            shown.step(0, episode, 0)
            shown.episode(0, episode, 95, objectives)
        shown.end_phase("train", "episodes")
    lines = re.split(r"[\r\n]+", got().rstrip())
    assert max(map(len, lines)) <= columns
    return lines[-1].rstrip()


@pytest.mark.parametrize(
    ("columns", "end"),
    [
        (100, ", defender=0.9336, attacker=0.06641, 0 steps in 0.0 s]"),
        (80, ", defender=0.9336, attacker=0.06641]"),
        (60, "train 2/2, defender=0.9336, attacker=0.06641"),
        (40, "train 2/2, defender=0.9336"),
    ],
)
def test_the_bar_of_a_phase_keeps_the_objective(
    columns: int, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bar = drawn(monkeypatch, columns, defender=0.93359, attacker=0.06641)
    assert bar.endswith(end), bar


def test_long_names_are_shortened_in_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    bar = drawn(monkeypatch, 60, controller_of_the_western_inverters=-1234.5678)
    assert bar == "train 2/2, controller*inverters=-1235, 0 steps in 0.0 s"
