// Which episode a view shows, and which one beside it, of the same run or of another one.

import { get, offline } from "web/data";
import { fill, h } from "web/dom";

/**
 * The controls of a view of the run `run`, such as "grid": its resource is `run/RUN/VIEW`, its address `#/run/RUN/VIEW`.
 * `index()` returns that resource as it is now, `episodes(index)` its episodes as [{key, title}], `load()` shows what is chosen.
 * Returns {main, controls, begin(), update(), shown(), remember(more)}.
 */
export function episodeChoice({ run, view, query, index, episodes, load, signal, attempt }) {
  let other = null; // another run that is shown beside this one: {run, index}
  const select = (label) => h("select", { "aria-label": label, onchange: () => attempt(load) });
  const main = select("Episode"), beside = select("Beside it");
  const another = h("input", { type: "text", size: 18, placeholder: "another run", "aria-label": "Another run beside it",
    onchange: () => attempt(load, async () => { await choose(another.value.trim()); await load(); }) });
  const controls = { main: h("label", {}, "Episode", main), beside: h("label", {}, "Beside", beside),
    another: !offline && h("label", {}, "of run", another) };

  function options(element, list, wanted, empty) {
    fill(element, empty && h("option", { value: "" }, empty),
      list.map((one) => h("option", { value: one.key, selected: one.key === wanted }, one.title)));
  }
  async function choose(name) {
    other = name ? { run: name, index: await get(`run/${name}/${view}`, {}, signal) } : null;
    options(beside, episodes(other?.index ?? index()), "", "nothing");
    if (other) beside.value = episodes(other.index).at(-1)?.key ?? "";
  }
  /** List the episodes that there are by now; what is chosen stays. */
  function update() {
    const own = episodes(index());
    options(main, own, main.value || query.get("at") || own.at(-1)?.key);
    options(beside, episodes(other?.index ?? index()), beside.value || query.get("beside"), "nothing");
  }
  /** Ask for the other run that the address names, if it does. */
  async function begin() {
    if (query.get("other")) await attempt(load, () => choose(query.get("other")));
  }
  /** What is chosen: [{run, index, key}], one or two. */
  function shown() {
    const first = { run, index: index(), key: main.value };
    return beside.value ? [first, { run, index: index(), ...other, key: beside.value }] : [first];
  }
  /** Keep what is chosen in the address, with `more` of the view's choices. */
  function remember(more = {}) {
    const said = new URLSearchParams({ at: main.value, ...(beside.value && { beside: beside.value }), ...(other && { other: other.run }), ...more });
    try {
      history.replaceState(null, "", `#/run/${encodeURIComponent(run)}/${view}?${said}`);
    } catch {
      // a page inside of another one has no address of its own
    }
  }
  return { main, controls, begin, update, shown, remember };
}
