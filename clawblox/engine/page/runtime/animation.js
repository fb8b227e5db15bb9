// The animation tracks of players, as the feed names them.

export const tracksForPlayer = (player) => player?.active_animations ?? [];

export const findTrack = (player, predicate) => tracksForPlayer(player).find(predicate) ?? null;

/** Whether the player has a playing track whose animation id the pattern matches. */
export function hasTrackMatching(player, pattern) {
  const found = (track) => track.is_playing !== false && track.animation_id.search(pattern) >= 0;
  return tracksForPlayer(player).some(found);
}

export function mapPlayersByRootPart(players) {
  const rooted = (players ?? []).filter((player) => player.root_part_id != null);
  return new Map(rooted.map((player) => [player.root_part_id, player]));
}

const KINDS = {
  fire: /fire|shoot|attack/i,
  reload: /reload/i,
  idle: /idle/i,
  walk: /walk|run/i,
  jump: /jump/i,
};

/** Which kinds of animation the player's playing tracks are, told by their ids. */
export function classifyAnimationTracks(player) {
  const kinds = Object.entries(KINDS);
  return Object.fromEntries(kinds.map(([kind, p]) => [kind, hasTrackMatching(player, p)]));
}
