// Cameras that look at a player.

/** How far a value has come after `dt` seconds when it nears its goal at `rate` a second. */
const approach = (rate, dt) => 1 - Math.exp(-rate * Math.max(0, dt));

/**
 * A camera behind and above its target.
 *
 * @param {object} options Studs, except `damping` (how fast it follows, a second).
 */
export function createFollowCameraController(
  THREE,
  camera,
  { followDistance = 14, followHeight = 7, shoulderOffset = 0, lookHeight = 2, damping = 7 } = {},
) {
  const looked = new THREE.Vector3();
  const up = new THREE.Vector3(0, 1, 0);
  let placed = false;

  return {
    reset() {
      placed = false;
    },
    /** @param target `{targetPosition, targetForward, dt}`: Vector3, Vector3, seconds. */
    update({ targetPosition, targetForward, dt = 1 / 60 }) {
      const forward = new THREE.Vector3().copy(targetForward ?? camera.getWorldDirection(looked));
      forward.setY(0);
      if (forward.lengthSq() < 1e-8) forward.set(0, 0, -1);
      forward.normalize();
      const side = new THREE.Vector3().crossVectors(forward, up);
      const place = new THREE.Vector3()
        .copy(targetPosition)
        .addScaledVector(forward, -followDistance)
        .addScaledVector(side, shoulderOffset)
        .addScaledVector(up, followHeight);
      const look = new THREE.Vector3()
        .copy(targetPosition)
        .addScaledVector(side, shoulderOffset)
        .addScaledVector(up, lookHeight);
      const part = placed ? approach(damping, dt) : 1;
      if (!placed) looked.copy(look);
      placed = true;
      camera.position.lerp(place, part);
      looked.lerp(look, part);
      camera.lookAt(looked);
    },
  };
}

/**
 * A camera with three modes: `follow` (behind the target), `first_person` (its eyes) and
 * `spectator` (a slow circle around it).
 */
export function createCameraModeController(
  THREE,
  camera,
  { follow = {}, firstPersonHeight = 1.7, spectator = {} } = {},
) {
  const { distance = 24, height = 14, turnsPerMinute = 1.5 } = spectator;
  const behind = createFollowCameraController(THREE, camera, follow);
  let current = "follow";
  let angle = 0;

  const modes = {
    follow: (target) => behind.update(target),
    first_person({ targetPosition, targetForward }) {
      camera.position.copy(targetPosition);
      camera.position.y += firstPersonHeight;
      camera.lookAt(new THREE.Vector3().copy(camera.position).add(targetForward));
    },
    spectator({ targetPosition, dt = 1 / 60 }) {
      angle += (dt * turnsPerMinute * Math.PI) / 30;
      camera.position.copy(targetPosition);
      camera.position.x += Math.sin(angle) * distance;
      camera.position.y += height;
      camera.position.z += Math.cos(angle) * distance;
      camera.lookAt(targetPosition);
    },
  };
  modes.firstPerson = modes["first-person"] = modes.first_person;

  return {
    mode: () => current,
    reset: () => behind.reset(),
    /** @param target `{mode, targetPosition, targetForward, dt}`. */
    update({ mode = current, ...target }) {
      const next = modes[mode] ? mode : "follow";
      if (next !== current) behind.reset();
      current = next;
      modes[current](target);
    },
  };
}
