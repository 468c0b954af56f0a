// What the page can do beside showing: buttons that cancel and resume, and what became of what they started.

import { useSignal } from "@preact/signals";
import { h } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { offline, post } from "web/data";
import { loading, problem, useResource } from "web/resource";
import { Away } from "web/server";

/** The buttons of a run: cancel where it runs on the server's machine, resume where it has a checkpoint. */
export function RunActions({ run, facts, store }) {
  if (offline || !store.actions) return null;
  const { document: name, run: uid } = facts.value.value;
  return h(Bar, { path: `run/${run}`, changes: () => facts.value.value.status, done: facts.reload, actions: [
    { name: "cancel", title: "Cancel", ask: ["Cancel this run?",
      `Run ${uid} of ${name} ends after its current step. What it has recorded stays.`, "Cancel the run"] },
    { name: "resume", title: "Resume" },
  ] });
}

/**
 * The buttons of a design: cancel the tasks of a cluster and what the page executes, execute what is missing or failed.
 * `changes()` reads signals that change when the possible actions may have changed.
 */
export function DesignActions({ changes, store }) {
  if (offline || !store.actions) return null;
  return h(Bar, { path: "design", changes, actions: [
    { name: "resume", title: "Execute missing and failed runs", ask: ["Execute the missing and failed runs?",
      "They start on the machine of this server, or where the last submission went.", "Execute"] },
    { name: "cancel", title: "Cancel", ask: ["Cancel the runs of this design?",
      "Tasks on the cluster and runs that this page has started end. What they have recorded stays.", "Cancel the runs"] },
  ] });
}

function Bar({ path, changes, done = () => {}, actions }) {
  const possible = useResource(`${path}/actions`, { changes }), said = useMessage(), busy = useSignal(false);
  const started = useSignal(null), asked = useSignal(null);
  const answer = possible.value.value ?? {}, names = actions.filter((one) => answer[one.name]);
  // the message concerns an action that was possible before
  const now = possible.loaded.value ? names.map((one) => one.name).join() + (answer.why ?? "") : null, before = useRef(null);
  useEffect(() => {
    if (before.current !== null && !busy.peek()) said.clear();
    before.current = now;
  }, [now]);

  async function act({ name }) {
    asked.value = null;
    busy.value = true;
    await said.attempt(async () => {
      const { done: text, key } = await post(`${path}/${name}`);
      said.say(text);
      if (key) started.value = key;
      done();
    });
    busy.value = false;
    possible.reload();
  }
  return h("div", {},
    h("div", { class: "controls" },
      h("span", { class: "actions" }, names.map((one) => h("button", { key: one.name, type: "button", "data-action": one.name, disabled: busy.value,
        onclick: () => (one.ask ? (asked.value = one) : act(one)) }, one.title)), answer.why && h("span", { class: "quiet" }, answer.why)),
      h("span", { role: "status" }, said.text.value)),
    possible.error.value && problem(possible.error.value),
    asked.value && h(Confirmation, { texts: asked.value.ask, yes: () => act(asked.value), no: () => { asked.value = null; } }),
    started.value && h(Started, { key: started.value, process: started.value, ended: () => { possible.reload(); done(); } }));
}

/**
 * A message of an action. `attempt(work)` does the work and says why it failed: until the next action, or until the server is
 * back if it was away.
 */
export function useMessage() {
  const text = useSignal("");
  const say = (said) => { text.value = said; };
  return { text, say, clear: () => say(""), async attempt(work) {
    try {
      return await work();
    } catch (error) {
      say(error.message);
      if (error instanceof Away) error.back.then(() => { if (text.peek() === error.message) say(""); });
      return undefined;
    }
  } };
}

/** Ask whether to do something that cannot be undone: `texts` are title, text and the name of "yes". */
function Confirmation({ texts: [title, text, name], yes, no }) {
  const dialog = useRef(null);
  useLayoutEffect(() => dialog.current.showModal(), []);
  return h("dialog", { "aria-labelledby": "dialog-title", ref: dialog, onclose: () => (dialog.current.returnValue === "yes" ? yes() : no()) },
    h("h2", { id: "dialog-title" }, title), h("p", {}, text),
    h("div", { class: "controls" },
      h("button", { type: "button", autofocus: true, onclick: () => dialog.current.close("no") }, "No"),
      h("button", { type: "button", "data-action": "confirm", onclick: () => dialog.current.close("yes") }, name)));
}

/** What becomes of a process that the page has started; `ended()` is called when it ends. */
export function Started({ process, ended = () => {} }) {
  const facts = useResource(`started/${process}`, { seconds: 1, ended: ({ code }) => code !== null });
  const { title, run, code = null, printed, log } = facts.value.value ?? {}, over = code !== null;
  useEffect(() => { if (over) ended(); }, [over]);
  if (!facts.loaded.value) return loading();
  const how = !over ? (run ? "is running" : "is starting") : code === 0 ? "has finished" : `has ended with the exit code ${code}`;
  return [
    facts.error.value && problem(facts.error.value),
    h("p", { role: "status" }, h("span", { class: `status ${over ? (code === 0 ? "finished" : "failed") : "running"}` }, `${title} ${how}`), " ",
      run && h("a", { href: `#/run/${encodeURIComponent(run)}` }, `Run ${run}`), h("span", { class: "quiet" }, ` log: ${log}`)),
    h("details", { open: over && code !== 0 }, h("summary", {}, "What it prints"), h("pre", {}, printed)),
  ];
}
