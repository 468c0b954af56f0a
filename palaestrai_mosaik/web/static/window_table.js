// A table of any number of rows: only those in view are elements.

import { useSignal } from "@preact/signals";
import { h } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

/** Height of a row in pixels; style.css has the same. */
const ROW = 32;
/** Rows above and below the view that are made as well. */
const AROUND = 8;

/**
 * @typedef {Object} Column
 * @property {string} name
 * @property {any} title
 * @property {number} width in pixels
 * @property {number} [least] its width where there is not enough room
 * @property {boolean} [number]
 * @property {boolean} [sortable]
 * @property {(row: any) => any} cell what the cell of a row contains
 *
 * @typedef {{name: string, down: boolean}} Sort
 */

/**
 * A table. `rowKey(row)` tells rows apart, `hidden` are the names of the columns that are not shown. `sorted(sort)` is called
 * when a heading is pressed, `viewed(rows)` when other rows have come into view.
 * @param {{caption: string, columns: Column[], rows: any[], rowKey: (row: any) => any, sort?: Sort|null, hidden?: Set<string>,
 *   sorted?: (sort: Sort) => void, viewed?: (rows: any[]) => void}} properties
 */
export function WindowTable({ caption, columns, rows, rowKey, sort = null, hidden = new Set(), sorted, viewed }) {
  const box = useRef(null), moved = useRef(null), size = useSignal({ width: 0, height: 0 }), top = useSignal(0);
  const seen = columns.filter((column) => !hidden.has(column.name)), widths = shares(seen, size.value.width);
  const first = Math.max(0, Math.min(rows.length, Math.floor(top.value / ROW) - AROUND));
  const last = Math.min(rows.length, Math.ceil((top.value + size.value.height) / ROW) + AROUND);

  useLayoutEffect(() => {
    const resized = new ResizeObserver(() => { size.value = { width: box.current.clientWidth, height: box.current.clientHeight }; });
    resized.observe(box.current);
    return () => resized.disconnect();
  }, []);
  useEffect(() => viewed?.(rows.slice(first, last)), [rows, first, last]);
  useLayoutEffect(() => {
    if (moved.current === null) return;
    box.current.querySelector(`[aria-rowindex="${moved.current + 2}"]`)?.querySelector("a, input")?.focus({ preventScroll: true });
    moved.current = null;
  });

  function scroll() {
    // else the keyboard would have to begin at the top of the page again
    const row = indexOf(document.activeElement), at = Math.floor(box.current.scrollTop / ROW);
    if (row !== null && (row < at - AROUND || row > at + size.value.height / ROW + AROUND)) box.current.focus({ preventScroll: true });
    top.value = box.current.scrollTop;
  }
  // from a row, arrows lead to the next one; without a row, they scroll the box as everywhere
  function press(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity }[event.key];
    const row = indexOf(event.target);
    if (!step || row === null) return;
    event.preventDefault();
    const to = Math.max(0, Math.min(rows.length - 1, row + step)), room = box.current.clientHeight - 2 * ROW;
    box.current.scrollTop = Math.max(to * ROW - room, Math.min(to * ROW, box.current.scrollTop));
    moved.current = to;
    // another value, so that the row is drawn and gets the focus
    top.value = box.current.scrollTop + (top.value === box.current.scrollTop ? 0.1 : 0);
  }
  const heading = (column) => {
    if (!column.sortable) return h("th", { key: column.name, scope: "col", class: column.number && "number" }, column.title);
    const down = sort?.name === column.name ? sort.down : null;
    return h("th", { key: column.name, scope: "col", class: column.number && "number",
      "aria-sort": down === null ? "none" : down ? "descending" : "ascending" },
    h("button", { type: "button", onclick: () => sorted({ name: column.name, down: down === null ? Boolean(column.number) : !down }) },
      column.title, h("span", { "aria-hidden": "true" }, down === null ? "" : down ? " ▼" : " ▲")));
  };
  const space = (count) => h("tr", { "aria-hidden": "true", class: "space" },
    h("td", { colspan: seen.length, style: { height: `${count * ROW}px` } }));
  return h("div", { class: "scroll window", tabindex: 0, role: "region", "aria-label": caption, ref: box, onscroll: scroll },
    h("table", { class: "window", "aria-rowcount": rows.length + 1, style: { "min-width": `${widths.reduce((sum, width) => sum + width, 0)}px` } },
      h("caption", { class: "unseen" }, caption),
      h("colgroup", {}, widths.map((width) => h("col", { style: { width: `${width}px` } }))),
      h("thead", {}, h("tr", { "aria-rowindex": 1 }, seen.map(heading))),
      h("tbody", { onkeydown: press }, space(first),
        rows.slice(first, last).map((row, i) => h("tr", { key: rowKey(row), "aria-rowindex": first + i + 2 },
          seen.map((column) => h("td", { key: column.name, class: column.number && "number" }, column.cell(row))))),
        space(rows.length - last))));
}

/** The number of the row that an element is in. */
function indexOf(element) {
  const index = Number(element?.closest?.("tr")?.getAttribute("aria-rowindex"));
  return index > 1 ? index - 2 : null;
}

/** Share out the room: all columns are as wide as they want, or as much narrower as they can be, or have to be. */
function shares(columns, room) {
  const least = (column) => column.least ?? column.width, sum = (width) => columns.reduce((total, column) => total + width(column), 0);
  const wanted = sum((column) => column.width), needed = sum(least);
  const share = wanted > needed ? Math.max(0, Math.min(1, (room - needed) / (wanted - needed))) : 1;
  return columns.map((column) => Math.floor(least(column) + share * (column.width - least(column))));
}
