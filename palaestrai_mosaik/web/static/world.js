// The picture of a world: a box for each simulator, from left to right in the order in which they step.

import { h } from "preact";

const ROW = 22, TITLE = 44, MARGIN = 14, BETWEEN = 22, LANE = 16, CHARACTER = 7.3, LONGEST = 44;
/** of more arrows than this, what flows is told by tooltips and the table only */
const LABELLED = 30;

const cut = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);
const kind = (box) => cut(box.what.split(", ").slice(1).join(", ").split(":").at(-1) || box.what);

/** The picture of `{boxes, arrows}`; `title` is its text for screen readers. */
export function drawing({ boxes, arrows }, title) {
  const labelled = arrows.length <= LABELLED;
  const { places, width, height } = layout(boxes, arrows, labelled);
  const far = arrows.filter((one) => Math.abs(places[one.source[0]].rank - places[one.target[0]].rank) > 1);
  const drawnArrow = (one) => {
    const lane = far.indexOf(one);
    const way = path(places[one.source[0]], one.source[1], places[one.target[0]], one.target[1], lane < 0 ? null : height + lane * LANE);
    const words = `${boxes[one.source[0]].simulator} to ${boxes[one.target[0]].simulator}: ${one.label}`
      + (one.time_shifted ? " (arrives at the next step)" : "");
    return [h("path", { d: way.d, class: one.time_shifted && "shifted", "marker-end": "url(#head)" }, h("title", {}, words)),
      labelled && h("text", { class: "label", x: way.x, y: way.y - 4, "text-anchor": "middle" }, cut(one.label))];
  };
  return h("svg", { class: "world", role: "img", "aria-label": title, width, height: height + far.length * LANE + MARGIN },
    h("defs", {}, h("marker", { id: "head", viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 7, markerHeight: 7, orient: "auto" },
      h("path", { d: "M0 0L10 5L0 10z" }))),
    boxes.map((box, i) => drawn(box, places[i])), arrows.map(drawnArrow));
}

function layout(boxes, arrows, labelled) {
  const columns = new Map();
  boxes.forEach((box, i) => columns.set(box.rank, [...columns.get(box.rank) ?? [], i]));
  const heights = boxes.map((box) => TITLE + box.rows.length * ROW);
  const tall = (members) => members.reduce((sum, i) => sum + heights[i] + BETWEEN, -BETWEEN);
  const height = Math.max(...[...columns.values()].map(tall)) + 2 * MARGIN;
  const longest = labelled ? Math.max(0, ...arrows.map((one) => cut(one.label).length)) : 0;
  const gap = Math.max(90, longest * 6.3 + 40);
  const places = [];
  let x = MARGIN;
  for (const rank of [...columns.keys()].sort((a, b) => a - b)) {
    const members = columns.get(rank);
    const texts = members.flatMap((i) => [boxes[i].simulator, kind(boxes[i]), ...boxes[i].rows]);
    const width = Math.max(...texts.map((text) => cut(text).length)) * CHARACTER + 20;
    // boxes are ordered by where their flows come from, so that few of them cross
    const from = (i) => {
      const ys = arrows.filter((one) => one.target[0] === i && places[one.source[0]]).map((one) => places[one.source[0]].y);
      return ys.length ? ys.reduce((a, b) => a + b) / ys.length : 0;
    };
    let y = (height - tall(members)) / 2;
    for (const i of members.map((one) => [from(one), one]).sort((a, b) => a[0] - b[0]).map(([, one]) => one)) {
      places[i] = { x, y, width, height: heights[i], rank };
      y += heights[i] + BETWEEN;
    }
    x += width + gap;
  }
  return { places, width: x - gap + 60, height };
}

function drawn(box, { x, y, width, height }) {
  return h("g", {}, h("title", {}, box.what), h("rect", { x, y, width, height, rx: 6 }),
    h("text", { class: "name", x: x + 9, y: y + 17 }, cut(box.simulator)),
    h("text", { class: "quiet", x: x + 9, y: y + 33 }, kind(box)),
    box.rows.map((text, i) => [h("line", { x1: x, x2: x + width, y1: y + TITLE + i * ROW, y2: y + TITLE + i * ROW }),
      h("text", { x: x + 9, y: y + TITLE + i * ROW + 15 }, cut(text))]));
}

/** The way of an arrow between two rows, and where its label stands; far ones go along a lane below all boxes. */
function path(source, from, target, to, lane) {
  const y1 = source.y + TITLE + (from + 0.5) * ROW, y2 = target.y + TITLE + (to + 0.5) * ROW;
  const on = target.rank > source.rank;
  if (source.rank === target.rank) {
    const x = source.x + source.width, end = target.x + target.width;
    return { d: `M${x} ${y1}C${x + 50} ${y1} ${end + 50} ${y2} ${end} ${y2}`, x: Math.max(x, end) + 30, y: (y1 + y2) / 2 };
  }
  const x1 = on ? source.x + source.width : source.x, x2 = on ? target.x : target.x + target.width;
  const side = on ? 1 : -1;
  if (lane !== null) {
    const a = x1 + side * 16, b = x2 - side * 16;
    return { d: `M${x1} ${y1}H${a}V${lane}H${b}V${y2}H${x2}`, x: (a + b) / 2, y: lane };
  }
  const middle = (x1 + x2) / 2;
  // back and forth between two rows lie beside one another
  const off = on ? -3 : 5;
  return { d: `M${x1} ${y1 + off}C${middle} ${y1 + off} ${middle} ${y2 + off} ${x2} ${y2 + off}`, x: middle, y: (y1 + y2) / 2 + (on ? -2 : 18) };
}
