// A table of any number of rows: only those in view are elements.

import { fill, h } from "web/dom";

/** Height of a row in pixels; style.css has the same. */
const ROW = 32;
/** Rows above and below the view that are made as well. */
const AROUND = 8;

/**
 * Make a table.
 * `columns` are [{name, title, width, number?, sortable?, fixed?, cell(row)}]: widths are in pixels, `cell` returns what
 * the cell contains (`fixed`: for as long as the row is in view, so that it keeps the focus). `key(row)` tells rows apart.
 * `sorted({name, down})` is called when a heading is pressed, `viewed(rows)` when other rows have come into view.
 * Returns {element, show(rows, sort), update(), inView()}.
 */
export function windowTable({ caption, columns, key, sorted, viewed }) {
  const headings = columns.map((column) => h("th", { scope: "col", class: column.number && "number" },
    column.sortable ? h("button", { type: "button", onclick: () => press(column) }, column.title, h("span", { "aria-hidden": "true" }))
      : column.title));
  const above = h("tr", { "aria-hidden": "true", class: "space" }, h("td", { colspan: columns.length }));
  const below = above.cloneNode(true);
  const body = h("tbody", {}, above, below);
  const width = columns.reduce((sum, column) => sum + column.width, 0);
  const table = h("table", { class: "window", style: { "min-width": `${width}px` } }, h("caption", { class: "unseen" }, caption),
    h("colgroup", {}, columns.map((column) => h("col", { style: { width: `${column.width}px` } }))),
    h("thead", {}, h("tr", { "aria-rowindex": 1 }, headings)), body);
  const box = h("div", { class: "scroll window", tabindex: "0", role: "region", "aria-label": caption }, table);
  const shown = new Map();
  let rows = [], sort = null, first = 0, last = 0, planned = false;

  function press(column) {
    sorted({ name: column.name, down: sort?.name === column.name ? !sort.down : Boolean(column.number) });
  }
  function make(row) {
    const cells = columns.map((column) => h("td", { class: column.number && "number" }, column.fixed && column.cell(row)));
    return { element: h("tr", {}, cells), cells };
  }
  function draw(again) {
    planned = false;
    const from = Math.max(0, Math.floor(box.scrollTop / ROW) - AROUND);
    const to = Math.min(rows.length, Math.ceil((box.scrollTop + box.clientHeight) / ROW) + AROUND);
    if (!again && from === first && to === last) return;
    [first, last] = [Math.min(from, to), to];
    const wanted = rows.slice(first, last), keys = new Set(wanted.map(key));
    for (const [name, { element }] of shown) {
      if (keys.has(name)) continue;
      // (else the keyboard would have to begin at the top of the page again)
      if (element.contains(document.activeElement)) box.focus({ preventScroll: true });
      element.remove();
      shown.delete(name);
    }
    let before = above;
    wanted.forEach((row, i) => {
      const name = key(row), known = shown.get(name), one = known ?? make(row);
      if (!known) shown.set(name, one);
      if (!known || again) {
        columns.forEach((column, j) => { if (!column.fixed) fill(one.cells[j], column.cell(row)); });
      }
      one.element.setAttribute("aria-rowindex", first + i + 2);
      if (before.nextSibling !== one.element) before.after(one.element);
      before = one.element;
    });
    above.firstChild.style.setProperty("height", `${first * ROW}px`);
    below.firstChild.style.setProperty("height", `${(rows.length - last) * ROW}px`);
    viewed?.(wanted);
  }
  function focus(place) {
    const i = Math.max(0, Math.min(rows.length - 1, place));
    const top = i * ROW, room = box.clientHeight - 2 * ROW;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top > box.scrollTop + room) box.scrollTop = top - room;
    draw(false);
    shown.get(key(rows[i]))?.element.querySelector("a, input")?.focus({ preventScroll: true });
  }
  box.addEventListener("scroll", () => {
    if (!planned) requestAnimationFrame(() => draw(false));
    planned = true;
  });
  // from a row, arrows lead to the next one; without a row, they scroll the box as everywhere
  body.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity }[event.key];
    const index = Number(event.target.closest("tr")?.getAttribute("aria-rowindex"));
    if (!step || !index || !rows.length) return;
    event.preventDefault();
    focus(index - 2 + step);
  });
  new ResizeObserver(() => draw(false)).observe(box);

  return {
    element: box,
    /** Show these rows; `sort` is {name, down}. */
    show(others, by) {
      [rows, sort] = [others, by];
      table.setAttribute("aria-rowcount", rows.length + 1);
      columns.forEach((column, i) => {
        if (!column.sortable) return;
        const own = sort?.name === column.name;
        headings[i].setAttribute("aria-sort", own ? (sort.down ? "descending" : "ascending") : "none");
        headings[i].querySelector("span").textContent = own ? (sort.down ? " ▼" : " ▲") : "";
      });
      draw(true);
    },
    /** Fill the rows in view anew. */
    update: () => draw(true),
    inView: () => rows.slice(first, last),
  };
}
