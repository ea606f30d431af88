"""The tables and pictures of docs/results.md out of benchmarks/results (make pages)."""

import csv
from collections import defaultdict

import synthesis

COLOURS = ("#2f7ed8", "#d98a3d", "#3d9a5b", "#a05fb5", "#8c8c8c")
SHOWN = {
    "adam1": "Adam, 1e-3",
    "adam2": "Adam, 2e-3",
    "muon2": "Muon, 2e-3",
    "muon4": "Muon, 4e-3",
}
"""Runs of the picture that compares recipes."""
LEVELS = {"Glow, test, published": 3.35, "authors' code, 481 s": 3.609}
"""docs/experiments.md, and the papers."""


def read(name):
    return list(csv.DictReader((synthesis.RESULTS / name).read_text().splitlines()))


def curves():
    """Of each run `(update, seconds, bits)` of training batches."""
    found, batch = defaultdict(list), {r["run"]: int(r["images"]) for r in read("recipe_gpu.csv")}
    for row in read("recipe_curves_gpu.csv"):
        if row["bits"]:
            before, spent, _ = found[row["run"]][-1] if found[row["run"]] else (0, 0.0, 0)
            step = int(row["step"])
            spent += (step - before) * batch[row["run"]] / float(row["images_per_s"])
            found[row["run"]].append((step, spent, float(row["bits"])))
    return found


def chart(lines, levels, dots, along, title):
    """Curves `{name: [(x, y)]}`, dashed levels `{name: y}`, dots `{name: (x, y)}`, as SVG."""
    left, right, top, bottom, low, high = 60, 450, 20, 300, 3.3, 3.8
    far = max(x for curve in lines.values() for x, _ in curve)
    step = next(n for n in (50, 100, 200, 250, 500) if far / n <= 6)

    def place(x, y):
        return left + (right - left) * x / far, top + (bottom - top) * (high - y) / (high - low)

    parts, labels = [], []
    for bits in (3.3, 3.4, 3.5, 3.6, 3.7, 3.8):
        _, y = place(0, bits)
        parts.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{bits}</text>')
    for at in range(0, int(far) + 1, step):
        x, _ = place(at, low)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{at:,}</text>')
    for name, bits in levels.items():
        _, y = place(0, bits)
        parts.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="level"/>')
        labels.append((y, name, "#808080"))
    for (name, curve), colour in zip(lines.items(), COLOURS, strict=False):
        points = [place(x, y) for x, y in curve if y <= high]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        labels.append((points[-1][1], name, colour))
    for name, (across, bits) in dots.items():
        x, y = place(across, bits)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOURS[1]}"/>')
        labels.append((y, name, COLOURS[1]))
    below = 0.0
    for y, name, colour in sorted(labels):
        below = max(y + 4, below + 15)
        parts.append(f'<text x="{right + 8}" y="{below:.1f}" style="fill: {colour}">{name}</text>')
    style = (
        "text { font: 13px sans-serif; fill: #808080 } .grid { stroke: #80808040 } "
        ".level { stroke: #808080; stroke-dasharray: 5 4 }"
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 350" role="img" '
        f'aria-label="{title}">\n<style>{style}</style>\n'
        + "\n".join(parts)
        + f'\n<text x="{left}" y="{bottom + 42}">{along}; upwards: bits/dim</text>\n</svg>\n'
    )


def pictures():
    """Files of docs/ and what they hold."""
    found = curves()
    recipes = {name: [(n, bits) for n, _, bits in found[run]] for run, name in SHOWN.items()}
    small = [(seconds, bits) for _, seconds, bits in found["small"]]
    tested = next(float(r["test_bits"]) for r in read("recipe_gpu.csv") if r["run"] == "small")
    return {
        "recipes.svg": chart(recipes, {}, {}, "updates of 256 images", "recipes compared"),
        "learning.svg": chart(
            {"training batches": small},
            LEVELS,
            {f"test images, {tested:.3f}": (small[-1][0], tested)},
            "seconds on one H200",
            "cifar10-small learning",
        ),
    }


def anomaly_table():
    rows = [
        [row["kind"], row["pictures"], row["bits"]]
        + [
            f"{float(row[name]):.2f} ± {float(row[f'{name}_error']):.2f}"
            for name in ("likelihood", "typicality", "corrected")
        ]
        for row in read("anomaly_cpu.csv")
    ]
    return synthesis.table("images, pictures, bits/dim, likelihood, typicality, corrected", rows)


TABLES = {"anomaly": anomaly_table}
