"use strict";
// What pages do besides being read: they follow changes, write how long ago something was, filter
// and sort rows, and listen to keys. Every page can be read without this script.
const rules = { createHTML: (text) => text, createScriptURL: (name) => (/^states-\d+-\d+\.js$/.test(name) ? name : null) };
const policy = window.trustedTypes ? trustedTypes.createPolicy("server", rules) : rules;
const base = new URL(".", new URL(document.querySelector("link[rel=stylesheet]").href + "/../..")).pathname;
const $ = (query, root = document) => root.querySelector(query);
const $$ = (query, root = document) => [...root.querySelectorAll(query)];

function fromServer(html) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(html);
  return template.content;
}

// -- times ---------------------------------------------------------------------------------------

function age(seconds) {
  if (seconds < 0) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} days ago`;
}

function writeTimes() {
  for (const time of $$("time[datetime]:not([data-fixed])")) {
    time.title ||= time.textContent;
    const shown = age((Date.now() - Date.parse(time.dateTime)) / 1000);
    if (time.textContent !== shown) time.textContent = shown;
  }
}

// -- changes -------------------------------------------------------------------------------------

const live = $("#live");
let failures = 0;
const MOST_CHILDREN = 20000; // lines or steps of a part that grows

function pageAddress() {
  const moment = $("#slider") && location.hash.match(/^#t=(-?[\d.]+)/);
  const query = new URLSearchParams(location.search);
  if (moment) query.set("t", moment[1]);
  return location.pathname.slice(base.length) + (query.size ? `?${query}` : "");
}

async function askForChanges() {
  const seen = $$("main > section[data-version]").map((part) => `${part.id}:${part.dataset.version}`);
  const query = new URLSearchParams({ page: pageAddress(), seen });
  const answer = await fetch(`${base}changes?${query}`);
  if (answer.status === 200) for (const change of await answer.json()) apply(change);
  else if (!answer.ok) throw new Error(answer.status);
}

function apply(html) {
  const fresh = fromServer(html).firstElementChild;
  const part = document.getElementById(fresh.id);
  if (!part) return;
  if (fresh.dataset.cursor) {
    const follows = innerHeight + scrollY >= document.body.scrollHeight - 40;
    part.append(...fresh.childNodes);
    while (part.childElementCount > MOST_CHILDREN) part.firstElementChild.remove();
    Object.assign(part.dataset, fresh.dataset);
    if (follows) scrollTo(0, document.body.scrollHeight);
  } else if (!part.querySelector("input:focus")) {
    const recall = remember(part);
    part.replaceWith(fresh);
    makeSortable(fresh);
    recall(fresh);
  }
  writeTimes();
  filterRows();
  document.dispatchEvent(new Event("changed"));
}

// Returns what restores in a new part what the reader has done: the focus, opened folds, the chosen
// row, the order of the rows. Elements are known by their id, their address or their words.
function remember(part) {
  const names = (one) => one && (one.id || one.getAttribute("href") || $("summary", one)?.textContent);
  const again = (query, name, fresh) => name ? $$(query, fresh).find((one) => names(one) === name) : null;
  const opened = $$("details[open]", part).map(names);
  const focused = part.contains(document.activeElement) && names(document.activeElement);
  const chosen = names($(".chosen a[href]", part));
  const orders = $$("table", part).map((table) => {
    const heading = $("th[aria-sort]", table);
    return heading && [heading.cellIndex, heading.getAttribute("aria-sort") === "descending"];
  });
  return (fresh) => {
    for (const name of opened) again("details", name, fresh)?.setAttribute("open", "");
    again("a[href]", chosen, fresh)?.closest(".step, tr")?.classList.add("chosen");
    $$("table", fresh).forEach((table, place) => {
      const [column, falls] = orders[place] ?? [];
      const heading = column !== undefined && $$("thead th", table)[column];
      if (heading) sortRows(heading, falls);
    });
    again("a[href], [id]", focused, fresh)?.focus({ preventScroll: true });
  };
}

async function follow() {
  if (document.visibilityState === "visible") {
    try {
      await askForChanges();
      failures = 0;
      $("#old")?.remove();
    } catch {
      failures += 1;
      if (failures === 2) showNote("What you see is old: clawblox app no longer answers.");
    }
  }
  setTimeout(follow, Math.min(1000 * 2 ** Math.min(failures, 4), 10000));
}

function showNote(words) {
  const note = document.createElement("p");
  note.id = "old";
  note.className = "old";
  note.setAttribute("role", "status");
  note.textContent = words;
  $("main").prepend(note);
}

// -- rows ----------------------------------------------------------------------------------------

function filterRows() {
  const field = $("input.filter");
  if (!field) return;
  const words = field.value.toLowerCase().split(/\s+/);
  for (const row of $$("tbody tr", document.getElementById(field.dataset.part || "runs") || document)) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
}

function makeSortable(root) {
  for (const heading of $$("thead th", root)) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
  }
}

function sortRows(heading, falls) {
  const table = heading.closest("table");
  const place = heading.cellIndex;
  const key = (row) => row.children[place]?.dataset.sort ?? row.children[place]?.textContent ?? "";
  const order = new Intl.Collator(undefined, { numeric: true });
  const rows = $$("tbody tr", table).sort((a, b) => order.compare(key(a), key(b)));
  if (falls) rows.reverse();
  for (const one of $$("th[aria-sort]", table)) one.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", falls ? "descending" : "ascending");
  $("tbody", table).append(...rows);
}

// -- keys ----------------------------------------------------------------------------------------

const KEYS = {
  "/": ["search or filter", () => $("input[type=search]")?.focus()],
  j: ["next row or step", () => move(1)],
  k: ["previous row or step", () => move(-1)],
  o: ["unfold or follow", unfold],
  "[": ["earlier window", () => $("a[data-key=earlier]")?.click()],
  "]": ["later window", () => $("a[data-key=later]")?.click()],
  "?": ["these keys", showKeys],
};

function rowsToMove() {
  return $$(".step, tbody tr").filter((row) => !row.hidden);
}

function move(by) {
  const rows = rowsToMove();
  const at = rows.findIndex((row) => row.classList.contains("chosen"));
  const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))];
  if (!next) return;
  rows[at]?.classList.remove("chosen");
  next.classList.add("chosen");
  next.scrollIntoView({ block: "nearest" });
  document.dispatchEvent(new CustomEvent("chosen", { detail: next }));
}

function unfold() {
  const row = $(".chosen");
  const fold = row && $("details", row);
  if (fold) fold.open = !fold.open;
  else row && $("a", row)?.click();
}

function showKeys() {
  let list = $("dialog#keys");
  if (!list) {
    list = document.createElement("dialog");
    list.id = "keys";
    const table = document.createElement("dl");
    for (const [key, [words]] of Object.entries(KEYS)) {
      const name = document.createElement("dt");
      const text = document.createElement("dd");
      name.textContent = key;
      text.textContent = words;
      table.append(name, text);
    }
    list.setAttribute("aria-label", "Keys");
    list.append(table);
    document.body.append(list);
  }
  list.showModal();
}

document.addEventListener("keydown", (event) => {
  const field = event.target.closest?.("input, select, textarea");
  if (event.key === "Escape" && field) field.blur();
  if (field || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key][1]();
});

// -- the turn in view ------------------------------------------------------------------------------

function markTurn() {
  const turns = $$(".turn[id]");
  const isAbove = (turn) => turn.getBoundingClientRect().top < innerHeight / 2;
  const wanted = (turns.filter(isAbove).at(-1) ?? turns[0])?.id;
  for (const entry of $$("#outline a[data-turn]")) {
    if (entry.dataset.turn !== wanted) entry.removeAttribute("aria-current");
    else if (!entry.hasAttribute("aria-current")) {
      entry.setAttribute("aria-current", "location");
      const list = entry.closest("ol");
      const { top, bottom } = list.getBoundingClientRect();
      const middle = (Math.max(top, 0) + Math.min(bottom, innerHeight)) / 2;
      list.scrollTop += entry.getBoundingClientRect().top - middle;
    }
  }
}

if ($("#outline")) {
  let due = 0;
  document.addEventListener("scroll", () => {
    due ||= setTimeout(() => { due = 0; markTurn(); }, 100);
  });
  document.addEventListener("changed", markTurn);
  markTurn();
}

// -- long texts ------------------------------------------------------------------------------------

async function fetchTexts(fold) {
  for (const more of $$("pre a.all", fold)) {
    const answer = await fetch(more.href);
    const text = answer.ok && $("#text pre", fromServer(await answer.text()));
    if (text) more.parentNode.replaceWith(text);
  }
}

document.addEventListener("toggle", (event) => event.target.open && fetchTexts(event.target), true);

// -- addresses to send ---------------------------------------------------------------------------

async function copyLink(button) {
  const place = location.hash.length > 1 ? `/${location.hash.slice(1)}` : "";
  await navigator.clipboard.writeText(button.dataset.address + place);
  button.textContent = "copied";
}

/** Return the file of a bundle that has an address, and the place in it; null if none has. */
function findInBundle(address) {
  const cut = address.lastIndexOf("/");
  const whole = ADDRESSES[address] ?? ADDRESSES[`${address}/run`];
  const place = whole ? "" : address.slice(cut + 1);
  const windows = whole ?? ADDRESSES[address.slice(0, cut)];
  if (!windows) return null;
  const byte = Number(place.slice(1));
  const [file] = (place && windows.find(([, first, last]) => first <= byte && byte <= last)) || windows[0];
  return place ? `${file}#${place}` : file;
}

function followShared() {
  if (typeof ADDRESSES === "object") {
    const file = location.hash.length > 1 && findInBundle(location.hash);
    if (file) location.replace(file);
    else if (location.hash.includes("/")) showNote("This bundle has no page for the address that was sent.");
  } else if (pageAddress() === "" && location.hash.includes("/"))
    location.replace(`${base}open?${new URLSearchParams({ address: location.hash })}`);
}

document.addEventListener("click", (event) => {
  const heading = event.target.closest("thead th");
  if (heading) sortRows(heading, heading.getAttribute("aria-sort") === "ascending");
  if (event.target.id === "share") copyLink(event.target);
});
document.addEventListener("input", (event) => event.target.matches("input.filter") && filterRows());
for (const button of $$("#share")) button.hidden = false;
makeSortable(document);
writeTimes();
setInterval(writeTimes, 1000);
followShared();
if ($("#log[data-cursor]") && !location.hash && !location.search) scrollTo(0, document.body.scrollHeight);
if (live) follow();
