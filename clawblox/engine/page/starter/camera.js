// The camera of the starter renderer: it flies freely, or stays with a player; both can be turned.

import * as THREE from "three";
import { OrbitControls } from "three/addons/controls/OrbitControls.js";

import { isTyping } from "../runtime/input.js";

const FLY_STUDS_PER_S = 36;
const EYES = 1.6;
const CLOSER = 0.4;
const KEYS = {
  KeyW: [0, 0, 1],
  ArrowUp: [0, 0, 1],
  KeyS: [0, 0, -1],
  ArrowDown: [0, 0, -1],
  KeyA: [-1, 0, 0],
  ArrowLeft: [-1, 0, 0],
  KeyD: [1, 0, 0],
  ArrowRight: [1, 0, 0],
  Space: [0, 1, 0],
  KeyC: [0, -1, 0],
};

export function createCamera(canvas) {
  const camera = new THREE.PerspectiveCamera(62, 1, 0.3, 1200);
  camera.position.set(34, 26, 40);
  const controls = new OrbitControls(camera, canvas);
  controls.enableDamping = true;
  controls.dampingFactor = 0.12;
  controls.minDistance = 4;
  controls.maxDistance = 260;
  controls.maxPolarAngle = Math.PI * 0.92;
  const pressed = new Set();
  let followed = null;
  let flying = true;
  let coming = false;

  const forward = new THREE.Vector3();
  const side = new THREE.Vector3();
  const move = new THREE.Vector3();
  const sight = new THREE.Raycaster();

  function press(event) {
    if (KEYS[event.code] && !isTyping(event.target) && !event.ctrlKey && !event.metaKey) {
      pressed.add(event.code);
    }
  }
  const release = (event) => pressed.delete(event.code);
  const releaseAll = () => pressed.clear();
  window.addEventListener("keydown", press);
  window.addEventListener("keyup", release);
  window.addEventListener("blur", releaseAll);

  function shift(by) {
    camera.position.add(by);
    controls.target.add(by);
  }

  function fly(dt) {
    camera.getWorldDirection(forward);
    side.crossVectors(forward, camera.up).normalize();
    move.set(0, 0, 0);
    for (const code of pressed) {
      const [x, y, z] = KEYS[code];
      move.addScaledVector(side, x).addScaledVector(forward, z);
      move.y += y;
    }
    if (move.lengthSq()) shift(move.setLength(FLY_STUDS_PER_S * dt));
  }

  /** Comes up behind what it looks at. */
  function comeTo(position) {
    camera.getWorldDirection(forward).setY(0).normalize();
    controls.target.copy(position).setY(position.y + EYES);
    camera.position.copy(controls.target).addScaledVector(forward, -15);
    camera.position.y += 7;
    coming = false;
  }

  function stay(position, dt) {
    if (coming) comeTo(position);
    move.set(position.x, position.y + EYES, position.z).sub(controls.target);
    shift(move.multiplyScalar(move.length() > 40 ? 1 : 1 - Math.exp(-12 * dt)));
  }

  return {
    camera,
    target: controls.target,
    /** Looks at a box from its south-east, from far enough to see it. */
    frame(box) {
      const size = box.getSize(new THREE.Vector3());
      const distance = THREE.MathUtils.clamp(Math.max(size.x, size.z) * 0.75, 26, 90);
      box.getCenter(controls.target);
      camera.position.set(0.62, 0.55, 0.78).normalize().multiplyScalar(distance).add(controls.target);
    },
    /** Stays with the player of this id from now on; null flies. */
    follow(id) {
      coming = id !== null && id !== followed;
      followed = id;
    },
    followed: () => followed,
    /** Whether the keys of the walk fly the camera. */
    setFlying(value) {
      flying = value;
      pressed.clear();
    },
    /** The horizontal direction in which the camera looks, as [x, z] of length 1. */
    heading() {
      camera.getWorldDirection(forward).setY(0).normalize();
      return [forward.x, forward.z];
    },
    /**
     * Draws with the camera before whatever stands between it and the followed player.
     *
     * @param solids What may hide the player. @param draw Draws a frame.
     */
    inSight(solids, draw) {
      const kept = camera.position.clone();
      if (followed !== null) {
        sight.far = move.subVectors(kept, controls.target).length();
        sight.set(controls.target, move.normalize());
        const [hit] = sight.intersectObjects(solids);
        if (hit) camera.position.copy(hit.point).addScaledVector(move, -CLOSER);
      }
      draw();
      camera.position.copy(kept);
    },
    update(position, dt) {
      if (followed !== null && position) stay(position, dt);
      else if (flying) fly(dt);
      controls.update();
    },
    dispose() {
      controls.dispose();
      window.removeEventListener("keydown", press);
      window.removeEventListener("keyup", release);
      window.removeEventListener("blur", releaseAll);
    },
  };
}
