// Colours of numbers: voltages diverge from 1.0, loadings rise to 100 % and above. Each scale has a legend with numbers.
// Blue against orange and brightness tell low from high to colour-blind readers, too; shapes and widths say it once more.

import { useSignal } from "@preact/signals";
import { h } from "preact";
import { useEffect } from "preact/hooks";

const VOLTAGE = {
  light: [[0.9, "#08306b"], [0.95, "#4a90c9"], [1, "#dfe3e8"], [1.05, "#e8923a"], [1.1, "#7f2704"]],
  dark: [[0.9, "#d6ecff"], [0.95, "#4f9de0"], [1, "#4a525e"], [1.05, "#d98a35"], [1.1, "#ffe9c9"]],
};
const LOADING = {
  light: [[0, "#c3c9d1"], [50, "#8d7bb5"], [100, "#5a1f96"], [100.001, "#c2185b"], [150, "#7d0032"]],
  dark: [[0, "#566070"], [50, "#8f7fc4"], [100, "#d3b8ff"], [100.001, "#ff5c93"], [150, "#ffc2d6"]],
};
const RANGE = { light: ["#e3e8ee", "#2c7a8c", "#0b2e3a"], dark: ["#3b4652", "#45a5b8", "#dff7fb"] };

const dark = window.matchMedia("(prefers-color-scheme: dark)");

function channels(code) {
  return [1, 3, 5].map((at) => parseInt(code.slice(at, at + 2), 16));
}

/** The look of the colours now: "light" or "dark". */
export function mode() {
  return dark.matches ? "dark" : "light";
}

/** The look of the colours, for a component that is drawn anew when the reader changes it. */
export function useMode() {
  const now = useSignal(mode());
  useEffect(() => {
    const look = () => { now.value = mode(); };
    dark.addEventListener("change", look);
    return () => dark.removeEventListener("change", look);
  }, []);
  return now.value;
}

/**
 * A scale for a unit: "p.u." (voltages), "%" (loadings), or others, which span [low, high].
 * Returns {unit, stops: [[value, [r, g, b]]], colour(value)}.
 */
export function scale(unit, [low, high] = [0, 1]) {
  let stops;
  if (unit === "p.u.") stops = VOLTAGE[mode()];
  else if (unit === "%") stops = LOADING[mode()];
  else {
    const span = high > low ? high - low : 1;
    stops = RANGE[mode()].map((one, i) => [low + (span * i) / 2, one]);
  }
  stops = stops.map(([value, code]) => [value, channels(code)]);
  function colour(value) {
    if (value <= stops[0][0]) return text(stops[0][1]);
    for (let i = 1; i < stops.length; i += 1) {
      const [to, last] = stops[i], [from, first] = stops[i - 1];
      if (value <= to) return text(first.map((one, j) => Math.round(one + ((last[j] - one) * (value - from)) / (to - from))));
    }
    return text(stops.at(-1)[1]);
  }
  return { unit, stops, colour };
}

function text(rgb) {
  return `rgb(${rgb.join(", ")})`;
}

let legends = 0;

/** A legend: the scale as a strip, with numbers below it. */
export function legend(title, one, ticks) {
  const [low, high] = [one.stops[0][0], one.stops.at(-1)[0]];
  const at = (value) => (100 * (value - low)) / (high - low || 1);
  legends += 1;
  const id = `scale-${legends}`;
  return h("div", { class: "scale", role: "img", "aria-label": `${title}: ${ticks.map(([, label]) => label).join(", ")}` },
    h("span", {}, title),
    h("svg", { viewBox: "-18 0 236 30", width: 236, height: 30 },
      h("linearGradient", { id }, one.stops.map(([value, rgb]) =>
        h("stop", { offset: `${at(value)}%`, "stop-color": text(rgb), "data-value": value }))),
      h("rect", { width: 200, height: 12, fill: `url(#${id})`, class: "strip" }),
      ticks.map(([value, label]) => [
        h("line", { x1: 2 * at(value), x2: 2 * at(value), y1: 0, y2: 16, class: "tick" }),
        h("text", { x: 2 * at(value), y: 27, "text-anchor": "middle" }, label)])));
}
