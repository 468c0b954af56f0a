"""Documents in the page: dropped, checked at their lines, mended, started, cancelled and resumed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.browser import Browser
from support.waiting import HANG, until

import palaestrai_mosaik as pm
from palaestrai_mosaik.core.errors import PalaestraiMosaikError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.web.actions import documents
from palaestrai_mosaik.web.checking import check_text
from palaestrai_mosaik.web.resources import Source, get
from palaestrai_mosaik.web.workplace import Workplace

from .conftest import Serve

DUMMY = Path("scenarios/dummy.yml").read_text(encoding="utf-8")
#: line 10 has a parameter that is none, line 14 a misspelt key
BROKEN = """\
uid: broken
seed: 1
schedule:
  - only:
      environments:
        - environment:
            uid: world
            name: dummy
            params:
              mx_iter: 3
      agents:
        - name: a
          muscle: dummy
          sensrs: [world.0]
"""
DESIGN = """\
uid: study
seed: 1
base: {schedule: {only: {environments: [dummy], agents: [{name: a, muscle: dummy}], phase_config: {episodes: 1}}}}
factors:
  - {path: schedule.only.agents.a.muscel, levels: [dummy, random]}
"""
_DROP = """(() => {
  const data = new DataTransfer();
  data.items.add(new File([arguments[0]], arguments[1]));
  document.querySelector("textarea").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
})()"""
_WRITE = """((text) => {
  const area = document.querySelector("textarea");
  area.value = text;
  area.dispatchEvent(new Event("input"));
})(arguments[0])"""
PROBLEMS = "document.querySelectorAll('.problems .error')"
SAID = "document.querySelector('.controls [role=status]').textContent"


def working(folder: Path, modules: tuple[str, ...] | None = None) -> Source:
    location = StoreLocation(str(folder))
    return Source(location, workplace=Workplace(location, modules))


def click(browser: Browser, action: str) -> None:
    browser.js(f"document.querySelector('[data-action={action}]').click()")


def opened(browser: Browser, address: str, view: str) -> None:
    browser.open(address)
    browser.open(address.split("?", maxsplit=1)[0] + view)


def status_of(folder: Path) -> str:
    with Store(folder, read_only=True) as store:
        return str(store.runs()["status"].iloc[-1])


def test_a_check_reports_what_the_command_reports(tmp_path, monkeypatch, capsys) -> None:
    from palaestrai_mosaik.cli.main import main

    (tmp_path / "broken.yml").write_text(BROKEN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["check", "broken.yml"]) == 2
    printed = capsys.readouterr().err.splitlines()[:-1]
    found = check_text(BROKEN, "broken.yml")
    said = [f"broken.yml:{one['line']}: {one['path']}: {one['message']}" for one in found["problems"]]
    assert said == printed and len(said) == 2
    places = [(one["line"], one["column"]) for one in found["problems"]]
    assert places == [(10, 15), (14, 11)]
    assert "(did you mean 'sensors'?)" in found["problems"][1]["message"]


def test_a_sound_document_is_described() -> None:
    found = check_text(DUMMY, "dummy.yml", ["seed=5"])
    assert (found["kind"], found["uid"], found["problems"]) == ("run", "dummy", [])
    assert "train" in found["description"]


def test_a_design_is_checked_as_a_design() -> None:
    found = check_text(DESIGN, "study.yml")
    (problem,) = found["problems"]
    assert found["kind"] == "design"
    assert (problem["line"], problem["file"]) == (5, None)
    assert "muscel" in problem["message"] + (problem["path"] or "")
    mended = check_text(DESIGN.replace("muscel", "muscle"), "study.yml")
    assert (mended["uid"], mended["problems"]) == ("study", [])


def test_modules_of_a_check_are_limited() -> None:
    text = BROKEN.replace("muscle: dummy", 'muscle: "os:system"')
    found = check_text(text, "evil.yml", allow_modules=())
    assert any("the module 'os' is not allowed" in one["message"] for one in found["problems"])


def test_code_of_a_document_cannot_print_into_the_answer(tmp_path, monkeypatch) -> None:
    (tmp_path / "loud_parts.py").write_text(
        "import os\nprint('{}')\nos.write(1, b'{}')\nfrom palaestrai_mosaik.agent.library.dummy import DummyMuscle as Loud\n"
    )
    monkeypatch.chdir(tmp_path)
    workplace = Workplace(StoreLocation(str(tmp_path / "store")))
    text = BROKEN.replace("mx_iter", "max_iter").replace("sensrs", "sensors")
    found = workplace.check(
        {"text": text.replace("muscle: dummy", 'muscle: "loud_parts:Loud"'), "name": "x.yml"}
    )
    assert found["kind"] == "run"
    assert not (tmp_path / "store").exists()  # a check writes nothing


def test_a_check_that_dies_is_reported(tmp_path, monkeypatch) -> None:
    (tmp_path / "dying_parts.py").write_text("import os\nos._exit(7)\n")
    monkeypatch.chdir(tmp_path)
    workplace = Workplace(StoreLocation(str(tmp_path / "store")))
    with pytest.raises(PalaestraiMosaikError, match="ended with the exit code 7"):
        workplace.check({"text": BROKEN.replace("muscle: dummy", 'muscle: "dying_parts:X"'), "name": "x.yml"})


def test_problems_of_a_dropped_document_are_shown_at_their_lines(
    browser: Browser, serve: Serve, tmp_path: Path
) -> None:
    opened(browser, serve(working(tmp_path / "store")), "#/documents")
    browser.wait("document.querySelector('textarea')")
    browser.js(_DROP, BROKEN + "# <script>window.planted=1</script>\n", "<b>broken</b>.yml")
    browser.wait("document.querySelector('textarea').value.includes('mx_iter')")
    click(browser, "check")
    browser.wait(f"{PROBLEMS}.length === 2")
    marked = browser.js(
        "[...document.querySelectorAll('.gutter .error')].map((one) => one.textContent.trim())"
    )
    assert marked == ["✗ 10", "✗ 14"]
    texts = browser.js(f"[...{PROBLEMS}].map((one) => one.textContent)")
    assert texts[0].startswith("line 10, column 15") and "max_iter" in texts[0]
    assert texts[1].startswith("line 14, column 11") and "did you mean 'sensors'?" in texts[1]
    browser.js(f"{PROBLEMS}[1].querySelector('button').click()")
    chosen = browser.js(
        "((one) => one.value.slice(one.selectionStart, one.selectionEnd))(document.querySelector('textarea'))"
    )
    assert chosen == "sensrs: [world.0]"
    assert browser.js("document.querySelector('.document label').textContent") == "<b>broken</b>.yml"
    assert browser.js("window.planted ?? null") is None
    browser.resize(390)
    assert browser.js("document.documentElement.scrollWidth <= innerWidth")
    browser.resize(1280)
    assert browser.errors() == []


def test_a_mended_document_is_started_and_finishes(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    store = tmp_path / "store"
    opened(browser, serve(working(store)), "#/documents")
    browser.wait("document.querySelector('textarea')")
    browser.js(_WRITE, DUMMY.replace("agents:", "agnts:"))
    click(browser, "start")
    browser.wait(f"{PROBLEMS}.length > 0")
    assert not store.exists()  # what is not sound is not started
    browser.js(_WRITE, DUMMY)
    browser.js("document.querySelector('#seed').value = '77'")
    browser.js("document.querySelector('#settings').value = 'uid=mended'")
    click(browser, "start")
    browser.wait("document.querySelector('.view > div:last-child .status.finished')")
    link = browser.js("document.querySelector('.view > div:last-child a').getAttribute('href')")
    with Store(store, read_only=True) as recorded:
        (row,) = recorded.runs().itertuples()
    assert (row.document, row.seed, row.status) == ("mended", 77, "finished")
    assert link == f"#/run/{row.run}"
    (log,) = (store / "started").glob("*.log")
    assert "run 'mended': finished" in log.read_text(encoding="utf-8")
    assert browser.errors() == []


def test_the_run_of_a_process_is_known_once_it_has_ended(tmp_path: Path, monkeypatch) -> None:
    """The page does not ask again after the end: a run that was short must be known by then."""
    source = working(tmp_path / "store")
    workplace = source.workplace
    assert workplace is not None and source.store.runs().empty  # (looked for the store: none is there yet)
    one = workplace.start("dummy", ["start", str(Path("scenarios/dummy.yml").resolve())])
    look = documents._run_of

    def slowly(*asked) -> str | None:
        found = look(*asked)
        one.process.wait(HANG)
        source._looked = time.monotonic()  # as if it had just been looked for
        return found

    monkeypatch.setattr(documents, "_run_of", slowly)
    facts: Any = get(source, f"started/{one.key}")
    assert (facts["code"], facts["run"]) == (None, None)
    facts = get(source, f"started/{one.key}")
    assert facts["code"] == 0 and facts["run"] == source.store.runs()["run"].iloc[-1]
    source.close()


def test_a_run_is_cancelled_after_a_question_and_resumed(
    browser: Browser, serve: Serve, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    opened(browser, serve(working(store)), "#/documents")
    browser.wait("document.querySelector('textarea')")
    browser.js(_WRITE, DUMMY.replace("episodes: 3}", "episodes: 1000000}"))
    click(browser, "start")
    browser.wait("document.querySelector('.view > div:last-child a')")
    assert browser.errors() == []
    browser.js("document.querySelector('.view > div:last-child a').click()")
    browser.wait("document.querySelector('[data-action=cancel]')")
    click(browser, "cancel")
    assert browser.js("document.activeElement.textContent") == "No"
    assert "ends after its current step" in browser.js("document.querySelector('dialog').textContent")
    browser.js("document.activeElement.click()")
    browser.wait("!document.querySelector('dialog')")
    assert status_of(store) == "running"
    # (the first is written after some seconds, long before the time between two has passed)
    until(lambda: list(store.glob("instances/*/checkpoints/[0-9]*")))
    click(browser, "cancel")
    click(browser, "confirm")
    until(lambda: status_of(store) == "interrupted")
    assert browser.wait("document.querySelector('h1 .status.interrupted')?.textContent") == "interrupted"
    browser.wait("document.querySelector('[data-action=resume]')")
    assert browser.js("document.querySelector('[data-action=cancel]')") is None
    browser.errors()


def test_a_page_that_only_shows_has_no_buttons(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    pm.run("scenarios/dummy.yml", store=tmp_path / "store", quiet=True)
    opened(browser, serve(Source(Store(tmp_path / "store", read_only=True))), "#/run/latest")
    browser.wait("document.querySelector('h1')")
    assert browser.js("document.querySelectorAll('.actions button').length") == 0
    assert browser.js("[...document.querySelectorAll('header nav a')].map((one) => one.textContent)") == [
        "Runs"
    ]
    browser.open(browser.js("location.href").split("#")[0] + "#/documents")
    browser.wait("document.querySelector('main .view p')?.textContent.includes('read-only')")
    assert browser.js("document.querySelector('textarea')") is None
    browser.errors()


def test_the_runs_of_a_design_are_executed_from_its_page(
    browser: Browser, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from palaestrai_mosaik.arsenai.design.folder import DesignFolder
    from palaestrai_mosaik.cli.arsenai import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yml").write_text(DESIGN.replace("muscel", "muscle"), encoding="utf-8")
    assert main(["generate", "study.yml", "-o", "study", "--quiet"]) == 0
    location = StoreLocation.of(tmp_path / "study" / "results")
    opened(browser, serve(Source(location, DesignFolder.open("study"), Workplace(location))), "#/design")
    browser.wait("document.querySelector('[data-action=resume]')")
    assert browser.js("document.querySelector('[data-action=cancel]')") is None
    finished = "document.querySelector('[data-tile=finished] b')?.textContent"
    browser.wait(f"{finished} === '0 of 2'")
    click(browser, "resume")
    click(browser, "confirm")
    browser.wait("document.querySelector('[data-action=cancel]')")
    browser.wait(f"{finished} === '2 of 2'")
    browser.wait("document.querySelector('.view .status.finished')")
    browser.wait("document.querySelector('[data-action=resume]')")
    browser.wait("document.querySelector('[data-status=finished]')?.textContent === '✓ finished 2'")
    assert browser.errors() == []


def test_the_first_run_of_a_store_is_started_from_its_empty_list(
    browser: Browser, serve: Serve, tmp_path: Path
) -> None:
    opened(browser, serve(working(tmp_path / "later")), "#/runs")
    browser.wait("document.querySelector('main a[href=\"#/documents\"]')")
    browser.js("document.querySelector('main a[href=\"#/documents\"]').click()")
    browser.wait("document.querySelector('textarea')")
    browser.js(_DROP, DUMMY, "dummy.yml")
    browser.wait("document.querySelector('textarea').value.length > 100")
    assert not (tmp_path / "later").exists()
    click(browser, "start")
    browser.wait("document.querySelector('main .status.finished')")
    browser.js("location.hash = '#/runs'")
    browser.wait("document.querySelector('table.window .status.finished')")
    assert browser.js("document.querySelector('main [role=status]').textContent") == "1 run"
    assert status_of(tmp_path / "later") == "finished"
    assert browser.errors() == []
