"""A simulator whose entities show the seeds that they were given; in process or as a command.

``python: seeded_sim:Seeded`` or ``cmd: "%(python)s seeded_sim.py SEED %(addr)s"``.
"""

import os
import sys

import mosaik_api_v3

META = {
    "api_version": "3.0",
    "type": "time-based",
    "models": {"Entity": {"public": True, "params": ["seed"], "attrs": ["init", "inner", "own", "told"]}},
}


class Seeded(mosaik_api_v3.Simulator):
    """Shows the seeds of ``init``, of ``create``, and of the command line and the environment's variable SEED."""

    told = None

    def __init__(self):
        super().__init__(META)
        self.entities = {}

    def init(self, sid, time_resolution=1.0, seed=None, nested=None, label=""):
        inner = nested["deep"][1]["seed"] if nested else -1
        if label and label != f"noise-{seed}.csv":
            raise ValueError(f"the label is {label!r}")
        told = -1 if self.told is None else self.told
        if "SEED" in os.environ and os.environ["SEED"] != str(told):
            raise ValueError(f"SEED is {os.environ['SEED']!r}")
        self.values = {"init": seed, "inner": inner, "told": told}
        return self.meta

    def create(self, num, model, seed=-1):
        self.entities["e" + str(len(self.entities))] = seed
        return [{"eid": list(self.entities)[-1], "type": model}]

    def step(self, time, inputs, max_advance):
        return time + 1

    def get_data(self, outputs):
        return {eid: {**self.values, "own": self.entities[eid]} for eid in outputs}


if __name__ == "__main__":
    Seeded.told = int(sys.argv.pop(1))
    mosaik_api_v3.start_simulation(Seeded())
