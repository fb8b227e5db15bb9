// The last states of the feed, and what lies between them.

import { distance, lerpRotation, lerpVec3 } from "./math.js";

/** A thing that went farther between two states was moved there at once. */
const TELEPORT_STUDS = 16;

export function indexById(items) {
  return new Map((items ?? []).map((item) => [item.id, item]));
}

/**
 * Keeps the last states with the time of their arrival. `interpolated` shows the world as it was
 * `interpolationDelayMs` ago, between the two states around that moment.
 */
export function createSnapshotBuffer({ maxSnapshots = 12, interpolationDelayMs = 100 } = {}) {
  const snapshots = [];

  return {
    push(state, at = performance.now()) {
      const last = snapshots.at(-1);
      if (last && last.state.tick === state.tick) last.state = state;
      else snapshots.push({ state, at, indexes: {} });
      if (snapshots.length > maxSnapshots) snapshots.shift();
    },
    latest: () => snapshots.at(-1)?.state ?? null,
    previous: () => snapshots.at(-2)?.state ?? null,
    size: () => snapshots.length,
    /** Calls `visit(state, ageMs)` for the last states, the newest first. */
    forEachRecent(visit, limit = snapshots.length) {
      const now = performance.now();
      for (const { state, at } of snapshots.slice(-limit).reverse()) visit(state, now - at);
    },
    interpolated(now = performance.now()) {
      const moment = now - interpolationDelayMs;
      const next = snapshots.findIndex(({ at }) => at > moment);
      if (next < 0) return snapshots.at(-1)?.state ?? null;
      if (next === 0) return snapshots[0].state;
      const [a, b] = [snapshots[next - 1], snapshots[next]];
      return between(a, b, (moment - a.at) / (b.at - a.at));
    },
  };
}

function between(a, b, t) {
  const mix = (list) => {
    const earlier = (a.indexes[list] ??= indexById(a.state[list]));
    return (b.state[list] ?? []).map((item) => mixItem(earlier.get(item.id), item, t));
  };
  return { ...b.state, entities: mix("entities"), players: mix("players") };
}

function mixItem(before, item, t) {
  if (!before?.position || !item.position) return item;
  const moved = distance(before.position, item.position);
  const turned = before.rotation !== item.rotation && !sameRotation(before.rotation, item.rotation);
  if (moved > TELEPORT_STUDS || (moved === 0 && !turned)) return item;
  const mixed = { ...item, position: lerpVec3(before.position, item.position, t) };
  if (turned) mixed.rotation = lerpRotation(before.rotation, item.rotation, t);
  return mixed;
}

function sameRotation(a, b) {
  return Boolean(a && b) && a.every((row, i) => row.every((value, k) => value === b[i][k]));
}
