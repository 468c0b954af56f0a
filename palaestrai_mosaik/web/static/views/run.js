// A run: its head, and a tab for each way to look at it.

import { runActions } from "web/actions";
import { get, offline, watch } from "web/data";
import { fill, h } from "web/dom";
import { date, duration, number } from "web/format";
import { attempts } from "web/messages";
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
  let part = null;
  signal.addEventListener("abort", () => part?.abort());
  const view = await load(TABS[chosen][1]);
  if (signal.aborted) return;
  if (facts.status === "running" && !offline) keep(0);
  await attempt(showTab);

  /** Show the tab anew, without the messages and requests of what it has shown before. */
  async function showTab() {
    part?.abort();
    part = new AbortController();
    const shown = part.signal, messages = h("div", {}), content = h("div", {});
    fill(body, messages, content);
    try {
      await view.show(content, { ...context, run, facts, signal: shown, attempt: attempts(messages, shown), latest: () => facts });
    } catch (error) {
      // a tab that another has replaced has no message
      if (!shown.aborted) throw error;
    }
  }

  /** Show the head anew as long as the run goes on, and until the time `until`: one that is resumed begins a little later. */
  function keep(until) {
    watch(2, signal, async () => {
      const before = facts.status;
      facts = await get(`run/${run}`, {}, signal);
      title();
      actions.update(facts);
      // a run that is resumed has other rows and no error
      if (facts.status === "running" && before !== "running") attempt(showTab);
      return facts.status === "running" || Date.now() < until;
    }, attempt);
  }
}
