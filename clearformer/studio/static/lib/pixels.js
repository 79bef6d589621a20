// Images and maps inside figures: pixels become a PNG, which the SVG file holds.

import { h, s, short } from "./dom.js";
import { largest } from "./heat.js";

const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]]; // viridis
const EVIDENCE = [255, 106, 0];

function png(n_rows, n_columns, colour) {
  const canvas = document.createElement("canvas");
  canvas.width = n_columns;
  canvas.height = n_rows;
  const pen = canvas.getContext("2d"), image = pen.createImageData(n_columns, n_rows);
  for (let i = 0; i < n_rows; i++) for (let j = 0; j < n_columns; j++) image.data.set(colour(i, j), 4 * (i * n_columns + j));
  pen.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

// An image from 0 to 255: rows of greys, or of [red, green, blue].
export function imageUrl(pixels) {
  return png(pixels.length, pixels[0].length, (i, j) => {
    const value = pixels[i][j];
    return typeof value === "number" ? [value, value, value, 255] : [...value, 255];
  });
}

function mixed(t) {
  const place = Math.max(0, Math.min(1, t)) * (STOPS.length - 1), low = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[low].map((value, k) => value + (place - low) * (STOPS[low + 1][k] - value));
}

// A map of any numbers, from the lowest (dark) to the highest (bright).
export function mapUrl(rows) {
  let low = Infinity, high = -Infinity;
  for (const row of rows) for (const value of row) { low = Math.min(low, value); high = Math.max(high, value); }
  const range = high - low || 1;
  return png(rows.length, rows[0].length, (i, j) => [...mixed((rows[i][j] - low) / range), 255]);
}

// Heat above an image: the colour is the same, its opacity is the value.
function heatUrl(rows) {
  const top = largest(rows.flat());
  return png(rows.length, rows[0].length, (i, j) => [...EVIDENCE, 210 * Math.max(0, rows[i][j]) / top]);
}

function picture(url, size, x = 0, y = 0, isSmooth = false) {
  return s("image", { href: url, x, y, width: size, height: size, preserveAspectRatio: "none",
    "image-rendering": isSmooth ? "auto" : "pixelated" });
}

// A grid of positions, in which the pointer or arrow keys choose one: { map }, or { pixels, heat } with the heat above
// the image. In a wide room, the image alone is beside it.
export function heatmap({ pixels, heat, map, title, size, room = 0, at }) {
  const rows = heat ?? map, n_rows = rows.length, n_columns = rows[0].length;
  const height = size / n_rows, width = size / n_columns;
  const cursor = s("rect", { class: "cursor light", width, height, visibility: "hidden" });
  const left = pixels && room >= 2 * size + 16 ? size + 16 : 0;
  const place = s("g", { transform: `translate(${left} 0)` }, s("rect", { class: "hit", width: size, height: size }),
    pixels && picture(imageUrl(pixels), size), heat && picture(heatUrl(heat), size, 0, 0, true), map && picture(mapUrl(map), size), cursor);
  const svg = s("svg", { viewBox: `0 0 ${left + size} ${size}`, width: left + size, height: size, role: "img", class: "fluid", "aria-label": title },
    left > 0 && picture(imageUrl(pixels), size), place);
  const frame = h("div", { class: "scroll", tabindex: "0", role: "group",
    "aria-label": `${title}. Arrow keys move from position to position.` }, svg);
  let row = -1, column = -1;
  const move = (i, j) => {
    row = Math.max(0, Math.min(n_rows - 1, i));
    column = Math.max(0, Math.min(n_columns - 1, j));
    cursor.setAttribute("x", column * width);
    cursor.setAttribute("y", row * height);
    cursor.setAttribute("visibility", "visible");
    at?.(`row ${row}, column ${column}: ${short(rows[row][column])}`);
  };
  svg.addEventListener("pointermove", (event) => {
    const box = place.firstChild.getBoundingClientRect();
    move(Math.floor(((event.clientY - box.top) / box.height) * n_rows), Math.floor(((event.clientX - box.left) / box.width) * n_columns));
  });
  frame.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    move(row + step[0], column + step[1]);
    event.preventDefault();
  });
  return frame;
}

// An image with a frame of so many pixels per side around `middle`, [x, y].
export function marked({ pixels, size, middle, sides, title }) {
  const scale = size / pixels.length, [left, right] = edges(middle[0], sides, pixels[0].length), [top, bottom] = edges(middle[1], sides, pixels.length);
  const box = { x: left * scale, y: top * scale, width: (right - left) * scale, height: (bottom - top) * scale };
  const svg = s("svg", { viewBox: `0 0 ${size} ${size}`, width: size, height: size, role: "img", "aria-label": title },
    picture(imageUrl(pixels), size), s("rect", { class: "mark", ...box }),
    s("circle", { class: "mark", cx: middle[0] * scale, cy: middle[1] * scale, r: 3 }));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": title }, svg);
}

function edges(middle, sides, n) { return [Math.max(0, middle - sides / 2), Math.min(n, middle + sides / 2)]; }

// Small pictures in rows: items { url, caption, name }. pick(i) is called for a click or Enter.
export function tiles({ items, title, width, size = 64, chosen = -1, pick, at, captions = true }) {
  const cell = size + 8, below = captions ? 18 : 6;
  const n_columns = Math.max(1, Math.min(items.length, Math.floor((width + 8) / cell)));
  const n_rows = Math.ceil(items.length / n_columns);
  const place = (i) => [(i % n_columns) * cell + 3, Math.floor(i / n_columns) * (size + below + 4) + 3];
  const cursor = s("rect", { class: "cursor thick", width: size + 4, height: size + 4, rx: 3, visibility: "hidden" });
  const all = [n_columns * cell, n_rows * (size + below + 4) + 2];
  const svg = s("svg", { viewBox: `0 0 ${all[0]} ${all[1]}`, width: all[0], height: all[1], role: "img", class: "fluid tiles", "aria-label": title },
    items.map(({ url, caption, name }, i) => {
      const [x, y] = place(i);
      return s("g", { class: "tile" }, picture(url, size, x, y), s("rect", { class: "edge", x, y, width: size, height: size }),
        captions && s("text", { class: "label middle soft", x: x + size / 2, y: y + size + 10, "font-size": 11 }, caption), s("title", {}, name));
    }), cursor);
  const frame = h("div", { class: `scroll${pick ? " picks" : ""}`, tabindex: "0", role: "group",
    "aria-label": `${title}. Arrow keys move from one to the next${pick ? ", Enter chooses one" : ""}.` }, svg);
  let index = chosen;
  const move = (i) => {
    index = Math.max(0, Math.min(items.length - 1, i));
    const [x, y] = place(index);
    cursor.setAttribute("x", x - 2);
    cursor.setAttribute("y", y - 2);
    cursor.setAttribute("visibility", "visible");
    reveal();
    at?.(items[index].name);
  };
  const reveal = () => { // the frame scrolls, never the page
    const top = place(index)[1], { scrollTop, clientHeight } = frame;
    if (top < scrollTop || top + size > scrollTop + clientHeight) frame.scrollTop = top - clientHeight / 3;
  };
  svg.querySelectorAll(".tile").forEach((tile, i) => {
    tile.addEventListener("pointerenter", () => at?.(items[i].name));
    tile.addEventListener("click", () => { move(i); pick?.(i); });
  });
  frame.addEventListener("keydown", (event) => {
    const step = { ArrowUp: -n_columns, ArrowDown: n_columns, ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) move(index < 0 ? 0 : index + step);
    else if (event.key === "Enter" && index >= 0) pick?.(index);
    else return;
    event.preventDefault();
  });
  if (chosen >= 0) {
    move(chosen);
    requestAnimationFrame(reveal); // when it has a size
  }
  return frame;
}

export function mapTable(rows) {
  return { columns: ["", ...rows[0].map((_, j) => String(j))], rows: rows.map((row, i) => [String(i), ...row.map(short)]) };
}
