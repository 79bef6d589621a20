// The tree of a beam search: a column for each step, with the extensions of the hypotheses, best first.

import { h, s, short, tokenText } from "./dom.js";

const COLUMN = 118, ROW = 34, WIDTH = 84, HEIGHT = 24, MARGIN = 10, HEAD = 22;
const MARKS = { kept: "", finished: "■ ", dropped: "", unfinished: "… " };

// steps: [[{ id, parent, token, score, logprob, fate }]]; best: ids on the way to the translation.
export function tree({ steps, best, title, at }) {
  const nodes = new Map(), path = new Set(best);
  steps.forEach((step, i) => step.forEach((node, j) => nodes.set(node.id, { ...node, step: i, row: j })));
  const x = (node) => MARGIN + node.step * COLUMN, y = (node) => HEAD + MARGIN + node.row * ROW;
  const width = 2 * MARGIN + (steps.length - 1) * COLUMN + WIDTH;
  const height = HEAD + 2 * MARGIN + (Math.max(...steps.map((step) => step.length)) - 1) * ROW + HEIGHT;
  const links = [...nodes.values()].filter(({ parent }) => parent !== null).map((node) => {
    const from = nodes.get(node.parent), [x1, y1] = [x(from) + WIDTH, y(from) + HEIGHT / 2];
    const [x2, y2] = [x(node), y(node) + HEIGHT / 2], middle = (x1 + x2) / 2;
    return s("path", { class: `branch ${node.fate}${path.has(node.id) ? " best" : ""}`,
      d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` });
  });
  const boxes = new Map([...nodes.values()].map((node) => [node.id,
    s("g", { class: `node ${node.fate}${path.has(node.id) ? " best" : ""}`, transform: `translate(${x(node)} ${y(node)})`,
      "data-id": node.id },
    s("rect", { class: "box", width: WIDTH, height: HEIGHT, rx: 5 }),
    s("text", { class: "label middle", x: WIDTH / 2, y: HEIGHT / 2, "font-size": 12 },
      `${MARKS[node.fate]}${tokenText(node.token).slice(0, 11)}`))]));
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": title },
    steps.map((_, i) => s("text", { class: "label middle step", x: MARGIN + i * COLUMN + WIDTH / 2, y: HEAD / 2, "font-size": 11 },
      `step ${i + 1}`)), links, [...boxes.values()]);
  const frame = h("div", { class: "scroll tree", tabindex: "0", role: "group", "aria-label":
    `${title}. Left and right arrow keys move to the parent and the best child, up and down inside a step.` }, svg);
  let current = null;
  const choose = (node) => {
    if (!node || node === current) return;
    if (current) boxes.get(current.id).classList.remove("chosen");
    current = node;
    boxes.get(node.id).classList.add("chosen");
    at?.(describe(node, nodes, path));
  };
  svg.addEventListener("pointermove", (event) => {
    const box = event.target.closest?.("[data-id]");
    if (box) choose(nodes.get(Number(box.dataset.id)));
  });
  const moves = {
    ArrowLeft: (node) => nodes.get(node.parent),
    ArrowRight: (node) => [...nodes.values()].filter(({ parent }) => parent === node.id)
      .sort((a, b) => path.has(b.id) - path.has(a.id) || a.row - b.row)[0],
    ArrowUp: (node) => nodes.get(steps[node.step][node.row - 1]?.id),
    ArrowDown: (node) => nodes.get(steps[node.step][node.row + 1]?.id),
  };
  frame.addEventListener("keydown", (event) => {
    if (!moves[event.key]) return;
    choose(current ? moves[event.key](current) : nodes.get(steps[0][0].id));
    if (current) {
      const left = x(current) - MARGIN, right = left + WIDTH + 2 * MARGIN;
      if (left < frame.scrollLeft) frame.scrollLeft = left;
      else if (right > frame.scrollLeft + frame.clientWidth) frame.scrollLeft = right - frame.clientWidth;
    }
    event.preventDefault();
  });
  return frame;
}

function describe(node, nodes, path) {
  const words = [];
  for (let one = node; one; one = nodes.get(one.parent)) words.unshift(tokenText(one.token));
  return `Step ${node.step + 1}, ${words.join(" ")}: score ${short(node.score)}, log-probability ${short(node.logprob)}, ` +
    `${node.fate}${path.has(node.id) ? ", on the way to the translation" : ""}`;
}

export function treeTable({ steps }) {
  return { columns: ["step", "token", "after", "score", "log-probability", "fate"],
    rows: steps.flatMap((step, i) => step.map(({ token, parent, score, logprob, fate }) => [String(i + 1), tokenText(token),
      parent === null ? "–" : tokenText(steps[i - 1].find(({ id }) => id === parent).token), short(score), short(logprob), fate])) };
}
