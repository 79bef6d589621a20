// A large matrix: first thinned, then a part of it with every cell. A click or Enter goes to the part around a cell.

import { matrix, thinned } from "./heat.js";

const MOST_ROWS = 64, MOST_COLUMNS = 128, PART = 32;

export function isLarge(n_rows, n_columns) {
  return n_rows > MOST_ROWS || n_columns > MOST_COLUMNS;
}

// What is on the screen: { values, rows, columns, n_rows, n_columns } of a matrix { values: [[…]], rows, columns }, whole,
// thinned, or the part around the cell `zoom`, [row, column]. `place(i, j)` is the place of a cell in the whole matrix.
export function partOf({ values, rows, columns }, zoom) {
  const n_rows = values.length, n_columns = values[0].length;
  const flat = Float32Array.from(values.flat(), (value) => value ?? NaN); // a score that a mask removes
  if (!isLarge(n_rows, n_columns)) return { values: flat, rows, columns, n_rows, n_columns, place: (i, j) => [i, j] };
  if (!zoom) {
    const small = thinned(flat, n_rows, n_columns, MOST_ROWS, MOST_COLUMNS);
    const first = (i, all, some) => Math.ceil((i * all) / some);
    return { ...small, rows: small.n_rows === n_rows ? rows : null, columns: small.n_columns === n_columns ? columns : null,
      place: (i, j) => [first(i, n_rows, small.n_rows), first(j, n_columns, small.n_columns)] };
  }
  const [top, height] = around(zoom[0], n_rows), [left, width] = around(zoom[1], n_columns);
  const part = new Float32Array(height * width);
  for (let i = 0; i < height; i++) part.set(flat.subarray((top + i) * n_columns + left, (top + i) * n_columns + left + width), i * width);
  return { values: part, rows: rows.slice(top, top + height), columns: columns.slice(left, left + width), n_rows: height,
    n_columns: width, place: (i, j) => [top + i, left + j] };
}

function around(index, n) {
  const size = Math.min(n, PART);
  return [Math.max(0, Math.min(n - size, Math.round(index - size / 2))), size];
}

// The picture of a matrix. `pick(row, column)` is called with the place of a cell in the whole matrix.
export function zoomed({ part, title, top, at, pick }) {
  const { values, rows, columns, n_rows, n_columns, place } = part;
  return matrix({ values, rows, columns, n_rows, n_columns, title, top,
    at: (i, j) => at(place(i, j), values[i * n_columns + j]), pick: pick && ((i, j) => pick(...place(i, j))) });
}
