"""Simulators that count, hand on, and write down what reached them; in process or as a command.

``python: counting_sim:Recorder`` or ``cmd: "%(python)s counting_sim.py Recorder %(addr)s"``.
"""

import json
import sys
import time as clock

import mosaik_api_v3


def meta(kind, model, **more):
    attributes = {"params": [], "attrs": ["in", "out"], **more}
    return {"api_version": "3.0", "type": kind, "models": {model: {"public": True, **attributes}}}


class One(mosaik_api_v3.Simulator):
    """Has one entity."""

    def create(self, num, model):
        return [{"eid": "e", "type": model}]

    def get_data(self, outputs):
        return {"e": {"out": self.out}} if "e" in outputs and self.out is not None else {}


class Counter(One):
    """Says at every ``step_size``-th tick, as an event, how often it has stepped; takes ``delay`` seconds.

    It goes on for ``serves`` seconds after the end.
    """

    def __init__(self):
        super().__init__(meta("hybrid", "Counter", **{"non-persistent": ["out"]}))
        self.out = 0

    def init(self, sid, time_resolution=1.0, step_size=1, delay=0.0, serves=0.0):
        self.step_size, self.delay, self.serves = step_size, delay, serves
        return self.meta

    def step(self, time, inputs, max_advance):
        clock.sleep(self.delay)
        self.out += 1
        return time + self.step_size

    def finalize(self):
        clock.sleep(self.serves)


class Relay(One):
    """Hands on what it is sent."""

    def __init__(self):
        super().__init__(meta("event-based", "Relay"))
        self.out = None

    def step(self, time, inputs, max_advance):
        (self.out,) = inputs["e"]["in"].values()


class Gauge(One):
    """Has a value at all times: the number of its steps."""

    def __init__(self):
        super().__init__(meta("time-based", "Gauge"))
        self.out = 0

    def init(self, sid, time_resolution=1.0, step_size=1):
        self.step_size = step_size
        return self.meta

    def step(self, time, inputs, max_advance):
        self.out += 1
        return time + self.step_size


class Recorder(One):
    """Writes time and inputs of its steps into a new file in ``folder``, once it is finalized.

    With a ``step_size``, it steps of its own accord; a step takes ``delay`` seconds, to write ``writing`` seconds
    (negative: it fails).
    """

    out = None

    def __init__(self):
        super().__init__(meta("event-based", "Recorder"))
        self.rows = []

    def init(self, sid, time_resolution=1.0, folder=".", step_size=None, delay=0.0, writing=0.0):
        self.folder, self.step_size, self.delay, self.writing = folder, step_size, delay, writing
        self.meta["type"] = "event-based" if step_size is None else "time-based"
        return self.meta

    def step(self, time, inputs, max_advance):
        clock.sleep(self.delay)
        self.rows.append([time, sorted(inputs.get("e", {}).get("in", {}).values())])
        return None if self.step_size is None else time + self.step_size

    def finalize(self):
        if self.writing < 0:
            raise OSError("no space left on device")
        clock.sleep(self.writing)
        with open(f"{self.folder}/{clock.time_ns()}.json", "w") as file:
            json.dump(self.rows, file)


if __name__ == "__main__":
    mosaik_api_v3.start_simulation(
        {c.__name__: c for c in (Counter, Relay, Gauge, Recorder)}[sys.argv.pop(1)]()
    )
