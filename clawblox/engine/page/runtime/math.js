// Numbers, vectors [x, y, z], rotations [[…], […], […]] (rows) and quaternions [x, y, z, w].

export const lerp = (a, b, t) => a + (b - a) * t;

export const lerpVec3 = (a, b, t) => [
  lerp(a[0], b[0], t),
  lerp(a[1], b[1], t),
  lerp(a[2], b[2], t),
];

export function distance(a, b) {
  return Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

/** The quaternion of a rotation; a missing rotation is the identity. */
export function quaternionFromRotation(rotation) {
  if (!rotation) return [0, 0, 0, 1];
  const [[a, b, c], [d, e, f], [g, h, i]] = rotation;
  const trace = a + e + i;
  if (trace > 0) {
    const s = 2 * Math.sqrt(trace + 1);
    return [(h - f) / s, (c - g) / s, (d - b) / s, s / 4];
  }
  if (a > e && a > i) {
    const s = 2 * Math.sqrt(1 + a - e - i);
    return [s / 4, (b + d) / s, (c + g) / s, (h - f) / s];
  }
  if (e > i) {
    const s = 2 * Math.sqrt(1 + e - a - i);
    return [(b + d) / s, s / 4, (f + h) / s, (c - g) / s];
  }
  const s = 2 * Math.sqrt(1 + i - a - e);
  return [(c + g) / s, (f + h) / s, s / 4, (d - b) / s];
}

export function rotationFromQuaternion([x, y, z, w]) {
  return [
    [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
    [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
    [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
  ];
}

/** The rotation between two, along the shorter way. */
export function lerpRotation(a, b, t) {
  const p = quaternionFromRotation(a);
  const q = quaternionFromRotation(b);
  const sign = p[0] * q[0] + p[1] * q[1] + p[2] * q[2] + p[3] * q[3] < 0 ? -1 : 1;
  const mixed = p.map((value, k) => lerp(value, sign * q[k], t));
  const length = Math.hypot(...mixed) || 1;
  return rotationFromQuaternion(mixed.map((value) => value / length));
}
