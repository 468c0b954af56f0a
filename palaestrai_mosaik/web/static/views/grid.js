// The grid in motion: topologies state by state, one episode or two beside each other.

import { COLOURS, colour, figure } from "web/chart";
import { get, offline, watch } from "web/data";
import { fill, h, table } from "web/dom";
import { episodeChoice } from "web/episode_choice";
import { number } from "web/format";
import { letters, nameOf, partOf, scene } from "web/motion";
import { player } from "web/player";
import { legend, onMode, scale } from "web/scales";
import { drawing } from "web/topology";

const KINDS = { node: "Nodes", edge: "Edges", device: "Devices" };
/** of more rows, the table waits until the player stands still */
const MANY_ROWS = 400;
/** milliseconds between two updates of table and chart while the player plays */
const PACE = 150;

export async function show(element, context) {
  const { run, signal, attempt } = context;
  const query = context.query ?? new URLSearchParams();
  let index = await get(`run/${run}/grid`, {}, signal);
  if (!index.environments.length) {
    fill(element, h("p", { class: "quiet" }, "Nothing has been recorded that could be drawn."));
    return;
  }
  let environment = index.environments.find((one) => one.environment === query.get("environment")) ?? index.environments[0];
  let incarnation = Number(query.get("incarnation") ?? 0);
  const sides = []; // what is drawn: {scene, drawing, place}
  let pinned = null, looked = null, paintedAt = 0, later = null;

  // ----- controls
  const choice = episodeChoice({ run, view: "grid", query, index: () => index, episodes, load, signal, attempt });
  const { main, controls } = choice;
  const environments = h("select", { "aria-label": "Environment", onchange: () => {
    environment = index.environments.find((one) => one.environment === environments.value);
    incarnation = 0;
    attempt(load, async () => { choices(); await load(); });
  } }, index.environments.map((one) => h("option", { selected: one === environment }, one.environment)));
  const copies = h("input", { type: "number", min: 0, value: incarnation, "aria-label": "Copy of the environment", onchange: () => {
    incarnation = Math.max(0, Math.min(environment.incarnations - 1, Number(copies.value)));
    attempt(load);
  } });
  const follow = h("input", { type: "checkbox", checked: true });
  const live = h("label", { hidden: true }, follow, "follow the newest state");
  const worst = h("button", { type: "button", onclick: () => time.go(sides[0].scene.motion.worst.index) }, "Worst state");
  const time = player({ label: said, changed: paint, signal, buttons: [worst] });

  // ----- what is drawn
  const legends = h("div", { class: "legends" }), note = h("p", { class: "quiet note" });
  const drawings = h("div", { class: "drawings" });
  const find = h("select", { "aria-label": "Show the values of", onchange: () => pick(find.value || null, true) });
  const zooms = h("div", { class: "zooms", role: "group", "aria-label": "Zoom" }, [["Zoom in", "+", (one) => one.zoom(1.4)],
    ["Zoom out", "−", (one) => one.zoom(1 / 1.4)], ["Show all", "Fit", (one) => one.fit()]].map(([title, sign, move]) =>
    h("button", { type: "button", title, "aria-label": title, onclick: () => sides.forEach((side) => move(side.drawing)) }, sign)));
  const details = h("div", { class: "part", "aria-live": "polite" });
  const chart = figure({ title: "", description: "The values of the chosen part over the episode", height: 220, options: lines, numbers: list });
  chart.element.hidden = true;
  const values = h("div", {});
  const opened = h("details", { class: "values" }, h("summary", {}, "Values at this state"), values);
  opened.addEventListener("toggle", () => opened.open && tabulate());
  fill(element,
    h("div", { class: "controls" },
      index.environments.length > 1 && h("label", {}, "Environment", environments),
      controls.main,
      h("label", { class: "copies" }, "Copy", copies),
      controls.beside, controls.another, live),
    time.element, note, legends,
    h("div", { class: "scenes" }, h("div", { class: "stage" }, drawings, zooms),
      h("aside", { "aria-label": "Values of a part" }, h("div", { class: "controls" }, h("label", {}, "Part", find)), details, chart.element)),
    h("p", { class: "quiet" }, "Keys: space plays, arrows step, Home and End go to the ends. In the drawing, Page Up and Page Down "
      + "go from part to part; +, − and 0 zoom."),
    opened);

  // ----- which episodes
  function episodes(of) {
    return of.phases.flatMap((phase) => phase.episodes
      .filter(() => phase.phase in environment.topologies || of !== index)
      .map((one) => ({ ...one, phase: phase.phase, key: `${phase.phase}.${one.worker}.${one.episode}${one.evaluation ? "e" : ""}`,
        title: `${phase.name}, ${one.evaluation ? "evaluation" : "episode"} ${one.episode}${one.worker ? `, worker ${one.worker}` : ""}` })));
  }
  function choices() {
    choice.update();
    copies.parentElement.hidden = environment.incarnations < 2;
  }

  // ----- loading
  async function sceneOf({ run: ofRun, index: of, key }) {
    const one = episodes(of).find((episode) => episode.key === key);
    const where = of.environments.find((place) => place.environment === environment.environment) ?? of.environments[0];
    const asked = { environment: where.environment, phase: one.phase };
    const [topology, motion] = await Promise.all([
      get(`run/${ofRun}/topology`, { ...asked, phase: where.topologies[one.phase] }, signal),
      get(`run/${ofRun}/motion`, { ...asked, worker: one.worker, episode: one.episode, evaluation: one.evaluation ? 1 : undefined,
        incarnation: incarnation || undefined }, signal)]);
    return scene(topology, motion, ofRun === run ? one.title : `${ofRun}: ${one.title}`);
  }
  async function load() {
    const scenes = [];
    for (const one of choice.shown()) scenes.push(await sceneOf(one));
    const seen = sides.map((side) => side.drawing.view());
    for (const side of sides.splice(0)) side.drawing.close();
    scenes.forEach((one, i) => {
      const drawn = drawing(one, { picked: pick, label: `Drawing of ${one.title}`, seen: seen[i] });
      sides.push({ scene: one, drawing: drawn });
    });
    fill(drawings, sides.map((side) => h("section", { class: "card" }, h("h2", {}, side.scene.title), side.drawing.element)));
    drawings.classList.toggle("two", sides.length > 1);
    const parts = sides[0].scene.topology;
    fill(find, h("option", { value: "" }, "none"), [["node", parts.nodes], ["edge", parts.edges], ["device", parts.devices]].map(([kind, own]) =>
      own.length > 0 && h("optgroup", { label: KINDS[kind] }, own.map((one) => h("option", { value: `${kind}:${one.id}` }, nameOf(one))))));
    find.value = partOf(sides[0].scene, pinned) ? pinned : "";
    for (const side of sides) side.drawing.choose(pinned);
    choice.remember({ ...(index.environments.length > 1 && { environment: environment.environment }), ...(incarnation && { incarnation }) });
    grown();
  }
  /** Show scenes that may have more states than before. */
  function grown() {
    time.length(Math.max(...sides.map((side) => side.scene.states)));
    paintLegends();
    const { motion } = sides[0].scene, { worst: far } = motion;
    worst.hidden = !far;
    if (far) {
      const bus = sides[0].scene.nodes.get(far.node);
      worst.title = `${nameOf(bus)}: ${number(far.value, 5)} p.u., ${far.outside ? "outside of" : "inside of"} ${motion.band.join(" to ")}`;
    }
    fill(note, motion.states > motion.step.length
      && `Of ${number(motion.states)} states, ${number(motion.step.length)} are shown. `,
    far && `Worst voltage: ${worst.title}, ${sides[0].scene.moment(far.index)}.`);
    time.set(query.has("state") ? Number(query.get("state")) : time.state());
    query.delete("state");
  }

  // ----- painting
  function said(state) {
    const one = sides[0]?.scene;
    if (!one) return "";
    const at = sides.reduce((longest, side) => (side.scene.states > longest.states ? side.scene : longest), one);
    return `${at.moment(state)} · state ${at.motion.step[at.clamp(state)]} of ${at.motion.step[at.states - 1]}`;
  }
  function scales() {
    const [first] = sides, range = (parts) => {
      const all = sides.map((side) => side.scene.range(side.scene.topology[parts]));
      return [Math.min(...all.map(([low]) => low)), Math.max(...all.map(([, high]) => high))];
    };
    return { node: scale(first.scene.nodeUnit, range("nodes")), edge: scale(first.scene.edgeUnit, range("edges")) };
  }
  let palette = null;
  function paintLegends() {
    palette = scales();
    const { scene: one } = sides[0], ends = (each) => [each.stops[0][0], each.stops.at(-1)[0]].map((value) => [value, number(value, 3)]);
    const nodes = palette.node.unit === "p.u." ? [0.9, ...one.motion.band, 1, 1.1].sort().map((value) => [value, value.toFixed(2)])
      : ends(palette.node);
    const edges = palette.edge.unit === "%" ? [0, 50, one.motion.full, 150].map((value) => [value, `${value} %`]) : ends(palette.edge);
    const sign = (letter, name, i) => h("span", { class: "agent" },
      h("b", { style: { color: COLOURS[i % COLOURS.length], "border-color": COLOURS[i % COLOURS.length] } }, letter), ` ${name}`);
    fill(legends,
      one.nodeUnit !== null && legend(one.nodeUnit === "p.u." ? "Voltage (p.u.)" : `Nodes ${one.nodeUnit && `(${one.nodeUnit})`}`, palette.node, nodes),
      one.edgeUnit !== null && legend(one.edgeUnit === "%" ? "Loading" : `Edges ${one.edgeUnit && `(${one.edgeUnit})`}`, palette.edge, edges),
      h("div", { class: "signs" },
        one.nodeUnit === "p.u." && h("span", {}, `▲ above ${one.motion.band[1]} ▼ below ${one.motion.band[0]} ○ without voltage`),
        h("span", {}, "┄ switched off"),
        one.topology.devices.some((device) => device.kind !== "ext_grid" && !one.owners(device).length)
          && h("span", {}, h("b", { class: "nobody" }), " device without an agent"),
        letters(one.agents).map((letter, i) => sign(letter, one.agents[i], i))));
  }
  function paint(state) {
    if (!sides.length) return;
    for (const { scene: one, drawing: drawn } of sides) drawn.paint(one, one.clamp(state), palette);
    clearTimeout(later);
    const wait = time.playing() ? PACE - (performance.now() - paintedAt) : 0;
    if (wait > 0) later = setTimeout(describe, wait);
    else describe();
  }
  function describe() {
    if (signal.aborted || !sides.length) return;
    paintedAt = performance.now();
    inform();
    const rows = sides[0].drawing.keys.length;
    if (opened.open && (rows <= MANY_ROWS || !time.playing())) tabulate();
  }

  // ----- one part
  function pick(key, keep) {
    if (keep) {
      pinned = key === pinned && find.value === key ? pinned : key;
      find.value = key ?? "";
    }
    const before = looked;
    looked = key ?? pinned;
    if (looked === before && !keep) return;
    for (const side of sides) side.drawing.choose(looked);
    inform();
  }
  function inform() {
    const shown = looked ?? pinned, found = shown && partOf(sides[0].scene, shown);
    details.setAttribute("aria-live", time.playing() ? "off" : "polite");
    chart.element.hidden = !found || !sides[0].scene.quantities(found.part).length;
    if (!found) {
      fill(details, h("p", { class: "quiet" }, "Point at a bus, a line or a device, or choose it here."));
      return;
    }
    fill(details, h("h2", {}, nameOf(found.part)), h("p", { class: "quiet" }, found.part.kind,
      found.kind === "device" && ` at ${nameOf(sides[0].scene.nodes.get(found.part.node))}`,
      found.kind === "edge" && ` from ${found.part.source} to ${found.part.target}`), sides.map(facts));
    if (!chart.element.hidden) chart.update();
  }
  function facts({ scene: one }) {
    const found = partOf(one, looked ?? pinned), state = one.clamp(time.state());
    if (!found) return h("p", {}, `${one.title} does not have it.`);
    const remark = one.remark(found.part, found.kind, state), owners = one.owners(found.part);
    return h("dl", {}, sides.length > 1 && h("div", { class: "whose" }, one.title),
      one.quantities(found.part).map((quantity) => h("div", {},
        h("dt", {}, quantity.kind === "setpoint" ? `set: ${quantity.uid}` : quantity.uid),
        h("dd", {}, `${number(one.value(quantity, state), 6)} ${quantity.unit}`))),
      owners.length > 0 && h("div", {}, h("dt", {}, "set by"), h("dd", {}, owners.map((i) => one.agents[i]).join(", "))),
      remark && h("div", {}, h("dt", {}, "now"), h("dd", { class: "remark" }, remark)));
  }
  function series() {
    return sides.flatMap(({ scene: one }, i) => {
      const found = partOf(one, looked ?? pinned);
      return found ? one.quantities(found.part).map((quantity) => ({ one, quantity, i,
        name: `${quantity.kind === "setpoint" ? "set: " : ""}${quantity.uid}${sides.length > 1 ? ` (${one.title})` : ""}` })) : [];
    });
  }
  function lines({ axis }) {
    const all = series(), dates = sides[0].scene.motion.clock !== null;
    const units = [...new Set(all.map(({ quantity }) => quantity.unit))].slice(0, 2);
    const { scene: one } = sides[0];
    return {
      useUTC: true,
      grid: { left: 8, right: 8, top: 46, bottom: 8, outerBoundsMode: "same" },
      legend: { show: all.length > 1, type: "scroll", top: 0, textStyle: { color: colour("text") } },
      tooltip: { trigger: "axis", renderMode: "richText" },
      xAxis: { ...axis, type: dates ? "time" : "value", min: "dataMin", max: "dataMax", name: dates ? "" : "ticks", nameLocation: "middle" },
      yAxis: (units.length ? units : [""]).map((unit) => ({ ...axis, type: "value", scale: true, name: unit })),
      series: all.map(({ one: own, quantity, name }, i) => {
        const x = own.axis();
        return {
          name, type: "line", showSymbol: false, step: quantity.kind === "setpoint" ? "end" : false,
          yAxisIndex: Math.max(0, units.indexOf(quantity.unit)),
          data: x.map((at, state) => [at, own.value(quantity, state)]),
          markLine: i ? undefined : { silent: true, symbol: "none", label: { show: false }, lineStyle: { color: colour("text"), type: "solid", width: 1 },
            data: [{ xAxis: one.axis()[one.clamp(time.state())] }] },
        };
      }),
    };
  }
  function list() {
    const all = series(), longest = sides.reduce((most, side) => (side.scene.states > most.states ? side.scene : most), sides[0].scene);
    return { columns: ["time", ...all.map(({ name }) => name)],
      rows: Array.from({ length: longest.states }, (_, state) =>
        [longest.moment(state), ...all.map(({ one, quantity }) => one.value(quantity, state))]) };
  }

  // ----- the values at this state as tables
  function tabulate() {
    const { topology } = sides[0].scene, several = sides.length > 1;
    const columns = (kind, read) => [
      { title: KINDS[kind].slice(0, -1), value: (one) => nameOf(one) },
      ...sides.flatMap(({ scene: own }) => {
        const state = own.clamp(time.state()), of = (one) => partOf(own, `${kind}:${one.id}`)?.part;
        const suffix = several ? ` (${own.title})` : "";
        return [{ title: `${read.title(own)}${suffix}`, number: true, value: (one) => (of(one) ? read.text(own, of(one), state) : "") },
          { title: `remark${suffix}`, value: (one) => (of(one) ? own.remark(of(one), kind, state) : "") }];
      })];
    const reading = (unit) => ({ title: (own) => `value ${own[unit] ? `(${own[unit]})` : ""}`.trim(),
      text: (own, one, state) => number(own.reading(one, state), 6) });
    const set = { title: () => "readings and set-points", text: (own, one, state) => own.quantities(one)
      .map((quantity) => `${quantity.kind === "setpoint" ? "set " : ""}${quantity.uid.split(".").at(-1)} `
        + `${number(own.value(quantity, state), 6)} ${quantity.unit}`.trim()).join("; ") };
    const known = topology.devices.filter((one) => sides[0].scene.quantities(one).length);
    fill(values, topology.nodes.length > 0 && table(columns("node", reading("nodeUnit")), topology.nodes, KINDS.node),
      topology.edges.length > 0 && table(columns("edge", reading("edgeUnit")), topology.edges, KINDS.edge),
      known.length > 0 && table(columns("device", set), known, KINDS.device));
  }

  // ----- the beginning, and what goes on
  onMode(signal, () => { paintLegends(); time.set(time.state()); });
  signal.addEventListener("abort", () => {
    chart.close();
    clearTimeout(later);
    for (const side of sides) side.drawing.close();
  });
  await choice.begin();
  choices();
  await load();
  if (!index.running || offline) return;
  live.hidden = false;
  watch(1, signal, async () => {
    const newest = () => episodes(index).filter((one) => !one.evaluation).at(-1)?.key;
    const wasNewest = main.value === newest();
    index = await get(`run/${run}/grid`, {}, signal);
    environment = index.environments.find((one) => one.environment === environment.environment) ?? environment;
    choices();
    if (!wasNewest) return index.running;
    if (follow.checked && newest() !== main.value) {
      main.value = newest();
      await load();
    } else {
      sides[0].scene = await sceneOf(choice.shown()[0]);
    }
    grown();
    if (follow.checked && !time.playing()) time.set(Infinity);
    return index.running;
  }, attempt);
}
