"""A small storage as a plain mosaik simulator, in process or as a command.

``python: battery_sim:BatterySimulator`` or ``cmd: "%(python)s battery_sim.py %(addr)s"``.
"""

import mosaik_api_v3

META = {
    "api_version": "3.0",
    "type": "time-based",
    "models": {
        "Battery": {
            "public": True,
            "params": ["capacity", "soc"],
            "attrs": ["P_set", "P", "soc"],
        }
    },
}


class BatterySimulator(mosaik_api_v3.Simulator):
    """Lossless storages of ``capacity`` (MWh) with a state of charge from 0 to 1.

    The power ``P`` (MW, charging is positive) is the sum of the wishes ``P_set``, cut to
    what the storage can take or give until the next step. At time t the state of charge
    is that of t, and ``P`` the power from t on.
    """

    def __init__(self):
        super().__init__(META)
        self.batteries = {}

    def init(self, sid, time_resolution=1.0, step_size=900):
        self.sid = sid
        self.step_size = step_size
        self.hours = step_size * time_resolution / 3600
        return self.meta

    def create(self, num, model, capacity=1.0, soc=0.5):
        made = []
        for _ in range(num):
            eid = f"{model}_{len(self.batteries)}"
            self.batteries[eid] = {"capacity": capacity, "soc": soc, "P": 0.0}
            made.append({"eid": eid, "type": model})
        return made

    def step(self, time, inputs, max_advance):
        for eid, battery in self.batteries.items():
            battery["soc"] += battery["P"] * self.hours / battery["capacity"]
            wish = sum(inputs.get(eid, {}).get("P_set", {}).values())
            full = (1 - battery["soc"]) * battery["capacity"] / self.hours
            empty = -battery["soc"] * battery["capacity"] / self.hours
            battery["P"] = min(max(wish, empty), full)
        return time + self.step_size

    def get_data(self, outputs):
        return {eid: {name: self.batteries[eid][name] for name in names} for eid, names in outputs.items()}


if __name__ == "__main__":
    mosaik_api_v3.start_simulation(BatterySimulator())
