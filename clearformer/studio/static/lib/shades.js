// A text whose tokens are shaded by a number: one colour for, another against. The numbers are below the tokens.

import { h, s, short, tokenText } from "./dom.js";
import { largest } from "./heat.js";

const LINE = 50, FONT = 15, GAP = 4;
const pen = document.createElement("canvas").getContext("2d");

export function textWidth(text, size) {
  pen.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

export function minus(value) { return short(value).replace("-", "−"); }
export function signed(value) { return value > 0 ? `+${short(value)}` : minus(value); }

export function shades({ tokens, values, title, width, at }) {
  const top = largest(values), places = [];
  let x = 0, y = 0;
  tokens.forEach((token, i) => {
    const text = tokenText(token), wide = Math.max(textWidth(text, FONT), textWidth(signed(values[i]), 11)) + 12;
    if (x > 0 && x + wide > width) { x = 0; y += LINE; }
    places.push({ x, y, wide, text });
    x += wide + GAP;
  });
  const height = y + LINE;
  const cursor = s("rect", { class: "cursor", height: 28, rx: 5, visibility: "hidden" });
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "fluid", "aria-label": title },
    places.map(({ x: left, y: up, wide, text }, i) => s("g", { class: "shade", transform: `translate(${left.toFixed(1)} ${up})` },
      s("rect", { class: "ground", width: wide, height: 28, rx: 5 }),
      s("rect", { class: values[i] < 0 ? "heat cold" : "heat", width: wide, height: 28, rx: 5,
        "fill-opacity": (0.5 * Math.abs(values[i]) / top).toFixed(3), "data-value": values[i] }),
      s("text", { class: "label middle", x: wide / 2, y: 15, "font-size": FONT }, text),
      Math.abs(values[i]) >= 0.08 * top && s("text", { class: "label middle soft", x: wide / 2, y: 38, "font-size": 11 }, signed(values[i])))),
    cursor);
  const frame = h("div", { class: "scroll", tabindex: "0", role: "group",
    "aria-label": `${title}. Left and right arrow keys move from token to token.` }, svg);
  let index = -1;
  const move = (i) => {
    index = Math.max(0, Math.min(tokens.length - 1, i));
    const { x: left, y: up, wide } = places[index];
    for (const [name, value] of Object.entries({ x: left, y: up, width: wide, visibility: "visible" })) cursor.setAttribute(name, value);
    at?.(index);
  };
  svg.querySelectorAll(".shade").forEach((group, i) => group.addEventListener("pointerenter", () => move(i)));
  frame.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    move(index + step);
    event.preventDefault();
  });
  return frame;
}
