// A histogram with a mark, and curves over steps.

import { number, svg } from "./dom.js";

export function histogram(reference, here) {
  const { edges, shares } = reference;
  const first = edges[0];
  const last = edges[edges.length - 1];
  const room = (last - first) * 0.5; // what lies farther away stands at the edge
  const low = Math.max(Math.min(first, here), first - room);
  const high = Math.min(Math.max(last, here), last + room);
  const [width, height, bottom] = [400, 140, 24];
  const x = (bits) => 8 + ((width - 16) * (Math.min(Math.max(bits, low), high) - low)) / (high - low || 1);
  const y = (share) => height - bottom - ((height - bottom - 30) * share) / Math.max(...shares);
  const bars = shares.map((share, i) =>
    svg("rect", {
      class: "bar", x: x(edges[i]), y: y(share),
      width: Math.max(1, x(edges[i + 1]) - x(edges[i]) - 1), height: height - bottom - y(share),
    }));
  const at = x(here);
  const beyond = here > high ? " →" : here < low ? "← " : "";
  const mark = beyond === "← " ? `${beyond}${number(here)}` : `${number(here)}${beyond}`;
  return svg("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${number(here, 3)} bits/dim beside ${reference.images} reference images ` +
      `from ${number(first)} to ${number(last)}`,
  },
    ...bars,
    svg("line", { class: "rule", x1: 8, x2: width - 8, y1: height - bottom, y2: height - bottom }),
    ...ticks(low, high, 5).map((bits) => label(x(bits), height - 7, number(bits, 1))),
    svg("line", { class: "here", x1: at, x2: at, y1: 22, y2: height - bottom }),
    label(Math.min(Math.max(at, 28), width - 28), 15, mark, "middle", "here-label"));
}

export function curves(runs, width) {
  const [height, left, bottom] = [Math.min(340, Math.max(220, width / 2.5)), 52, 28];
  const points = runs.flatMap((run) => [...run.train, ...run.test]);
  if (!points.length) return svg("svg", { viewBox: `0 0 ${width} 40` }, label(left, 24, "no figures yet", "start"));
  const far = Math.max(1, ...points.map(([step]) => step));
  // The first steps are far off: they would flatten all that comes later.
  const late = points.filter(([step]) => step >= far * 0.03).map(([, bits]) => bits);
  const settled = late.length ? late : points.map(([, bits]) => bits);
  const margin = 0.05 * (Math.max(...settled) - Math.min(...settled) || 1);
  const [low, high] = [Math.min(...settled) - margin, Math.max(...settled) + margin];
  const x = (step) => left + ((width - left - 14) * step) / far;
  const y = (bits) => 10 + ((height - bottom - 10) * (high - Math.min(bits, high))) / (high - low);
  const path = (curve) => curve.map(([step, bits]) => `${x(step).toFixed(1)},${y(bits).toFixed(1)}`).join(" ");
  const drawn = runs.flatMap((run, i) => [
    svg("polyline", { class: `curve train run${i % 6}`, points: path(run.train) }),
    svg("polyline", { class: `curve test run${i % 6}`, points: path(run.test) }),
    ...run.test.slice(-1).map(([step, bits]) =>
      svg("circle", { class: `dot run${i % 6}`, cx: x(step), cy: y(bits), r: 4.5 })),
  ]);
  const spoken = runs.map((run) => `${run.name}: ${run.test.length ? number(run.test.at(-1)[1], 3) : "none yet"}`);
  return svg("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Bits per dimension over ${far.toLocaleString("en")} steps. On test images now: ${spoken.join("; ")}`,
  },
    ...ticks(low, high, 5).flatMap((bits) => [
      svg("line", { class: "rule", x1: left, x2: width - 14, y1: y(bits), y2: y(bits) }),
      label(left - 8, y(bits) + 4, number(bits, high - low < 0.5 ? 3 : 2), "end")]),
    ...ticks(0, far, width / 150).map((step) => label(x(step), height - 7, step.toLocaleString("en"))),
    ...drawn);
}

const label = (x, y, text, anchor = "middle", kind = "tick") =>
  svg("text", { class: kind, x, y, "text-anchor": anchor }, text);

// Round numbers between two ends.
function ticks(low, high, about) {
  const raw = (high - low) / about;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * ([1, 2, 5, 10].find((factor) => factor * unit >= raw) ?? 10);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) found.push(at);
  return found;
}
