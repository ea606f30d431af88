"""`report.html`: a run at a glance, in one file that needs nothing else."""

import base64
import html
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from macow import files
from macow.baselines import baselines
from macow.data.images import Images
from macow.train.console import lasting
from macow.train.figures import seconds

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
h1, h2 { line-height: 1.2; } figure { margin: 1rem 0; }
img { max-width: 100%; image-rendering: pixelated; }
svg { width: 100%; height: auto; } table { border-collapse: collapse; }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; }
pre { overflow-x: auto; font-size: .85rem; }
.axis { stroke: #999; } .grid { stroke: #ddd; } .label { font-size: 12px; fill: #555; }
.train { stroke: #7aa6d8; } .test { stroke: #c0392b; }
.base { stroke: #888; stroke-dasharray: 4 4; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1b1b1b; } .label { fill: #aaa; } .grid { stroke: #333; }
}
"""
NEWEST_GRIDS = 8


def run_baselines(train: Images, test: Images, n_bits: int) -> dict[str, float]:
    """What simple models make of the run's images; of large ones only what needs no fitting."""
    if math.prod(train.shape) > 4096:
        return {"uniform": float(n_bits)}
    some = [images.take(np.arange(min(len(images), 10_000))) for images in (train, test)]
    return baselines(some[0], some[1], n_bits)


def write_report(
    folder: Path, rows: Sequence[dict[str, Any]], beside: dict[str, float], *, state: str
) -> None:
    """Curves, figures beside the baselines, samples over time, configuration."""
    test = [(row["step"], row["test_bits"]) for row in rows if row.get("test_bits") is not None]
    train = [(row["step"], row["bits"]) for row in rows if row.get("bits") is not None]
    last = next((row for row in reversed(rows) if row.get("test_bits") is not None), None)
    best = min((bits for _, bits in test), default=None)
    figures = [("best on test images", best)] if best is not None else []
    figures += [(f"{name} (baseline)", value) for name, value in beside.items()]
    title = html.escape(folder.resolve().name)
    parts = [
        f"<h1>{title}</h1>",
        f"<p>{state}: {_progress(rows)}</p>",
        "<h2>Bits per dimension</h2>",
        "<table>"
        + "".join(f"<tr><td>{n}</td><td>{v:.3f}</td></tr>" for n, v in figures)
        + "</table>",
        _curves(train, test, beside),
    ]
    if last is not None:
        parts.append(
            f"<p>At step {last['step']:,}: {last['test_bits']:.4f} on the test images "
            f"(standard error {last['test_bits_error'] or 0:.4f}), reconstruction error "
            f"{_or_none(last['reconstruction'])} grey levels (0.5 would cost a byte).</p>"
        )
    pictures = sorted((folder / "samples").glob("step_*.png"))
    if pictures:
        parts.append("<h2>Samples over time</h2>")
    for picture in reversed(_some(pictures)):
        step = int(picture.stem.split("_")[1])
        data = base64.b64encode(picture.read_bytes()).decode()
        parts.append(
            f'<figure><img alt="samples at step {step}" src="data:image/png;base64,{data}">'
            f"<figcaption>step {step:,}, a row for each temperature</figcaption></figure>"
        )
    config = html.escape((folder / "config.yaml").read_text())
    parts.append(f"<h2>Configuration</h2><pre>{config}</pre>")
    refresh = "" if state != "Training" else '<meta http-equiv="refresh" content="30">'
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{refresh}'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )
    files.write(folder / "report.html", page)


def _or_none(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.2g}"


def _progress(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "no figures yet"
    timed = next((row for row in reversed(rows) if "images_per_s" in row), None)
    speed = f", {timed['images_per_s']:,.0f} images/s" if timed else ""
    whole = all("seconds" in row for row in rows)  # else an older version began the run
    spent = f" in {lasting(seconds(rows))}" if whole else ""
    return f"{rows[-1]['step']:,} updates{spent}{speed}"


def _some(pictures: list[Path]) -> list[Path]:
    if len(pictures) <= NEWEST_GRIDS:
        return pictures
    stride = (len(pictures) - 1) / (NEWEST_GRIDS - 1)
    return [pictures[round(i * stride)] for i in range(NEWEST_GRIDS)]


def _curves(
    train: list[tuple[int, float]], test: list[tuple[int, float]], beside: dict[str, float]
) -> str:
    points = [*train, *test]
    if not points:
        return ""
    width, height, left, bottom = 800, 320, 50, 30
    far = max(step for step, _ in points) or 1
    settled = [bits for step, bits in points if step >= far * 0.02] or [b for _, b in points]
    low, high = min(settled), max([*settled, *beside.values()])
    low, high = low - 0.05 * (high - low or 1), high + 0.05 * (high - low or 1)

    def x(step: float) -> float:
        return left + (width - left - 10) * step / far

    def y(bits: float) -> float:
        return 10 + (height - bottom - 10) * (high - min(bits, high)) / (high - low)

    def line(curve: list[tuple[int, float]], kind: str) -> str:
        path = " ".join(f"{x(step):.1f},{y(bits):.1f}" for step, bits in curve)
        return f'<polyline class="{kind}" fill="none" stroke-width="2" points="{path}"/>'

    parts = []
    for i in range(6):
        bits, step = low + (high - low) * i / 5, far * i / 5
        parts.append(
            f'<line class="grid" x1="{left}" x2="{width - 10}" '
            f'y1="{y(bits):.1f}" y2="{y(bits):.1f}"/>'
            f'<text class="label" x="4" y="{y(bits) + 4:.1f}">{bits:.2f}</text>'
            f'<text class="label" text-anchor="middle" x="{x(step):.1f}" y="{height - 8}">'
            f"{step:,.0f}</text>"
        )
    for name, bits in beside.items():
        if low <= bits <= high:
            parts.append(
                f'<line class="base" x1="{left}" x2="{width - 10}" y1="{y(bits):.1f}" '
                f'y2="{y(bits):.1f}"/><text class="label" text-anchor="end" x="{width - 14}" '
                f'y="{y(bits) - 4:.1f}">{html.escape(name)}</text>'
            )
    parts += [line(train, "train"), line(test, "test")]
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="bits per dimension over training">{"".join(parts)}</svg>'
        '<p><span style="color:#7aa6d8">training batches</span>, '
        '<span style="color:#c0392b">test images</span>, by update</p>'
    )
