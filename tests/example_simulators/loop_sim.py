"""Two simulators that answer each other within one time, and one that asks mosaik for data of another."""

import mosaik_api_v3


class Caller(mosaik_api_v3.Simulator):
    """Calls with 0 at every tick, and again with each reply, until that is ``rounds``; ``count`` is the last reply."""

    def __init__(self):
        attributes = {"attrs": ["reply", "call", "count"], "trigger": ["reply"], "non-persistent": ["call"]}
        model = {"Caller": {"public": True, "params": ["rounds"], **attributes}}
        super().__init__({"api_version": "3.0", "type": "hybrid", "models": model})

    def create(self, num, model, rounds=5):
        self.rounds, self.count, self.call, self.last = rounds, 0, None, -1
        return [{"eid": "caller", "type": model}]

    def step(self, time, inputs, max_advance):
        replies = inputs.get("caller", {}).get("reply", {})
        if time != self.last:
            self.count = 0
        for reply in replies.values():
            self.count = reply
        self.call = self.count if self.count < self.rounds else None
        self.last = time
        return time + 1

    def get_data(self, outputs):
        data = {"count": self.count}
        if self.call is not None:
            data["call"] = self.call
        return {"caller": {name: data[name] for name in outputs.get("caller", ()) if name in data}}


class Replier(mosaik_api_v3.Simulator):
    """Replies to each call with the next number."""

    def __init__(self):
        model = {"Replier": {"public": True, "params": [], "attrs": ["call", "reply"]}}
        super().__init__({"api_version": "3.0", "type": "event-based", "models": model})

    def create(self, num, model):
        return [{"eid": "replier", "type": model}]

    def step(self, time, inputs, max_advance):
        (call,) = inputs["replier"]["call"].values()
        self.reply = call + 1

    def get_data(self, outputs):
        return {"replier": {"reply": self.reply}}


class Asker(mosaik_api_v3.Simulator):
    """Asks mosaik for ``attribute`` of the entity ``entity`` at each tick; ``seen`` is the answer."""

    def __init__(self):
        model = {"Asker": {"public": True, "params": ["entity", "attribute"], "attrs": ["seen"]}}
        super().__init__({"api_version": "3.0", "type": "time-based", "models": model})

    def create(self, num, model, entity, attribute):
        self.entity, self.attribute, self.seen = entity, attribute, -1.0
        return [{"eid": "asker", "type": model}]

    def step(self, time, inputs, max_advance):
        found = yield self.mosaik.get_data({self.entity: [self.attribute]})
        self.seen = found[self.entity][self.attribute]
        return time + 1

    def get_data(self, outputs):
        return {"asker": {"seen": self.seen}}
