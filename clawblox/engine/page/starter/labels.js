// Text that faces the camera: name tags and billboards.

import * as THREE from "three";

const RATIO = 2;
const FADE_FROM = 90;
const FADE_TO = 150;

const css = (color) => `rgb(${(color ?? [1, 1, 1]).map((value) => Math.round(value * 255)).join(" ")})`;

const FONT = '600 {}px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';

function paint(rows, bar) {
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d");
  const measured = rows.map(({ text, size }) => {
    context.font = FONT.replace("{}", size * RATIO);
    return context.measureText(text).width;
  });
  const barHeight = bar === null ? 0 : 10 * RATIO;
  const heights = rows.map(({ size }) => size * RATIO * 1.35);
  canvas.width = Math.ceil(Math.max(...measured, bar === null ? 0 : 90 * RATIO) + 16 * RATIO);
  canvas.height = Math.ceil(heights.reduce((sum, height) => sum + height, 0) + barHeight + 6 * RATIO);
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineJoin = "round";
  let y = 3 * RATIO;
  rows.forEach(({ text, size, color }, row) => {
    context.font = FONT.replace("{}", size * RATIO);
    context.lineWidth = Math.max(3, size * RATIO * 0.16);
    context.strokeStyle = "rgb(10 14 24 / 0.75)";
    context.fillStyle = css(color);
    context.strokeText(text, canvas.width / 2, y + heights[row] / 2);
    context.fillText(text, canvas.width / 2, y + heights[row] / 2);
    y += heights[row];
  });
  if (bar !== null) paintBar(context, canvas.width / 2, y, bar);
  return canvas;
}

function paintBar(context, x, y, part) {
  const [width, height] = [80 * RATIO, 6 * RATIO];
  context.fillStyle = "rgb(10 14 24 / 0.7)";
  context.fillRect(x - width / 2 - 2, y, width + 4, height + 4);
  context.fillStyle = part > 0.5 ? "#53d17f" : part > 0.25 ? "#f5b841" : "#ef5350";
  context.fillRect(x - width / 2, y + 2, width * part, height);
}

/** A sprite whose text has the same height in pixels at every distance. */
export function createLabel(scene) {
  const material = new THREE.SpriteMaterial({ transparent: true, sizeAttenuation: false, depthWrite: false });
  material.toneMapped = false;
  const sprite = new THREE.Sprite(material);
  sprite.renderOrder = 10;
  scene.add(sprite);
  let shown = "";

  return {
    /** @param rows `[{text, size, color}]`, sizes in pixels. @param bar A share to show, or null. */
    show(rows, bar = null, onTop = false) {
      const key = JSON.stringify([rows, bar]);
      material.depthTest = !onTop;
      if (key === shown) return;
      shown = key;
      material.map?.dispose();
      material.map = new THREE.CanvasTexture(paint(rows, bar));
      material.map.colorSpace = THREE.SRGBColorSpace;
      material.needsUpdate = true;
    },
    place(position, camera, viewHeight) {
      const { width, height } = material.map.image;
      const unit = (2 * Math.tan((camera.fov * Math.PI) / 360)) / (viewHeight * RATIO);
      sprite.scale.set(width * unit, height * unit, 1);
      sprite.position.copy(position);
      const far = camera.position.distanceTo(position);
      material.opacity = THREE.MathUtils.clamp((FADE_TO - far) / (FADE_TO - FADE_FROM), 0, 1);
      sprite.visible = material.opacity > 0;
    },
    remove() {
      scene.remove(sprite);
      material.map?.dispose();
      material.dispose();
    },
  };
}
