// What all views share: their title, their choices in the address, modules on first use, statuses and tables.

import { useSignal } from "@preact/signals";
import { h } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { loading, problem } from "web/resource";
import { load } from "web/server";

/** the name of the page: that of its design, if it shows one */
let site = "palaestrai-mosaik";

/** Name the page. */
export function nameSite(name) {
  site = name;
  document.title = name;
}

/** Name the tab of the browser after what the view shows, such as "dummy · Time". */
export function useTitle(...parts) {
  const title = [...parts, site].filter(Boolean).join(" · ");
  useEffect(() => { document.title = title; }, [title]);
}

/** The choices that the address has: what follows its "?". */
export function choices() {
  return new URLSearchParams(location.hash.split("?")[1] ?? "");
}

/** Keep the choices of a view, such as "#/run/ID/time", in the address: a link shows the same. */
export function keepChoices(view, kept) {
  const text = kept.toString();
  try {
    history.replaceState(null, "", `${view}${text ? `?${text}` : ""}`);
  } catch {
    // a page inside of another one has no address of its own
  }
}

/** The component `View` of a module that is loaded on first use; other properties are those of the component. */
export function Lazy({ importing, ...properties }) {
  const module = useSignal(null), failed = useSignal(null);
  useEffect(() => {
    load(importing).then((loaded) => { module.value = loaded; }, (error) => { failed.value = error.message; });
  }, [importing]);
  if (failed.value) return problem(failed.value);
  return module.value ? h(module.value.View, properties) : loading();
}

/** The state of a run or a setting, in its colour. */
export function Status({ of, look = of }) {
  return h("span", { class: `status ${look}` }, of);
}

/** An element that draws itself, in a component. */
export function Host({ element, ...properties }) {
  const box = useRef(null);
  useEffect(() => box.current.replaceChildren(element), [element]);
  return h("div", { ...properties, ref: box });
}

/** An input whose value counts once it is entered; what is being typed stays when the view is drawn anew. */
export function Entry({ value, entered, ...properties }) {
  const typed = useSignal(null);
  return h("input", { ...properties, value: typed.value ?? value,
    oninput: (event) => { typed.value = event.target.value; },
    onblur: () => { typed.value = null; },
    onchange: (event) => {
      typed.value = null;
      entered(event.target.value);
    } });
}

/** A table from plain columns: [{title, value(row), number?}] and rows. */
export function table(columns, rows, caption) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {},
      caption && h("caption", {}, caption),
      h("thead", {}, h("tr", {}, columns.map((one) => h("th", { scope: "col", class: one.number && "number" }, one.title)))),
      h("tbody", {}, rows.map((row) => h("tr", {},
        columns.map((one) => h("td", { class: one.number && "number" }, one.value(row))))))));
}

/** What has to be known of results. */
export function cautions(texts) {
  return texts.length > 0 && h("ul", { class: "design-cautions" }, texts.map((one) => h("li", {}, one)));
}
