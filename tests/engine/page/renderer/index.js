// Imports three.js by each of the addresses that renderers use, and draws with what `ctx` offers.

import * as FromEsm from "https://esm.sh/three@0.160.0";
import { EffectComposer } from "https://esm.sh/three@0.160.0/examples/jsm/postprocessing/EffectComposer.js";
import { RenderPass } from "https://esm.sh/three@0.160.0/examples/jsm/postprocessing/RenderPass.js";
import { UnrealBloomPass } from "https://unpkg.com/three@0.160.0/examples/jsm/postprocessing/UnrealBloomPass.js";
import * as FromUnpkg from "https://unpkg.com/three@0.160.0/build/three.module.js";
import * as THREE from "three";
import { OutputPass } from "three/addons/postprocessing/OutputPass.js";

export function createRenderer(ctx) {
  const { animation, input, math, presets, state, three } = ctx.runtime;
  const webgl = new THREE.WebGLRenderer({ canvas: ctx.canvas, preserveDrawingBuffer: true });
  three.applyRendererPreset(THREE, webgl, "vivid");
  const scene = new THREE.Scene();
  const lights = three.applyLightingPreset(THREE, scene, { shadowRadius: 40 });
  scene.background = new THREE.Color(1, 0, 1);
  const camera = new THREE.PerspectiveCamera(60, 1, 0.1, 500);
  const composer = new EffectComposer(webgl);
  composer.addPass(new RenderPass(scene, camera));
  composer.addPass(new UnrealBloomPass(new THREE.Vector2(64, 64), 0.1, 0.2, 0.9));
  composer.addPass(new OutputPass());

  const buffer = state.createSnapshotBuffer({ maxSnapshots: 4, interpolationDelayMs: 90 });
  const cameras = three.createCameraModeController(THREE, camera, {
    follow: { followDistance: 11, followHeight: 9, shoulderOffset: 1 },
  });
  const looks = three.createPresetMaterialLibrary({ "test/floor": { roughness: 0.9 } });
  const registry = presets.createPresetRegistry({ hut: { color: [1, 0, 0] } });
  const entities = three.createEntityStore(scene);
  const models = three.createModelEntityController(THREE, { onError: () => {} });
  const client = input.createLocalInputClient({ playerName: "module" });
  let keys = null;
  const report = (window.__module = {
    oneThree: FromEsm.Scene === THREE.Scene && FromUnpkg.Scene === THREE.Scene,
    apiVersion: ctx.apiVersion,
    name: ctx.manifest.name,
    lerp: math.lerpVec3([0, 0, 0], [2, 4, 6], math.lerp(0, 1, 0.5)),
    color: registry.color("hut"),
    calls: [],
  });

  return {
    mount() {
      report.calls.push("mount");
      keys = input.bindKeyboardActions(client, {
        KeyE: { mode: "tap", type: "Wave", data: { hand: "left" } },
        KeyR: { mode: "hold", type: "Run", data: {} },
      });
    },
    onResize({ width, height, dpr }) {
      report.calls.push("onResize");
      report.size = [width, height, dpr];
      camera.aspect = width / height;
      camera.updateProjectionMatrix();
      webgl.setSize(width, height, false);
      composer.setSize(width, height);
    },
    onState(next) {
      buffer.push(next);
      const shown = buffer.interpolated() ?? next;
      const ids = new Set(shown.entities.map(({ id }) => id));
      for (const entity of shown.entities) {
        entities.upsert(
          entity,
          (one) => three.buildEntityMesh(THREE, one, looks),
          (mesh, one) => three.applyEntityTransform(THREE, mesh, one),
        );
      }
      entities.prune(ids);
      const [player] = shown.players;
      const roots = animation.mapPlayersByRootPart(shown.players);
      report.rooted = roots.get(player.root_part_id).name;
      report.kinds = three.classifyAnimationTracks(player);
      cameras.update({
        mode: "follow",
        targetPosition: new THREE.Vector3(...player.position),
        targetForward: new THREE.Vector3(0, 0, 1),
        dt: 1 / 60,
      });
      models.update(1, { dt: 1 / 60, speed: 0, humanoidState: null });
      composer.render();
      report.meshes = entities.size();
    },
    unmount() {
      keys.dispose();
      entities.clear();
      models.clear();
      lights.dispose();
      webgl.dispose();
    },
  };
}
