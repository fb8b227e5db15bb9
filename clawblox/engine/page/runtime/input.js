// A local player: joins the world, sends inputs, leaves. And keys that send inputs.

const HOLD_MS = 100;

/**
 * A player of this world; it joins with the first call that needs a session.
 *
 * @param {{baseUrl?: string | URL, playerName?: string}} options
 */
export function createLocalInputClient({ baseUrl = new URL("../../", import.meta.url), playerName = "player" } = {}) {
  const base = new URL(baseUrl, location.href);
  let joining = null;
  let joined = null;

  async function request(method, path, body) {
    const headers = joined ? { "X-Session": joined.session } : {};
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const response = await fetch(new URL(path, base), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) {
      const error = new Error(text || `${method} ${path} answered ${response.status}`);
      error.status = response.status;
      if (response.status === 401) joined = joining = null;
      throw error;
    }
    return JSON.parse(text);
  }

  async function join() {
    joining ??= request("POST", `join?name=${encodeURIComponent(playerName)}`);
    try {
      joined = await joining;
    } catch (error) {
      joining = null;
      throw error;
    }
    return joined;
  }

  async function ask(method, path, body) {
    if (!joined) await join();
    return request(method, path, body);
  }

  const send = (type, data) => ask("POST", "input", data === undefined ? { type } : { type, data });

  return {
    join,
    /** The session's token, or null before the join. */
    session: () => joined?.session ?? null,
    agentId: () => joined?.agent_id ?? null,
    /** Sends an input; the answer is the observation after it. */
    send,
    observe: () => ask("GET", "observe"),
    chat: (content) => ask("POST", "chat", { content }),
    /** Sends the input `RemoteEvent` with `{name, payload}`, for scripts that listen for it. */
    sendRemoteEvent: (name, payload) => send("RemoteEvent", { name, payload }),
    /** Leaves the world; the request outlives the page. */
    async leave() {
      if (!joined) return;
      const headers = { "X-Session": joined.session };
      joined = joining = null;
      await fetch(new URL("leave", base), { method: "POST", headers, keepalive: true });
    },
  };
}

/** Whether the keys that are pressed belong to a field. */
export function isTyping(target) {
  return Boolean(target?.closest?.("input, textarea, select, [contenteditable]"));
}

/**
 * Sends inputs while keys are pressed.
 *
 * @param bindings `{[KeyboardEvent.code]: {mode: "tap" | "hold", type, data}}`: a tap sends once, a
 *   hold sends again every `holdIntervalMs` until the key is released.
 * @returns {{dispose: () => void}}
 */
export function bindKeyboardActions(client, bindings, { target = window, holdIntervalMs = HOLD_MS, onError = console.warn } = {}) {
  const held = new Map();

  async function send({ type, data }) {
    try {
      await client.send(type, data);
    } catch (error) {
      onError(`[input] ${type}: ${error.message}`);
    }
  }

  function press(event) {
    const binding = bindings[event.code];
    if (!binding || event.repeat || isTyping(event.target)) return;
    event.preventDefault();
    send(binding);
    if (binding.mode === "hold" && !held.has(event.code)) {
      held.set(event.code, setInterval(() => send(binding), holdIntervalMs));
    }
  }

  function release({ code }) {
    clearInterval(held.get(code));
    held.delete(code);
  }

  function releaseAll() {
    for (const code of [...held.keys()]) release({ code });
  }

  target.addEventListener("keydown", press);
  target.addEventListener("keyup", release);
  window.addEventListener("blur", releaseAll);
  return {
    dispose() {
      releaseAll();
      target.removeEventListener("keydown", press);
      target.removeEventListener("keyup", release);
      window.removeEventListener("blur", releaseAll);
    },
  };
}
