// Numbers by pixel as a picture.

import { el } from "./dom.js";

// Dark to light, even to the eye (after viridis), legible on light and dark paper.
const STOPS = [[48, 18, 84], [62, 74, 137], [38, 130, 142], [82, 184, 106], [250, 231, 80]];

export function heat(rows) {
  const height = rows.length;
  const width = rows[0].length;
  const values = rows.flat();
  const low = values.reduce((a, b) => Math.min(a, b)); // Math.min(...) takes not so many
  const high = values.reduce((a, b) => Math.max(a, b));
  const most = values.indexOf(high);
  const canvas = el("canvas", { width, height, role: "img" });
  canvas.setAttribute("aria-label", `bits by pixel, from ${low.toFixed(1)} to ${high.toFixed(1)}, ` +
    `the most in row ${Math.floor(most / width) + 1}, column ${(most % width) + 1}`);
  const pixels = new ImageData(width, height);
  values.forEach((value, i) => pixels.data.set([...colour((value - low) / (high - low || 1)), 255], 4 * i));
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return { canvas, low, high };
}

function colour(share) {
  const place = share * (STOPS.length - 1);
  const from = STOPS[Math.floor(place)];
  const to = STOPS[Math.ceil(place)];
  return from.map((value, i) => value + (to[i] - value) * (place % 1));
}
