"use strict";
// The player of a recording: whoever moves the slider, follows a link to a moment or opens #t= moves
// the frame, the axis, the table and the trees; in a bundle, which has states in files, not the last two.
(() => {
  const form = document.querySelector("form.player");
  const [slider, now, play, speed, show] = ["slider", "now", "play", "speed", "show"].map((id) => document.getElementById(id));
  const frame = document.querySelector("iframe.stage");
  const WINDOW_S = 10;
  const PARTS_MS = 100;
  const PLAYED_PARTS_MS = 1000;
  const windows = typeof STATES === "undefined" ? null : STATES;
  let states = [];
  let covered = [0, -1];
  let loading = false;
  let shown = null;
  let playing = 0;
  let before = 0;
  let asking = null;

  const time = () => Number(slider.value);
  const span = () => document.getElementById("span").dataset;

  /** The last state at a moment or before, by halves. */
  function find(t) {
    let [low, high] = [0, states.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (states[middle][0] <= t) low = middle + 1;
      else high = middle;
    }
    return states[low - 1] ?? states[0];
  }

  function post(again) {
    if (!frame || !states.length) return;
    const state = find(time());
    if (state === shown && !again) return;
    shown = state;
    frame.contentWindow.postMessage(state[1], "*");
    frame.dataset.shown = state[0];
  }

  /** Reads states of a bundle: the last window that begins at a moment or before. */
  async function readWindow(t) {
    const window = windows.findLast(([begin]) => begin <= t) ?? windows[0];
    const script = document.createElement("script");
    script.src = policy.createScriptURL(window[2]);
    let got;
    self.takeStates = (taken) => (got = taken);
    await new Promise((resolve, reject) => {
      [script.onload, script.onerror] = [resolve, reject];
      document.head.append(script);
    });
    script.remove();
    return { states: got.states, span: [window[0], window === windows.at(-1) ? Infinity : window[1]] };
  }

  async function askForStates(from, to) {
    const answer = await fetch(`${form.dataset.states}?${new URLSearchParams({ from, to })}`);
    const got = await answer.json();
    return { states: got.states, span: [from, got.next ?? Math.min(to, Number(span().end))] };
  }

  /** Fetches the states around the moment, and the next ones before they are needed. */
  async function load() {
    const from = time();
    const end = Number(span().end);
    const ahead = WINDOW_S * Math.max(1, Number(speed.value));
    const near = !windows && covered[1] < end && from > covered[1] - ahead / 3;
    if (!frame || loading || (from >= covered[0] && from <= covered[1] && !near)) return;
    loading = true;
    let got;
    try {
      got = await (windows ? readWindow(from) : askForStates(from, from + ahead));
    } catch {
      return; // the bar says that the server is gone
    } finally {
      loading = false;
    }
    ({ states, span: covered } = got);
    post();
    if (time() < covered[0] || time() > covered[1]) load();
  }

  function drawCursor() {
    const { begin, end } = document.getElementById("strip").dataset;
    const at = 160 + ((time() - begin) / (end - begin || 1)) * 680;
    for (const picture of document.querySelectorAll("#axis svg")) {
      let line = picture.querySelector(".cursor");
      if (!line) {
        line = document.createElementNS("http://www.w3.org/2000/svg", "path");
        line.setAttribute("class", "cursor");
        picture.append(line);
      }
      line.setAttribute("d", `M${at.toFixed(1)},0V${picture.getAttribute("height")}`);
    }
  }

  /** Moves what stands here to the slider at once; the server draws table and trees, a little later. */
  function move() {
    const last = windows?.at(-1)[1] ?? Infinity;
    const missing = last < Number(span().end) && time() > last ? `; the bundle has states until ${last.toFixed(2)} s` : "";
    now.textContent = `${time().toFixed(2)} s${missing}`;
    post();
    load();
    drawCursor();
    asking ??= setTimeout(() => {
      asking = null;
      history.replaceState(null, "", `#t=${+time().toFixed(3)}`);
      if (!windows) askForChanges().catch(() => {});
    }, playing ? PLAYED_PARTS_MS : PARTS_MS);
  }

  function seek(t) {
    if (!Number.isFinite(t)) return;
    slider.value = t;
    move();
  }

  function advance(at) {
    const next = time() + ((at - before) / 1000) * Number(speed.value);
    before = at;
    if (!frame || next <= covered[1] || !loading) seek(next);
    if (next >= Number(slider.max) && !live) return stop();
    playing = requestAnimationFrame(advance);
  }

  function stop() {
    cancelAnimationFrame(playing);
    playing = 0;
    play.textContent = "Play";
    move();
  }

  function start() {
    if (time() >= Number(slider.max)) slider.value = slider.min;
    play.textContent = "Pause";
    before = performance.now();
    playing = requestAnimationFrame(advance);
  }

  const fromHash = () => location.hash.match(/^#t=(-?[\d.]+)/)?.[1];
  for (const control of [play, speed]) control.hidden = false;
  show.hidden = true;
  slider.addEventListener("input", move);
  play.addEventListener("click", () => (playing ? stop() : start()));
  form.addEventListener("submit", (event) => event.preventDefault());
  frame?.addEventListener("load", () => post(true));
  addEventListener("hashchange", () => fromHash() && seek(Number(fromHash())));
  document.addEventListener("click", (event) => {
    const target = event.target.closest?.("a[data-t]");
    if (windows || !target || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    seek(Number(target.dataset.t));
  });
  document.addEventListener("changed", () => {
    slider.max = span().end;
    drawCursor();
  });
  if (fromHash()) seek(Number(fromHash()));
  else {
    load();
    drawCursor();
  }
})();
