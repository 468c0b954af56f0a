// Plays the states of an episode: a slider, play and pause, single steps, the speed. Keys: space, arrows, Home, End.

import { h } from "web/dom";

const SPEEDS = [1, 2, 5, 10, 25, 50, 100];
/** states that are drawn in a second at most; faster speeds leave states out */
const DRAWN = 25;

/**
 * A player. `label(state)` says when a state is; `changed(state)` is called for each one that is to be drawn.
 * Returns {element, state(), set(state), length(number), playing(), stop()}. It ends with `signal`.
 */
export function player({ label, changed, signal, buttons = [] }) {
  let state = 0, length = 1, timer = null;
  const slider = h("input", { type: "range", min: 0, max: 0, value: 0, step: 1, "aria-label": "State of the episode" });
  const said = h("output", { class: "moment" });
  const speed = h("select", { "aria-label": "Speed" },
    SPEEDS.map((one) => h("option", { value: one, selected: one === 10 }, `${one} states/s`)));
  const button = (title, sign, act) => h("button", { type: "button", "aria-label": title, title, onclick: act }, sign);
  const play = button("Play", "▶", () => (timer ? stop() : start()));
  const element = h("div", { class: "player controls", role: "group", "aria-label": "Time" },
    button("First state", "|◀", () => go(0)), button("One state back", "‹", () => go(state - 1)), play,
    button("One state forward", "›", () => go(state + 1)), button("Last state", "▶|", () => go(length - 1)),
    speed, buttons, slider, said);

  function set(wanted) {
    state = Math.max(0, Math.min(length - 1, Math.round(wanted)));
    slider.value = state;
    const text = label(state);
    slider.setAttribute("aria-valuetext", text);
    said.textContent = text;
    changed(state);
  }
  // (whoever goes to a state wants to look at it)
  function go(wanted) {
    stop();
    set(wanted);
  }
  function start() {
    if (state >= length - 1) set(0);
    play.textContent = "❚❚";
    play.setAttribute("aria-label", "Pause");
    play.title = "Pause";
    tick();
  }
  function tick() {
    const rate = Number(speed.value), stride = Math.max(1, Math.round(rate / DRAWN));
    timer = setTimeout(() => {
      set(state + stride);
      if (state >= length - 1) stop();
      else tick();
    }, (1000 * stride) / rate);
  }
  function stop() {
    clearTimeout(timer);
    timer = null;
    play.textContent = "▶";
    play.setAttribute("aria-label", "Play");
    play.title = "Play";
  }
  slider.addEventListener("input", () => go(Number(slider.value)));
  signal.addEventListener("abort", stop);

  const KEYS = { " ": () => play.click(), ArrowRight: () => go(state + 1), ArrowLeft: () => go(state - 1), Home: () => go(0),
    End: () => go(length - 1) };
  document.addEventListener("keydown", (event) => {
    // fields, buttons and links keep their own keys
    const own = event.target.closest?.("input, select, textarea, summary, a, [contenteditable]")
      || (event.key === " " && event.target.closest?.("button"));
    if (own || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey || !(event.key in KEYS)) return;
    event.preventDefault();
    KEYS[event.key]();
  }, { signal });

  return {
    element,
    state: () => state,
    set,
    go,
    playing: () => timer !== null,
    stop,
    /** How many states there are; the place in them stays, or is the last one. */
    length(number) {
      length = Math.max(1, number);
      slider.max = length - 1;
    },
  };
}
