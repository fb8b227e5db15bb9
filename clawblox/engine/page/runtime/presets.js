// Looks by name: an entity's `render.preset_id` says which.

/** A table of presets; each is an object of the renderer's own, `color` [r, g, b] if it has one. */
export function createPresetRegistry(initial = {}) {
  const presets = new Map(Object.entries(initial));
  return {
    register(id, preset) {
      presets.set(id, preset);
    },
    resolve: (id) => presets.get(id) ?? null,
    color: (id, fallback = [0.6, 0.6, 0.6]) => presets.get(id)?.color ?? fallback,
    list: () => [...presets.keys()],
  };
}
