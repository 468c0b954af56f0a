// A run: its head, and a tab for each way to look at it.

import { runActions } from "web/actions";
import { get, offline, watch } from "web/data";
import { fill, h } from "web/dom";
import { date, duration, number } from "web/format";
import { load } from "web/server";

/** name in the address -> title, and the module with `show(element, {run, facts, signal, attempt})` */
const TABS = {
  overview: ["Overview", () => import("web/views/overview")],
  time: ["Time", () => import("web/views/time")],
  grid: ["Grid", () => import("web/views/grid")],
  frames: ["Frames", () => import("web/views/frames")],
  record: ["Record", () => import("web/views/record")],
};

export async function show(element, context) {
  const [run, tab = "overview"] = context.parts;
  const { signal, attempt } = context;
  let facts = await get(`run/${run}`, {}, signal);
  const head = h("div", {}), body = h("div", {});
  const tabs = Object.entries(TABS).filter(([name]) => facts.views.includes(name));
  // (one file may have fewer views)
  const chosen = facts.views.includes(tab) ? tab : facts.views[0];
  const actions = offline ? null : runActions(context, facts, () => keep(Date.now() + 60_000));
  fill(element, head, actions?.element, h("nav", { class: "tabs", "aria-label": "Views of the run" }, tabs.map(([name, [title]]) =>
    h("a", { href: `#/run/${encodeURIComponent(run)}/${name}`, "aria-current": name === chosen && "page" }, title))), body);

  function title() {
    fill(head, h("h1", {}, facts.document, " ", h("span", { class: `status ${facts.status}` }, facts.status)),
      h("p", { class: "quiet" }, `${facts.run} · started ${date(facts.started)} · seed ${facts.seed} · `
        + `${duration(facts.duration)} · ${number(facts.episodes)} episodes · ${number(facts.steps)} steps`));
  }
  title();
  if (facts.status === "running" && !offline) keep(0);
  const view = await load(TABS[chosen][1]);
  await view.show(body, { ...context, run, facts });

  /** Show the head anew as long as the run goes on, and until the time `until`: one that is resumed begins a little later. */
  function keep(until) {
    watch(2, signal, async () => {
      facts = await get(`run/${run}`, {}, signal);
      title();
      actions.update(facts);
      return facts.status === "running" || Date.now() < until;
    }, attempt);
  }
}
