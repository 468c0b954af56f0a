// A run: its head, and a tab for each way to look at it.

import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { h } from "preact";
import { useRef } from "preact/hooks";
import { RunActions } from "web/actions";
import { count, date, duration } from "web/format";
import { LabelForm, Labels } from "web/labels";
import { Lazy, Status, useTitle } from "web/page";
import { shown, useResource } from "web/resource";

/** name in the address -> title, and the module with the component `View({run, facts, running, query, store})` */
const TABS = {
  overview: ["Overview", () => import("web/views/overview")],
  time: ["Time", () => import("web/views/time")],
  agent: ["Agent", () => import("web/views/agent")],
  grid: ["Grid", () => import("web/views/grid")],
  frames: ["Frames", () => import("web/views/frames")],
  record: ["Record", () => import("web/views/record")],
};
/** a run with another status may be resumed, here or elsewhere */
const OVER = ["finished", "pruned"];

export function View({ parts, ...context }) {
  const [run, tab = "overview"] = parts;
  const facts = useResource(`run/${run}`, { seconds: 2, ended: ({ status }) => OVER.includes(status) });
  const running = useComputed(() => facts.value.value?.status === "running");
  const turn = useSignal(0), stopped = useRef(false);
  useSignalEffect(() => {
    // a run that is resumed has other rows: its tab begins anew
    if (running.value && stopped.current) turn.value = turn.peek() + 1;
    stopped.current = facts.loaded.value && !running.value;
  });
  const { document: name, views } = facts.value.value ?? { document: run, views: [tab in TABS ? tab : "overview"] };
  // a page in one file may have fewer views
  const chosen = views.includes(tab) ? tab : views[0], [title, importing] = TABS[chosen];
  useTitle(name, title);
  return shown([facts], () => [
    h(Head, { facts: facts.value.value }),
    h(RunActions, { run, facts, store: context.store }),
    context.store.actions && h(LabelForm, { run, facts }),
    h("nav", { class: "tabs", "aria-label": "Views of the run" }, views.filter((one) => one in TABS).map((one) =>
      h("a", { href: `#/run/${encodeURIComponent(run)}/${one}`, "aria-current": one === chosen ? "page" : undefined }, TABS[one][0]))),
    h("div", { key: `${chosen} ${turn.value} ${context.query}` }, h(Lazy, { ...context, importing, run, facts, running })),
  ]);
}

function Head({ facts }) {
  return h("header", {},
    h("h1", {}, facts.document, " ", h(Status, { of: facts.status })),
    h("p", { class: "quiet" }, [facts.run, `started ${date(facts.started)}`, `seed ${facts.seed}`, duration(facts.duration),
      count(facts.episodes, "episode"), count(facts.steps, "step")].join(" · ")),
    h(Labels, { of: facts }));
}
