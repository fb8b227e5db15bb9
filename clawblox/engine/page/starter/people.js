// Players: their models, dressed in a colour of their own, and their names.

import * as THREE from "three";

import { applyEntityTransform, createEntityStore, disposeObject3D } from "../runtime/meshes.js";
import { playerHue } from "../names.js";
import { createLabel } from "./labels.js";

const TAG_SIZE = 15;
const ABOVE_HEAD = 3.5;
/** The figure of players whose root part names no model. */
const FIGURE = new URL("../player.glb", import.meta.url).href;

/** Gives a model's shirt and trousers the colour of their player. */
export function dressFigure(model, name) {
  const hue = playerHue(name) / 360;
  const colors = { shirt: [hue, 0.72, 0.42], trousers: [hue, 0.5, 0.2] };
  model.traverse((node) => {
    const color = colors[node.material?.name];
    if (!color) return;
    node.material = node.material.clone();
    node.material.color.setHSL(...color);
  });
}

/** What stands for a player until the model is there. */
function buildPlace(player) {
  const place = new THREE.Group();
  const material = new THREE.MeshStandardMaterial({ roughness: 0.6 });
  material.color.setHSL(playerHue(player.name) / 360, 0.6, 0.5);
  const body = new THREE.Mesh(new THREE.CapsuleGeometry(0.9, 3.2, 8, 20), material);
  body.castShadow = true;
  place.add(body);
  place.userData.last = null;
  return place;
}

/** Draws players; `models` is a model entity controller. */
export function createPeople(scene, models) {
  const tags = new Map();
  const store = createEntityStore(scene, { dispose: disposeObject3D });

  function upsert(player, entity, dt) {
    const place = store.upsert(player, buildPlace);
    const position = entity?.position ?? player.position;
    applyEntityTransform(THREE, place, { ...entity, position, size: undefined });
    const { last } = place.userData;
    const distance = last ? Math.hypot(position[0] - last[0], position[2] - last[2]) : 0;
    place.userData.last = position;
    models.upsert({
      entityId: player.id,
      root: place,
      modelUrl: entity?.model_url ?? FIGURE,
      size: entity?.size ?? [2, 5, 2],
      yawOffsetDeg: entity?.model_yaw_offset_deg,
      name: player.name,
    });
    const speed = distance / Math.max(dt, 1e-3);
    models.update(player.id, { dt, speed, humanoidState: player.humanoid_state });
  }

  function tag(player, camera, viewHeight) {
    if (!tags.has(player.id)) tags.set(player.id, createLabel(scene));
    const label = tags.get(player.id);
    const full = player.attributes?.MaxHealth ?? 100;
    const hurt = player.health < full ? Math.max(0, player.health / full) : null;
    label.show([{ text: player.name, size: TAG_SIZE, color: [1, 1, 1] }], hurt, true);
    const above = store.get(player.id).position.clone();
    above.y += ABOVE_HEAD;
    label.place(above, camera, viewHeight);
  }

  function prune(ids) {
    store.prune(ids);
    for (const [id, label] of tags) {
      if (ids.has(id)) continue;
      label.remove();
      tags.delete(id);
      models.remove(id);
    }
  }

  return { upsert, tag, prune, get: store.get, clear: () => prune(new Set()) };
}
