// The runs of a design as a matrix of states: one cell for each repetition of each row.

import { has } from "web/data";
import { fill, h, link } from "web/dom";
import { number } from "web/format";
import { SIGNS } from "web/views/design_model";
import { runTable } from "web/views/design_selection";

/** more cells than this are shown in parts */
const PAGE = 10000;
/** with more cells than this they are smaller */
const MANY = 2000;

/**
 * Returns {element, update(runs), grow(), close()}; `update` is told the numbers of the runs that have changed, `grow` is
 * called when the model has more rows.
 */
export function matrix(model) {
  const { repetitions } = model.facts;
  const perPage = Math.max(1, Math.floor(PAGE / repetitions));
  const filters = h("div", { class: "controls", role: "group", "aria-label": "Show only runs that are" });
  const parts = h("div", { class: "controls" });
  const grid = h("div", { class: "design-matrix", role: "grid", onkeydown: press, onclick: click, onfocusin: focus, onpointerover: hover });
  const detail = h("p", { class: "design-detail", "aria-live": "polite" }, "Choose a cell to see its run.");
  const list = h("div", {});
  const listed = h("details", {}, h("summary", {}, "Runs as a table"), list);
  const element = h("div", {}, filters, parts, h("div", { class: "design-matrix-box" }, grid), detail, listed);
  const hidden = new Set();
  let first = 0, columns = 0, elements = new Map(), current = 0;
  const end = () => Math.min(model.rows(), first + perPage);

  function draw() {
    elements = new Map();
    const last = end();
    columns = columnsThatFit(last - first);
    const content = document.createDocumentFragment();
    for (let start = first; start < last; start += columns) content.append(band(start, Math.min(last, start + columns)));
    grid.replaceChildren(content);
    if (!elements.has(current)) current = first * repetitions;
    elements.get(current)?.setAttribute("tabindex", "0");
  }
  /** Draw the rows that were added: bands that are full stay as they are. */
  function extend() {
    const focused = grid.contains(document.activeElement), last = end();
    const bands = [...grid.children], shown = elements.size / repetitions;
    if (first + shown >= last) return;
    if (describeGrid() || columnsThatFit(last - first) !== columns) draw();
    else {
      let start = first + shown;
      if (shown % columns) {
        bands.at(-1).remove();
        start = first + (bands.length - 1) * columns;
      }
      const content = document.createDocumentFragment();
      for (; start < last; start += columns) content.append(band(start, Math.min(last, start + columns)));
      grid.append(content);
      elements.get(current)?.setAttribute("tabindex", "0");
    }
    if (focused) elements.get(current)?.focus({ preventScroll: true });
  }
  /** Say what the grid is; returns whether its cells have another size now. */
  function describeGrid() {
    const small = model.cells.length > MANY, changed = grid.classList.contains("small") !== small;
    grid.classList.toggle("small", small);
    grid.setAttribute("aria-label", `States of the runs: ${model.rows()} rows, ${repetitions} repetitions`);
    return changed;
  }
  // the rows of the design from left to right, their repetitions from top to bottom
  function band(start, end) {
    const group = h("div", { class: "band", role: "rowgroup" });
    for (let repetition = 0; repetition < repetitions; repetition += 1) {
      const line = h("div", { class: "line", role: "row" }, h("span", { role: "rowheader", "aria-label": `from row ${start}` }, repetition ? "" : start));
      for (let row = start; row < end; row += 1) {
        const cell = row * repetitions + repetition, one = document.createElement("div");
        one.setAttribute("role", "gridcell");
        one.setAttribute("tabindex", "-1");
        one.dataset.cell = cell;
        elements.set(cell, one);
        show(cell);
        line.append(one);
      }
      group.append(line);
    }
    return group;
  }
  function columnsThatFit(count) {
    const pitch = grid.classList.contains("small") ? 14 : 20;
    const fit = Math.floor(((grid.clientWidth || 600) - 50) / pitch);
    return Math.max(1, Math.min(count, fit > 10 ? fit - (fit % 10) : fit));
  }
  function show(cell) {
    const one = elements.get(cell);
    if (!one) return;
    const status = model.statusOf(cell), [sign, look] = SIGNS[status];
    one.className = `cell ${look}${hidden.has(status) ? " out" : ""}${model.isDuplicate(cell) ? " same" : ""}`;
    one.textContent = sign;
    one.setAttribute("aria-label", `${model.name(cell)}: ${status}`);
    one.removeAttribute("title");
  }

  function cellOf(target) {
    const one = target.closest?.("[data-cell]");
    return one ? Number(one.dataset.cell) : null;
  }
  // (titles of thousands of cells are made when they are needed)
  function hover(event) {
    const cell = cellOf(event.target);
    if (cell !== null) elements.get(cell).title = [`${model.name(cell)}: ${model.statusOf(cell)}`, ...model.values(cell)].join("\n");
  }
  function focus(event) {
    const cell = cellOf(event.target);
    if (cell === null) return;
    elements.get(current)?.setAttribute("tabindex", "-1");
    current = cell;
    elements.get(cell).setAttribute("tabindex", "0");
    describe();
  }
  function click(event) {
    const cell = cellOf(event.target);
    if (cell !== null) open(cell);
  }
  function open(cell) {
    current = cell;
    describe();
    if (model.instanceOf(cell) !== null && has(`run/${model.instanceOf(cell)}`)) location.hash = `#/run/${encodeURIComponent(model.instanceOf(cell))}`;
  }
  function describe() {
    const cell = current, status = model.statusOf(cell), failure = model.errors.get(model.cells[cell]);
    const instance = model.instanceOf(cell);
    fill(detail, h("b", {}, model.name(cell)), ` (${model.uidOf(cell)}): `, h("span", { class: `status ${status}` }, status), ". ",
      instance === null ? h("span", {}, why(status), " ") : has(`run/${instance}`) && [link(`#/run/${encodeURIComponent(instance)}`, "Open the run"), ". "],
      model.isDuplicate(cell) && `Its document is that of ${model.name(model.cellsOf[model.cells[cell]][0])}, with which it is executed. `,
      failure && [h("span", {}, failure.error), " (", h("code", {}, failure.log), "). "],
      h("span", { class: "quiet" }, model.values(cell).join(", ")));
  }
  function why(status) {
    if (status === "finished") return `It has finished in a store of its own, and is to be collected: arsenai collect ${model.facts.folder}.`;
    if (status === "running") return "It runs, and has recorded nothing here yet.";
    return status === "waiting" || status === "queued" ? "It has not run yet." : "It has recorded nothing here.";
  }

  function press(event) {
    const steps = { ArrowLeft: -repetitions, ArrowRight: repetitions, ArrowUp: "up", ArrowDown: "down", Home: "home", End: "end",
      PageUp: -10 * columns * repetitions, PageDown: 10 * columns * repetitions };
    const cell = cellOf(event.target);
    if (cell === null) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      open(cell);
    } else if (event.key in steps) {
      event.preventDefault();
      move(cell, steps[event.key]);
    }
  }
  function move(cell, step) {
    const begin = first * repetitions, last = end() * repetitions - 1;
    const repetition = model.repetition(cell), band = columns * repetitions;
    let to = cell + step;
    if (step === "home") to = begin;
    if (step === "end") to = last;
    if (step === "down") to = repetition < repetitions - 1 ? cell + 1 : cell + band - repetition;
    if (step === "up") to = repetition > 0 ? cell - 1 : cell - band + repetitions - 1;
    // runs that are filtered out are passed over
    const direction = to < cell ? -1 : 1;
    to = Math.min(last, Math.max(begin, to));
    while (to >= begin && to <= last && hidden.has(model.statusOf(to))) to += direction;
    elements.get(to)?.focus();
  }

  function count() {
    const counts = new Map();
    for (let cell = 0; cell < model.cells.length; cell += 1) counts.set(model.statusOf(cell), (counts.get(model.statusOf(cell)) ?? 0) + 1);
    return Object.keys(SIGNS).filter((status) => counts.has(status)).map((status) => [status, counts.get(status)]);
  }
  function drawFilters() {
    const focused = document.activeElement?.dataset?.status;
    fill(filters, count().map(([status, n]) => {
      const [sign, look] = SIGNS[status];
      return h("button", { type: "button", "data-status": status, "aria-pressed": String(!hidden.has(status)), onclick: () => toggle(status) },
        h("span", { class: `cell ${look}`, "aria-hidden": "true" }, sign), ` ${status} ${number(n)}`);
    }));
    if (focused) filters.querySelector(`[data-status="${focused}"]`)?.focus();
  }
  function toggle(status) {
    if (!hidden.delete(status)) hidden.add(status);
    drawFilters();
    for (const cell of elements.keys()) show(cell);
    drawList();
  }
  function drawList() {
    if (!listed.open) return;
    const shown = model.cells.flatMap((_, cell) => (hidden.has(model.statusOf(cell)) ? [] : [cell]));
    fill(list, runTable(model, shown, `${number(shown.length)} of ${number(model.cells.length)} runs`, [
      { title: "State", value: (cell) => h("span", { class: `status ${model.statusOf(cell)}` }, model.statusOf(cell)) },
    ]));
  }
  listed.addEventListener("toggle", drawList);

  function drawParts() {
    const rows = model.rows();
    if (rows <= perPage) return;
    const starts = Array.from({ length: Math.ceil(rows / perPage) }, (_, i) => i * perPage);
    fill(parts, h("label", {}, "Rows ", h("select", { onchange: (event) => { first = Number(event.target.value); draw(); } },
      starts.map((start) => h("option", { value: start, selected: start === first }, `${start} to ${Math.min(rows, start + perPage) - 1}`)))));
  }
  const resized = new ResizeObserver(() => {
    if (columnsThatFit(end() - first) !== columns) draw();
  });
  return {
    element,
    start() {
      describeGrid();
      drawParts();
      draw();
      drawFilters();
      resized.observe(grid);
    },
    update(runs) {
      if (!runs.length) return;
      for (const run of runs) for (const cell of model.cellsOf[run]) show(cell);
      drawFilters();
      drawList();
      if (runs.includes(model.cells[current]) && elements.get(current) === document.activeElement) describe();
    },
    grow() {
      drawParts();
      extend();
      drawFilters();
      drawList();
    },
    close: () => resized.disconnect(),
  };
}
