// Switches for attention heads: the heads of some layers as small pictures, each with a switch, and which heads are off.
// A page sends `names` to the server as `off` and has them in its address.

import { fill, h } from "./dom.js";
import { drawHeads, layerTitle } from "./heads.js";

// headSwitches({ changed, show }): changed() is called when heads are switched, show(layer, head) for a click on a picture.
export function headSwitches({ changed, show }) {
  const off = new Set(), grid = h("div", { class: "gridplace" });
  const elsewhere = h("p", { class: "hint elsewhere" });
  const reset = h("div", { class: "row" },
    h("button", { type: "button", class: "quiet", onclick: () => change(() => off.clear()) }, "All heads on"));
  const element = h("div", { class: "switches" }, grid, elsewhere, reset);
  let options = { layers: {}, chosen: {} };

  function change(how) {
    performance.mark("click"); // for benchmarks/studio.py
    how();
    update(); // the switch answers at once
    changed();
  }

  function flip(layer, head) {
    const name = nameOf(layer, head);
    change(() => off.delete(name) || off.add(name));
  }

  function update() {
    const { layers, chosen, canFlip } = options;
    const isThere = Object.keys(layers).length > 0;
    if (isThere) drawHeads(grid, { layers, chosen, off, show, flip: canFlip ? flip : null });
    else fill(grid);
    const others = [...off].filter((name) => !(name.replace(/\[.*/, "") in layers));
    elsewhere.textContent = others.length ? `${isThere ? "Also off" : "Off"}: ${others.map(title).join("; ")}.` : "";
    elsewhere.hidden = !others.length;
    reset.hidden = !off.size;
    element.hidden = !isThere && !off.size;
  }

  update();
  return {
    element,
    get names() { return [...off]; },
    isOff(layer, head) { return off.has(nameOf(layer, head)); },
    // A link may name several heads of a layer: decoder.blocks.1.cross[0,2].
    read(params) {
      off.clear();
      for (const [, layer, heads] of (params.get("off") ?? "").matchAll(/([^\s[\]]+)\[([\d,]+)\]/g)) {
        for (const head of heads.split(",").filter(Boolean)) off.add(nameOf(layer, head));
      }
      update();
    },
    keep() { return { off: [...off].join(" ") || null }; },
    // layers and chosen as for drawHeads. Without canFlip, the heads are shown without switches.
    draw({ layers, chosen, canFlip = canSwitch(layers) }) {
      options = { layers, chosen, canFlip };
      update();
    },
  };
}

function nameOf(layer, head) { return `${layer}[${head}]`; }

function title(name) {
  const [, layer, head] = name.match(/^(.*)\[(\d+)\]$/);
  return `${layerTitle(layer)}, head ${head}`;
}

// Whether the layers have heads: the alignment of a recurrent decoder has none.
export function canSwitch(layers) {
  return Object.entries(layers).every(([layer, { shape }]) => shape.length > 2 && /blocks/.test(layer));
}
