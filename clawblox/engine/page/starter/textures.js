// Surfaces drawn here, so that the page loads no pictures: grey, to be multiplied with a part's colour.

import * as THREE from "three";

const PIXELS = 256;
/** Studs that one repeat of a surface covers. */
export const TILE_STUDS = 8;

/** A small generator of numbers in [0, 1); the same surface looks the same on every page. */
function numbers(seed) {
  let state = seed;
  return () => {
    state = (state * 1664525 + 1013904223) >>> 0;
    return state / 4294967296;
  };
}

function speckle(draw, random, { count, size, from, to, alpha }) {
  for (let k = 0; k < count; k += 1) {
    const grey = Math.round(from + (to - from) * random());
    draw.fillStyle = `rgb(${grey} ${grey} ${grey} / ${alpha})`;
    draw.fillRect(random() * PIXELS, random() * PIXELS, size * (0.4 + random()), size * (0.4 + random()));
  }
}

function blades(draw, random) {
  for (let k = 0; k < 2600; k += 1) {
    const grey = Math.round(150 + 105 * random());
    const [x, y] = [random() * PIXELS, random() * PIXELS];
    draw.strokeStyle = `rgb(${grey} ${grey} ${grey} / 0.55)`;
    draw.beginPath();
    draw.moveTo(x, y);
    draw.lineTo(x + 6 * (random() - 0.5), y - 3 - 6 * random());
    draw.stroke();
  }
}

function bricks(draw, random) {
  const [width, height] = [64, 32];
  for (let row = 0; row < PIXELS / height; row += 1) {
    for (let column = -1; column < PIXELS / width; column += 1) {
      const grey = Math.round(205 + 45 * random());
      draw.fillStyle = `rgb(${grey} ${grey} ${grey})`;
      draw.fillRect(column * width + (row % 2) * 32 + 2, row * height + 2, width - 4, height - 4);
    }
  }
}

function planks(draw, random) {
  for (let plank = 0; plank < 4; plank += 1) {
    const grey = Math.round(212 + 36 * random());
    draw.fillStyle = `rgb(${grey} ${grey} ${grey})`;
    draw.fillRect(0, plank * 64 + 1, PIXELS, 62);
    for (let grain = 0; grain < 16; grain += 1) {
      draw.fillStyle = `rgb(90 90 90 / ${0.05 + 0.12 * random()})`;
      draw.fillRect(0, plank * 64 + 64 * random(), PIXELS, 1 + random());
    }
  }
}

function veins(draw, random) {
  for (let k = 0; k < 18; k += 1) {
    draw.strokeStyle = `rgb(120 120 120 / ${0.08 + 0.2 * random()})`;
    draw.lineWidth = 0.6 + 1.8 * random();
    draw.beginPath();
    let [x, y] = [random() * PIXELS, random() * PIXELS];
    draw.moveTo(x, y);
    for (let step = 0; step < 14; step += 1) {
      x += 26 * (random() - 0.3);
      y += 26 * (random() - 0.5);
      draw.lineTo(x, y);
    }
    draw.stroke();
  }
}

function weave(draw) {
  for (let k = 0; k < PIXELS; k += 8) {
    draw.fillStyle = "rgb(150 150 150 / 0.35)";
    draw.fillRect(k, 0, 3, PIXELS);
    draw.fillRect(0, k, PIXELS, 3);
  }
}

const grains = (count, size, from, alpha) => (draw, random) =>
  speckle(draw, random, { count, size, from, to: 255, alpha });

const SURFACES = {
  grass: { ground: 222, paint: blades, bump: 0.5 },
  sand: { ground: 238, paint: grains(5000, 2, 170, 0.5) },
  concrete: { ground: 232, paint: grains(2600, 3, 150, 0.35) },
  slate: { ground: 215, paint: grains(900, 12, 140, 0.25) },
  granite: { ground: 225, paint: grains(4200, 4, 90, 0.45) },
  brick: { ground: 150, paint: bricks, bump: 1.5 },
  wood: { ground: 120, paint: planks, bump: 0.7 },
  marble: { ground: 250, paint: veins },
  fabric: { ground: 235, paint: weave },
  plastic: { ground: 250, paint: grains(700, 2, 215, 0.5) },
};

const textures = new Map();

/** The surface of a material by its lower-case name: `{map, bumpMap?, bumpScale?}`, or nothing. */
export function surfaceMaps(name) {
  const surface = SURFACES[name];
  if (!surface) return {};
  if (!textures.has(name)) textures.set(name, paint(surface));
  const map = textures.get(name);
  return surface.bump ? { map, bumpMap: map, bumpScale: surface.bump } : { map };
}

function paint({ ground, paint: draw }) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = PIXELS;
  const context = canvas.getContext("2d");
  context.fillStyle = `rgb(${ground} ${ground} ${ground})`;
  context.fillRect(0, 0, PIXELS, PIXELS);
  draw(context, numbers(ground * 7919));
  const texture = new THREE.CanvasTexture(canvas);
  texture.wrapS = texture.wrapT = THREE.RepeatWrapping;
  texture.colorSpace = THREE.SRGBColorSpace;
  texture.anisotropy = 8;
  return texture;
}
