// GLB models: loaded once each, and put on entities with their animations.

import { GLTFLoader } from "three/addons/loaders/GLTFLoader.js";
import { clone } from "three/addons/utils/SkeletonUtils.js";

import { disposeObject3D } from "./meshes.js";

/** Loads each model once: `instantiate(url)` gives a copy of its own to every caller. */
export function createModelTemplateCache() {
  const loader = new GLTFLoader();
  const templates = new Map();

  function load(url) {
    if (!templates.has(url)) {
      const loading = loader.loadAsync(url);
      loading.catch(() => templates.delete(url));
      templates.set(url, loading);
    }
    return templates.get(url);
  }

  return {
    load,
    async instantiate(url) {
      const { scene, animations } = await load(url);
      return { root: clone(scene), animations };
    },
    clear() {
      for (const loading of templates.values()) {
        loading.then(({ scene }) => disposeObject3D(scene)).catch(() => {});
      }
      templates.clear();
    },
  };
}

/** Scales a model to the height of its entity and puts its feet on the entity's lower side. */
function fit(THREE, model, size, yawOffsetDeg) {
  const box = new THREE.Box3().setFromObject(model);
  const scale = size[1] / Math.max(1e-6, box.max.y - box.min.y);
  model.scale.multiplyScalar(scale);
  model.position.y = -size[1] / 2 - box.min.y * scale;
  model.rotation.y = ((yawOffsetDeg ?? 0) * Math.PI) / 180;
}

const MOTIONS = { idle: /idle|stand/i, walk: /walk|run/i, jump: /jump|fall|air/i };
const AIRBORNE = new Set(["Jumping", "Freefall"]);
const WALKING_STUDS_PER_S = 0.5;
const FADE_S = 0.2;

function findActions(mixer, clips) {
  const find = (pattern) => clips.find((clip) => pattern.test(clip.name));
  const found = Object.entries(MOTIONS).map(([motion, pattern]) => [motion, find(pattern)]);
  const known = found.filter(([, clip]) => clip);
  if (!known.length && clips.length) known.push(["idle", clips[0]]);
  return Object.fromEntries(known.map(([motion, clip]) => [motion, mixer.clipAction(clip)]));
}

/**
 * Puts models on the objects of entities; what hung there before stays until the model is loaded.
 *
 * @param {object} options
 * @param {(error: Error, about: object) => void} [options.onError] Called once for each entity whose
 *   model cannot be loaded.
 * @param {(model: object, about: object) => void} [options.onLoad] Called with the model of an entity
 *   before it is shown.
 */
export function createModelEntityController(THREE, { onError, onLoad } = {}) {
  const cache = createModelTemplateCache();
  const held = new Map();

  async function put(entry, about) {
    const { entityId, root, modelUrl, size, yawOffsetDeg } = about;
    let model;
    try {
      model = await cache.instantiate(modelUrl);
    } catch (error) {
      onError?.(error, { entityId, modelUrl });
      return;
    }
    if (held.get(entityId) !== entry) return;
    model.root.traverse((node) => {
      if (node.isMesh) node.castShadow = node.receiveShadow = true;
    });
    onLoad?.(model.root, about);
    fit(THREE, model.root, size ?? [2, 5, 2], yawOffsetDeg);
    for (const child of [...root.children]) {
      root.remove(child);
      disposeObject3D(child);
    }
    root.add(model.root);
    entry.mixer = new THREE.AnimationMixer(model.root);
    entry.actions = findActions(entry.mixer, model.animations);
  }

  return {
    /** @param about `{entityId, root, modelUrl, size, yawOffsetDeg}`; a new url replaces the model. */
    async upsert(about) {
      if (held.get(about.entityId)?.modelUrl === about.modelUrl) return;
      const entry = { modelUrl: about.modelUrl, actions: {} };
      held.set(about.entityId, entry);
      await put(entry, about);
    },
    /** @param motion `{dt, speed, humanoidState}`: seconds, studs a second, a state's name. */
    update(entityId, { dt, speed = 0, humanoidState = null }) {
      const entry = held.get(entityId);
      if (!entry?.mixer) return;
      const { jump, walk, idle } = entry.actions;
      const wanted =
        (AIRBORNE.has(humanoidState) && jump) ||
        (speed > WALKING_STUDS_PER_S && walk) ||
        idle ||
        null;
      if (wanted !== entry.playing) {
        entry.playing?.fadeOut(FADE_S);
        wanted?.reset().fadeIn(FADE_S).play();
        entry.playing = wanted;
      }
      entry.mixer.update(dt);
    },
    remove(entityId) {
      held.get(entityId)?.mixer?.stopAllAction();
      held.delete(entityId);
    },
    clear() {
      held.clear();
      cache.clear();
    },
  };
}
