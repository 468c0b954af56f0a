// The page: finds the view that the address names (#/run/ID), and shows it.

import { signal } from "@preact/signals";
import { h, render } from "preact";
import { offline } from "web/data";
import { Lazy, nameSite } from "web/page";
import { resource, shown } from "web/resource";


/**
 * pattern of the address -> module of the view, which has a component `View`
 * @type {[RegExp, () => Promise<any>][]}
 */
const VIEWS = [
  [/^#\/runs$/, () => import("web/views/runs")],
  [/^#\/run\/([^/]+)(?:\/([a-z]+))?$/, () => import("web/views/run")],
  [/^#\/compare\/([^/]+)$/, () => import("web/views/compare")],
  [/^#\/design$/, () => import("web/views/design")],
  [/^#\/documents$/, () => import("web/views/documents")],
];

const store = resource("store", { take: (answer) => {
  nameSite(answer.design ?? answer.title ?? "palaestrai-mosaik");
  return answer;
} });
const hash = signal(location.hash);
window.addEventListener("hashchange", () => { hash.value = location.hash; });

/** The parts that a pattern finds in an address; null where the address is not of this pattern, or cannot be decoded. */
function partsOf(pattern, view) {
  try {
    return pattern.exec(view)?.slice(1).map((part) => part && decodeURIComponent(part)) ?? null;
  } catch {
    return null;
  }
}

/** The view of an address: its pattern, its parts, and the choices that follow a "?". */
function viewOf(address) {
  const home = window.palaestrai?.home ?? (store.value.value.design ? "#/design" : "#/runs");
  const [view, search] = (VIEWS.some(([pattern]) => partsOf(pattern, address.split("?")[0])) ? address : home).split("?");
  const [pattern, importing] = VIEWS.find(([each]) => partsOf(each, view));
  const parts = partsOf(pattern, view);
  return { home, view, importing, parts, query: new URLSearchParams(search) };
}

function Main() {
  return shown([store], () => {
    const { importing, parts, query } = viewOf(hash.value);
    // a view of another run begins anew, another tab of the run does not
    return h("div", { class: "view", key: `${importing} ${parts[0]}` }, h(Lazy, { importing, parts, query, store: store.value.value }));
  });
}

function Navigation() {
  if (!store.loaded.value) return null;
  const { home, view } = viewOf(hash.value), { design, actions } = store.value.value;
  const link = (to, name, current) => h("a", { href: to, "aria-current": current ? "page" : undefined }, name);
  if (offline) return window.palaestrai.title && link(home, window.palaestrai.title, view === home);
  return [["#/design", "Design", design], ["#/runs", "Runs", true], ["#/documents", "Documents", actions]]
    .filter(([, , present]) => present).map(([to, name]) => link(to, name, view.startsWith(to)));
}

// in a frame without an address, such as a notebook's, the browser would look for "#/..." in the page around it
function follow(event) {
  const to = event.target.closest?.("a[href^='#']")?.getAttribute("href");
  if (!to || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  location.hash = to;
}
if (offline) document.addEventListener("click", follow);

const main = document.querySelector("main");
main.replaceChildren();
render(h(Main, {}), main);
render(h(Navigation, {}), document.querySelector("nav"));
