// Rendered frames, state by state: one episode or two beside each other.

import { useComputed, useSignal } from "@preact/signals";
import { h } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { offline } from "web/data";
import { EpisodeControls, useEpisodeChoice } from "web/episode_choice";
import { imagesOf } from "web/film";
import { number } from "web/format";
import { momentOf } from "web/motion";
import { Player, usePlayer } from "web/player";
import { shown, useResource } from "web/resource";

/** smaller images are shown larger, by a whole factor (CSS pixels) */
const WIDTH = 320;

export function View({ run, running, query }) {
  const index = useResource(`run/${run}/frames`, { seconds: 2, live: () => running.value });
  return shown([index], () => h(Frames, { run, running, query, index }));
}

/** The episodes of the resource `frames`: [{key, title}]. */
function episodes(of) {
  const names = new Map(of.phases.map((one) => [one.phase, one.name]));
  const several = new Set(of.episodes.map((one) => one.environment)).size > 1;
  return of.episodes.map((one) => ({ ...one,
    key: `${one.phase}.${one.worker}.${one.episode}${one.evaluation ? "e" : ""}.${one.environment}`,
    title: `${several ? `${one.environment}: ` : ""}${names.get(one.phase)}, ${one.evaluation ? "evaluation" : "episode"} `
      + `${one.episode}${one.worker ? `, worker ${one.worker}` : ""}` }));
}

function Frames({ run, running, query, index }) {
  const follow = useSignal(true), choice = useEpisodeChoice({ run, view: "frames", query, index, episodes });
  const context = { run, running, choice }, own = useFilm(0, context), beside = useFilm(1, context);
  const sides = choice.shown.value.length > 1 ? [own, beside] : [own];
  return [
    h("div", { class: "controls" }, h(EpisodeControls, choice.controls),
      running.value && !offline && h("label", {}, h("input", { type: "checkbox", checked: follow.value, onchange: (event) => {
        follow.value = event.target.checked;
        choice.follow(follow.value);
      } }), "follow the newest frame")),
    choice.error.value !== null && h("p", { class: "problem", role: "alert" }, choice.error.value),
    choice.shown.value.length ? shown(sides, () => h(Stage, { films: sides.map((one) => one.value.value), query,
      following: running.value && follow.value && choice.newest.value }))
      : h("p", { class: "quiet note" }, running.value ? "No frame has been rendered yet." : "No frames were rendered."),
    h("p", { class: "quiet" }, "Keys: space plays, arrows step, Home and End go to the ends."),
  ];
}

/** The film of the first or the second episode that is chosen; the newest one of a run that goes on grows. */
function useFilm(i, { run, running, choice }) {
  const picked = useComputed(() => {
    const { run: of, index, key } = choice.shown.value[i] ?? {}, one = of && episodes(index).find((episode) => episode.key === key);
    return one ? { run: of, title: of === run ? one.title : `${of}: ${one.title}`, query: { environment: one.environment, phase: one.phase,
      worker: one.worker, episode: one.episode, evaluation: one.evaluation ? 1 : undefined } } : null;
  });
  return useResource(() => `run/${picked.value?.run}/film`, {
    query: () => picked.value && picked.value.query,
    seconds: 2, live: () => running.value && picked.value?.run === run && choice.newest.value,
    take: (facts) => ({ ...facts, ...picked.peek() }),
  });
}

/** The frames of one or two films, with their player. */
function Stage({ films, query, following }) {
  const player = usePlayer(), [first] = films, begun = useRef(false);
  // who was rendered less often keeps its frame until its next one
  const ticks = [...new Set(films.flatMap((one) => [...one.time]))].sort((a, b) => a - b), states = ticks.length;
  useLayoutEffect(() => {
    player.length(states);
    if (!begun.current && query.has("state")) player.set(Number(query.get("state")));
    else if (following && !player.playing.value) player.set(Infinity);
    begun.current = true;
  }, [states, following]);
  const said = (state) => (states ? `${momentOf(first.clock, ticks[Math.min(state, states - 1)])} of ${momentOf(first.clock, ticks.at(-1))}` : "");
  const last = first.step[first.frames - 1];
  return [
    h(Player, { player, label: said }),
    h("p", { class: "quiet note" }, first.frames > 1 && first.frames <= last && `${number(first.frames)} of ${number(last + 1)} states were rendered.`),
    h("div", { class: `drawings ${films.length > 1 ? "two" : ""}` }, films.map((one, i) => h("section", { class: "card", key: i },
      h("h2", {}, one.title), h(Frame, { film: one, tick: ticks[Math.min(player.state.value, states - 1)] })))),
  ];
}

/** The frame of a film at a tick, which stays until the next one is there. */
function Frame({ film, tick }) {
  const state = Math.max(0, film.time.findLastIndex((time) => time <= tick)), identity = JSON.stringify([film.run, film.query]);
  const images = useMemo(() => imagesOf(film), [identity]), drawn = useSignal(null), failed = useSignal(null), factor = useSignal({ width: 0, by: 1 });
  images.grown(film.frames);
  useEffect(() => {
    let left = false;
    images.at(state).then((source) => {
      // while an image was fetched, the player may have gone on
      if (left || source === null) return;
      failed.value = null;
      drawn.value = { source, moment: momentOf(film.clock, film.time[state]), step: film.step[state] };
    }, (error) => { if (!left) failed.value = error.message; });
    return () => { left = true; };
  }, [images, state]);
  const { source, moment, step } = drawn.value ?? {}, { width, by } = factor.value;
  return [failed.value !== null && h("p", { class: "problem", role: "alert" }, failed.value),
    h("figure", { class: "rendered" },
      h("img", { src: source, alt: source ? `${film.title}, ${moment}` : "", class: `frame ${by > 1 ? "enlarged" : ""}`, "data-step": step,
        style: { width: width ? `${width * by}px` : "" },
        onload: ({ target }) => { factor.value = { width: target.naturalWidth, by: Math.max(1, Math.floor(WIDTH / target.naturalWidth)) }; } }),
      h("figcaption", { class: "quiet" }, source && `${moment} · step ${step} of ${film.step[film.frames - 1]}`))];
}
