// The page: finds the view that the address names (#/run/ID), and shows it.

import { get, offline } from "web/data";
import { fill, h } from "web/dom";
import { attempts } from "web/messages";
import { load } from "web/server";

/** pattern of the address -> module of the view, which has `show(element, context)` */
const VIEWS = [
  [/^#\/runs$/, () => import("web/views/runs")],
  [/^#\/run\/([^/]+)(?:\/([a-z]+))?$/, () => import("web/views/run")],
  [/^#\/compare\/([^/]+)$/, () => import("web/views/compare")],
  [/^#\/design$/, () => import("web/views/design")],
  [/^#\/documents$/, () => import("web/views/documents")],
];

const main = document.querySelector("main");
const nav = document.querySelector("nav");
let leave = null;
let store = null;

async function start() {
  store = await get("store");
  document.title = store.design ?? store.title ?? "palaestrai-mosaik";
  window.addEventListener("hashchange", route);
  if (offline) document.addEventListener("click", follow);
  route();
}

// in a frame without an address, such as a notebook's, the browser would look for "#/..." in the page around it
function follow(event) {
  const to = event.target.closest?.("a[href^='#']")?.getAttribute("href");
  if (!to || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  location.hash = to;
}

async function route() {
  const home = window.palaestrai?.home ?? (store.design ? "#/design" : "#/runs");
  // (what follows a "?" are choices within the view)
  const wanted = location.hash.split("?")[0];
  const [place, search] = (VIEWS.some(([pattern]) => pattern.test(wanted)) ? location.hash : home).split("?");
  leave?.abort();
  leave = new AbortController();
  const { signal } = leave;
  const [pattern, importing] = VIEWS.find(([one]) => one.test(place));
  const parts = pattern.exec(place).slice(1).map((part) => part && decodeURIComponent(part));
  if (!offline) {
    fill(nav, [["#/design", "Design", store.design], ["#/runs", "Runs", true], ["#/documents", "Documents", store.actions]]
      .filter(([, , shown]) => shown)
      .map(([to, name]) => h("a", { href: to, "aria-current": place.startsWith(to) && "page" }, name)));
  } else if (window.palaestrai.title) {
    fill(nav, h("a", { href: home, "aria-current": place === home && "page" }, window.palaestrai.title));
  }
  const messages = h("div", {}), attempt = attempts(messages, signal);
  let part = null;
  async function show() {
    // end what the view started before it failed
    part?.abort();
    part = new AbortController();
    // a view draws into an element of its own: one that is left cannot write into the next
    const own = h("div", {}), element = h("div", { class: "view" });
    fill(main, messages, own, element);
    const view = await load(importing);
    await view.show(element, { parts, query: new URLSearchParams(search), signal: part.signal, store, attempt: attempts(own, part.signal) });
  }
  signal.addEventListener("abort", () => part?.abort());
  // a run that has not started yet may be shown later
  await attempt(show);
}

const trouble = h("div", {}), { signal: never } = new AbortController();
main.append(trouble);
attempts(trouble, never)(start);
