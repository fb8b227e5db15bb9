// Parts: meshes that share geometries and materials, their surfaces measured in studs.

import * as THREE from "three";

import {
  applyEntityTransform,
  buildEntityMesh,
  createEntityStore,
  disposeObject3D,
  geometryFromRender,
  materialFromRender,
} from "../runtime/meshes.js";
import { surfaceMaps, TILE_STUDS } from "./textures.js";

const BOXES = new Set(["block", "box", "part", "wedge"]);

/** A table that counts users of what it makes and disposes of what has none. */
function createShared(make) {
  const made = new Map();
  return {
    take(key, ...about) {
      if (!made.has(key)) made.set(key, { value: make(...about), users: 0 });
      const entry = made.get(key);
      entry.users += 1;
      return entry.value;
    },
    give(key) {
      const entry = made.get(key);
      entry.users -= 1;
      if (entry.users) return;
      made.delete(key);
      entry.value.dispose();
    },
  };
}

/** Lays texture coordinates over a geometry so that a surface has the same scale on every part. */
function measureSurface(geometry, primitive, [x, y, z]) {
  const { position, normal, uv } = geometry.attributes;
  if (!uv) return geometry;
  const around = (Math.PI * x) / TILE_STUDS;
  for (let k = 0; k < uv.count; k += 1) {
    if (!BOXES.has(primitive)) {
      uv.setXY(k, uv.getX(k) * Math.max(1, Math.round(around)), (uv.getY(k) * y) / TILE_STUDS);
      continue;
    }
    const [nx, ny] = [Math.abs(normal.getX(k)), Math.abs(normal.getY(k))];
    const flat = ny > 0.6;
    const side = !flat && nx > 0.6;
    const u = side ? position.getZ(k) : position.getX(k);
    const v = flat ? position.getZ(k) : position.getY(k);
    uv.setXY(k, u / TILE_STUDS, v / TILE_STUDS);
  }
  return geometry;
}

function makeGeometry(render, primitive, size) {
  return measureSurface(geometryFromRender(THREE, render, size), primitive, size);
}

function makeMaterial(render) {
  const material = materialFromRender(THREE, render);
  return Object.assign(material, surfaceMaps(String(render.material ?? "plastic").toLowerCase()));
}

/** The same without what takes a processor long: surfaces, shine and reflections. */
function makePlainMaterial(render) {
  const { color, emissive, emissiveIntensity, opacity, transparent, side } = materialFromRender(
    THREE,
    render,
  );
  const glow = { emissive, emissiveIntensity };
  return new THREE.MeshLambertMaterial({ color, ...glow, opacity, transparent, side });
}

const materialKey = ({ material, color, transparency, double_sided: twoSided }) =>
  [material, color, transparency, twoSided].join("|");

/** Draws the parts of a state; `prune` away what left it. */
export function createParts(scene, { plain }) {
  const geometries = createShared(makeGeometry);
  const materials = createShared(plain ? makePlainMaterial : makeMaterial);
  const store = createEntityStore(scene, { dispose: forget });

  function forget(object) {
    if (object.isGroup) {
      disposeObject3D(object);
      return;
    }
    geometries.give(object.userData.geometryKey);
    materials.give(object.userData.materialKey);
  }

  /** A place for a model; until it is loaded, the part itself is there. */
  function buildPlace(entity) {
    const place = new THREE.Group();
    place.add(buildEntityMesh(THREE, { ...entity, position: [0, 0, 0], rotation: undefined }));
    return place;
  }

  function build(entity) {
    if (entity.model_url) return buildPlace(entity);
    const { render, size } = entity;
    const primitive = String(render.primitive ?? "block").toLowerCase();
    const geometryKey = `${primitive}|${size}`;
    const material = materialKey(render);
    const mesh = new THREE.Mesh(
      geometries.take(geometryKey, render, primitive, size),
      materials.take(material, render),
    );
    mesh.userData = { geometryKey, materialKey: material, builtSize: size };
    return mesh;
  }

  function update(mesh, entity) {
    if (mesh.userData.entity === entity) return;
    mesh.userData.entity = entity;
    applyEntityTransform(THREE, mesh, entity);
    if (mesh.isMesh) dress(mesh, entity.render);
  }

  /** Gives a mesh the material of its part, which may have changed. */
  function dress(mesh, render) {
    const key = materialKey(render);
    if (key !== mesh.userData.materialKey) {
      const old = mesh.userData.materialKey;
      mesh.material = materials.take(key, render);
      mesh.userData.materialKey = key;
      materials.give(old);
    }
    mesh.castShadow = (render.casts_shadow ?? true) && (render.transparency ?? 0) < 0.5;
    mesh.receiveShadow = render.receives_shadow ?? true;
  }

  return {
    upsert: (entity) => store.upsert(entity, build, update),
    get: store.get,
    prune: store.prune,
    clear: store.clear,
    /** What is seen and hides what is behind it. */
    solids() {
      const found = [];
      store.forEach((object) => {
        if (object.visible && (object.material?.opacity ?? 1) > 0.6) found.push(object);
      });
      return found;
    },
  };
}
