// Players: a figure of our own, or the model that the world gives them.

import * as THREE from "three";

import { createEntityStore, disposeObject3D } from "../runtime/meshes.js";
import { playerHue } from "../names.js";
import { createLabel } from "./labels.js";

const STRIDE = 1.15;
const TAG_SIZE = 15;
const AIRBORNE = new Set(["Jumping", "Freefall"]);

function limb(material, radius, length, x, y) {
  const joint = new THREE.Group();
  const mesh = new THREE.Mesh(new THREE.CapsuleGeometry(radius, length, 6, 14), material);
  mesh.position.y = -length / 2 - radius * 0.4;
  joint.position.set(x, y, 0);
  joint.add(mesh);
  return joint;
}

/** A figure 5 studs high around the middle of its root part; it looks along −Z. */
function buildFigure(name) {
  const shirt = new THREE.MeshStandardMaterial({ roughness: 0.55 });
  shirt.color.setHSL(playerHue(name) / 360, 0.68, 0.55);
  const dark = shirt.color.clone().offsetHSL(0, -0.1, -0.28);
  const trousers = new THREE.MeshStandardMaterial({ color: dark, roughness: 0.75 });
  const skin = new THREE.MeshStandardMaterial({ color: 0xffd3b0, roughness: 0.6 });
  const ink = new THREE.MeshStandardMaterial({ color: 0x1b2230, roughness: 0.3 });

  const figure = new THREE.Group();
  const body = new THREE.Mesh(new THREE.CapsuleGeometry(0.62, 0.85, 8, 24), shirt);
  body.scale.set(1.08, 1, 0.78);
  body.position.y = 0.2;
  const head = new THREE.Mesh(new THREE.SphereGeometry(0.66, 28, 20), skin);
  head.position.y = 1.82;
  for (const x of [-0.23, 0.23]) {
    const eye = new THREE.Mesh(new THREE.SphereGeometry(0.095, 12, 10), ink);
    eye.scale.set(1, 1.35, 0.6);
    eye.position.set(x, 0.08, -0.6);
    head.add(eye);
  }
  const limbs = {
    leftArm: limb(skin, 0.2, 0.95, -0.86, 0.82),
    rightArm: limb(skin, 0.2, 0.95, 0.86, 0.82),
    leftLeg: limb(trousers, 0.27, 1.0, -0.34, -0.72),
    rightLeg: limb(trousers, 0.27, 1.0, 0.34, -0.72),
  };
  figure.add(body, head, ...Object.values(limbs));
  figure.traverse((node) => {
    if (node.isMesh) node.castShadow = node.receiveShadow = true;
  });
  figure.userData = { limbs, step: 0 };
  return figure;
}

/** Moves the limbs of a figure for a frame in which it went `distance` studs. */
function walk(figure, distance, state, dt) {
  const { limbs } = figure.userData;
  const moving = distance / Math.max(dt, 1e-3) > 0.6;
  figure.userData.step += distance / STRIDE;
  const swing = moving ? Math.sin(figure.userData.step * 1.4) * 0.85 : 0;
  const raised = AIRBORNE.has(state);
  const goals = {
    leftArm: raised ? 2.6 : -swing,
    rightArm: raised ? 2.6 : swing,
    leftLeg: raised ? 0.35 : swing,
    rightLeg: raised ? -0.35 : -swing,
  };
  const part = 1 - Math.exp(-16 * dt);
  for (const [name, joint] of Object.entries(limbs)) {
    joint.rotation.x += (goals[name] - joint.rotation.x) * part;
    if (name.endsWith("Arm")) joint.rotation.z = (name === "leftArm" ? -1 : 1) * 0.14;
  }
  figure.rotation.x += ((state === "Dead" ? -Math.PI / 2 : 0) - figure.rotation.x) * part;
}

/** Draws players; `models` is a model entity controller. */
export function createPeople(scene, models) {
  const tags = new Map();
  const store = createEntityStore(scene, { dispose: disposeObject3D });

  function build(player) {
    const root = new THREE.Group();
    const figure = buildFigure(player.name);
    root.add(figure);
    root.userData = { figure, last: null, id: player.id };
    return root;
  }

  function upsert(player, entity, dt) {
    const root = store.upsert(player, build);
    const position = entity?.position ?? player.position;
    root.position.fromArray(position);
    const matrix = new THREE.Matrix4();
    if (entity?.rotation) {
      const [a, b, c] = entity.rotation;
      matrix.set(...a, 0, ...b, 0, ...c, 0, 0, 0, 0, 1);
    }
    root.quaternion.setFromRotationMatrix(matrix);
    const { last } = root.userData;
    const distance = last ? Math.hypot(position[0] - last[0], position[2] - last[2]) : 0;
    root.userData.last = position;
    const { figure } = root.userData;
    if (figure.parent) walk(figure, Math.min(distance, 1), player.humanoid_state, dt);
    if (entity?.model_url) {
      models.upsert({
        entityId: player.id,
        root,
        modelUrl: entity.model_url,
        size: entity.size,
        yawOffsetDeg: entity.model_yaw_offset_deg,
      });
      const speed = distance / Math.max(dt, 1e-3);
      models.update(player.id, { dt, speed, humanoidState: player.humanoid_state });
    }
    return root;
  }

  function tag(player, camera, viewHeight) {
    const root = store.get(player.id);
    if (!tags.has(player.id)) tags.set(player.id, createLabel(scene));
    const label = tags.get(player.id);
    const full = player.attributes?.MaxHealth ?? 100;
    const hurt = player.health < full ? Math.max(0, player.health / full) : null;
    label.show([{ text: player.name, size: TAG_SIZE, color: [1, 1, 1] }], hurt, true);
    label.place(root.position.clone().setY(root.position.y + 3.5), camera, viewHeight);
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
