// Sky, sun, haze and what shines in metal and glass.

import * as THREE from "three";

import { applyLightingPreset } from "../runtime/looks.js";

const SKIES = {
  day: { zenith: 0x2f7fd6, middle: 0x8fc4f2, horizon: 0xe4f1fb, below: 0xb9cede, glow: 0xfff0cf },
  dusk: { zenith: 0x141a3f, middle: 0x46437f, horizon: 0xe39a76, below: 0x4a4166, glow: 0xffc07a },
};

const VERTEX = `
  varying vec3 way;
  void main() {
    way = position;
    gl_Position = projectionMatrix * modelViewMatrix * vec4(position, 1.0);
    gl_Position.z = gl_Position.w;
  }`;

const FRAGMENT = `
  uniform vec3 zenith, middle, horizon, below, glow, sun;
  varying vec3 way;
  void main() {
    vec3 ray = normalize(way);
    float height = ray.y;
    vec3 sky = mix(horizon, middle, smoothstep(0.0, 0.28, height));
    sky = mix(sky, zenith, smoothstep(0.2, 0.95, height));
    sky = mix(sky, below, smoothstep(0.0, -0.25, height));
    float toward = max(dot(ray, sun), 0.0);
    sky += glow * (0.22 * pow(toward, 12.0) + 1.6 * smoothstep(0.9985, 0.9994, toward));
    gl_FragColor = vec4(sky, 1.0);
    #include <colorspace_fragment>
  }`;

function buildDome(look, from) {
  const names = ["zenith", "middle", "horizon", "below", "glow"];
  const uniforms = Object.fromEntries(
    names.map((name) => [name, { value: new THREE.Color(look[name]) }]),
  );
  uniforms.sun = { value: new THREE.Vector3(...from).normalize() };
  const material = new THREE.ShaderMaterial({
    uniforms,
    vertexShader: VERTEX,
    fragmentShader: FRAGMENT,
    side: THREE.BackSide,
    depthWrite: false,
  });
  const dome = new THREE.Mesh(new THREE.SphereGeometry(500, 32, 24), material);
  dome.renderOrder = -1;
  dome.frustumCulled = false;
  return dome;
}

/** The sky as things reflect it. */
function reflectSky(renderer, look, from) {
  const generator = new THREE.PMREMGenerator(renderer);
  const scene = new THREE.Scene();
  const dome = buildDome(look, from.toArray());
  scene.add(dome);
  const target = generator.fromScene(scene, 0, 1, 1000);
  dome.geometry.dispose();
  dome.material.dispose();
  generator.dispose();
  return target;
}

/** Lights a scene for the day, or for dusk where the reader prefers dark pages. */
export function createSky(scene, renderer, { dark, plain }) {
  const kind = dark ? "dusk" : "day";
  const look = SKIES[kind];
  const lights = applyLightingPreset(THREE, scene, kind);
  const from = lights.sun.position.clone();
  const dome = buildDome(look, from.toArray());
  scene.background = null;
  scene.fog = new THREE.Fog(look.horizon, 140, 620);

  const environment = plain ? null : reflectSky(renderer, look, from);
  scene.environment = environment?.texture ?? null;
  if (environment) lights.hemisphere.intensity *= 0.75; // the reflected sky gives the rest
  scene.add(dome);

  return {
    sun: lights.sun,
    /** Keeps the dome around the camera and the shadows around what it looks at. */
    follow(camera, target) {
      dome.position.copy(camera.position);
      const step = 4; // shadows move in steps, or their edges would swim
      const snapped = target.clone().divideScalar(step).round().multiplyScalar(step);
      lights.sun.target.position.copy(snapped);
      lights.sun.position.copy(snapped).add(from);
    },
    dispose() {
      lights.dispose();
      scene.remove(dome);
      dome.geometry.dispose();
      dome.material.dispose();
      environment?.dispose();
    },
  };
}
