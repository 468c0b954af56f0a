// Plays the states of an episode: a slider, play and pause, single steps, the speed. Keys: space, arrows, Home, End.

import { useSignal } from "@preact/signals";
import { h } from "preact";
import { useEffect, useMemo } from "preact/hooks";

const SPEEDS = [1, 2, 5, 10, 25, 50, 100];
/** states that are drawn in a second at most; faster speeds leave states out */
const DRAWN = 25;

/**
 * The time of a view: {state, last, playing, speed} are signals. `set(state)` shows a state, `go(state)` ends the play first,
 * `length(number)` says how many states there are: the place in them stays, or is the last one.
 */
export function usePlayer() {
  const state = useSignal(0), last = useSignal(0), playing = useSignal(false), speed = useSignal(10);
  const player = useMemo(() => {
    let timer = 0;
    const set = (wanted) => { state.value = Math.max(0, Math.min(last.value, Math.round(wanted))); };
    function stop() {
      clearTimeout(timer);
      playing.value = false;
    }
    function tick() {
      const rate = speed.value, stride = Math.max(1, Math.round(rate / DRAWN));
      timer = setTimeout(() => {
        set(state.value + stride);
        if (state.value >= last.value) stop();
        else tick();
      }, (1000 * stride) / rate);
    }
    return {
      state, last, playing, speed, set, stop,
      go(wanted) {
        stop();
        set(wanted);
      },
      play() {
        if (state.value >= last.value) set(0);
        playing.value = true;
        tick();
      },
      length(number) {
        last.value = Math.max(0, number - 1);
        set(state.value);
      },
    };
  }, []);
  useEffect(() => player.stop, []);
  return player;
}

/**
 * The controls of a player. `label(state)` says when a state is, `buttons` are others beside them.
 * @param {{player: ReturnType<typeof usePlayer>, label: (state: number) => string, buttons?: any}} properties
 */
export function Player({ player, label, buttons }) {
  const { state, playing, speed, go, last } = player, said = label(state.value);
  const toggle = () => (playing.value ? player.stop() : player.play());
  useEffect(() => {
    const keys = { " ": toggle, ArrowRight: () => go(state.value + 1), ArrowLeft: () => go(state.value - 1), Home: () => go(0), End: () => go(last.value) };
    function press(event) {
      // fields, buttons and links keep their own keys
      const own = event.target.closest?.("input, select, textarea, summary, a, [contenteditable]")
        || (event.key === " " && event.target.closest?.("button"));
      if (own || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey || !(event.key in keys)) return;
      event.preventDefault();
      keys[event.key]();
    }
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
  const button = (title, sign, act) => h("button", { type: "button", "aria-label": title, title, onclick: act }, sign);
  return h("div", { class: "player controls", role: "group", "aria-label": "Time" },
    button("First state", "|◀", () => go(0)), button("One state back", "‹", () => go(state.value - 1)),
    playing.value ? button("Pause", "❚❚", toggle) : button("Play", "▶", toggle),
    button("One state forward", "›", () => go(state.value + 1)), button("Last state", "▶|", () => go(last.value)),
    h("select", { "aria-label": "Speed", value: speed.value, onchange: (event) => { speed.value = Number(event.target.value); } },
      SPEEDS.map((one) => h("option", { value: one }, `${one} ${one === 1 ? "state" : "states"}/s`))),
    buttons,
    h("input", { type: "range", min: 0, max: last.value, step: 1, value: state.value, "aria-label": "State of the episode", "aria-valuetext": said,
      oninput: (event) => go(Number(event.target.value)) }),
    h("output", { class: "moment" }, said));
}
