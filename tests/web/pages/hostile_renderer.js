// A renderer that tries to get out of its frame. FOREIGN and APP are filled in by the test.

const attempts = {
  "read the parent's document": () => parent.document.title,
  "read the parent's address": () => parent.location.href,
  "read a variable of the parent": () => parent.KEYS,
  "find itself from outside": () => frameElement.id,
  "navigate the top": () => (top.location = "FOREIGN/top"),
  "navigate the top by href": () => (top.location.href = "FOREIGN/top-href"),
  "go back": () => refuse(void history.back()),
  "open a window": () => refuse(open("FOREIGN/popup")),
  "open the app in a window": () => refuse(open("APP/")),
  "show a dialog": () => refuse(prompt("key?") === null ? null : "shown"),
  "local storage": () => localStorage.setItem("a", "b"),
  "session storage": () => sessionStorage.setItem("a", "b"),
  cookies: () => (document.cookie = "a=b"),
  "indexed database": () => done(indexedDB.open("a")),
  "cache storage": () => caches.open("a"),
  "service worker": () => navigator.serviceWorker.register("renderer-files/index.js"),
  worker: () => done(new Worker(URL.createObjectURL(new Blob(["postMessage(1)"])))),
  "worker of its own": () => done(new Worker("renderer-files/index.js")),
  "fetch a foreign page": () => fetch("FOREIGN/fetch", { mode: "no-cors" }),
  "fetch the app": () => fetch("APP/", { mode: "no-cors" }),
  "fetch another key of the app": () => fetch("APP/x/other/", { mode: "no-cors" }),
  "fetch beside its path": () => fetch(new URL("../../", document.baseURI), { mode: "no-cors" }),
  "foreign image": () => load("img", { src: "FOREIGN/image" }),
  "image of the app": () => load("img", { src: "APP/static/icon.svg" }),
  "foreign script": () => load("script", { src: "FOREIGN/script" }),
  "foreign module": () => import("FOREIGN/module"),
  "foreign style": () => load("link", { rel: "stylesheet", href: "FOREIGN/style" }),
  "foreign font": () => new FontFace("f", "url(FOREIGN/font)").load(),
  "foreign video": () => load("video", { src: "FOREIGN/video" }),
  "foreign frame": () => framed("FOREIGN/frame"),
  "the app in a frame": () => framed("APP/"),
  object: () => load("object", { data: "FOREIGN/object" }),
  "foreign WebSocket": () => done(new WebSocket("FOREIGN/socket".replace("http", "ws"))),
  "WebSocket of the app": () => done(new WebSocket("APP/".replace("http", "ws"))),
  "talk to a peer": () => talk(),
  "event source": () => done(new EventSource("FOREIGN/events")),
  beacon: () => refuse(navigator.sendBeacon("FOREIGN/beacon", "x") ? null : null),
  prefetch: () => load("link", { rel: "prefetch", href: "FOREIGN/prefetch" }),
  preload: () => load("link", { rel: "preload", as: "image", href: "FOREIGN/preload" }),
  preconnect: () => load("link", { rel: "preconnect", href: "FOREIGN" }),
  ping: () => click("a", { href: "#x", ping: "FOREIGN/ping" }),
  "send a form": () => submit("_self"),
  "send a form to the top": () => submit("_top"),
  "send a form to a window": () => submit("_blank"),
  "download a file": () => click("a", { href: URL.createObjectURL(new Blob(["x"])), download: "evil" }),
  "follow a link of the top": () => click("a", { href: "FOREIGN/link", target: "_top" }),
  "follow a link to a window": () => click("a", { href: "FOREIGN/link-blank", target: "_blank" }),
  "full screen": () => document.documentElement.requestFullscreen(),
  "read the clipboard": () => navigator.clipboard.readText(),
  geolocation: () => new Promise((resolve, reject) => navigator.geolocation.getCurrentPosition(resolve, reject)),
  "change the base": () => {
    document.head.append(make("base", { href: "FOREIGN/" }));
    return refuse(document.baseURI.startsWith("FOREIGN") ? "changed" : null);
  },
  "close the top": () => refuse(void top.close()),
};

const make = (tag, fields) => Object.assign(document.createElement(tag), fields);

/** Fails unless there is a result; whether nothing has happened is then seen from outside. */
function refuse(result) {
  if (result === null || result === undefined) throw new Error("nothing came of it");
  return result;
}

function done(thing) {
  return new Promise((resolve, reject) => {
    thing.onopen = thing.onsuccess = thing.onmessage = resolve;
    thing.onerror = thing.onclose = () => reject(new Error("error"));
  });
}

function load(tag, fields) {
  const element = make(tag, {});
  const loaded = done(element);
  element.onload = element.onloadeddata = () => element.dispatchEvent(new Event("success"));
  Object.assign(element, fields);
  document.body.append(element);
  return Promise.race([loaded, new Promise((resolve) => element.addEventListener("success", resolve))]);
}

function click(tag, fields) {
  const element = make(tag, fields);
  document.body.append(element);
  element.click();
  return refuse(null);
}

function submit(target) {
  const form = make("form", { action: "FOREIGN/form", method: "post", target });
  document.body.append(form);
  form.submit();
  return refuse(null);
}

/** A frame that is refused shows a page of the browser, and nothing of it can be read. */
async function framed(src) {
  const frame = make("iframe", { src });
  document.body.append(frame);
  await new Promise((resolve) => (frame.onload = frame.onerror = resolve));
  return refuse(frame.contentDocument?.body?.textContent || null);
}

async function talk() {
  const urls = "FOREIGN".replace("http://", "stun:");
  const peer = new RTCPeerConnection({ iceServers: [{ urls }] });
  peer.createDataChannel("x");
  await peer.setLocalDescription(await peer.createOffer());
}

const WAIT_MS = 700;

async function run() {
  const results = {};
  for (const [name, attempt] of Object.entries(attempts)) {
    const late = new Promise((_, reject) => setTimeout(() => reject(new Error("nothing came")), WAIT_MS));
    try {
      results[name] = `SUCCEEDED: ${await Promise.race([Promise.resolve().then(attempt), late])}`;
    } catch (error) {
      results[name] = `failed: ${error?.message ?? error?.type ?? error}`;
    }
  }
  for (let k = 0; k < 20000; k += 1) parent.postMessage({ t: 1, entities: [], key: "give" }, "*");
  await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
  window.results = results;
}

export function createRenderer() {
  window.seen = [];
  addEventListener("message", ({ data }) => window.seen.push(Object.keys(data)));
  run();
  return { onState() {} };
}
