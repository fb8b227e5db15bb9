// The spectator feed: a WebSocket, or GET /spectate where that is not to be had.

const QUIET_MS = 5000;
const POLL_MS = 100;
const LONGEST_WAIT_MS = 5000;

/**
 * Reads the feed of the world until `stop`.
 *
 * @param {URL} root Where the world's routes begin.
 * @param {{onState: (state: object) => void, onStatus: (kind: string, text: string) => void}} to
 *   `kind` is "connecting", "live", "halted" or "lost".
 */
export function openFeed(root, { onState, onStatus }) {
  let stopped = false;
  let socket = null;
  let halted = false;
  let wait = 500;

  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

  /** Shows the state once by HTTP; says whether that went well. */
  async function ask() {
    let response;
    try {
      response = await fetch(new URL("spectate", root), { cache: "no-store" });
    } catch {
      onStatus("lost", "The world does not answer. Trying again…");
      return false;
    }
    if (response.status === 503) {
      onStatus("halted", await response.text());
      return false;
    }
    if (!response.ok) {
      onStatus("lost", `The world answers ${response.status}. Trying again…`);
      return false;
    }
    const state = await response.json();
    wait = 500;
    onStatus("live", "Live, by polling");
    onState(state);
    return true;
  }

  /** Listens until the socket closes; says whether it was ever open. */
  function listen() {
    return new Promise((resolve) => {
      let opened = false;
      let heard = performance.now();
      let queue = Promise.resolve();
      const url = new URL("spectate/ws", root);
      url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
      socket = new WebSocket(url);
      socket.binaryType = "arraybuffer";
      const watch = setInterval(() => {
        if (performance.now() - heard > QUIET_MS) socket.close();
      }, 1000);
      socket.onopen = () => {
        opened = true;
        heard = performance.now();
        wait = 500;
        onStatus("live", "Live");
      };
      socket.onmessage = ({ data }) => {
        heard = performance.now();
        queue = queue.then(async () => take(typeof data === "string" ? data : await unzip(data)));
      };
      socket.onclose = () => {
        clearInterval(watch);
        resolve(opened);
      };
    });
  }

  function take(text) {
    const message = JSON.parse(text);
    if (message.error) {
      onStatus("halted", String(message.error));
      return;
    }
    onState(message);
    const failed = message.game_status === "failed";
    if (failed && !halted) ask(); // which says why
    halted = failed;
  }

  async function run() {
    let socketWorks = true;
    while (!stopped) {
      if (socketWorks) socketWorks = await listen();
      if (stopped) return;
      if (await ask()) {
        await sleep(socketWorks ? 0 : POLL_MS);
      } else {
        socketWorks = true;
        await sleep(wait);
        wait = Math.min(wait * 1.5, LONGEST_WAIT_MS);
      }
    }
  }

  onStatus("connecting", "Connecting…");
  run();
  return {
    stop() {
      stopped = true;
      socket?.close();
    },
  };
}

async function unzip(buffer) {
  const stream = new Blob([buffer]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}
