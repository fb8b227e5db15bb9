// The overlay: a player's GUI trees as elements of the page. Elements are kept by id, so that
// nothing loses the focus when the next state arrives.

const TAGS = { TextButton: "button", ImageButton: "button" };
const ALIGN = { Left: "flex-start", Top: "flex-start", Center: "center", Right: "flex-end", Bottom: "flex-end" };

const rgb = (color, transparency = 0) => {
  const [r, g, b] = color.map((value) => Math.round(value * 255));
  return `rgb(${r} ${g} ${b} / ${1 - transparency})`;
};

/** A UDim2 along one axis as a CSS length. */
const along = (scale = 0, offset = 0) => `calc(${scale * 100}% + ${offset}px)`;

/** Where a picture is: `asset://x` is the world's asset x; other schemes of studios are unknown here. */
function pictureUrl(image) {
  const text = image.trim();
  if (text.startsWith("asset://")) return `assets/${text.slice(8)}`;
  return /^(https?:\/\/|\/)/.test(text) ? text : "";
}

/**
 * @param {HTMLElement} root
 * @param {{onClick: (elementId: number) => void}} options Called for buttons of the local player.
 */
export function createGui(root, { onClick }) {
  const elements = new Map();

  function make(node) {
    const element = document.createElement(TAGS[node.type] ?? "div");
    if (element.type) element.type = "button";
    element.dataset.id = node.id;
    if (TAGS[node.type]) {
      element.addEventListener("click", () => onClick(node.id));
      // A click leaves the focus where it was, so that the keys go on moving the player.
      element.addEventListener("mousedown", (event) => event.preventDefault());
    }
    return { element, drawn: "", text: null, image: null };
  }

  function draw(node, parent, order, seen) {
    if (!elements.has(node.id)) elements.set(node.id, make(node));
    const held = elements.get(node.id);
    seen.add(node.id);
    if (parent.children[order] !== held.element) {
      parent.insertBefore(held.element, parent.children[order] ?? null);
    }
    const { children = [], ...look } = node;
    const drawn = JSON.stringify(look);
    if (drawn !== held.drawn) {
      held.drawn = drawn;
      if (node.type === "ScreenGui") dressScreen(held.element, node);
      else dress(held, node);
    }
    const first = held.element.querySelectorAll(":scope > span, :scope > img").length;
    children.forEach((child, k) => draw(child, held.element, first + k, seen));
  }

  return {
    /** @param trees The player's `gui`. @param playing Whether it belongs to the local player. */
    show(trees, playing) {
      const seen = new Set();
      trees.forEach((tree, order) => draw(tree, root, order, seen));
      for (const [id, { element }] of elements) {
        if (seen.has(id)) continue;
        element.remove();
        elements.delete(id);
      }
      root.toggleAttribute("data-playing", playing);
      for (const button of root.querySelectorAll("button")) button.disabled = !playing;
    },
  };
}

function dressScreen(element, node) {
  element.className = "screen";
  element.style.zIndex = node.display_order ?? 0;
  element.hidden = node.enabled === false;
}

function dress(held, node) {
  const { element } = held;
  const { position = {}, size = {} } = node;
  const [anchorX, anchorY] = pair(node.anchor_point);
  const turn = node.rotation ? ` rotate(${node.rotation}deg)` : "";
  element.className = "element";
  element.hidden = node.visible === false;
  Object.assign(element.style, {
    left: along(position.x_scale, position.x_offset),
    top: along(position.y_scale, position.y_offset),
    width: along(size.x_scale, size.x_offset),
    height: along(size.y_scale, size.y_offset),
    transform: `translate(${-anchorX * 100}%, ${-anchorY * 100}%)${turn}`,
    zIndex: node.z_index ?? 1,
    background: node.background_color ? rgb(node.background_color, node.background_transparency) : "none",
    boxShadow: border(node),
    justifyContent: ALIGN[node.text_x_alignment] ?? "center",
    alignItems: ALIGN[node.text_y_alignment] ?? "center",
    textAlign: (node.text_x_alignment ?? "center").toLowerCase(),
    borderRadius: node.corner_radius ? along(node.corner_radius.scale, node.corner_radius.offset) : "0",
  });
  writeText(held, node);
  showPicture(held, node);
}

const pair = (value) => (Array.isArray(value) ? value : [value?.x ?? 0, value?.y ?? 0]);

/** The border of a thing lies around it, as wide as it says. */
function border({ border_color: color, border_size_pixel: width, background_transparency: clear = 0 }) {
  return color && width && clear < 1 ? `0 0 0 ${width}px ${rgb(color, clear)}` : "none";
}

function writeText(held, node) {
  if (node.text === undefined) return;
  if (!held.text) {
    held.text = document.createElement("span");
    held.element.prepend(held.text);
  }
  held.text.textContent = node.text;
  held.text.style.fontSize = `${node.text_size ?? 14}px`;
  held.text.style.color = node.text_color ? rgb(node.text_color, node.text_transparency) : "";
}

function showPicture(held, node) {
  const url = node.image ? pictureUrl(node.image) : "";
  if (!url) {
    held.image?.remove();
    held.image = null;
    return;
  }
  if (!held.image) {
    held.image = document.createElement("img");
    held.image.alt = "";
    held.element.prepend(held.image);
  }
  if (held.image.getAttribute("src") !== url) held.image.src = url;
  held.image.style.opacity = 1 - (node.image_transparency ?? 0);
}
