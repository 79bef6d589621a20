// What else a token could have been: the most probable tokens in its place, as bars.

import { fill, percent, tokenText } from "./dom.js";
import { figure } from "./figure.js";
import { ranking, roomOf } from "./ranking.js";

// step: { token, alternatives: [{ token, probability }] }, or undefined for none. `visible` is a token as it is shown.
export function drawAlternatives(place, step, visible = tokenText) {
  if (!step) return fill(place);
  const { token: chosen, alternatives } = step, title = `Most probable tokens in the place of ${visible(chosen)}`;
  const picture = figure({ title, name: "alternatives", json: () => ({ token: chosen, alternatives }),
    table: () => ({ columns: ["token", "probability"], rows: alternatives.map(({ token, probability }) => [visible(token), percent(probability)]) }) });
  fill(place, picture.element);
  picture.draw(ranking({ title, width: roomOf(place, 460), top: 1,
    rows: alternatives.map(({ token, probability }) => ({ label: visible(token), values: [probability], text: percent(probability) })) }));
  return place;
}
