// The local player: joins, walks with the keys, clicks buttons of its GUI, leaves with the page.

import { createLocalInputClient, isTyping } from "./runtime/input.js";

const WALK_MS = 100;
/** How far ahead a walk aims, in studs: farther than a player comes until the next input. */
const AHEAD = 8;
/** Where a walk ends after its key is released: about where the player is when that arrives. */
const LAST_STEP = 1.5;

const DIRECTIONS = {
  KeyW: [0, 1],
  ArrowUp: [0, 1],
  KeyS: [0, -1],
  ArrowDown: [0, -1],
  KeyA: [-1, 0],
  ArrowLeft: [-1, 0],
  KeyD: [1, 0],
  ArrowRight: [1, 0],
};

/**
 * @param {object} options
 * @param {URL} options.root Where the world's routes begin.
 * @param {() => object | null} options.player The local player in the latest state.
 * @param {() => [number, number]} options.heading Where the camera looks, [x, z].
 * @param {(text: string) => void} options.onError
 * @param {() => void} options.onChange The player has joined or left.
 */
export function createPlay({ root, player, heading, onError, onChange }) {
  const pressed = new Set();
  const waiting = new Map();
  let client = null;
  let id = null;
  let busy = false;
  let walking = null;

  /** Sends inputs one after the other; of those that wait, only the last of each type. */
  async function send(type, data) {
    waiting.delete(type);
    waiting.set(type, data);
    if (busy) return;
    busy = true;
    try {
      while (client && waiting.size) {
        const [[next, about]] = waiting;
        waiting.delete(next);
        await client.send(next, about);
      }
    } catch (error) {
      onError(error.message);
      if (error.status === 400 || error.status === 401) forget();
    } finally {
      busy = false;
    }
  }

  /** The direction of the pressed keys in the world, [x, z], or null. */
  function direction() {
    let [right, ahead] = [0, 0];
    for (const code of pressed) {
      right += DIRECTIONS[code][0];
      ahead += DIRECTIONS[code][1];
    }
    const length = Math.hypot(right, ahead);
    if (!length) return null;
    const [x, z] = heading();
    return [(x * ahead - z * right) / length, (z * ahead + x * right) / length];
  }

  function step(way, studs) {
    const at = player()?.position;
    if (at) send("MoveTo", { position: [at[0] + way[0] * studs, at[1], at[2] + way[1] * studs] });
  }

  function walk() {
    const way = direction();
    if (way) {
      step(way, AHEAD);
      walking = way;
    } else if (walking) {
      step(walking, LAST_STEP);
      walking = null;
      send("Stop");
    }
  }

  function press(event) {
    if (!client || isTyping(event.target) || event.ctrlKey || event.metaKey) return;
    if (event.code === "Space" && !event.target.closest("button, a")) {
      event.preventDefault();
      if (!event.repeat) send("Jump");
    } else if (DIRECTIONS[event.code]) {
      event.preventDefault();
      if (event.repeat) return;
      pressed.add(event.code);
      walk();
    }
  }

  function release({ code }) {
    if (pressed.delete(code)) walk();
  }

  function releaseAll() {
    pressed.clear();
    walk();
  }

  function forget() {
    client = id = null;
    pressed.clear();
    waiting.clear();
    onChange();
  }

  window.addEventListener("keydown", press);
  window.addEventListener("keyup", release);
  window.addEventListener("blur", releaseAll);
  window.addEventListener("pagehide", () => client?.leave());
  setInterval(() => pressed.size && walk(), WALK_MS);

  return {
    async join(name) {
      const joining = createLocalInputClient({ baseUrl: root, playerName: name });
      await joining.join();
      const observation = await joining.observe();
      client = joining;
      id = observation.player?.id ?? joining.agentId();
      onChange();
    },
    async leave() {
      const leaving = client;
      forget();
      await leaving?.leave();
    },
    /** The local player's id in states, or null. */
    id: () => id,
    say: (text) => client.chat(text),
    click: (elementId) => send("GuiClick", { element_id: elementId }),
    walkTo: (position) => client && send("MoveTo", { position }),
  };
}
