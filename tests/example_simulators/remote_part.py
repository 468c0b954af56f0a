"""A mosaik simulator that writes down what it is called with, and fails or waits where it should.

``python: remote_part:Part`` or ``cmd: "%(python)s remote_part.py %(addr)s"``. ``Asking`` makes requests of
mosaik in its steps: it is the class of ``cmd: "%(python)s remote_part.py --asking %(addr)s"``.
"""

from __future__ import annotations

import json
import os
import sys
import time as clock
from pathlib import Path
from typing import Any

import mosaik_api_v3

#: seconds until nobody comes
PATIENCE = 600


class Part(mosaik_api_v3.Simulator):
    """Takes ``in``; gives ``out``, which is its time times ``factor``.

    ``log``: a file that gets a line of JSON for every call. ``at``: the time at which it ``raises``, ``exits``
    or ``hangs``. ``meets``: its steps end only when the simulators of these names are in theirs of the same
    time; ``folder`` is where they look for each other. ``awaits``: its step of time 0 ends only when the
    simulator of this name is in its step of this time.
    """

    def __init__(self) -> None:
        model = {"public": True, "params": [], "attrs": ["in", "out"]}
        super().__init__({"api_version": "3.0", "type": "time-based", "models": {"E": model}})
        self.time = -1

    def init(self, sid: str, time_resolution: float = 1.0, kind: str = "time-based", **params: Any) -> Any:
        self.sid, self.params = sid, params
        self.meta["type"] = kind
        return self.meta

    def create(self, num: int, model: str) -> list[dict[str, Any]]:
        return [{"eid": f"e{i}", "type": model} for i in range(num)]

    def log(self, *line: Any) -> None:
        if self.params.get("log"):
            with open(self.params["log"], "a", encoding="utf-8") as file:
                file.write(json.dumps([self.sid, *line]) + "\n")

    def step(self, time: int, inputs: Any, max_advance: int) -> int | None:
        self.begin(time, inputs, max_advance)
        return self.end(time)

    def begin(self, time: int, inputs: Any, max_advance: int) -> None:
        self.time = time
        self.log("step", time, inputs, max_advance)
        if "folder" in self.params:
            (Path(self.params["folder"]) / f"{self.sid}-{time}").touch()
        for other in self.params.get("meets", ()):
            self.wait_for(other, time)
        if "awaits" in self.params and time == 0:
            self.wait_for(*self.params["awaits"])

    def end(self, time: int) -> int | None:
        if self.params.get("at") == time:
            self.fail()
        step_size = self.params.get("step_size", 1)
        return time + step_size if step_size else None

    def wait_for(self, other: str, time: int) -> None:
        seen = Path(self.params["folder"]) / f"{other}-{time}"
        # no matter of speed: it ends a hang, as HANG does, which is not importable here
        given_up = clock.monotonic() + PATIENCE
        while not seen.exists():
            if clock.monotonic() > given_up:
                raise TimeoutError(f"{other} has not come to {time} while {self.sid} was in {self.time}")
            clock.sleep(0.005)

    def fail(self) -> None:
        how = self.params["how"]
        if how == "exits":
            os._exit(3)
        if how == "hangs":
            (Path(self.params["folder"]) / "hangs").touch()
            clock.sleep(3600)
        raise ValueError(f"{self.sid} {how} at {self.time}")

    def get_data(self, outputs: Any) -> Any:
        value = self.time * self.params.get("factor", 1)
        return {eid: dict.fromkeys(attrs, value) for eid, attrs in outputs.items()}

    def finalize(self) -> None:
        self.log("finalize")
        if self.params.get("at") == "finalize":
            self.fail()


class Asking(Part):
    """Asks for the ``out`` of the entity ``of``, sets its ``in``, and asks for what else there is to ask."""

    def step(self, time: int, inputs: Any, max_advance: int) -> Any:
        self.begin(time, inputs, max_advance)
        of = self.params["of"]
        data = yield self.mosaik.get_data({of: ["out"]})
        self.log("data", data)
        yield self.mosaik.set_data({f"{self.sid}.e0": {of: {"in": time * 100}}})
        self.log("progress", (yield self.mosaik.get_progress()))
        self.log("related", (yield self.mosaik.get_related_entities(of)))
        entities = yield self.mosaik.get_related_entities()
        self.log("nodes", sorted(entities["nodes"]), len(entities["edges"]))
        return self.end(time)


if __name__ == "__main__":
    asking = "--asking" in sys.argv
    if asking:
        sys.argv.remove("--asking")
    sys.exit(mosaik_api_v3.start_simulation(Asking() if asking else Part()))
