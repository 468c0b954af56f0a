// A table of any number of rows: only those in view are elements.

import { fill, h } from "web/dom";

/** Height of a row in pixels; style.css has the same. */
const ROW = 32;
/** Rows above and below the view that are made as well. */
const AROUND = 8;

/**
 * Make a table.
 * `columns` are [{name, title, width, least?, number?, sortable?, fixed?, cell(row)}]: widths are in pixels (`least`: where
 * there is not enough room), `cell` returns what the cell contains (`fixed`: for as long as the row is in view, so that it
 * keeps the focus). `key(row)` tells rows apart.
 * `sorted({name, down})` is called when a heading is pressed, `viewed(rows)` when other rows have come into view.
 * Returns {element, show(rows, sort, hidden), update(), inView()}.
 */
export function windowTable({ caption, columns, key, sorted, viewed }) {
  const headings = columns.map((column) => h("th", { scope: "col", class: column.number && "number" },
    column.sortable ? h("button", { type: "button", onclick: () => press(column) }, column.title, h("span", { "aria-hidden": "true" }))
      : column.title));
  const above = h("tr", { "aria-hidden": "true", class: "space" }, h("td", { colspan: columns.length }));
  const below = above.cloneNode(true);
  const body = h("tbody", {}, above, below);
  const cols = columns.map(() => h("col", {}));
  const table = h("table", { class: "window" }, h("caption", { class: "unseen" }, caption), h("colgroup", {}, cols),
    h("thead", {}, h("tr", { "aria-rowindex": 1 }, headings)), body);
  const box = h("div", { class: "scroll window", tabindex: "0", role: "region", "aria-label": caption }, table);
  const shown = new Map();
  let rows = [], sort = null, hidden = new Set(), first = 0, last = 0, planned = false;

  /** Share out the room: all columns are as wide as they want, or as much narrower as they can be, or have to be. */
  function measure() {
    const seen = columns.filter((column) => !hidden.has(column.name)), least = (column) => column.least ?? column.width;
    const sum = (width) => seen.reduce((total, column) => total + width(column), 0);
    const wanted = sum((column) => column.width), needed = sum(least);
    const share = wanted > needed ? Math.max(0, Math.min(1, (box.clientWidth - needed) / (wanted - needed))) : 1;
    const width = (column) => Math.floor(least(column) + share * (column.width - least(column)));
    columns.forEach((column, i) => cols[i].style.setProperty("width", `${width(column)}px`));
    table.style.setProperty("min-width", `${sum(width)}px`);
  }
  function hide(cells) {
    columns.forEach((column, i) => cells[i].toggleAttribute("hidden", hidden.has(column.name)));
  }

  function press(column) {
    sorted({ name: column.name, down: sort?.name === column.name ? !sort.down : Boolean(column.number) });
  }
  function make(row) {
    const cells = columns.map((column) => h("td", { class: column.number && "number" }, column.fixed && column.cell(row)));
    hide(cells);
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
  new ResizeObserver(() => { measure(); draw(false); }).observe(box);

  return {
    element: box,
    /** Show these rows; `sort` is {name, down}, `without` the names of the columns that are not shown. */
    show(others, by, without = new Set()) {
      [rows, sort] = [others, by];
      if (columns.some((column) => without.has(column.name) !== hidden.has(column.name))) {
        hidden = without;
        [headings, cols, ...[...shown.values()].map((one) => one.cells)].forEach(hide);
        for (const space of [above, below]) space.firstChild.colSpan = columns.length - hidden.size;
      }
      measure();
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
