// What the world looks like in a browser: the engine's own view, and a sea around the island.
// Everything that three.js can do is possible here; `mode = "default"` in world.toml goes without.

import * as THREE from "three";
import { createRenderer as createStarter } from "clawblox/starter";

export function createRenderer(ctx) {
  let seconds = 0;
  const starter = createStarter({ ...ctx, drawn: animate });

  const sea = new THREE.Mesh(
    new THREE.PlaneGeometry(900, 900, 60, 60).rotateX(-Math.PI / 2),
    new THREE.MeshStandardMaterial({
      color: 0x2a86c8,
      roughness: 0.15,
      transparent: true,
      opacity: 0.9,
      flatShading: true,
    }),
  );
  sea.position.y = -6;
  starter.scene.add(sea);

  const points = sea.geometry.attributes.position;

  /** Called after each frame, with the seconds since the last one. */
  function animate(dt) {
    seconds += dt;
    for (let k = 0; k < points.count; k += 1) {
      const wave = Math.sin(points.getX(k) * 0.05 + seconds) + Math.cos(points.getZ(k) * 0.04 - seconds);
      points.setY(k, wave * 0.6);
    }
    points.needsUpdate = true;
  }

  return starter;
}
