// What a renderer module gets as `ctx.runtime`.

import * as animation from "./animation.js";
import * as cameras from "./cameras.js";
import { bindKeyboardActions, createLocalInputClient } from "./input.js";
import { applyLightingPreset, applyRendererPreset } from "./looks.js";
import { lerp, lerpVec3 } from "./math.js";
import * as meshes from "./meshes.js";
import * as models from "./models.js";
import { createPresetRegistry } from "./presets.js";
import { createSnapshotBuffer, indexById } from "./state.js";

export const runtime = {
  math: { lerp, lerpVec3 },
  state: { createSnapshotBuffer, indexById },
  animation: {
    tracksForPlayer: animation.tracksForPlayer,
    findTrack: animation.findTrack,
    hasTrackMatching: animation.hasTrackMatching,
    mapPlayersByRootPart: animation.mapPlayersByRootPart,
  },
  presets: { createPresetRegistry },
  three: {
    createFollowCameraController: cameras.createFollowCameraController,
    createCameraModeController: cameras.createCameraModeController,
    createPresetMaterialLibrary: meshes.createPresetMaterialLibrary,
    materialFromRender: meshes.materialFromRender,
    geometryFromRender: meshes.geometryFromRender,
    buildEntityMesh: meshes.buildEntityMesh,
    applyEntityTransform: meshes.applyEntityTransform,
    createEntityStore: meshes.createEntityStore,
    disposeObject3D: meshes.disposeObject3D,
    createModelTemplateCache: models.createModelTemplateCache,
    createModelEntityController: models.createModelEntityController,
    classifyAnimationTracks: animation.classifyAnimationTracks,
    applyRendererPreset,
    applyLightingPreset,
  },
  input: { createLocalInputClient, bindKeyboardActions },
};
