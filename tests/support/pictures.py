"""The pictures of the documentation: drawn by the package from runs of the tutorials' documents, and of a design.

``python -m tests.support.pictures`` (``make docs``) executes them and writes the pictures into ``docs/_static``,
where they are committed: README shows one, and the site can be built without executing anything. Each picture
has a fingerprint of what it shows. A picture with the same fingerprint stays as it is, so that another release of
matplotlib changes no file; ``--redraw`` draws it nevertheless.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, PngImagePlugin

import palaestrai_mosaik as pm
from palaestrai_mosaik import RecordedRun
from palaestrai_mosaik.arsenai.analysis import Results, discover_design, discovery_figure
from palaestrai_mosaik.arsenai.design import Design
from palaestrai_mosaik.arsenai.execution import Settings, run_folder
from palaestrai_mosaik.arsenai.search import history_figure, tune
from palaestrai_mosaik.plot.figures import draw_panels, learning_figure
from palaestrai_mosaik.plot.learning import LearningChoice
from palaestrai_mosaik.plot.limits import Limit
from palaestrai_mosaik.plot.series import TIME, Curve, Panel
from tests.support.pages import ROOT, blocks_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = ROOT / "docs" / "_static"
#: where the fingerprint is in a PNG file
KEY = "Shows"
#: the width is 7.6 inches: twice the pixels of the column that shows it, for screens that have them
_DPI, _COLOURS = 190, 160

#: uid of a document -> the page that has it
DOCUMENTS = {"duel": "docs/tutorial.md", "learned": "docs/tutorial-learning.md"}


def document_of(uid: str) -> str:
    """Return the text of the document ``uid`` of a tutorial, or of a scenario."""
    if uid not in DOCUMENTS:
        return (ROOT / "scenarios" / f"{uid}.yml").read_text(encoding="utf-8")
    page = (ROOT / DOCUMENTS[uid]).read_text(encoding="utf-8")
    (text,) = [block.text for block in blocks_of(page) if block.file == f"{uid}.yml"]
    return text


def _voltages(run: RecordedRun) -> Figure:
    """Bus 8 in the three phases of the tutorial, and what the controller makes of them."""
    states = run.environment_states(environment="grid")
    steps = run.steps(agent="controller")
    names = {"passive": "no attack", "attacked": "attack", "defended": "attack and controller"}
    voltages, objectives = [], []
    for phase, label in names.items():
        own = steps[steps["phase_name"] == phase]
        x = own["date"].to_numpy()
        objectives.append(Curve(label, x, own["objective"].to_numpy()))
        # nobody acts on the last state
        state = states[states["phase_name"] == phase]["reading.grid.bus-8.vm_pu"].to_numpy()
        voltages.append(Curve(label, x, state[: len(x)]))
    figure = draw_panels(
        [
            Panel("Voltage of bus 8", TIME, "voltage (p.u.)", tuple(voltages), limits=(Limit(1.05),)),
            Panel("Objective of the controller", TIME, "objective", tuple(objectives)),
        ],
        "A medium-voltage grid on 1 June: three phases of one run",
    )
    # smaller than others, so that its texts are larger: it is on the first page, which is also read on phones
    figure.set_size_inches(6.2, 4.5)
    return figure


def _titled(figure: Figure, title: str) -> Figure:
    """Replace the title, which has the date of the run."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    return figure


def _defended(run: RecordedRun) -> Figure:
    return _titled(run.plot(phase="defended", sensors=["grid.sgen-*.vm_pu", "setpoint.*"]), "duel")


def _learning(run: RecordedRun) -> Figure:
    choice = LearningChoice(phase="train")
    return _titled(learning_figure(run.store, [run.instance], choice), "learned, 64 training episodes")


def _days(run: RecordedRun) -> Figure:
    return _titled(
        run.plot(sensors=["grid.bus-*.vm_pu", "setpoint.*"]), "A day on the CIGRE grid, in four phases"
    )


#: name of a picture -> uid of the document, and what draws its run
PICTURES: dict[str, tuple[str, Callable[[RecordedRun], Figure]]] = {
    "duel-voltages": ("duel", _voltages),
    "duel": ("duel", _defended),
    "learning": ("learned", _learning),
    "days": ("cigre_mv_day", _days),
}


def _discovered(folder: Path) -> Figure:
    """The boxes of PRIM in which the controller of the rural grid fails."""
    (found,) = discover_design(Results(folder))
    return discovery_figure(found, "PRIM")


#: name of a picture -> stem of a design in ``designs/``, and what draws its folder once it is executed
OF_DESIGNS: dict[str, tuple[str, Callable[[Path], Figure]]] = {
    "discovery": ("rural_discovery", _discovered),
    "learner-search": ("cigre_learner_search", history_figure),
}
NAMES = (*PICTURES, *OF_DESIGNS)


def fingerprint(figure: Figure) -> str:
    """Return a hash of the texts and lines of a figure, with four digits of each number."""
    shown = [figure.get_suptitle()]
    for axes in figure.axes:
        shown += [axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()]
        for line in axes.get_lines():
            values = np.asarray(line.get_ydata(), dtype=float)
            shown += [str(line.get_label()), *(f"{value:.4g}" for value in values)]
    return hashlib.sha256("\n".join(shown).encode()).hexdigest()[:16]


def fingerprint_of(file: Path) -> str | None:
    """Return the fingerprint that a picture has; ``None`` if there is no such picture."""
    if not file.exists():
        return None
    with Image.open(file) as image:
        return image.info.get(KEY)


def save(figure: Figure, file: Path, *, redraw: bool = False) -> bool:
    """Write ``figure`` into ``file``, unless that already shows the same; return whether it was written."""
    mark = fingerprint(figure)
    if not redraw and fingerprint_of(file) == mark:
        return False
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=_DPI)
    information = PngImagePlugin.PngInfo()
    information.add_text(KEY, mark)
    with Image.open(drawn) as image:
        small = image.convert("RGB").quantize(_COLOURS)
    file.parent.mkdir(parents=True, exist_ok=True)
    small.save(file, format="PNG", optimize=True, pnginfo=information)
    return True


def _execute(design: Design, folder: Path) -> None:
    """Execute a design in this process, so that a search proposes the same settings each time."""
    settings = Settings(executor="inline")
    if design.spec.search is not None:
        tune(design.spec, folder, settings=settings)
    else:
        run_folder(design.generate(folder), settings=settings)


def draw(names: Sequence[str], folder: Path, *, redraw: bool = False) -> list[Path]:
    """Execute the documents of the pictures ``names``; return the files that were written."""
    written = []
    with tempfile.TemporaryDirectory() as place:
        run = partial(pm.run, store=Path(place, "results"), quiet=True)
        for name in names:
            if name in OF_DESIGNS:
                stem, drawn = OF_DESIGNS[name]
                _execute(Design.load(ROOT / "designs" / f"{stem}.yml"), Path(place, stem))
                file = folder / f"{name}.png"
                if save(drawn(Path(place, stem)), file, redraw=redraw):
                    written.append(file)
        for uid in dict.fromkeys(PICTURES[name][0] for name in names if name in PICTURES):
            document = Path(place, f"{uid}.yml")
            document.write_text(document_of(uid), encoding="utf-8")
            with run(document) as recorded:
                for name in names:
                    file = folder / f"{name}.png"
                    if (
                        name in PICTURES
                        and PICTURES[name][0] == uid
                        and save(PICTURES[name][1](recorded), file, redraw=redraw)
                    ):
                        written.append(file)
    return written


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the pictures; print the files that changed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.pictures", description=__doc__.split("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--output", type=Path, default=FOLDER, metavar="FOLDER", help="default: docs/_static")
    parser.add_argument("--redraw", action="store_true", help="also pictures that would show the same")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"no picture {unknown[0]!r}; there are {', '.join(NAMES)}")
    for file in draw(options.names or NAMES, options.output, redraw=options.redraw):
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
