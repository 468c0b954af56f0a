// What the parts of a topology read and were set to, state by state: the resources `topology` and `motion` together.

/** below this voltage (p.u.), a bus has none */
const DEAD = 1e-6;

function block({ uids, units, low, high, values, agent }, states) {
  const columns = new Map(uids.map((uid, i) => [uid, i]));
  return {
    uids, columns, agent,
    unit: (uid) => units[columns.get(uid)],
    bounds: (uid) => [low[columns.get(uid)], high[columns.get(uid)]],
    value: (uid, state) => (columns.has(uid) && state < states ? values[state * uids.length + columns.get(uid)] ?? NaN : NaN),
    has: (uid) => uid !== null && columns.has(uid),
    column: (uid) => Array.from({ length: states }, (_, state) => values[state * uids.length + columns.get(uid)] ?? NaN),
  };
}

/**
 * A topology in an episode: names of its parts, and their values in each state.
 * `topology` and `motion` are the resources; `title` says which episode it is.
 */
export function scene(topology, motion, title) {
  const states = motion.step.length;
  const readings = block(motion.readings, states), setpoints = block(motion.setpoints, states);
  const nodes = new Map(topology.nodes.map((one) => [one.id, one]));
  const edges = new Map(topology.edges.map((one) => [one.id, one]));
  const devices = new Map(topology.devices.map((one) => [one.id, one]));
  const unitOf = (parts) => {
    const known = parts.find((one) => readings.has(one.sensor));
    return known ? readings.unit(known.sensor) : null;
  };
  const nodeUnit = unitOf(topology.nodes), edgeUnit = unitOf(topology.edges);

  const self = {
    title, topology, motion, states, readings, setpoints, nodes, edges, devices, nodeUnit, edgeUnit,
    agents: motion.agents,
    /** The state that is shown where another episode goes on: the last one. */
    clamp: (state) => Math.min(state, states - 1),
    /** What describes a node or an edge best; NaN where nothing does. */
    reading: (part, state) => (part.sensor === null ? NaN : readings.value(part.sensor, state)),
    /** Whether a bus has no voltage; of other nodes: whether there is a value at all. */
    dead(node, state) {
      if (!readings.has(node.sensor)) return false;
      const value = readings.value(node.sensor, state);
      return Number.isNaN(value) || (nodeUnit === "p.u." && Math.abs(value) <= DEAD);
    },
    /** Whether an edge is switched on: by an agent, else as it was built. */
    on(edge, state) {
      const set = setpoints.has(edge.actuator) ? setpoints.value(edge.actuator, state) : NaN;
      return Number.isNaN(set) ? edge.in_service : set >= 0.5;
    },
    /** Whether an edge is on and both of its ends have voltage. */
    live(edge, state) {
      return self.on(edge, state) && !self.dead(nodes.get(edge.source), state) && !self.dead(nodes.get(edge.target), state);
    },
    /** Positions in `agents` of those who set something at a part, each once. */
    owners(part) {
      const own = part.actuators ?? (part.actuator ? [part.actuator] : []);
      return [...new Set(own.filter(setpoints.has).map((uid) => setpoints.agent[setpoints.columns.get(uid)]))];
    },
    /** All values that belong to a part: [{uid, kind, unit}]. */
    quantities(part) {
      const sensors = part.sensors ?? [part.sensor], actuators = part.actuators ?? [part.actuator];
      return [...sensors.filter(readings.has).map((uid) => ({ uid, kind: "reading", unit: readings.unit(uid) })),
        ...actuators.filter(setpoints.has).map((uid) => ({ uid, kind: "setpoint", unit: setpoints.unit(uid) }))];
    },
    value: ({ uid, kind }, state) => (kind === "reading" ? readings : setpoints).value(uid, state),
    /** When a state is: its date, or its tick. */
    moment: (state) => momentOf(motion.clock, motion.time[self.clamp(state)]),
    /** Places of the states on an axis of time: milliseconds since 1970, or ticks. */
    axis: () => Array.from(motion.time, (tick) => (motion.clock ? Date.parse(`${dated(motion.clock, tick)}Z`) : tick)),
    /** The smallest and the largest value of nodes or edges over the episode. */
    range(parts) {
      let low = Infinity, high = -Infinity;
      for (const { sensor } of parts) {
        if (!readings.has(sensor)) continue;
        for (const value of readings.column(sensor)) {
          if (value < low) low = value;
          if (value > high) high = value;
        }
      }
      return [low, high];
    },
    /** What is wrong with a part now, in words; "" if nothing is. */
    remark(part, kind, state) {
      if (kind === "edge") {
        if (!self.on(part, state)) return "switched off";
        if (!self.live(part, state)) return "without voltage";
        return edgeUnit === "%" && self.reading(part, state) > motion.full ? `above ${motion.full} %` : "";
      }
      if (kind === "device" || !readings.has(part.sensor)) return "";
      if (self.dead(part, state)) return nodeUnit === "p.u." ? "without voltage" : "no value";
      const value = self.reading(part, state), [low, high] = motion.band;
      if (nodeUnit !== "p.u.") return "";
      return value < low ? `below ${low}` : value > high ? `above ${high}` : "";
    },
  };
  return self;
}

/** When a tick is: its date, or its number where there is no clock. */
export function momentOf(clock, tick) {
  return clock ? dated(clock, tick).replace("T", " ") : `tick ${tick}`;
}

/** The date of a tick in the calendar of the simulation, which has no zone: "2016-06-20T03:15". */
function dated(clock, tick) {
  const text = new Date(Date.parse(`${clock.start}Z`) + tick * clock.seconds * 1000).toISOString();
  return clock.seconds % 60 === 0 ? text.slice(0, 16) : text.slice(0, 19);
}

/** Letters of agents: their initials, or A, B, C where several begin alike. */
export function letters(agents) {
  const initials = agents.map((name) => [...name.trim()][0]?.toUpperCase() ?? "?");
  return new Set(initials).size === agents.length ? initials : agents.map((_, i) => String.fromCharCode(65 + (i % 26)));
}

/** A part by the text that names it: "node:bus-3". Returns {kind, part} or null. */
export function partOf(one, key) {
  const [kind, ...rest] = (key ?? "").split(":");
  const part = { node: one.nodes, edge: one.edges, device: one.devices }[kind]?.get(rest.join(":"));
  return part ? { kind, part } : null;
}

/** What people call a part. */
export function nameOf(part) {
  return part.name && part.name !== part.id ? `${part.name} (${part.id})` : part.id;
}
