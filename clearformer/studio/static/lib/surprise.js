// A text as its tokens, the more surprising the stronger, in lines as wide as the page allows.
//
// tokens: [{ token, probability }]. `at(i)` is called for the token under the pointer or the cursor, `pick(i)` for a
// click or Enter.

import { h, s, tokenText } from "./dom.js";

const LINE = 34, BOX = 26;

// A token as it is shown: also the end of a line, which byte-level tokenizers write as Ċ, is visible.
export function visible(token) {
  return tokenText(token).replaceAll(/\n|Ċ/g, "↵");
}

// 1 for impossible, 0 for certain; a probability of 1/2, 1/4, 1/8 … takes equal steps, up to 10 bits.
export function surprise(probability) {
  return Math.min(-Math.log2(Math.max(probability, 1e-30)) / 10, 1);
}

export function surprising({ tokens, title, width, chosen = -1, at, pick }) {
  const places = [];
  let x = 2, y = 0;
  for (const { token } of tokens) {
    const text = visible(token), wide = Math.max(14 + 8.1 * text.length, 22);
    if (x + wide > width && x > 2) [x, y] = [2, y + 1];
    places.push({ x, y, wide, text });
    x += wide + 4;
    if (text.endsWith("↵")) [x, y] = [2, y + 1];
  }
  const n_lines = (places.at(-1)?.y ?? 0) + 1;
  const across = Math.max(width, ...places.map((place) => place.x + place.wide + 2));
  const size = [across, n_lines * LINE + 4];
  const groups = places.map((place, i) => s("g", { class: "surprising pickable", transform: `translate(${place.x} ${place.y * LINE + 3})` },
    s("rect", { class: "box", width: place.wide, height: BOX, rx: 5 }),
    s("rect", { class: "strong", width: place.wide, height: BOX, rx: 5, "data-probability": tokens[i].probability,
      "fill-opacity": (0.62 * surprise(tokens[i].probability)).toFixed(3) }),
    s("text", { class: "label middle", x: place.wide / 2, y: BOX / 2 + 1, "font-size": 14 }, place.text)));
  const cursor = s("rect", { class: "cursor", height: BOX, rx: 5, visibility: "hidden" });
  const svg = s("svg", { viewBox: `0 0 ${size[0]} ${size[1]}`, width: size[0], height: size[1], role: "img",
    "aria-label": title }, groups, cursor);
  const frame = h("div", { class: "scroll", tabindex: "0", role: "group",
    "aria-label": `${title}. Arrow keys move from token to token, Enter chooses one.` }, svg);
  let index = -1;
  const move = (i) => {
    index = Math.max(0, Math.min(tokens.length - 1, i));
    const place = places[index];
    for (const [name, value] of Object.entries({ x: place.x, y: place.y * LINE + 3, width: place.wide, visibility: "visible" })) {
      cursor.setAttribute(name, value);
    }
    at?.(index);
  };
  groups.forEach((group, i) => {
    group.addEventListener("pointermove", () => move(i));
    group.addEventListener("click", () => { move(i); pick?.(i); });
  });
  // From a line to the token nearest to the same place in the next one.
  const vertical = (by) => {
    const { x: from, y: line, wide } = places[Math.max(index, 0)], middle = from + wide / 2;
    const there = places.map((place, i) => [Math.abs(place.x + place.wide / 2 - middle), i, place.y])
      .filter(([, , other]) => other === line + by);
    return there.length ? there.reduce((a, b) => (b[0] < a[0] ? b : a))[1] : index;
  };
  frame.addEventListener("keydown", (event) => {
    if (!tokens.length) return;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], lines = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (by) move(index + by);
    else if (lines) move(index < 0 ? 0 : vertical(lines));
    else if (event.key === "Enter" && index >= 0) pick?.(index);
    else return;
    event.preventDefault();
  });
  if (chosen >= 0 && chosen < tokens.length) move(chosen);
  return frame;
}
