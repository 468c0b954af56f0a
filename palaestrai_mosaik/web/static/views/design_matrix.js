// The runs of a design as a matrix of states: one cell for each repetition of each row.

import { useSignal } from "@preact/signals";
import { h } from "preact";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { has } from "web/data";
import { count, number } from "web/format";
import { Status } from "web/page";
import { SIGNS } from "web/views/design_model";
import { RunTable } from "web/views/design_selection";

/** more cells than this are shown in parts */
const PAGE = 10000;
/** with more cells than this they are smaller */
const MANY = 2000;

export function Matrix({ model }) {
  void model.revision.value;
  const { repetitions } = model.facts, perPage = Math.max(1, Math.floor(PAGE / repetitions)), rows = model.rows();
  const hidden = useSignal(new Set()), current = useSignal(null), first = useSignal(0), width = useSignal(0), listed = useSignal(false);
  const box = useRef(null), small = model.cells.length > MANY, last = Math.min(rows, first.value + perPage);
  const grid = useMemo(() => cellGrid(model), []);
  useLayoutEffect(() => {
    const resized = new ResizeObserver(() => { width.value = box.current.clientWidth; });
    resized.observe(box.current);
    return () => resized.disconnect();
  }, []);
  const start = first.value, out = hidden.value;
  useLayoutEffect(() => grid.draw(box.current, start, last, small, out));

  const cellOf = (event) => {
    const cell = event.target.closest?.("[data-cell]")?.dataset.cell;
    return cell === undefined ? null : Number(cell);
  };
  function open(cell) {
    const instance = model.instanceOf(cell);
    current.value = cell;
    if (instance !== null && has(`run/${instance}`)) location.hash = `#/run/${encodeURIComponent(instance)}`;
  }
  function press(event) {
    const cell = cellOf(event), band = grid.columns() * repetitions;
    const steps = { ArrowLeft: -repetitions, ArrowRight: repetitions, ArrowUp: "up", ArrowDown: "down", Home: "home", End: "end",
      PageUp: -10 * band, PageDown: 10 * band };
    if (cell === null) return;
    if (event.key === "Enter" || event.key === " ") open(cell);
    else if (event.key in steps) grid.move(cell, steps[event.key], [first.value * repetitions, last * repetitions - 1], hidden.value);
    else return;
    event.preventDefault();
  }
  const when = (act) => (event) => {
    const cell = cellOf(event);
    if (cell !== null) act(cell);
  };
  const visible = listed.value ? model.cells.map((_, cell) => cell).filter((cell) => !hidden.value.has(model.statusOf(cell))) : [];
  const starts = Array.from({ length: Math.ceil(rows / perPage) }, (_, i) => i * perPage);
  return h("div", {},
    h(Filters, { model, hidden }),
    starts.length > 1 && h("div", { class: "controls" }, h("label", {}, "Rows ", h("select", { value: first.value,
      onchange: (event) => { first.value = Number(event.target.value); } },
    starts.map((from) => h("option", { value: from }, `${from} to ${Math.min(rows, from + perPage) - 1}`))))),
    h("div", { class: "design-matrix-box" }, h("div", {
      class: `design-matrix ${small ? "small" : ""}`, role: "grid", ref: box, "data-width": width.value,
      "aria-label": `States of the runs: ${count(rows, "row")}, ${count(repetitions, "repetition")}`, onkeydown: press, onclick: when(open),
      onpointerover: when(grid.name), onfocusin: when((cell) => {
        current.value = cell;
        grid.choose(cell);
      }) })),
    h("p", { class: "design-detail", "aria-live": "polite" },
      current.value === null ? "Choose a cell to see its run." : h(Detail, { model, cell: current.value })),
    h("details", { ontoggle: (event) => { listed.value = event.target.open; } }, h("summary", {}, "Runs as a table"),
      listed.value && h(RunTable, { model, cells: visible, caption: `${number(visible.length)} of ${count(model.cells.length, "run")}`,
        columns: [{ title: "State", value: (cell) => h(Status, { of: model.statusOf(cell), look: lookOf(model.statusOf(cell)) }) }] })));
}

const lookOf = (status) => SIGNS[status][1];

function Filters({ model, hidden }) {
  const counts = new Map();
  for (let cell = 0; cell < model.cells.length; cell += 1) counts.set(model.statusOf(cell), (counts.get(model.statusOf(cell)) ?? 0) + 1);
  const toggle = (status) => {
    const rest = [...hidden.value].filter((one) => one !== status);
    hidden.value = new Set(rest.length < hidden.value.size ? rest : [...rest, status]);
  };
  return h("div", { class: "controls", role: "group", "aria-label": "Show only runs that are" },
    Object.keys(SIGNS).filter((status) => counts.has(status)).map((status) => h("button", { key: status, type: "button", "data-status": status,
      "aria-pressed": String(!hidden.value.has(status)), onclick: () => toggle(status) },
    h("span", { class: `cell ${lookOf(status)}`, "aria-hidden": "true" }, SIGNS[status][0]), ` ${status} ${number(counts.get(status))}`)));
}

function Detail({ model, cell }) {
  const status = model.statusOf(cell), failure = model.errors.get(model.cells[cell]), instance = model.instanceOf(cell);
  return [h("b", {}, model.name(cell)), ` (${model.uidOf(cell)}): `, h(Status, { of: status, look: lookOf(status) }), ". ",
    instance === null ? h("span", {}, why(model, status), " ")
      : has(`run/${instance}`) && [h("a", { href: `#/run/${encodeURIComponent(instance)}` }, "Open the run"), ". "],
    model.isDuplicate(cell) && `Its document is that of ${model.name(model.cellsOf[model.cells[cell]][0])}, with which it is executed. `,
    failure && [h("span", {}, failure.error), " (", h("code", {}, failure.log), "). "],
    h("span", { class: "quiet" }, model.values(cell).join(", "))];
}

function why(model, status) {
  if (status === "finished") return `It has finished in a store of its own, and is to be collected: arsenai collect ${model.facts.folder}.`;
  if (status === "running") return "It runs, and has recorded nothing here yet.";
  return status === "waiting" || status === "queued" ? "It has not run yet." : "It has recorded nothing here.";
}

/** The cells, thousands of elements: they are made by hand, and only those that have changed are touched. */
function cellGrid(model) {
  const { repetitions } = model.facts, elements = new Map();
  let layout = null, filled = 0, current = 0, columns = 1;

  function draw(box, first, last, small, hidden) {
    const fit = Math.floor(((box.clientWidth || 600) - 50) / (small ? 14 : 20)), even = fit > 10 ? fit - (fit % 10) : fit;
    columns = Math.max(1, Math.min(last - first, even));
    const now = `${first} ${columns} ${small}`, focused = box.contains(document.activeElement);
    if (now !== layout) {
      box.replaceChildren();
      elements.clear();
      filled = first;
    }
    layout = now;
    if (filled < last) {
      // bands that are full stay as they are
      const rest = (filled - first) % columns;
      if (rest) {
        box.lastChild.remove();
        filled -= rest;
      }
      const content = document.createDocumentFragment();
      for (; filled < last; filled = Math.min(last, filled + columns)) content.append(band(filled, Math.min(last, filled + columns)));
      box.append(content);
    }
    for (const [cell, element] of elements) show(cell, element, hidden);
    if (!elements.has(current)) current = first * repetitions;
    elements.get(current)?.setAttribute("tabindex", "0");
    if (focused && !box.contains(document.activeElement)) elements.get(current)?.focus({ preventScroll: true });
  }
  function made(tag, attributes, text = "") {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = text;
    return element;
  }
  // the rows of the design from left to right, their repetitions from top to bottom
  function band(start, end) {
    const group = made("div", { class: "band", role: "rowgroup" });
    for (let repetition = 0; repetition < repetitions; repetition += 1) {
      const line = made("div", { class: "line", role: "row" });
      line.append(made("span", { role: "rowheader", "aria-label": `from row ${start}` }, repetition ? "" : String(start)));
      for (let row = start; row < end; row += 1) {
        const cell = row * repetitions + repetition, element = made("div", { role: "gridcell", tabindex: "-1", "data-cell": String(cell) });
        elements.set(cell, element);
        line.append(element);
      }
      group.append(line);
    }
    return group;
  }
  function show(cell, element, hidden) {
    const status = model.statusOf(cell), [sign, look] = SIGNS[status];
    const now = `cell ${look}${hidden.has(status) ? " out" : ""}${model.isDuplicate(cell) ? " same" : ""}`;
    if (element.className === now && element.textContent === sign) return;
    element.className = now;
    element.textContent = sign;
    element.setAttribute("aria-label", `${model.name(cell)}: ${status}`);
    element.removeAttribute("title");
  }
  return {
    draw,
    columns: () => columns,
    /** Make a cell the one that the tabulator reaches. */
    choose(cell) {
      elements.get(current)?.setAttribute("tabindex", "-1");
      current = cell;
      elements.get(cell)?.setAttribute("tabindex", "0");
    },
    /** Give a cell its title: those of thousands of cells are made when they are needed. */
    name(cell) {
      elements.get(cell).title = [`${model.name(cell)}: ${model.statusOf(cell)}`, ...model.values(cell)].join("\n");
    },
    /** Move the focus; runs that are filtered out are passed over. */
    move(cell, step, [begin, last], hidden) {
      const repetition = model.repetition(cell), size = columns * repetitions;
      let to = cell + step;
      if (step === "home") to = begin;
      if (step === "end") to = last;
      if (step === "down") to = repetition < repetitions - 1 ? cell + 1 : cell + size - repetition;
      if (step === "up") to = repetition > 0 ? cell - 1 : cell - size + repetitions - 1;
      const direction = to < cell ? -1 : 1;
      to = Math.min(last, Math.max(begin, to));
      while (to >= begin && to <= last && hidden.has(model.statusOf(to))) to += direction;
      elements.get(to)?.focus();
    },
  };
}
