"""A mosaik simulator that does not answer, or that tells what it was sent.

``python: slow_sim:SlowSimulator`` or ``cmd: "%(python)s slow_sim.py %(addr)s"``.
"""

import time as clock

import mosaik_api_v3

META = {
    "api_version": "3.0",
    "type": "time-based",
    "models": {"Slow": {"public": True, "params": [], "attrs": ["x", "got"]}},
}


class SlowSimulator(mosaik_api_v3.Simulator):
    """Takes ``x``; gives ``got``: how many numbers ``x`` had, how many were null, their sum.

    ``hangs``: the call (``init``, ``create``, ``setup_done``, ``step``) in which it sleeps
    for ``seconds``; ``raises``: the name of the exception that its step raises at ``at``.
    """

    def __init__(self):
        super().__init__(META)
        self.got = [0, 0, 0]

    def init(self, sid, time_resolution=1.0, hangs="", seconds=3600.0, raises="", at=2):
        self.hangs, self.seconds, self.raises, self.at = hangs, seconds, raises, at
        self._sleep("init")
        return self.meta

    def _sleep(self, call):
        if self.hangs == call:
            clock.sleep(self.seconds)

    def create(self, num, model):
        self._sleep("create")
        return [{"eid": f"{model}_{i}", "type": model} for i in range(num)]

    def setup_done(self):
        self._sleep("setup_done")

    def step(self, time, inputs, max_advance):
        self._sleep("step")
        if self.raises and time == self.at:
            raise {"TypeError": TypeError, "ConnectionError": ConnectionError, "SystemExit": SystemExit}[
                self.raises
            ](f"{self.raises} on purpose")
        for values in inputs.get("Slow_0", {}).values():
            for x in values.values():
                numbers = list(x) if hasattr(x, "__len__") else [x]
                known = [n for n in numbers if n is not None and n == n]  # noqa: PLR0124 (NaN)
                self.got = [len(numbers), sum(n is None for n in numbers), float(sum(known))]
        return time + 1

    def get_data(self, outputs):
        return {eid: dict.fromkeys(names, self.got) for eid, names in outputs.items()}


if __name__ == "__main__":
    mosaik_api_v3.start_simulation(SlowSimulator())
