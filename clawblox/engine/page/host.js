// The host page: loads the world's renderer, feeds it states, and shows the panels around it.

import { createChat } from "./chat.js";
import { openFeed } from "./feed.js";
import { createGui } from "./gui.js";
import * as panels from "./panels.js";
import { createPlay } from "./play.js";
import { isTyping } from "./runtime/input.js";
import { drawsInSoftware } from "./software.js";

const API_VERSION = 1;
const PANELS_MS = 250;
const FEWEST_PIXEL_RATIO = 1;
const MOST_PIXEL_RATIO = 2;
const UNNAMED = "World Renderer";
/** Where the world's routes begin. */
const ROOT = new URL("../", import.meta.url);

const $ = (id) => document.getElementById(id);
const canvas = $("stage");

let renderer = null;
let state = null;
let followed = null;

/** Frames drawn by the starter, or states that a renderer module took: how tests see it work. */
window.__frames = 0;

function log(level, message, data) {
  const write = { error: console.error, warn: console.warn }[level] ?? console.log;
  write(`[renderer] ${message}`, data ?? "");
}

async function fetchManifest() {
  const response = await fetch(new URL("renderer/manifest", ROOT));
  if (!response.ok) throw new Error(`GET /renderer/manifest answered ${response.status}`);
  return response.json();
}

/** Makes the world's renderer, or the starter's where there is none or it cannot be loaded. */
async function makeRenderer(manifest) {
  if (manifest.mode === "module" && manifest.entry_url) {
    try {
      return await makeModuleRenderer(manifest);
    } catch (error) {
      log("error", `the world's renderer cannot be used: ${error.message}`, error);
      panels.showRendererError(error.message);
    }
  }
  const { createRenderer } = await import("./starter/starter.js");
  return createRenderer({ canvas: $("stage"), log, drawn: () => (window.__frames += 1) });
}

async function makeModuleRenderer(manifest) {
  if (manifest.api_version !== API_VERSION) {
    throw new Error(`it needs version ${manifest.api_version} of the renderer API; this is ${API_VERSION}`);
  }
  const entry = new URL(manifest.entry_url, ROOT);
  const [{ runtime }, module] = await Promise.all([import("./runtime/runtime.js"), import(entry)]);
  const create = module.createRenderer ?? module.default?.createRenderer;
  if (typeof create !== "function") throw new Error(`${entry.pathname} has no function createRenderer`);
  const made = create({ apiVersion: API_VERSION, manifest, canvas, log, runtime });
  for (const name of ["mount", "unmount", "onResize", "onState"]) {
    const type = typeof made?.[name];
    if (type !== "function" && type !== "undefined") throw new Error(`${name} is not a function`);
  }
  if (!made || typeof made !== "object") throw new Error("createRenderer returned no object");
  return { ...made, onState: onceAFrame((next) => made.onState?.(next)) };
}

/** Passes the latest state on, once a frame: a module that draws slowly must not fall behind. */
function onceAFrame(take) {
  let latest = null;
  function flush() {
    const next = latest;
    latest = null;
    take(next);
    window.__frames += 1;
  }
  return (next) => {
    if (latest === null) requestAnimationFrame(flush);
    latest = next;
  };
}

/** Tells the renderer how many pixels it has to draw. */
function resize() {
  const dpr = Math.min(Math.max(devicePixelRatio, FEWEST_PIXEL_RATIO), MOST_PIXEL_RATIO);
  const { width, height } = $("view").getBoundingClientRect();
  const pixels = (length) => Math.max(1, Math.floor(length * dpr));
  canvas.width = pixels(width);
  canvas.height = pixels(height);
  renderer.onResize?.({ width: canvas.width, height: canvas.height, dpr });
}

const findPlayer = (id) => state?.players.find((player) => player.id === id) ?? null;

const play = createPlay({
  root: ROOT,
  player: () => findPlayer(play.id()),
  heading: () => renderer?.view?.heading() ?? [0, -1],
  onError: (text) => panels.setText("play-note", text),
  onChange: showPlay,
});

const gui = createGui($("gui"), { onClick: (id) => play.click(id) });
const chat = createChat(
  { log: $("chat-log"), form: $("chat-form"), text: $("chat-text") },
  { root: ROOT, say: (text) => play.say(text), onError: (text) => panels.setText("play-note", text) },
);

function follow(id) {
  followed = id;
  renderer?.view?.follow(id);
  renderer?.view?.setFlying(play.id() === null || id === null);
  $("tool-camera").setAttribute("aria-pressed", String(id !== null));
  showPanels();
}

/** Follows the local player, else the next one of the list, else none. */
function cycleFollow() {
  const ids = (state?.players ?? []).map(({ id }) => id);
  if (play.id() !== null) follow(followed === null ? play.id() : null);
  else follow(ids[ids.indexOf(followed) + 1] ?? null);
}

function showPlay() {
  const playing = play.id() !== null;
  $("play").toggleAttribute("data-playing", playing);
  $("play-leave").hidden = !playing;
  chat.setWritable(playing);
  if (playing) panels.setText("play-note", "W A S D to walk, Space to jump");
  follow(play.id());
}

async function join(event) {
  event.preventDefault();
  panels.setText("play-note", "Joining…");
  try {
    await play.join($("play-name").value.trim());
    canvas.focus();
  } catch (error) {
    panels.setText("play-note", error.message);
  }
}

function showPanels() {
  if (!state) return;
  panels.showNumbers(state);
  if ($("world-panel").hidden) return;
  panels.showPlayers(state.players, { followed, onFollow: follow });
  panels.showSounds(state.sounds);
  panels.showEvents(state.recent_events);
}

function takeState(next) {
  const gone = followed !== null && !next.players.some(({ id }) => id === followed);
  state = next;
  if (gone && followed !== play.id()) follow(null);
  renderer?.onState?.(next);
  gui.show(findPlayer(play.id() ?? followed)?.gui ?? [], play.id() !== null);
}

function takeStatus(kind, text) {
  panels.showStatus(kind, text);
  panels.showNotice(kind, text);
}

function bindTools() {
  for (const [tool, panel] of [
    ["tool-world", "world-panel"],
    ["tool-help", "help"],
    ["tool-chat", "chat"],
  ]) {
    $(tool).addEventListener("click", () => {
      $(panel).hidden = !$(panel).hidden;
      for (const other of ["world-panel", "help"]) {
        if (panel !== "chat" && other !== panel) $(other).hidden = true;
      }
      for (const [button, shown] of [["tool-world", "world-panel"], ["tool-help", "help"], ["tool-chat", "chat"]]) {
        $(button).setAttribute("aria-expanded", String(!$(shown).hidden));
      }
      showPanels();
    });
  }
  $("tool-camera").addEventListener("click", cycleFollow);
  $("play").addEventListener("submit", join);
  $("play-leave").addEventListener("click", () => play.leave());
  canvas.addEventListener("dblclick", ({ clientX, clientY }) => {
    const point = renderer?.view?.pick(clientX, clientY);
    if (point) play.walkTo(point);
  });
  window.addEventListener("keydown", (event) => {
    if (event.code === "Escape") document.activeElement?.blur();
    if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.code === "KeyF") cycleFollow();
    const free = !event.target.closest?.("button, a");
    if (event.code === "Enter" && free && !$("chat-text").disabled) {
      event.preventDefault();
      $("chat-text").focus();
    }
  });
}

async function boot() {
  bindTools();
  document.documentElement.toggleAttribute("data-plain", drawsInSoftware());
  const manifest = await fetchManifest();
  const name = manifest.name && manifest.name !== UNNAMED ? manifest.name : "Clawblox world";
  document.title = name;
  panels.setText("world-name", name);
  $("tool-camera").hidden = manifest.mode === "module" && Boolean(manifest.entry_url);
  renderer = await makeRenderer(manifest);
  $("tool-camera").hidden = !renderer.view;
  renderer.mount?.();
  resize();
  new ResizeObserver(resize).observe($("view"));
  chat.start();
  setInterval(showPanels, PANELS_MS);
  const feed = openFeed(ROOT, { onState: takeState, onStatus: takeStatus });
  window.addEventListener("pagehide", () => {
    feed.stop();
    renderer.unmount?.();
  });
  window.addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
}

boot().catch((error) => {
  log("error", error.message, error);
  takeStatus("lost", error.message);
});
