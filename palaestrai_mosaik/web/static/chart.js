// Charts: ECharts with this page's colours, a text for screen readers, and the numbers as a table.

import { useSignal } from "@preact/signals";
import { h } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { number } from "web/format";

const dark = window.matchMedia("(prefers-color-scheme: dark)");

/** Twelve colours that people with colour-blindness can tell apart; lines also differ by their dashes. */
export const COLOURS = ["#3b6fb6", "#d1661a", "#2f8f5b", "#b5476d", "#7a5bb0", "#8a7000", "#1c8c9c", "#a3483a",
  "#5c7a1f", "#c24fb0", "#586b86", "#a0702c"];
const DASHES = ["solid", [6, 3], [2, 2], [8, 3, 2, 3]];

/** The look of the i-th of several lines, or of the agent whose `colour` is i; `dash` says which dashes it has. */
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
    textStyle: { color: text, fontFamily: getComputedStyle(document.body).fontFamily },
    aria: { enabled: true },
    tooltip: { renderMode: "richText", backgroundColor: colour("raised"), borderColor: line, textStyle: { color: text, fontSize: 12 } },
    legend: { type: "scroll", textStyle: { color: text }, pageTextStyle: { color: quiet } },
    axis,
  };
}

/**
 * @typedef {Object} FigureProperties
 * @property {string} [title]
 * @property {string} [note] said beside the title
 * @property {string} [description] for screen readers; by default the title
 * @property {number} [height]
 * @property {number} [width] at least, in pixels
 * @property {(base: any) => any} options of ECharts
 * @property {(most?: number) => {columns: string[], rows: any[][]}} [numbers] the table; with a number: at most so many rows
 * @property {(chart: any) => void} [created] called once there is a chart
 * @property {(chart: any) => void} [drawn] called whenever the chart was drawn
 * @property {(event: KeyboardEvent) => void} [keys] makes the chart one that has the focus and is told keys
 * @property {string} [class]
 * @property {any} [children] shown below the chart
 */

/**
 * A figure: a heading, a chart, and its numbers as a table that opens. Whenever it is rendered, the chart is drawn anew, and
 * keeps what the reader has zoomed or brushed.
 * @param {FigureProperties} properties
 */
export function Figure({ title, note, description, height = 320, width, options, numbers, created, drawn, keys, class: name, children }) {
  const canvas = useRef(null), latest = useRef(null), chart = useRef(null), open = useSignal(false);
  latest.current = { options, created, drawn };
  function draw() {
    if (!canvas.current?.clientWidth) return;
    const first = !chart.current, now = latest.current;
    chart.current ??= echarts.init(canvas.current, null, { renderer: "canvas" });
    const { axis, ...common } = base();
    chart.current.setOption({ ...common, ...now.options({ axis, ...common }) }, { replaceMerge: ["series"] });
    if (first) now.created?.(chart.current);
    now.drawn?.(chart.current);
  }
  useLayoutEffect(() => {
    const resized = new ResizeObserver(() => { if (chart.current) chart.current.resize(); else draw(); });
    resized.observe(canvas.current);
    dark.addEventListener("change", draw);
    return () => {
      resized.disconnect();
      dark.removeEventListener("change", draw);
      chart.current?.dispose();
    };
  }, []);
  useLayoutEffect(draw);
  const named = title || description;
  return h("figure", { class: name },
    title && h("figcaption", {}, title, note && h("span", { class: "quiet" }, ` (${note})`)),
    h("div", { class: "chart", role: "img", "aria-label": description || title, ref: canvas, tabindex: keys && 0, onkeydown: keys,
      style: { height: `${height}px`, "min-width": width && `${width}px` } }),
    h("div", { class: "save", role: "group", "aria-label": "Save the figure" },
      h(Save, { as: "PNG", save: () => chart.current && download(named, "png", chart.current.getDataURL({ pixelRatio: 2, backgroundColor: colour("raised") })) }),
      h(Save, { as: "SVG", save: () => chart.current && download(named, "svg", svg(chart.current)) }),
      numbers && h(Save, { as: "CSV", save: () => download(named, "csv", csv(numbers(Infinity))) })),
    numbers && h("details", { class: "numbers", ontoggle: (event) => { open.value = event.target.open; } },
      h("summary", {}, "Numbers"), open.value && h(Numbers, numbers())),
    children);
}

function Numbers({ columns, rows }) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Numbers" }, h("table", {},
    h("thead", {}, h("tr", {}, columns.map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", { class: typeof cell === "number" ? "number" : undefined },
      typeof cell === "number" ? number(cell, 6) : cell)))))));
}

function Save({ as, save }) {
  return h("button", { type: "button", "aria-label": `Save as ${as}`, onclick: save }, as);
}

/** Have the browser save a text, or what a data URL has. */
function download(name, ending, content) {
  const link = document.createElement("a"), data = content.startsWith("data:");
  link.href = data ? content : URL.createObjectURL(new Blob([content]));
  link.download = `${name.replace(/[^\p{L}\p{N}.-]+/gu, "_").slice(0, 80)}.${ending}`;
  link.click();
  if (!data) setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** What a chart shows, as SVG. */
function svg(chart) {
  const drawn = echarts.init(null, null, { renderer: "svg", ssr: true, width: chart.getWidth(), height: chart.getHeight() });
  drawn.setOption({ ...chart.getOption(), backgroundColor: colour("raised") });
  const text = drawn.renderToSVGString();
  drawn.dispose();
  return text;
}

/** A table as comma-separated values. A text that a spreadsheet would take for a formula begins with an apostrophe. */
export function csv({ columns, rows }) {
  const cell = (value) => {
    if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
    const text = value === "–" || value === null || value === undefined ? "" : String(value).replace(/^[=+\-@\t\r]/, "'$&");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}
