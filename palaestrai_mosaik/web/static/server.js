// Requests to the server of the page. If the server is away, the page says so, and repeats requests until it is back.

import { make } from "web/dom";

const GONE = "The server has ended or cannot be reached. The page goes on when it is back.";
const REFUSED = "The server at this address does not accept this page: it may be another one. Open the address that its command has printed.";
/** the resource that identifies the server: its store, and the permitted actions */
const STORE = "api/store";
/** milliseconds between two checks whether the server is back */
const PAUSE = 1000;

const notice = make("p", { class: "problem", role: "alert" });
/** the first answer for this resource */
let first = null;
/** while the server is away: the promise that it is back */
let back = null;

/** The server did not answer; the promise `back` resolves when it does again. */
export class Away extends Error {
  constructor(message, promise) {
    super(message);
    this.back = promise;
  }
}

/** Return the answer to a request, which is repeated until the server answers. */
export async function ask(path, options) {
  for (;;) {
    const response = await reached(path, options);
    if (!response) {
      await until(back, options.signal);
      continue;
    }
    if (path === STORE && first === null && response.ok) first = await response.clone().text();
    return response;
  }
}

/** Return the answer to a request that must not be repeated. Throws {@link Away} if there is none. */
export async function askOnce(path, options) {
  const response = await reached(path, options);
  if (!response) throw new Away(`${notice.textContent} It may not have done this.`, back);
  return response;
}

/** Load a module of the page on first use. */
export async function load(importing) {
  try {
    return await importing();
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    // a browser does not request a module again that failed to load
    await away(GONE);
    location.reload();
    return new Promise(() => {});
  }
}

async function reached(path, options) {
  let response = null;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (options.signal?.aborted) throw error;
  }
  if (response && response.status !== 401) return response;
  away(response ? REFUSED : GONE);
  return null;
}

/** Show that the server is away until it is back; return the promise that it is. */
function away(why) {
  say(why);
  back ??= comeBack().finally(() => {
    back = null;
    notice.remove();
  });
  return back;
}

function say(why) {
  // a screen reader reads a text once
  if (notice.textContent !== why) notice.textContent = why;
  if (!notice.isConnected) document.querySelector("main").before(notice);
}

async function comeBack() {
  for (;;) {
    await new Promise((resolve) => { setTimeout(resolve, PAUSE); });
    if (document.hidden) continue;
    try {
      const response = await fetch(STORE, { credentials: "same-origin" });
      if (response.status === 401) say(REFUSED);
      else if (response.ok) {
        const now = await response.text();
        // another store, release, or other rights: the page may be outdated
        if (first !== null && now !== first) location.reload();
        else return;
      }
    } catch {
      say(GONE);
    }
  }
}

function until(promise, signal) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) reject(signal.reason);
    signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
    promise.then(resolve, reject);
  });
}
