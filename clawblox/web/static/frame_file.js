"use strict";
// Starts the engine's page from this file alone: its table has the other files. Nothing runs but in a
// frame with a sandbox, which has no origin.
(() => {
  if (self.origin !== "null" || parent === self) {
    document.body.textContent = "This is a part of a page, and is shown there only: open index.html.";
    return;
  }
  const BASE = "frame:/";
  const TYPES = { js: "text/javascript", mjs: "text/javascript", json: "application/json", svg: "image/svg+xml" };
  const RELATIVE = /(\bfrom\s*|\bimport\s*\(?\s*)(["'])(\.{1,2}\/[^"'\n]*)\2/g;
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const urls = new Map();
  const modules = {};

  for (const [path, content] of Object.entries(read("files"))) {
    const type = TYPES[path.split(".").at(-1)] ?? "";
    const address = new URL(path.split("/").map(encodeURIComponent).join("/"), BASE).href;
    let data = content;
    if (Array.isArray(content)) data = Uint8Array.from(atob(content[0]), (byte) => byte.charCodeAt(0));
    else if (type === TYPES.js) {
      data = content
        .replace(RELATIVE, (_, word, quote, to) => word + quote + new URL(to, address) + quote)
        .replaceAll("import.meta.url", JSON.stringify(address));
    }
    urls.set(address, URL.createObjectURL(new Blob([data], { type })));
    if (type === TYPES.js) modules[address] = urls.get(address);
  }
  for (const [alias, to] of Object.entries(read("imports").imports)) {
    const { href } = new URL(to, BASE);
    for (const [address, url] of Object.entries(modules)) {
      const rest = address.slice(href.length);
      if (address.startsWith(href) && (alias.endsWith("/") || !rest)) modules[alias + rest] = url;
    }
  }

  const { fetch } = self;
  const here = new URL(".", location.href).href;
  const find = (address) => urls.get(new URL(address, here).href.replace(here, BASE).split(/[?#]/)[0]);
  self.fetch = (asked, options) => fetch(find(asked.url ?? asked) ?? asked, options);
  for (const { prototype } of [HTMLImageElement, HTMLMediaElement]) {
    const { get, set } = Object.getOwnPropertyDescriptor(prototype, "src");
    const take = function (address) {
      set.call(this, find(address) ?? address);
    };
    Object.defineProperty(prototype, "src", { get, set: take });
  }
  const run = (type, textContent) => document.head.append(Object.assign(document.createElement("script"), { type, textContent }));
  run("importmap", JSON.stringify({ imports: modules }));
  run("module", `import "${BASE}ui/host.js";`); // which the page around waits for, unlike import()
})();
