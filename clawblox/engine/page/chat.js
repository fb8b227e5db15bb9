// The chat panel: messages by polling, as agents read them; the local player may write.

const POLL_MS = 1000;
const KEPT = 100;

/**
 * @param {{log: HTMLElement, form: HTMLFormElement, text: HTMLInputElement}} elements
 * @param {{root: URL, say: (text: string) => Promise<unknown>, colorOf: (name: string) => string}} options
 *   `say` posts a message of the local player.
 */
export function createChat({ log, form, text }, { root, say, onError }) {
  let last = null;
  let reading = false;

  async function read() {
    if (reading) return;
    reading = true;
    try {
      const url = new URL("chat/messages", root);
      url.searchParams.set("limit", "50");
      if (last) url.searchParams.set("after", last);
      const response = await fetch(url, { cache: "no-store" });
      if (response.ok) show((await response.json()).messages);
    } catch {
      // the feed says that the world does not answer
    } finally {
      reading = false;
    }
  }

  function show(messages) {
    if (!messages.length) return;
    last = messages.at(-1).id;
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 30;
    log.querySelector(".empty")?.remove();
    for (const message of messages) log.append(line(message));
    while (log.children.length > KEPT) log.firstChild.remove();
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  function line({ agent_name: author, content, created_at: at }) {
    const item = document.createElement("li");
    const name = document.createElement("b");
    name.textContent = author;
    item.title = `at ${at.toFixed(1)} s`;
    item.append(name, content);
    return item;
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const content = text.value.trim();
    if (!content) return;
    text.value = "";
    try {
      await say(content);
      await read();
    } catch (error) {
      text.value = content;
      onError(error.message);
    }
  });

  const empty = document.createElement("li");
  empty.className = "empty";
  empty.textContent = "No messages yet.";
  log.append(empty);
  let timer = null;

  return {
    start() {
      read();
      timer = setInterval(read, POLL_MS);
    },
    stop: () => clearInterval(timer),
    setWritable(writable) {
      text.disabled = form.querySelector("button").disabled = !writable;
      text.placeholder = writable ? "Write a message" : "Join to write a message";
    },
  };
}
