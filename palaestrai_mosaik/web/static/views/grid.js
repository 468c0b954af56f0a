// The grid in motion: topologies state by state, one episode or two beside each other.

import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { h } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { colour, Figure, look } from "web/chart";
import { get, offline } from "web/data";
import { EpisodeControls, useEpisodeChoice } from "web/episode_choice";
import { number } from "web/format";
import { letters, nameOf, partOf, scene } from "web/motion";
import { Entry, Host, table } from "web/page";
import { Player, usePlayer } from "web/player";
import { shown, useResource } from "web/resource";
import { legend, scale, useMode } from "web/scales";
import { drawing } from "web/topology";

const KINDS = { node: "Nodes", edge: "Edges", device: "Devices" };
/** of more rows, the table waits until the player stands still */
const MANY_ROWS = 400;
/** milliseconds between two updates of table and chart while the player plays */
const PACE = 150;

export function View({ run, running, query }) {
  const index = useResource(`run/${run}/grid`, { seconds: 1, live: () => running.value });
  return shown([index], () => (index.value.value.environments.length ? h(Grid, { run, running, query, index })
    : h("p", { class: "quiet" }, "Nothing has been recorded that could be drawn.")));
}

function Grid({ run, running, query, index }) {
  const name = useSignal(query.get("environment")), incarnation = useSignal(Number(query.get("incarnation") ?? 0)), follow = useSignal(true);
  const environment = useComputed(() => {
    const { environments } = index.value.value;
    return environments.find((one) => one.environment === name.value) ?? environments[0];
  });
  const episodes = (of) => of.phases.flatMap((phase) => phase.episodes
    .filter(() => phase.phase in environment.value.topologies || of !== index.value.value)
    .map((one) => ({ ...one, phase: phase.phase, key: `${phase.phase}.${one.worker}.${one.episode}${one.evaluation ? "e" : ""}`,
      title: `${phase.name}, ${one.evaluation ? "evaluation" : "episode"} ${one.episode}${one.worker ? `, worker ${one.worker}` : ""}` })));
  const choice = useEpisodeChoice({ run, view: "grid", query, index, episodes, more: () => ({
    ...(index.value.value.environments.length > 1 && { environment: environment.value.environment }),
    ...(incarnation.value && { incarnation: String(incarnation.value) }) }) });
  const context = { run, running, choice, episodes, environment, incarnation };
  const own = useScene(0, context), beside = useScene(1, context);
  const sides = choice.shown.value.length > 1 ? [own, beside] : [own], { environments } = index.value.value;
  return [
    h("div", { class: "controls" },
      environments.length > 1 && h("label", {}, "Environment", h("select", { "aria-label": "Environment", value: environment.value.environment,
        onchange: (event) => {
          name.value = event.target.value;
          incarnation.value = 0;
        } }, environments.map((one) => h("option", {}, one.environment)))),
      h(EpisodeControls, choice.controls),
      environment.value.incarnations > 1 && h("label", { class: "copies" }, "Copy", h(Entry, { type: "number", min: 0, value: incarnation.value,
        "aria-label": "Copy of the environment", entered: (copy) => {
          incarnation.value = Math.max(0, Math.min(environment.value.incarnations - 1, Number(copy)));
        } })),
      running.value && !offline && h("label", {}, h("input", { type: "checkbox", checked: follow.value, onchange: (event) => {
        follow.value = event.target.checked;
        choice.follow(follow.value);
      } }), "follow the newest state")),
    choice.error.value !== null && h("p", { class: "problem", role: "alert" }, choice.error.value),
    shown(sides, () => h(Stage, { scenes: sides.map((one) => one.value.value), query, following: running.value && follow.value && choice.newest.value })),
  ];
}

/** The scene of the first or the second episode that is chosen; the newest one of a run that goes on grows. */
function useScene(i, { run, running, choice, episodes, environment, incarnation }) {
  const picked = useComputed(() => {
    const { run: of, index, key } = choice.shown.value[i] ?? {};
    if (!of) return null;
    const one = episodes(index).find((episode) => episode.key === key);
    const where = index.environments.find((each) => each.environment === environment.value.environment) ?? index.environments[0];
    return { run: of, title: of === run ? one.title : `${of}: ${one.title}`,
      topology: { environment: where.environment, phase: where.topologies[one.phase] },
      motion: { environment: where.environment, phase: one.phase, worker: one.worker, episode: one.episode, evaluation: one.evaluation ? 1 : undefined,
        incarnation: incarnation.value || undefined } };
  });
  return useResource(() => `run/${picked.value?.run}/motion`, {
    query: () => picked.value && picked.value.motion,
    seconds: 1, live: () => running.value && picked.value?.run === run && choice.newest.value,
    async take(motion, last, stopped) {
      const { run: of, topology, title } = picked.peek();
      return scene(last?.topology ?? await get(`run/${of}/topology`, topology, stopped), motion, title);
    },
  });
}

/** The drawings of one or two scenes, with their player, legends and values. */
function Stage({ scenes, query, following }) {
  const player = usePlayer(), [first] = scenes, parts = first.topology, mode = useMode();
  const pinned = useSignal(null), pointed = useSignal(null), looked = pointed.value ?? pinned.value;
  const states = Math.max(...scenes.map((one) => one.states)), drawings = useRef([]), begun = useRef(false);
  const palette = useMemo(() => scales(scenes), [...scenes, mode]);
  useLayoutEffect(() => {
    player.length(states);
    if (!begun.current && query.has("state")) player.set(Number(query.get("state")));
    else if (following && !player.playing.value) player.set(Infinity);
    begun.current = true;
  }, [states, following]);
  function pick(key, keep) {
    if (keep) pinned.value = key;
    pointed.value = keep ? null : key;
  }
  const { worst, band } = first.motion;
  const far = worst && `${nameOf(first.nodes.get(worst.node))}: ${number(worst.value, 5)} p.u., ${worst.outside ? "outside of" : "inside of"} ${band.join(" to ")}`;
  const said = (state) => {
    const longest = scenes.reduce((one, other) => (other.states > one.states ? other : one));
    return `${longest.moment(state)} · state ${longest.motion.step[longest.clamp(state)]} of ${longest.motion.step[longest.states - 1]}`;
  };
  drawings.current.length = scenes.length;
  /** @type {[string|null, string, (one: any) => void][]} */
  const zooms = [["Zoom in", "+", (one) => one.zoom(1.4)], ["Zoom out", "−", (one) => one.zoom(1 / 1.4)], [null, "Show all", (one) => one.fit()]];
  const partsOf = (kind, own) => own.length > 0 && h("optgroup", { label: KINDS[kind] },
    own.map((one) => h("option", { value: `${kind}:${one.id}` }, nameOf(one))));
  return [
    h(Player, { player, label: said, buttons: worst && h("button", { type: "button", title: far, onclick: () => player.go(worst.index) }, "Worst state") }),
    h("p", { class: "quiet note" }, first.motion.states > first.motion.step.length
      && `Of ${number(first.motion.states)} states, ${number(first.motion.step.length)} are shown. `,
    worst && `Worst voltage: ${far}, ${first.moment(worst.index)}.`),
    h("div", { class: "legends" }, legends(first, palette)),
    h("div", { class: "scenes" },
      h("div", { class: "stage" },
        h("div", { class: `drawings ${scenes.length > 1 ? "two" : ""}` }, scenes.map((one, i) => h("section", { class: "card", key: i },
          h("h2", {}, one.title), h(Drawing, { scene: one, palette, state: player.state, looked, pick, kept: (made) => { drawings.current[i] = made; } })))),
        h("div", { class: "zooms", role: "group", "aria-label": "Zoom" }, zooms.map(([title, sign, move]) =>
          h("button", { type: "button", title, "aria-label": title, onclick: () => drawings.current.forEach(move) }, sign)))),
      h("aside", { "aria-label": "Values of a part" },
        h("div", { class: "controls" }, h("label", {}, "Part", h("select", { "aria-label": "Show the values of",
          value: partOf(first, pinned.value) ? pinned.value : "", onchange: (event) => pick(event.target.value || null, true) },
        h("option", { value: "" }, "none"), partsOf("node", parts.nodes), partsOf("edge", parts.edges), partsOf("device", parts.devices)))),
        h(Part, { scenes, looked, player }))),
    h("p", { class: "quiet" }, "Keys: space plays, arrows step, Home and End go to the ends. In the drawing, Page Up and Page Down "
      + "go from part to part; +, − and 0 zoom."),
    h(Values, { scenes, player }),
  ];
}

/** The drawing of a scene, painted at each state; that of another topology begins anew, and shows the same part of it. */
function Drawing({ scene: one, palette, state, looked, pick, kept }) {
  const seen = useRef(null), picked = useRef(pick);
  picked.current = pick;
  const drawn = useMemo(() => {
    const view = seen.current?.view() ?? null;
    seen.current?.close();
    seen.current = drawing(one, { picked: (...part) => picked.current(...part), label: `Drawing of ${one.title}`, seen: view });
    return seen.current;
  }, [one.topology, one.title]);
  kept(drawn);
  useEffect(() => () => seen.current.close(), []);
  useLayoutEffect(() => drawn.choose(looked), [drawn, looked]);
  const at = one.clamp(state.value);
  useLayoutEffect(() => drawn.paint(one, at, palette), [drawn, one, at, palette]);
  return h(Host, { element: drawn.element });
}

function scales(scenes) {
  /** @returns {[number, number]} */
  const range = (parts) => {
    const all = scenes.map((one) => one.range(one.topology[parts]));
    return [Math.min(...all.map(([low]) => low)), Math.max(...all.map(([, high]) => high))];
  };
  return { node: scale(scenes[0].nodeUnit, range("nodes")), edge: scale(scenes[0].edgeUnit, range("edges")) };
}

function legends(one, palette) {
  const ends = (each) => [each.stops[0][0], each.stops.at(-1)[0]].map((value) => [value, number(value, 3)]);
  const nodes = palette.node.unit === "p.u." ? [0.9, ...one.motion.band, 1, 1.1].sort((a, b) => a - b).map((value) => [value, value.toFixed(2)])
    : ends(palette.node);
  const edges = palette.edge.unit === "%" ? [0, 50, one.motion.full, 150].map((value) => [value, `${value} %`]) : ends(palette.edge);
  const colours = one.agents.map((_, i) => look(one.motion.colours[i]).color);
  const sign = (letter, name, i) => h("span", { class: "agent" },
    h("b", { style: { color: colours[i], "border-color": colours[i] } }, letter), ` ${name}`);
  return [
    one.nodeUnit !== null && legend(one.nodeUnit === "p.u." ? "Voltage (p.u.)" : `Nodes ${one.nodeUnit && `(${one.nodeUnit})`}`, palette.node, nodes),
    one.edgeUnit !== null && legend(one.edgeUnit === "%" ? "Loading" : `Edges ${one.edgeUnit && `(${one.edgeUnit})`}`, palette.edge, edges),
    h("div", { class: "signs" },
      one.nodeUnit === "p.u." && h("span", {}, `▲ above ${one.motion.band[1]} ▼ below ${one.motion.band[0]} ○ without voltage`),
      h("span", {}, "┄ switched off"),
      one.topology.devices.some((device) => device.kind !== "ext_grid" && !one.owners(device).length)
        && h("span", {}, h("b", { class: "nobody" }), " device without an agent"),
      letters(one.agents).map((letter, i) => sign(letter, one.agents[i], i))),
  ];
}

/** The state of a player, for what takes long to draw: every {@link PACE} ms while it plays. */
function useSlowState({ state, playing }) {
  const slow = useSignal(state.peek()), at = useRef(0);
  useSignalEffect(() => {
    const now = state.value, wait = playing.value ? PACE - (performance.now() - at.current) : 0;
    const timer = setTimeout(() => {
      at.current = performance.now();
      slow.value = now;
    }, Math.max(0, wait));
    return () => clearTimeout(timer);
  });
  return slow.value;
}

/** The values of a part over the episode, and now. */
function Part({ scenes, looked, player }) {
  const [first] = scenes, part = looked && partOf(first, looked), state = useSlowState(player);
  if (!part) return h("div", { class: "part", "aria-live": "polite" }, h("p", { class: "quiet" }, "Point at a bus, a line or a device, or choose it here."));
  return [
    h("div", { class: "part", "aria-live": player.playing.value ? "off" : "polite" },
      h("h2", {}, nameOf(part.part)), h("p", { class: "quiet" }, part.part.kind,
        part.kind === "device" && ` at ${nameOf(first.nodes.get(part.part.node))}`,
        part.kind === "edge" && ` from ${part.part.source} to ${part.part.target}`),
      scenes.map((one) => facts(one, looked, state, scenes.length > 1))),
    first.quantities(part.part).length > 0 && h(Figure, { title: "", description: "The values of the chosen part over the episode", height: 220,
      options: (base) => lines(scenes, looked, state, base), numbers: () => list(scenes, looked) }),
  ];
}

function facts(one, key, state, several) {
  const part = partOf(one, key), now = one.clamp(state);
  if (!part) return h("p", {}, `${one.title} does not have it.`);
  const remark = one.remark(part.part, part.kind, now), owners = one.owners(part.part);
  return h("dl", {}, several && h("div", { class: "whose" }, one.title),
    one.quantities(part.part).map((quantity) => h("div", {},
      h("dt", {}, quantity.kind === "setpoint" ? `set: ${quantity.uid}` : quantity.uid),
      h("dd", {}, `${number(one.value(quantity, now), 6)} ${quantity.unit}`))),
    owners.length > 0 && h("div", {}, h("dt", {}, "set by"), h("dd", {}, owners.map((i) => one.agents[i]).join(", "))),
    remark && h("div", {}, h("dt", {}, "now"), h("dd", { class: "remark" }, remark)));
}

/** The quantities of a part in all scenes: [{one, quantity, name}]. */
function series(scenes, key) {
  return scenes.flatMap((one) => {
    const part = partOf(one, key);
    return part ? one.quantities(part.part).map((quantity) => ({ one, quantity,
      name: `${quantity.kind === "setpoint" ? "set: " : ""}${quantity.uid}${scenes.length > 1 ? ` (${one.title})` : ""}` })) : [];
  });
}

function lines(scenes, key, state, { axis }) {
  const [first] = scenes, all = series(scenes, key), dates = first.motion.clock !== null;
  const units = [...new Set(all.map(({ quantity }) => quantity.unit))].slice(0, 2);
  return {
    useUTC: true,
    grid: { left: 8, right: 8, top: 46, bottom: 8, outerBoundsMode: "same" },
    legend: { show: all.length > 1, type: "scroll", top: 0, textStyle: { color: colour("text") } },
    tooltip: { trigger: "axis", renderMode: "richText" },
    xAxis: { ...axis, type: dates ? "time" : "value", min: "dataMin", max: "dataMax", name: dates ? "" : "ticks", nameLocation: "middle" },
    yAxis: (units.length ? units : [""]).map((unit) => ({ ...axis, type: "value", scale: true, name: unit })),
    series: all.map(({ one, quantity, name }, i) => ({
      name, type: "line", showSymbol: false, step: quantity.kind === "setpoint" ? "end" : false,
      yAxisIndex: Math.max(0, units.indexOf(quantity.unit)),
      data: one.axis().map((at, each) => [at, one.value(quantity, each)]),
      markLine: i ? undefined : { silent: true, symbol: "none", label: { show: false }, lineStyle: { color: colour("text"), type: "solid", width: 1 },
        data: [{ xAxis: first.axis()[first.clamp(state)] }] },
    })),
  };
}

function list(scenes, key) {
  const all = series(scenes, key), longest = scenes.reduce((most, one) => (one.states > most.states ? one : most));
  return { columns: ["time", ...all.map(({ name }) => name)],
    rows: Array.from({ length: longest.states }, (_, state) =>
      [longest.moment(state), ...all.map(({ one, quantity }) => one.value(quantity, state))]) };
}

/** The values at this state as tables. */
function Values({ scenes, player }) {
  const open = useSignal(false);
  return h("details", { class: "values", ontoggle: (event) => { open.value = event.target.open; } },
    h("summary", {}, "Values at this state"), open.value && h(ValueTables, { scenes, player }));
}

function ValueTables({ scenes, player }) {
  const slow = useSlowState(player), [first] = scenes, { topology } = first, still = useRef(slow);
  const many = topology.nodes.length + topology.edges.length + topology.devices.length > MANY_ROWS;
  if (!many || !player.playing.value) still.current = slow;
  const columns = (kind, read) => [
    { title: KINDS[kind].slice(0, -1), value: (one) => nameOf(one) },
    ...scenes.flatMap((own) => {
      const state = own.clamp(still.current), of = (one) => partOf(own, `${kind}:${one.id}`)?.part;
      const suffix = scenes.length > 1 ? ` (${own.title})` : "";
      return [{ title: `${read.title(own)}${suffix}`, number: true, value: (one) => (of(one) ? read.text(own, of(one), state) : "") },
        { title: `remark${suffix}`, value: (one) => (of(one) ? own.remark(of(one), kind, state) : "") }];
    })];
  const reading = (unit) => ({ title: (own) => `value ${own[unit] ? `(${own[unit]})` : ""}`.trim(),
    text: (own, one, state) => number(own.reading(one, state), 6) });
  const set = { title: () => "readings and set-points", text: (own, one, state) => own.quantities(one)
    .map((quantity) => `${quantity.kind === "setpoint" ? "set " : ""}${quantity.uid.split(".").at(-1)} `
      + `${number(own.value(quantity, state), 6)} ${quantity.unit}`.trim()).join("; ") };
  const devices = topology.devices.filter((one) => first.quantities(one).length);
  return h("div", {}, topology.nodes.length > 0 && table(columns("node", reading("nodeUnit")), topology.nodes, KINDS.node),
    topology.edges.length > 0 && table(columns("edge", reading("edgeUnit")), topology.edges, KINDS.edge),
    devices.length > 0 && table(columns("device", set), devices, KINDS.device));
}
