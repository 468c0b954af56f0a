"""A mosaik simulator that fails on purpose, in process or as a command.

``python: dying_sim:DyingSimulator`` or ``cmd: "%(python)s dying_sim.py %(addr)s"``.
"""

import os
import time as clock

import mosaik_api_v3

META = {
    "api_version": "3.0",
    "type": "time-based",
    "models": {"Mortal": {"public": True, "params": [], "attrs": ["x", "value"]}},
}

#: the exit status of ``how: exit``
EXIT_STATUS = 7


class DyingSimulator(mosaik_api_v3.Simulator):
    """Takes ``x``, gives ``value`` (the number of its steps), and fails after ``after`` steps.

    ``how``: ``raise`` an exception, ``exit`` the process at once without a word, or
    ``hang`` for ever; ``never`` lets it live.
    """

    def __init__(self):
        super().__init__(META)
        self.eids = []
        self.steps = 0

    def init(self, sid, time_resolution=1.0, how="raise", after=3, step_size=1):
        if how not in ("raise", "exit", "hang", "never"):
            raise ValueError(f"how must be raise, exit, hang or never, not {how!r}")
        self.how = how
        self.after = after
        self.step_size = step_size
        return self.meta

    def create(self, num, model):
        new = [f"{model}_{len(self.eids) + i}" for i in range(num)]
        self.eids += new
        return [{"eid": eid, "type": model} for eid in new]

    def step(self, time, inputs, max_advance):
        if self.steps >= self.after:
            if self.how == "raise":
                raise RuntimeError(f"died on purpose at {time}")
            if self.how == "exit":
                os._exit(EXIT_STATUS)
            while self.how == "hang":
                clock.sleep(3600)
        self.steps += 1
        return time + self.step_size

    def get_data(self, outputs):
        return {eid: dict.fromkeys(names, self.steps) for eid, names in outputs.items()}


if __name__ == "__main__":
    mosaik_api_v3.start_simulation(DyingSimulator())
