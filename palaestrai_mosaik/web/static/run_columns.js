// Columns of parameters and metrics that the reader adds to the list of runs.

import { signal } from "@preact/signals";
import { h } from "preact";
import { useRef } from "preact/hooks";
import { offline } from "web/data";
import { count, number } from "web/format";
import { Entry } from "web/page";
import { shown, useResource } from "web/resource";

/** the columns that were added: key, and the condition that its values meet, as text */
export const added = signal(/** @type {{key: string, condition: string}[]} */ ([]));

/** more runs than this are not named in a request */
const MOST = 500;
const ORDERS = { "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b, "=": (a, b) => a === b, "!=": (a, b) => a !== b };

/** The values of the added columns: {column(key): a column of the table, answer: the resource}. */
export function useValues(all) {
  const answer = useResource("runs/values", {
    query: () => (added.value.length && !offline ? { columns: added.value.map((one) => one.key).join(",") } : null),
    since({ rows, pending }) {
      const changed = [...all.value.peek().rows.values()].filter((row) => rows.get(row.id) !== row).map((row) => row.id);
      const ids = [...new Set([...changed, ...pending])];
      return ids.length > MOST ? {} : { ids: ids.join(",") };
    },
    changes: () => all.value.value,
    seconds: 1,
    ended: ({ pending }) => pending.length === 0,
    take({ id, columns, pending }, last) {
      const values = new Map(Object.entries(columns).map(([key, of]) => {
        const own = new Map(last?.values.get(key));
        id.forEach((one, i) => own.set(one, of[i]));
        return [key, own];
      }));
      return { values, pending: Array.from(pending), rows: all.value.peek().rows };
    },
  });
  return { answer, column(key) {
    const of = answer.value.value?.values.get(key), value = (row) => plain(of?.get(row.id));
    const isNumber = of !== undefined && [...of.values()].every((one) => typeof one === "number" || one === null);
    const cell = (one) => (typeof one === "number" ? number(one) : h("span", { title: one }, one ?? "–"));
    return { name: key, title: nameOf(key), width: 150, least: 90, sortable: true, number: isNumber, value, cell: (row) => cell(value(row)) };
  } };
}

/** A value that can be sorted. */
function plain(value) {
  return value === null || value === undefined || typeof value === "number" ? value : typeof value === "string" ? value : JSON.stringify(value);
}

function nameOf(key) {
  return decodeURIComponent(key);
}

/** What a condition such as "< 0.5", "0 to 1" or "sac" says of a value. What has no value meets none. */
export function conditionOf(text) {
  const [, sign, rest] = /^\s*(<=|>=|!=|<|>|=)?\s*(.*?)\s*$/.exec(text), range = /^(\S+)\s+to\s+(\S+)$/.exec(rest)?.slice(1).map(Number);
  const missing = (value) => value === null || value === undefined || Number.isNaN(value);
  if (!sign && range?.every(Number.isFinite)) return (value) => typeof value === "number" && value >= range[0] && value <= range[1];
  const limit = rest !== "" && Number.isFinite(Number(rest)) ? Number(rest) : null;
  return (value) => {
    if (missing(value)) return false;
    if (typeof value === "number") return limit !== null && ORDERS[sign ?? "="](value, limit);
    return sign ? ORDERS[sign](value, rest) : String(value).toLowerCase().includes(rest.toLowerCase());
  };
}

/** What can be added. */
export function Picker() {
  const offered = useResource("runs/columns"), input = useRef(null), steps = useRef(null), fold = useRef(null), picked = useRef(signal(null)).current;
  return shown([offered], () => {
    const { parameters, metrics, steps: folds } = offered.value.value;
    const titled = new Map([...parameters.map((one) => [one.path, { key: one.key, said: `parameter, ${count(one.values, "value")}` }]),
      ...metrics.map((one) => [decodeURIComponent(one.key), { key: one.key, said: one.kind, metric: one }])]);
    const metric = titled.get(picked.value)?.metric;
    function add(event) {
      event.preventDefault();
      const column = titled.get(input.current.value.trim());
      input.current.setCustomValidity(column ? "" : "Choose one of the list.");
      if (!column) {
        input.current.reportValidity();
        return;
      }
      const key = column.metric ? [column.key, steps.current?.value, fold.current?.value].filter(Boolean).join(":") : column.key;
      if (!added.value.some((one) => one.key === key)) added.value = [...added.value, { key, condition: "" }];
      input.current.value = "";
      picked.value = null;
    }
    if (!titled.size) return h("p", { class: "quiet" }, "The documents of the runs differ in nothing, and no episode has ended.");
    const select = (label, ref, names) => h("label", {}, label, h("select", { ref }, names.map((name) => h("option", { key: name, value: name }, name))));
    return h("form", { class: "controls adding-column", onsubmit: add },
      h("label", {}, "Column", h("input", { list: "run-columns", id: "run-column", size: 36, autocomplete: "off", ref: input,
        oninput: (event) => {
          event.target.setCustomValidity("");
          picked.value = event.target.value.trim();
        } })),
      h("datalist", { id: "run-columns" }, [...titled].map(([title, { said }]) => h("option", { key: title, value: title, label: said }))),
      metric && select("of an episode's steps, the", steps, folds), metric && select("of the episodes, the", fold, metric.folds),
      h("button", {}, "Add a column"));
  });
}

/** What was added: conditions, and buttons that remove. */
export function Added() {
  const set = (key, condition) => { added.value = added.value.map((one) => (one.key === key ? { key, condition } : one)); };
  return added.value.length > 0 && h("div", { class: "controls added" }, added.value.map(({ key, condition }) => h("span", { key, class: "actions" },
    h("label", {}, nameOf(key), h(Entry, { type: "search", size: 12, placeholder: "< 0.5, 0 to 1", value: condition, "data-column": key,
      "aria-label": `Condition of ${nameOf(key)}`, entered: (text) => set(key, text.trim()) })),
    h("button", { type: "button", "aria-label": `Remove the column ${nameOf(key)}`,
      onclick: () => { added.value = added.value.filter((one) => one.key !== key); } }, "Remove"))));
}
