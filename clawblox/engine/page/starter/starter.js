// The renderer of worlds that bring none. It follows the contract of every renderer module, and
// offers the host page a `view` beside it: whom to follow, where a point of the screen is. A renderer
// module may build on it (`clawblox/starter`): add to its `scene`, and move that in `ctx.drawn(dt)`,
// which is called after each frame.

import * as THREE from "three";

import { createModelEntityController } from "../runtime/models.js";
import { indexById, createSnapshotBuffer } from "../runtime/state.js";
import { drawsInSoftware } from "../software.js";
import { createCamera } from "./camera.js";
import { createLabel } from "./labels.js";
import { createParts } from "./parts.js";
import { createPeople, dressFigure } from "./people.js";
import { createSky } from "./sky.js";

const LONGEST_FRAME_S = 0.1;
const HUGE_STUDS = 120;
/** How finely the world is drawn, the best first; slow machines go down. */
const QUALITIES = [
  { ratio: 2, shadows: 2048 },
  { ratio: 1, shadows: 1024 },
  { ratio: 0.6, shadows: 0 },
];
const SLOW_FRAME_S = 0.045;
const JUDGED_FRAMES = 30;

export function createRenderer(ctx) {
  const plain = drawsInSoftware();
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const renderer = new THREE.WebGLRenderer({ canvas: ctx.canvas, antialias: !plain });
  renderer.shadowMap.enabled = true;
  renderer.shadowMap.type = THREE.PCFSoftShadowMap;
  renderer.toneMapping = THREE.ACESFilmicToneMapping;
  renderer.toneMappingExposure = 0.8;

  const scene = new THREE.Scene();
  const sky = createSky(scene, renderer, { dark, plain });
  const eye = createCamera(ctx.canvas);
  const buffer = createSnapshotBuffer();
  const parts = createParts(scene, { plain });
  const models = createModelEntityController(THREE, {
    onError: (error, about) => ctx.log("warn", `no model: ${error.message}`, about),
    onLoad: (model, { name }) => name && dressFigure(model, name),
  });
  const people = createPeople(scene, models);
  const billboards = new Map();
  const quality = { level: plain ? QUALITIES.length - 1 : 0, frames: 0, seconds: 0 };
  let size = { width: 1, height: 1, dpr: 1 };
  let framed = false;
  let frame = 0;
  let before = performance.now();

  function draw(now) {
    frame = requestAnimationFrame(draw);
    const dt = Math.min((now - before) / 1000, LONGEST_FRAME_S);
    before = now;
    const state = buffer.interpolated();
    if (state) {
      show(state, dt);
      judge(dt);
    }
    eye.update(people.get(eye.followed())?.position, dt);
    sky.follow(eye.camera, eye.target);
    eye.inSight(parts.solids(), () => {
      if (state) drawLabels(state);
      renderer.render(scene, eye.camera);
    });
    ctx.drawn?.(dt);
  }

  function show(state, dt) {
    const roots = new Map(state.players.map((player) => [player.root_part_id, player]));
    const entities = indexById(state.entities);
    const shown = new Set();
    for (const entity of state.entities) {
      if (roots.has(entity.id) || !entity.render) continue;
      showPart(entity, shown, dt);
    }
    parts.prune(shown);
    for (const player of state.players) people.upsert(player, entities.get(player.root_part_id), dt);
    people.prune(new Set(state.players.map(({ id }) => id)));
    if (!framed && state.entities.length) frameWorld(state);
  }

  function showPart(entity, shown, dt) {
    shown.add(entity.id);
    const mesh = parts.upsert(entity);
    if (!entity.model_url) return;
    models.upsert({
      entityId: entity.id,
      root: mesh,
      modelUrl: entity.model_url,
      size: entity.size,
      yawOffsetDeg: entity.model_yaw_offset_deg,
    });
    models.update(entity.id, { dt });
  }

  function drawLabels(state) {
    const { height, dpr } = size;
    for (const player of state.players) people.tag(player, eye.camera, height / dpr);
    const shown = new Set();
    for (const { id, billboard_gui: gui } of state.entities) {
      const mesh = parts.get(id);
      const rows = gui?.labels.filter(({ text }) => text) ?? [];
      if (!mesh || !rows.length) continue;
      shown.add(id);
      if (!billboards.has(id)) billboards.set(id, createLabel(scene));
      const label = billboards.get(id);
      label.show(rows, null, gui.always_on_top);
      const offset = new THREE.Vector3(...(gui.studs_offset ?? [0, 0, 0]));
      label.place(offset.add(mesh.position), eye.camera, height / dpr);
    }
    for (const [id, label] of billboards) {
      if (shown.has(id)) continue;
      label.remove();
      billboards.delete(id);
    }
  }

  /** Places the camera once, so that the middle of the world is seen. */
  function frameWorld(state) {
    framed = true;
    const box = new THREE.Box3();
    const half = new THREE.Vector3();
    const at = new THREE.Vector3();
    for (const { position, size: extent, render } of state.entities) {
      if (!render?.visible || !extent || Math.max(...extent) > HUGE_STUDS) continue;
      half.fromArray(extent).multiplyScalar(0.5);
      at.fromArray(position);
      box.expandByPoint(at.clone().sub(half)).expandByPoint(at.add(half));
    }
    for (const { position } of state.players) box.expandByPoint(at.fromArray(position));
    if (!box.isEmpty()) eye.frame(box);
  }

  /** Draws less finely when frames take too long. */
  function judge(dt) {
    quality.frames += 1;
    quality.seconds += dt;
    if (quality.frames < JUDGED_FRAMES) return;
    const slow = quality.seconds / quality.frames > SLOW_FRAME_S;
    quality.frames = quality.seconds = 0;
    if (slow && quality.level < QUALITIES.length - 1) {
      quality.level += 1;
      applyQuality();
    }
  }

  function applyQuality() {
    const { ratio, shadows } = QUALITIES[quality.level];
    const pixels = Math.min(1, ratio / size.dpr);
    renderer.setSize(Math.round(size.width * pixels), Math.round(size.height * pixels), false);
    sky.sun.castShadow = shadows > 0;
    if (!shadows || sky.sun.shadow.mapSize.x === shadows) return;
    sky.sun.shadow.mapSize.set(shadows, shadows);
    sky.sun.shadow.map?.dispose();
    sky.sun.shadow.map = null;
  }

  /** The point of the world under a point of the canvas (CSS pixels), or null. */
  function pick(x, y) {
    const rect = ctx.canvas.getBoundingClientRect();
    const point = new THREE.Vector2(
      ((x - rect.left) / rect.width) * 2 - 1,
      1 - ((y - rect.top) / rect.height) * 2,
    );
    const ray = new THREE.Raycaster();
    ray.setFromCamera(point, eye.camera);
    const [hit] = ray.intersectObjects(parts.solids());
    return hit ? hit.point.toArray() : null;
  }

  return {
    scene,
    mount() {
      frame = requestAnimationFrame(draw);
    },
    unmount() {
      cancelAnimationFrame(frame);
      for (const label of billboards.values()) label.remove();
      people.clear();
      parts.clear();
      models.clear();
      sky.dispose();
      eye.dispose();
      renderer.dispose();
    },
    onResize(next) {
      size = next;
      eye.camera.aspect = size.width / Math.max(1, size.height);
      eye.camera.updateProjectionMatrix();
      applyQuality();
    },
    onState(state) {
      buffer.push(state);
    },
    view: {
      follow: eye.follow,
      followed: eye.followed,
      setFlying: eye.setFlying,
      heading: eye.heading,
      pick,
    },
  };
}
