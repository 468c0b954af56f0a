// Draws a topology as SVG, and paints a state of it: colours, shapes, dashes, bars of set-points. Zooms and pans.

import { look } from "web/chart";
import { make as h } from "web/dom";
import { letters, nameOf, partOf } from "web/motion";

// shapes of nodes, about 2 wide: what is outside of the band also differs by its shape
const CIRCLE = "M1 0A1 1 0 1 1-1 0A1 1 0 1 1 1 0Z", UP = "M0-1.7L1.6 1.2H-1.6Z", DOWN = "M0 1.7L1.6-1.2H-1.6Z";
// (radius of nodes and height of marks, in pixels: at least, by how many nodes there are, and at most)
const NODE_PIXELS = [[150, 3.6], [600, 2.6], [Infinity, 1.6]], MOST_NODE = 8;
const MARK_PIXELS = [[150, 8], [600, 6], [Infinity, 4]], MOST_MARK = 16;
// (of the widths of lines, by how many nodes there are)
const LINE_SHARE = [[150, 1], [600, 0.7], [Infinity, 0.4]];
/** of more devices, only those are drawn that agents set */
const MOST_DEVICES = 400;
/** around the nodes (pixels): a node, the mark of a device beside it, and its bars */
const MARGIN = 38;

/**
 * A drawing of a scene. `picked(key)` is called with the part that is pointed at or chosen ("node:bus-3"), or null.
 * `seen` is the part of the drawing that is shown: `view()` of an earlier one; null: all of it.
 * Returns {element, paint(scene, state, scales), choose(key), keys, zoom(factor), fit(), view(), close()}.
 */
export function drawing(first, { picked, label, seen = null }) {
  const { topology } = first;
  const place = new Map(topology.nodes.map((node) => [node.id, [node.x, node.y]]));
  const width = Math.max(...topology.nodes.map((one) => one.x), 1), height = Math.max(...topology.nodes.map((one) => one.y), 1);
  let whole = framed(1), view = { ...(seen ?? whole) }, fitted = !seen, chosen = null;
  // the size in pixels, as it was observed: to ask for it would have the browser lay out the whole drawing at once
  let box = { width: 0, height: 0 }, drawn = null;
  const painted = new WeakMap();

  const edges = paths(topology, place).map(([edge, d, middle]) => {
    const line = h("svg:path", { class: "edge", d, fill: "none", "vector-effect": "non-scaling-stroke" });
    const around = h("svg:path", { class: "around", d, fill: "none", "vector-effect": "non-scaling-stroke" });
    const group = h("svg:g", part("edge", edge), around, line);
    return { edge, line, group, middle };
  });
  const nodes = topology.nodes.map((node) => {
    const element = h("svg:path", { ...part("node", node), class: "node", d: CIRCLE, "vector-effect": "non-scaling-stroke" });
    return { node, element };
  });
  const marks = [...devices(first, place), ...edges.filter(({ edge }) => first.owners(edge).length)
    .map(({ edge, middle }) => ({ part: edge, kind: "edge", at: middle, away: [0, 0] }))].map((one) => mark(one, first));
  const symbols = edges.filter(({ edge }) => edge.kind !== "line").map(({ edge, group, middle }) => {
    const shape = edge.kind === "trafo" ? "M.6 0A1 1 0 1 1-1.4 0A1 1 0 1 1 .6 0ZM1.4 0A1 1 0 1 1-.6 0A1 1 0 1 1 1.4 0Z" : "M-1-1H1V1H-1Z";
    const element = h("svg:path", { class: "symbol", d: shape, "vector-effect": "non-scaling-stroke" });
    group.append(element);
    return { element, middle };
  });
  const keys = [...nodes.map(({ node }) => `node:${node.id}`), ...edges.map(({ edge }) => `edge:${edge.id}`),
    ...topology.devices.map((device) => `device:${device.id}`)];

  const svg = h("svg:svg", { class: "topology", role: "group", tabindex: 0, "aria-label": label,
    preserveAspectRatio: "xMidYMid meet", style: { "aspect-ratio": `${whole.w} / ${whole.h}` } },
  h("svg:g", {}, edges.map(({ group }) => group)), h("svg:g", {}, nodes.map(({ element }) => element)),
  h("svg:g", {}, marks.map(({ element }) => element)));
  const ring = h("svg:circle", { class: "ring", r: 1, "vector-effect": "non-scaling-stroke" });
  svg.append(ring);
  const spacing = typical(edges.map(({ edge }) => distance(place.get(edge.source), place.get(edge.target)))) || width / 4;

  /** All of the drawing, with a margin where a pixel has the size `pixel`. */
  function framed(pixel) {
    const margin = MARGIN * pixel;
    return { x: -margin, y: -margin, w: width + 2 * margin, h: height + 2 * margin };
  }
  const least = (sizes) => sizes.find(([most]) => nodes.length <= most)[1], share = least(LINE_SHARE);

  function resize() {
    const inner = (length) => Math.max(length - 2 * MARGIN, length / 2);
    if (box.width) whole = framed(Math.max(width / inner(box.width), height / inner(box.height)));
    if (fitted) view = { ...whole };
    svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
    if (!box.width) return;
    const pixel = Math.max(view.w / box.width, view.h / box.height);
    const clamp = (value, low, high) => Math.max(low, Math.min(high, value / pixel)) * pixel;
    const radius = clamp(0.2 * spacing, least(NODE_PIXELS), MOST_NODE), size = clamp(0.32 * spacing, least(MARK_PIXELS), MOST_MARK);
    if (drawn?.radius !== radius || drawn.size !== size) transform(radius, size);
    drawn = { radius, size, pixel };
    encircle();
  }
  function transform(radius, size) {
    for (const { node, element } of nodes) element.setAttribute("transform", `translate(${node.x} ${node.y}) scale(${radius})`);
    for (const { element, middle } of symbols) element.setAttribute("transform", `translate(${middle.join(" ")}) scale(${radius})`);
    for (const { element, at, away } of marks) {
      const [x, y] = [0, 1].map((i) => at[i] + away[i] * (radius + 0.75 * size));
      element.setAttribute("transform", `translate(${x} ${y}) scale(${size})`);
    }
  }
  function encircle() {
    if (!drawn) return;
    const { radius, size, pixel } = drawn;
    const { kind, part: one } = partOf(first, chosen) ?? {};
    const around = kind === "node" ? [one.x, one.y] : kind === "edge" ? edges.find(({ edge }) => edge === one).middle
      : kind === "device" ? centre(one, radius + 0.75 * size) : null;
    ring.toggleAttribute("hidden", !around);
    if (around) ring.setAttribute("transform", `translate(${around.join(" ")}) scale(${Math.max(2.2 * radius, size, 8 * pixel)})`);
  }
  function centre(device, far) {
    const found = marks.find((one) => one.part === device);
    return found ? [0, 1].map((i) => found.at[i] + found.away[i] * far) : place.get(device.node);
  }
  function zoom(factor, [px, py] = [0.5, 0.5]) {
    const w = Math.min(whole.w * 2, Math.max(whole.w / 200, view.w / factor)), scale = w / view.w;
    view = { x: view.x + px * (view.w - w), y: view.y + py * view.h * (1 - scale), w, h: view.h * scale };
    fitted = false;
    resize();
  }
  function fit() {
    fitted = true;
    resize();
  }

  function paint(scene, state, scales) {
    for (const { node, element } of nodes) {
      const value = scene.reading(scene.nodes.get(node.id) ?? node, state), known = scene.readings.has(node.sensor);
      const dead = scene.dead(node, state), remark = scene.remark(node, "node", state);
      set(element, {
        fill: dead || !known ? "none" : scales.node.colour(value),
        d: remark.startsWith("below") ? DOWN : remark.startsWith("above") ? UP : CIRCLE,
        class: dead ? "node dead" : known ? (remark ? "node outside" : "node") : "node silent",
      });
    }
    for (const { edge, line } of edges) {
      const value = scene.reading(edge, state), on = scene.on(edge, state), live = on && scene.live(edge, state);
      const known = live && !Number.isNaN(value), percent = scene.edgeUnit === "%";
      set(line, {
        stroke: known ? scales.edge.colour(value) : null,
        "stroke-width": known && percent ? (share * (1.5 + 3.5 * Math.min(1.4, Math.max(0, value) / 100))).toFixed(2) : 1.8 * share,
        class: !on ? "edge off" : live ? (known ? "edge" : "edge silent") : "edge dead",
      });
    }
    for (const one of marks) one.paint(scene, state);
  }
  function set(element, attributes) {
    const before = painted.get(element) ?? {};
    for (const [name, value] of Object.entries(attributes)) {
      if (before[name] === value) continue;
      if (value === null) element.removeAttribute(name);
      else element.setAttribute(name, value);
    }
    painted.set(element, attributes);
  }

  // pointing shows a part, a click keeps it; dragging moves the drawing
  const keyOf = (target) => target.closest?.("[data-part]")?.dataset.part ?? null;
  let drag = null;
  svg.addEventListener("pointerover", (event) => !drag && picked(keyOf(event.target), false));
  svg.addEventListener("pointerleave", () => picked(null, false));
  svg.addEventListener("click", (event) => !drag?.moved && keyOf(event.target) && picked(keyOf(event.target), true));
  svg.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, view: { ...view }, moved: false };
  });
  svg.addEventListener("pointermove", (event) => {
    if (!drag || !event.buttons) return;
    const now = svg.getBoundingClientRect(), pixel = Math.max(view.w / now.width, view.h / now.height);
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    if (!drag.moved) svg.setPointerCapture(event.pointerId);
    drag.moved = true;
    fitted = false;
    view = { ...drag.view, x: drag.view.x - dx * pixel, y: drag.view.y - dy * pixel };
    resize();
  });
  for (const name of ["pointerup", "pointercancel"]) svg.addEventListener(name, () => setTimeout(() => { drag = null; }));
  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const now = svg.getBoundingClientRect();
    zoom(event.deltaY < 0 ? 1.25 : 0.8, [(event.clientX - now.left) / now.width, (event.clientY - now.top) / now.height]);
  }, { passive: false });
  svg.addEventListener("keydown", (event) => {
    const move = { PageDown: 1, PageUp: -1 }[event.key], factor = { "+": 1.25, "-": 0.8 }[event.key];
    if (move) picked(keys[(keys.indexOf(chosen) + move + keys.length) % keys.length], true);
    else if (factor) zoom(factor);
    else if (event.key === "0") fit();
    else return;
    event.preventDefault();
  });
  const resized = new ResizeObserver(([{ contentRect }]) => {
    box = { width: contentRect.width, height: contentRect.height };
    resize();
  });
  resized.observe(svg);

  return {
    element: svg, paint, zoom, fit, keys, topology,
    view: () => (fitted ? null : view),
    /** Put a ring around the part that is looked at. */
    choose(key) {
      chosen = key;
      encircle();
    },
    close: () => resized.disconnect(),
  };
}

function part(kind, one) {
  return { role: "img", "data-part": `${kind}:${one.id}`, "aria-label": nameOf(one) };
}

function distance([x, y], [u, v]) {
  return Math.hypot(x - u, y - v);
}

function typical(lengths) {
  const sorted = lengths.filter((one) => one > 0).sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 3)];
}

/** The path and the middle of each edge; those that join the same nodes are bent. */
function paths({ edges }, place) {
  const seen = new Map();
  const together = (edge) => [edge.source, edge.target].sort().join("\n");
  for (const edge of edges) seen.set(together(edge), [...(seen.get(together(edge)) ?? []), edge]);
  return edges.map((edge) => {
    const [x, y] = place.get(edge.source), [u, v] = place.get(edge.target), same = seen.get(together(edge));
    const middle = [(x + u) / 2, (y + v) / 2];
    if (same.length === 1) return [edge, `M${x} ${y}L${u} ${v}`, middle];
    // (the side must not depend on the direction of the edge)
    const side = (same.indexOf(edge) - (same.length - 1) / 2) * (edge.source < edge.target ? 1 : -1);
    const bend = [middle[0] - (v - y) * 0.3 * side, middle[1] + (u - x) * 0.3 * side];
    return [edge, `M${x} ${y}Q${bend.join(" ")} ${u} ${v}`, [(middle[0] + bend[0]) / 2, (middle[1] + bend[1]) / 2]];
  });
}

/** The devices that are drawn, and in which direction from their nodes: away from the edges there. */
function devices(scene, place) {
  const { topology } = scene;
  const owned = topology.devices.filter((one) => scene.owners(one).length || one.kind === "ext_grid");
  const known = topology.devices.filter((one) => owned.includes(one) || scene.quantities(one).length);
  const shown = known.length > MOST_DEVICES ? owned : known;
  const directions = new Map();
  for (const { source, target } of topology.edges) {
    for (const [from, to] of [[source, target], [target, source]]) {
      const [x, y] = place.get(from), [u, v] = place.get(to), length = Math.hypot(u - x, v - y) || 1;
      const [a, b] = directions.get(from) ?? [0, 0];
      directions.set(from, [a + (u - x) / length, b + (v - y) / length]);
    }
  }
  const counts = new Map(), turns = new Map();
  for (const { node } of shown) counts.set(node, (counts.get(node) ?? 0) + 1);
  return shown.map((device) => {
    const [a, b] = directions.get(device.node) ?? [0, 1];
    const turn = turns.get(device.node) ?? 0, all = counts.get(device.node);
    turns.set(device.node, turn + 1);
    const angle = Math.atan2(-b, -a || (b ? 0 : 1)) + (turn - (all - 1) / 2) * Math.min(1, (2 * Math.PI) / all);
    return { part: device, kind: "device", at: place.get(device.node), away: [Math.cos(angle), Math.sin(angle)] };
  });
}

/** The mark of a device, 1 high: the letter of its agent in the agent's colour, and a bar for each set-point. */
function mark({ part: one, kind, at, away }, first) {
  const owner = first.owners(one)[0], set = (one.actuators ?? [one.actuator]).filter(first.setpoints.has);
  const colour = owner === undefined ? null : look(first.motion.colours[owner]).color;
  const sign = owner === undefined ? { ext_grid: "~" }[one.kind] ?? "" : letters(first.agents)[owner];
  const bars = set.map((uid, i) => {
    const bar = h("svg:rect", { class: "bar", x: 0.58 + 0.36 * i, width: 0.26, fill: colour, "data-uid": uid });
    return { uid, bar, track: h("svg:rect", { class: "track", x: 0.58 + 0.36 * i, y: -0.5, width: 0.26, height: 1 }) };
  });
  const element = h("svg:g", { ...part(kind, one), class: `device ${one.kind === "ext_grid" ? "source" : ""}` },
    h("svg:rect", { class: "mark", x: -0.5, y: -0.5, width: 1, height: 1, rx: 0.2, stroke: colour, "vector-effect": "non-scaling-stroke" }),
    h("svg:text", { x: 0, y: 0.28, "text-anchor": "middle", fill: colour, class: "letter" }, sign),
    bars.map(({ track, bar }) => [track, bar]));
  function paint(scene, state) {
    for (const { uid, bar } of bars) {
      const value = scene.setpoints.value(uid, state);
      const [low, high] = span(scene.setpoints, uid);
      const zero = portion(0, low, high), end = Number.isNaN(value) ? zero : portion(value, low, high);
      bar.setAttribute("y", (0.5 - Math.max(zero, end)).toFixed(4));
      bar.setAttribute("height", Math.abs(end - zero).toFixed(4));
    }
  }
  return { element, part: one, at, away, paint };
}

const spans = new WeakMap();

/** The bounds of a set-point's bar: those of its space, else those of its values. */
function span(setpoints, uid) {
  const known = spans.get(setpoints) ?? new Map();
  spans.set(setpoints, known);
  if (!known.has(uid)) {
    const [low, high] = setpoints.bounds(uid);
    let [least, most] = [0, 0];
    if (low === null || high === null) {
      for (const value of setpoints.column(uid)) {
        if (value < least) least = value;
        if (value > most) most = value;
      }
    }
    known.set(uid, [low ?? least, high ?? most]);
  }
  return known.get(uid);
}

function portion(value, low, high) {
  return high > low ? Math.max(0, Math.min(1, (value - low) / (high - low))) : 0;
}
