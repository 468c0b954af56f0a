// Requests to the server that the page came from. Where it is away, the page says so, and asks again until it is back.

import { h } from "web/dom";

const GONE = "The server has ended or cannot be reached. The page goes on when it is back.";
const REFUSED = "The server at this address does not accept this page: it may be another one. Open the address that its command has printed.";
/** what the server says of itself: its store, and what may be done */
const STORE = "api/store";
/** milliseconds between two looks whether the server is back */
const PAUSE = 1000;

const notice = h("p", { class: "problem", role: "alert" });
/** what it has said at first */
let first = null;
/** while the server is away: the promise that it is back */
let back = null;

/** What the server does not answer; `back` is the promise that it answers again. */
export class Away extends Error {
  constructor(message, promise) {
    super(message);
    this.back = promise;
  }
}

/** The answer to a request, which is repeated until the server answers it. */
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

/** The answer to a request that must not be repeated. Throws {@link Away} where there is none. */
export async function askOnce(path, options) {
  const response = await reached(path, options);
  if (!response) throw new Away(`${notice.textContent} It may not have done this.`, back);
  return response;
}

/** A module of the page, which is loaded when it is needed first. */
export async function load(importing) {
  try {
    return await importing();
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    // (a browser does not ask again for a module that it did not get)
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

/** Say that the server is away, until it is back. */
function away(why) {
  say(why);
  back ??= comeBack().finally(() => {
    back = null;
    notice.remove();
  });
  return back;
}

function say(why) {
  // (read out only where it has changed)
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
        // another store or release, or other rights: what is shown may not be so any more
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
