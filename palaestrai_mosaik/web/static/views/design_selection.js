// Which runs are selected: those within ranges of factors and outcomes, which charts and inputs set.

import { has } from "web/data";
import { fill, h, link, table } from "web/dom";
import { number } from "web/format";
import { extent, text } from "web/views/design_model";

/** rows of a list that are shown at first, and more each time they are asked for */
const STEP = 50;

/** Make the selection of a model. Listeners are called once a frame, with the key of the axis that changed last. */
export function createSelection(model) {
  const ranges = new Map(), listeners = [];
  let asked = false;
  function notify() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      for (const listener of listeners) listener();
    });
  }
  return {
    /** The intervals of an axis, [] where all of it is meant. */
    get: (key) => ranges.get(key) ?? [],
    /** Set the intervals of an axis: [[low, high], ...]. Returns whether that is a change. */
    set(key, intervals) {
      if (JSON.stringify(intervals) === JSON.stringify(ranges.get(key) ?? [])) return false;
      if (intervals.length) ranges.set(key, intervals);
      else ranges.delete(key);
      notify();
      return true;
    },
    clear() {
      ranges.clear();
      notify();
    },
    isEmpty: () => ranges.size === 0,
    /** Whether a cell lies within all ranges; a value that is missing lies in none. */
    has(cell) {
      for (const axis of model.axes()) {
        const intervals = ranges.get(axis.key);
        if (!intervals) continue;
        const value = axis.value(cell);
        if (!intervals.some(([low, high]) => value >= low && value <= high)) return false;
      }
      return true;
    },
    listen: (listener) => listeners.push(listener),
    notify,
  };
}

/** The runs of some cells as a table with their factors and outcomes; `columns` come after the run's name. */
export function runTable(model, cells, caption, columns = []) {
  let shown = STEP;
  const element = h("div", {});
  function draw() {
    const rows = cells.slice(0, shown);
    fill(element, table([
      { title: "Row", number: true, value: (cell) => model.row(cell) },
      model.facts.repetitions > 1 && { title: "Repetition", number: true, value: (cell) => model.repetition(cell) },
      { title: "Run", value: (cell) => runLink(model, cell) },
      ...columns,
      ...model.factors.map((axis) => ({ title: axis.name, number: !axis.levels, value: (cell) => text(axis, axis.value(cell)) })),
      ...model.outcomes.map((axis) => ({ title: axis.name, number: true, value: (cell) => number(axis.value(cell), 6) })),
    ].filter(Boolean), rows, caption));
    if (cells.length > shown) {
      element.append(h("p", {}, h("button", { type: "button", onclick: () => { shown += STEP; draw(); } },
        `Show ${Math.min(STEP, cells.length - shown)} more of ${number(cells.length - shown)}`)));
    }
  }
  draw();
  return element;
}

/** The uid of a cell's run, as a link where the store has it. */
export function runLink(model, cell) {
  const instance = model.instanceOf(cell);
  return instance === null || !has(`run/${instance}`) ? model.uidOf(cell) : link(`#/run/${encodeURIComponent(instance)}`, model.uidOf(cell));
}

/** Cells with the best value of the outcome first, those without a value last; in order where no direction is better. */
export function bestFirst(cells, outcome) {
  if (!outcome?.better) return cells;
  const sign = outcome.better === "lower" ? 1 : -1;
  const place = (cell) => (Number.isNaN(outcome.value(cell)) ? Infinity : sign * outcome.value(cell));
  return [...cells].sort((a, b) => (place(a) === place(b) ? a - b : place(a) - place(b)));
}

/** Inputs for the ends of each axis: what brushes do, for the keyboard. Returns {element, update()}. */
export function rangeInputs(model, selection) {
  const box = h("div", { class: "design-ranges" });
  const clear = h("button", { type: "button", onclick: () => selection.clear() }, "Clear the selection");
  const element = h("details", {}, h("summary", {}, "Select runs by ranges"), box, h("p", {}, clear));
  let fields = [];

  function field(axis) {
    const ends = ["lowest", "highest"].map((end, i) => {
      const name = `${end} ${axis.name}`;
      const common = { "aria-label": name, title: name, onchange: () => take(axis, ends) };
      if (!axis.levels) return h("input", { ...common, type: "number", step: "any" });
      const options = axis.levels.map((level, k) => h("option", { value: k }, level));
      return h("select", common, h("option", { value: "" }, i ? "to the last" : "from the first"), options);
    });
    return { axis, ends, element: h("fieldset", {}, h("legend", {}, axis.name, axis.better ? ` (${axis.better} is better)` : ""), ends) };
  }
  function take(axis, ends) {
    const [low, high] = ends.map((end) => (end.value === "" ? null : Number(end.value)));
    const lowest = axis.levels ? 0 : -Number.MAX_VALUE, highest = axis.levels ? axis.levels.length - 1 : Number.MAX_VALUE;
    selection.set(axis.key, low === null && high === null ? [] : [[low ?? lowest, high ?? highest]]);
  }
  function update() {
    const axes = model.axes();
    if (fields.length !== axes.length) {
      fields = axes.map(field);
      fill(box, fields.map((one) => one.element));
    }
    const cells = model.executed();
    fields.forEach((one, i) => {
      one.axis = axes[i];
      const intervals = selection.get(one.axis.key);
      const ends = intervals.length ? [Math.min(...intervals.map(([low]) => low)), Math.max(...intervals.map(([, high]) => high))] : [null, null];
      const [low, high] = extent(one.axis, cells);
      one.ends.forEach((end, k) => {
        if (end === document.activeElement && intervals.length === 0 && end.value !== "") return;
        end.value = shownEnd(one.axis, ends[k], k);
        if (!one.axis.levels) end.placeholder = number([low, high][k], 4);
      });
    });
    clear.disabled = selection.isEmpty();
  }
  selection.listen(update);
  update();
  return { element, update };
}

/** What an input shows of an end: nothing where the range is open. */
function shownEnd(axis, value, k) {
  if (value === null || Math.abs(value) === Number.MAX_VALUE) return "";
  if (!axis.levels) return String(value);
  return String(Math.min(axis.levels.length - 1, Math.max(0, k ? Math.floor(value) : Math.ceil(value))));
}
