// The feed of a renderer in a frame: states come from the page around it, and nothing goes back.

delete window.RTCPeerConnection; // no policy of older browsers keeps a renderer from its peers

let latest = null;
let take = null;

addEventListener("message", ({ source, data }) => {
  if (source !== parent || !data) return;
  for (const entity of data.entities ?? []) {
    if (entity.model_url?.startsWith("/")) entity.model_url = entity.model_url.slice(1);
  }
  latest = data;
  take?.(latest);
});

export function openFeed(_root, { onState, onStatus }) {
  for (const id of ["play", "chat", "tool-chat"]) document.getElementById(id).hidden = true;
  onStatus("live", "Replay");
  take = onState;
  if (latest) take(latest);
  return { stop: () => (take = null) };
}
