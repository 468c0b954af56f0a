// Which episode a view shows, and which one beside it, of the same run or of another one.

import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { h } from "preact";
import { useRef } from "preact/hooks";
import { offline } from "web/data";
import { Entry, keepChoices } from "web/page";
import { useResource } from "web/resource";

/**
 * The choice of a view of the run `run`, such as "grid": its resource is `index` (run/RUN/VIEW), its address `#/run/RUN/VIEW`.
 * `episodes(index)` are the episodes of such a resource as [{key, title}], `more()` other choices that the address keeps.
 * Returns signals: `shown` is what is chosen, [{run, index, key}], one or two; `newest` whether the first is the newest
 * episode, which is then followed; and `error`. `controls` is what {@link EpisodeControls} needs.
 */
export function useEpisodeChoice({ run, view, query, index, episodes, more = () => ({}) }) {
  const other = useSignal(query.get("other") ?? ""), picked = useSignal(query.get("at")), beside = useSignal(query.get("beside"));
  const others = useResource(() => `run/${other.value}/${view}`, { query: () => (other.value ? {} : null),
    take: (answer) => ({ ...answer, run: other.peek() }) });
  const last = useRef(null);
  const own = useComputed(() => episodes(index.value.value));
  const besides = useComputed(() => (other.value ? (others.value.value?.run === other.value ? episodes(others.value.value) : []) : own.value));
  // an evaluation is not followed
  const newest = useComputed(() => own.value.filter((one) => !one.evaluation).at(-1)?.key ?? own.value.at(-1)?.key);
  const main = useComputed(() => (own.value.some((one) => one.key === picked.value) ? picked.value : newest.value));
  const shown = useComputed(() => {
    if (main.value === undefined) return [];
    const first = { run, index: index.value.value, key: main.value }, key = beside.value ?? (other.value ? besides.value.at(-1)?.key : "");
    if (!key || !besides.value.some((one) => one.key === key)) return [first];
    return [first, other.value ? { run: other.value, index: others.value.value, key } : { ...first, key }];
  });
  useSignalEffect(() => {
    if (!shown.value.length) return;
    const said = new URLSearchParams({ at: shown.value[0].key, ...(shown.value[1] && { beside: shown.value[1].key }),
      ...(other.value && { other: other.value }), ...more() });
    if (last.current === said.toString()) return;
    last.current = said.toString();
    keepChoices(`#/run/${encodeURIComponent(run)}/${view}`, said);
  });
  return { shown, newest: useComputed(() => main.value === newest.value), error: others.error,
    /** Follow the newest episode, or stay with the one that is shown. */
    follow: (on) => { picked.value = on ? null : main.value; },
    controls: { own, besides, main, picked, beside, other, shown, newest } };
}

export function EpisodeControls({ own, besides, main, picked, beside, other, shown, newest }) {
  const options = (list) => list.value.map((one) => h("option", { key: one.key, value: one.key }, one.title));
  return [
    h("label", {}, "Episode", h("select", { "aria-label": "Episode", value: main.value, onchange: (event) => {
      picked.value = event.target.value === newest.value ? null : event.target.value;
    } }, options(own))),
    h("label", {}, "Beside", h("select", { "aria-label": "Beside it", value: shown.value[1]?.key ?? "", onchange: (event) => { beside.value = event.target.value; } },
      h("option", { value: "" }, "nothing"), options(besides))),
    !offline && h("label", {}, "of run", h(Entry, { type: "text", size: 18, placeholder: "another run", "aria-label": "Another run beside it",
      value: other.value, entered: (name) => {
        beside.value = null;
        other.value = name.trim();
      } })),
  ];
}
