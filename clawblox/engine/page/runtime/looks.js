// Renderer settings and lights by name.

const RENDERERS = {
  default: { toneMapping: "ACESFilmicToneMapping", exposure: 1.0, shadows: true },
  vivid: { toneMapping: "ACESFilmicToneMapping", exposure: 1.3, shadows: true },
  flat: { toneMapping: "NoToneMapping", exposure: 1.0, shadows: false },
};

/**
 * Sets tone mapping, exposure, shadows and colour space.
 *
 * @param preset `default`, `vivid`, `flat`, or `{toneMapping, exposure, shadows, pixelRatio}`.
 */
export function applyRendererPreset(THREE, renderer, preset = "default") {
  const named = typeof preset === "string" ? RENDERERS[preset] : preset;
  const { toneMapping, exposure, shadows, pixelRatio } = { ...RENDERERS.default, ...named };
  renderer.toneMapping = typeof toneMapping === "string" ? THREE[toneMapping] : toneMapping;
  renderer.toneMappingExposure = exposure;
  renderer.shadowMap.enabled = Boolean(shadows);
  renderer.shadowMap.type = THREE.PCFSoftShadowMap;
  renderer.outputColorSpace = THREE.SRGBColorSpace;
  if (pixelRatio) renderer.setPixelRatio(pixelRatio);
}

const LIGHTS = {
  day: {
    sky: 0xf3f6ff,
    ground: 0xa39a88,
    fill: 1.5,
    sun: 0xfff1dc,
    strength: 2.1,
    from: [42, 80, 30],
    background: 0x9cc9f2,
  },
  dusk: {
    sky: 0xb4b9ee,
    ground: 0x6b5560,
    fill: 2.0,
    sun: 0xffc08a,
    strength: 2.2,
    from: [-60, 38, 34],
    background: 0x2a2f5c,
  },
  night: {
    sky: 0x4a5a9a,
    ground: 0x14141f,
    fill: 0.7,
    sun: 0x9db8ff,
    strength: 0.8,
    from: [30, 70, -40],
    background: 0x0b1024,
  },
};

/**
 * Adds a sky light and a sun with shadows, and sets the background.
 *
 * @param preset `day`, `dusk`, `night`, or an object with some of their numbers and
 *   `shadowRadius` (studs).
 * @returns {{hemisphere, sun, dispose: () => void}}
 */
export function applyLightingPreset(THREE, scene, preset = "day") {
  const named = typeof preset === "string" ? LIGHTS[preset] : preset;
  const look = { ...LIGHTS.day, shadowRadius: 60, ...named };
  const hemisphere = new THREE.HemisphereLight(look.sky, look.ground, look.fill);
  const sun = new THREE.DirectionalLight(look.sun, look.strength);
  sun.position.fromArray(look.from);
  sun.castShadow = true;
  sun.shadow.mapSize.set(2048, 2048);
  sun.shadow.bias = -0.0004;
  sun.shadow.normalBias = 0.06;
  const { camera } = sun.shadow;
  camera.left = camera.bottom = -look.shadowRadius;
  camera.right = camera.top = look.shadowRadius;
  camera.near = 1;
  camera.far = 260;
  scene.background = new THREE.Color(look.background);
  scene.add(hemisphere, sun, sun.target);
  return {
    hemisphere,
    sun,
    dispose() {
      scene.remove(hemisphere, sun, sun.target);
      sun.dispose();
    },
  };
}
