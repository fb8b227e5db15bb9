// Three.js objects for entities: material, geometry, mesh and place. `THREE` is the caller's module.

const MATERIALS = {
  plastic: { roughness: 0.55, metalness: 0.0 },
  smoothplastic: { roughness: 0.3, metalness: 0.0 },
  neon: { roughness: 0.4, metalness: 0.0, emissiveIntensity: 0.5 },
  wood: { roughness: 0.8, metalness: 0.0 },
  marble: { roughness: 0.25, metalness: 0.05 },
  slate: { roughness: 0.85, metalness: 0.05 },
  concrete: { roughness: 0.92, metalness: 0.0 },
  brick: { roughness: 0.88, metalness: 0.0 },
  granite: { roughness: 0.7, metalness: 0.05 },
  metal: { roughness: 0.32, metalness: 0.85 },
  grass: { roughness: 0.95, metalness: 0.0 },
  sand: { roughness: 1.0, metalness: 0.0 },
  fabric: { roughness: 1.0, metalness: 0.0 },
  ice: { roughness: 0.12, metalness: 0.05, opacity: 0.85 },
  glass: { roughness: 0.06, metalness: 0.1, opacity: 0.45 },
  forcefield: { roughness: 0.2, metalness: 0.0, emissiveIntensity: 0.7, opacity: 0.4 },
};

/** The physical numbers of a material by its name: roughness, metalness, emissiveIntensity, opacity. */
export function materialNumbers(name) {
  return MATERIALS[String(name ?? "plastic").toLowerCase()] ?? MATERIALS.plastic;
}

/** Looks by preset id for `materialFromRender`: parameters of a MeshStandardMaterial. */
export function createPresetMaterialLibrary(initial = {}) {
  const presets = new Map(Object.entries(initial));
  return {
    register(id, parameters) {
      presets.set(id, parameters);
    },
    resolve: (id) => presets.get(id) ?? null,
    list: () => [...presets.keys()],
  };
}

export function materialFromRender(THREE, render = {}, presetLib = null) {
  const preset = (render.preset_id && presetLib?.resolve(render.preset_id)) || {};
  const numbers = materialNumbers(render.material);
  const color = new THREE.Color().setRGB(
    ...(render.color ?? [0.6, 0.6, 0.6]),
    THREE.SRGBColorSpace,
  );
  const opacity = (numbers.opacity ?? 1) * (1 - (render.transparency ?? 0));
  const { emissiveIntensity, ...rest } = { ...numbers, ...preset };
  return new THREE.MeshStandardMaterial({
    color,
    ...rest,
    ...(emissiveIntensity ? { emissive: color.clone(), emissiveIntensity } : {}),
    opacity: preset.opacity ?? opacity,
    transparent: (preset.opacity ?? opacity) < 1,
    side: render.double_sided ? THREE.DoubleSide : THREE.FrontSide,
  });
}

/** A prism: full height at −X, none at +X. */
function wedge(THREE, [x, y, z]) {
  const shape = new THREE.Shape([
    new THREE.Vector2(-x / 2, -y / 2),
    new THREE.Vector2(x / 2, -y / 2),
    new THREE.Vector2(-x / 2, y / 2),
  ]);
  const geometry = new THREE.ExtrudeGeometry(shape, { depth: z, bevelEnabled: false });
  return geometry.translate(0, 0, -z / 2);
}

/** A flat ring around Y, its hole half as wide. */
function ring(THREE, [x, y]) {
  const outline = [
    [x / 4, -y / 2],
    [x / 2, -y / 2],
    [x / 2, y / 2],
    [x / 4, y / 2],
    [x / 4, -y / 2],
  ].map(([radius, height]) => new THREE.Vector2(radius, height));
  const geometry = new THREE.LatheGeometry(outline, 48).toNonIndexed();
  geometry.computeVertexNormals();
  return geometry;
}

const sphere = (THREE, [x]) => new THREE.SphereGeometry(x / 2, 32, 20);
const cylinder = (THREE, [x, y]) => new THREE.CylinderGeometry(x / 2, x / 2, y, 36);

const GEOMETRIES = {
  ball: sphere,
  sphere,
  cylinder,
  capsule: (THREE, [x, y]) => new THREE.CapsuleGeometry(x / 2, Math.max(0, y - x), 8, 24),
  cone: (THREE, [x, y]) => new THREE.ConeGeometry(x / 2, y, 36),
  wedge,
  ring,
  torus: (THREE, [x, y]) => new THREE.TorusGeometry((x - y) / 2, y / 2, 16, 48).rotateX(Math.PI / 2),
  plane: (THREE, [x, , z]) => new THREE.PlaneGeometry(x, z).rotateX(-Math.PI / 2),
};

export function geometryFromRender(THREE, render = {}, size = [1, 1, 1]) {
  const make = GEOMETRIES[String(render.primitive ?? "block").toLowerCase()];
  return make ? make(THREE, size) : new THREE.BoxGeometry(...size);
}

export function buildEntityMesh(THREE, entity, presetLib = null) {
  const render = entity.render ?? {};
  const size = entity.size ?? [1, 1, 1];
  const mesh = new THREE.Mesh(
    geometryFromRender(THREE, render, size),
    materialFromRender(THREE, render, presetLib),
  );
  mesh.name = entity.name ?? String(entity.id);
  mesh.castShadow = render.casts_shadow ?? true;
  mesh.receiveShadow = render.receives_shadow ?? true;
  mesh.userData.builtSize = size;
  applyEntityTransform(THREE, mesh, entity);
  return mesh;
}

/** Puts an object where its entity is; a size that has changed since it was built is a scale. */
export function applyEntityTransform(THREE, object, entity) {
  if (entity.position) object.position.fromArray(entity.position);
  if (entity.rotation) {
    const [a, b, c] = entity.rotation;
    object.quaternion.setFromRotationMatrix(
      new THREE.Matrix4().set(...a, 0, ...b, 0, ...c, 0, 0, 0, 0, 1),
    );
  } else {
    object.quaternion.identity();
  }
  const built = object.userData.builtSize;
  if (built && entity.size) {
    object.scale.fromArray(entity.size.map((value, axis) => value / (built[axis] || 1)));
  }
  object.visible = entity.render?.visible ?? true;
}

/** Frees the geometries, materials and textures of an object and of what hangs on it. */
export function disposeObject3D(object) {
  object.traverse((node) => {
    node.geometry?.dispose();
    for (const material of [node.material ?? []].flat()) {
      for (const value of Object.values(material)) if (value?.isTexture) value.dispose();
      material.dispose();
    }
  });
}

/**
 * Holds one object for each entity in a scene.
 *
 * @param {{dispose?: (object: object) => void}} options What to do with removed objects.
 */
export function createEntityStore(scene, { dispose = disposeObject3D } = {}) {
  const objects = new Map();

  function remove(id) {
    const object = objects.get(id);
    if (!object) return;
    objects.delete(id);
    scene.remove(object);
    dispose(object);
  }

  function clear() {
    for (const id of [...objects.keys()]) remove(id);
  }

  return {
    /** Makes the object of a new entity with `create(entity)`, then calls `update(object, entity)`. */
    upsert(entity, create, update) {
      let object = objects.get(entity.id);
      if (!object) {
        object = create(entity);
        objects.set(entity.id, object);
        scene.add(object);
      }
      update?.(object, entity);
      return object;
    },
    get: (id) => objects.get(id) ?? null,
    has: (id) => objects.has(id),
    size: () => objects.size,
    forEach: (visit) => objects.forEach((object, id) => visit(object, id)),
    /** Removes every object whose id is not in `activeIds`, a Set. */
    prune(activeIds) {
      for (const id of [...objects.keys()]) if (!activeIds.has(id)) remove(id);
    },
    remove,
    clear,
    dispose: clear,
  };
}
