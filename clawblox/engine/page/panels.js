// What the panels of the page say about a state.

import { playerHue } from "./names.js";

const SHOWN_EVENTS = 12;

const $ = (id) => document.getElementById(id);

export function setText(id, text) {
  const element = $(id);
  if (element.textContent !== text) element.textContent = text;
}

export function showStatus(kind, text) {
  $("connection").dataset.state = kind;
  setText("connection-text", kind === "halted" ? "Halted" : text);
}

/** A text over the view: why nothing moves. */
export function showNotice(kind, text) {
  const notice = $("notice");
  const bad = kind === "halted" || kind === "lost";
  if (notice.hidden === !bad && notice.dataset.text === text) return;
  notice.hidden = !bad;
  notice.dataset.state = kind;
  notice.dataset.text = text;
  setText("notice-title", kind === "halted" ? "The world has halted" : "No connection to the world");
  setText("notice-text", text);
}

/** Why the starter draws a world that has a renderer of its own. */
export function showRendererError(reason) {
  $("renderer-error").hidden = false;
  setText("renderer-error", `The world's renderer cannot be used: ${reason}. The starter draws it.`);
}

export function showNumbers(state) {
  setText("hud-time", formatTime(state.server_time_ms ?? (state.tick * 1000) / 60));
  setText("hud-tick", state.tick.toLocaleString("en"));
  setText("hud-players", String(state.players.length));
  setText("hud-parts", String(state.entities.length));
}

function formatTime(ms) {
  const seconds = Math.floor(ms / 1000);
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  const two = (value) => String(value).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
}

/** Fills a list with rows; keeps the elements whose key stays. */
function fill(list, rows, { key, make, update, empty }) {
  const known = new Map([...list.children].map((item) => [item.dataset.key, item]));
  const items = rows.map((row) => {
    const item = known.get(String(key(row))) ?? document.createElement("li");
    if (!item.dataset.key) {
      item.dataset.key = key(row);
      make(item, row);
    }
    update?.(item, row);
    return item;
  });
  if (!items.length) {
    const item = known.get("") ?? document.createElement("li");
    item.dataset.key = "";
    item.className = "empty";
    item.textContent = empty;
    items.push(item);
  }
  if (items.some((item, k) => list.children[k] !== item) || list.children.length !== items.length) {
    list.replaceChildren(...items);
  }
}

export function showPlayers(players, { followed, onFollow }) {
  fill($("players"), players, {
    key: ({ id }) => id,
    empty: "No players yet.",
    make(item, { id, name }) {
      const button = document.createElement("button");
      const swatch = document.createElement("span");
      const health = document.createElement("small");
      button.type = "button";
      swatch.className = "swatch";
      swatch.style.background = `hsl(${playerHue(name)} 68% 55%)`;
      button.append(swatch, name);
      button.addEventListener("click", () => onFollow(id));
      item.append(button, health);
    },
    update(item, { id, health }) {
      item.firstChild.setAttribute("aria-pressed", String(id === followed));
      item.lastChild.textContent = `${Math.round(health)} health`;
    },
  });
}

export function showSounds(sounds) {
  fill($("sounds"), sounds ?? [], {
    key: ({ id }) => id,
    empty: "No sound is playing.",
    make(item, { name, sound_id: source }) {
      const volume = document.createElement("small");
      item.title = source;
      item.append(name, volume);
    },
    update(item, { volume, looped }) {
      item.lastChild.textContent = `volume ${volume}${looped ? ", looped" : ""}`;
    },
  });
}

export function showEvents(events) {
  fill($("events"), (events ?? []).slice(-SHOWN_EVENTS).reverse(), {
    key: ({ id }) => id,
    empty: "No events.",
    make(item, { name, tick, payload }) {
      const when = document.createElement("small");
      when.textContent = `tick ${tick}`;
      item.title = JSON.stringify(payload);
      item.append(name, when);
    },
  });
}
