"""An environment that fails in a corner of its parameters, by chance or always."""

from __future__ import annotations

from palaestrai_mosaik.environment.functions import FunctionEnvironment


class Corner(FunctionEnvironment):
    """Fails where x1 is above ``edge``: in its first step or, if ``built`` is false, at its set-up.

    ``odds`` is the probability of a failure in the first step.
    """

    def __init__(self, edge=0.5, odds=1.0, built=True, **given):
        super().__init__(function="linear", **given)
        self.corner = given["x1"]
        self.edge, self.odds, self.built = edge, odds, built

    def setup(self):
        if self.corner > self.edge and not self.built:
            raise RuntimeError("does not fit into the memory")
        return super().setup()

    def step(self, setpoints):
        if self.corner > self.edge and self.rng.random() < self.odds:
            raise RuntimeError("left the corner")
        return super().step(setpoints)
