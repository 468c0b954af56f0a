// Charts: ECharts with this page's colours, a text for screen readers, and the numbers as a table.

import { fill, h } from "web/dom";
import { number } from "web/format";

const dark = window.matchMedia("(prefers-color-scheme: dark)");

/** Twelve colours that people with colour-blindness can tell apart; lines also differ by their dashes. */
export const COLOURS = ["#3b6fb6", "#d1661a", "#2f8f5b", "#b5476d", "#7a5bb0", "#8a7000", "#1c8c9c", "#a3483a",
  "#5c7a1f", "#c24fb0", "#586b86", "#a0702c"];
const DASHES = ["solid", [6, 3], [2, 2], [8, 3, 2, 3]];

/** The look of the i-th of several lines; `dash` says which dashes it has. */
export function look(i, dash = Math.floor(i / COLOURS.length)) {
  return { color: COLOURS[i % COLOURS.length], type: DASHES[dash % DASHES.length] };
}

/** A colour of the page by the name of its CSS variable, such as "text" or "line". */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** What all charts have in common. Tooltips are drawn on the canvas: names of users are never markup. */
export function base() {
  const text = colour("text"), quiet = colour("quiet"), line = colour("line");
  const axis = { nameTextStyle: { color: quiet }, axisLabel: { color: quiet, hideOverlap: true }, axisLine: { lineStyle: { color: line } },
    splitLine: { lineStyle: { color: line } } };
  return {
    animation: false,
    color: COLOURS,
    textStyle: { color: text, fontFamily: "inherit" },
    aria: { enabled: true },
    tooltip: { renderMode: "richText", backgroundColor: colour("raised"), borderColor: line, textStyle: { color: text, fontSize: 12 } },
    legend: { type: "scroll", textStyle: { color: text }, pageTextStyle: { color: quiet } },
    axis,
  };
}

/**
 * A figure: a heading, a chart, and its numbers as a table that opens.
 * `options(base)` returns the options of ECharts; `numbers()` the table, as {columns: [...titles], rows: [[...]]}.
 * `created(chart)` is called once there is a chart; `keys(event)` makes the chart one that has the focus and is told keys.
 * Returns {element, update(), list(), chart(), close()}; `list` shows the numbers anew where they are open.
 */
export function figure({ title, description, height = 320, options, numbers, created, keys }) {
  const canvas = h("div", { class: "chart", role: "img", "aria-label": description || title, style: { height: `${height}px` },
    tabindex: keys && "0", onkeydown: keys ?? (() => {}) });
  const details = numbers && h("details", { class: "numbers" }, h("summary", {}, "Numbers"), h("div", {}));
  const element = h("figure", {}, title && h("figcaption", {}, title), canvas, details);
  let chart = null;

  function draw() {
    if (!canvas.clientWidth) return;
    const fresh = !chart;
    if (fresh) chart = echarts.init(canvas, null, { renderer: "canvas" });
    const { axis, ...common } = base();
    chart.setOption({ ...common, ...options({ axis, ...common }) }, { notMerge: true });
    if (fresh) created?.(chart);
    if (details?.open) list();
  }
  function list() {
    const { columns, rows } = numbers();
    fill(details.lastChild, h("div", { class: "scroll", tabindex: "0" }, h("table", {},
      h("thead", {}, h("tr", {}, columns.map((one) => h("th", { scope: "col" }, one)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((one) => h("td", { class: typeof one === "number" && "number" },
        typeof one === "number" ? number(one, 6) : one))))))));
  }
  details?.addEventListener("toggle", () => details.open && list());
  const resized = new ResizeObserver(() => { if (chart) chart.resize(); else draw(); });
  resized.observe(canvas);
  dark.addEventListener("change", draw);
  return {
    element,
    update: draw,
    list: () => details?.open && list(),
    chart: () => chart,
    close() {
      resized.disconnect();
      dark.removeEventListener("change", draw);
      chart?.dispose();
    },
  };
}
