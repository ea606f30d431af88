"""The figures of docs/sampling.md out of benchmarks/results (make pages)."""

import csv
import math
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS.parent / "benchmarks" / "results"
BEGIN = "<!-- sizes: made by `make pages` -->\n"
END = "<!-- end of sizes -->\n"
SIZES = {"cifar10": 32, "imagenet64": 64, "lsun128": 128, "celebahq256": 256}
PAPER = {"cifar10": 38.7, "imagenet64": 104.7, "lsun128": 267.9, "celebahq256": 434.2}
"""Table 5b of the paper, ms an image on a TITAN X."""
AUTHORS = {"cifar10": 24.9, "imagenet64": 61.0, "lsun128": 175.7, "celebahq256": 250.0}
"""The authors' published code on an H200 (docs/experiments.md)."""


def costs() -> dict[str, dict[str, str]]:
    text = (RESULTS / "sampling_gpu.csv").read_text()
    return {row["model"]: row for row in csv.DictReader(text.splitlines())}


def table() -> str:
    head = (
        "| preset | size | paper, TITAN X | authors' code, H200 | here, H200 | with the snapshot "
        "| best batch | one image alone | loses | plain torch loses |\n" + 10 * "|---" + "|\n"
    )
    lines = [
        f"| `{name}` | {size} x {size} | {PAPER[name]} | {AUTHORS[name]} | {row['ms_per_image']} "
        f"| {row['with_snapshot']} | {row['best_ms']} ({row['best_batch']}) "
        f"| {row['one_image_ms']} | {row['error']} | {row['plain_error']} |\n"
        for name, size in SIZES.items()
        for row in [costs()[name]]
    ]
    return head + "".join(lines)


def figure() -> str:
    """Time against image size, both in powers of two, as SVG."""
    here = {name: float(costs()[name]["ms_per_image"]) for name in SIZES}
    lines = [
        ("paper, TITAN X", "#8c8c8c", PAPER),
        ("authors' code, H200", "#d98a3d", AUTHORS),
        ("macow, H200", "#2f7ed8", here),
    ]
    left, right, top, bottom = 70, 470, 20, 300

    def place(size: int, ms: float) -> tuple[float, float]:
        x = left + (right - left) * (math.log2(size) - 5) / 3
        return x, bottom - (bottom - top) * (math.log2(ms) + 3) / 12

    parts = []
    for power in range(-3, 10, 2):
        _, y = place(32, 2.0**power)
        parts.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(
            f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{2.0**power:g}</text>'
        )
    for size in SIZES.values():
        x, _ = place(size, 1)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{size}</text>')
    for label, colour, times in lines:
        points = [place(size, times[name]) for name, size in SIZES.items()]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in points]
        x, y = points[-1]
        parts.append(f'<text x="{x + 10:.1f}" y="{y + 4:.1f}" fill="{colour}">{label}</text>')
    style = "text { font: 13px sans-serif; fill: #808080 } .grid { stroke: #80808040 }"
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 350" role="img" '
        'aria-label="milliseconds an image against its side">\n'
        f"<style>{style}</style>\n"
        + "\n".join(parts)
        + f'\n<text x="{left}" y="{bottom + 42}">side of the image in pixels; '
        "upwards: ms an image, batch 100</text>\n</svg>\n"
    )


def with_table(text: str) -> str:
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, "docs/sampling.md: no place for the table"
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> None:
    page = DOCS / "sampling.md"
    page.write_text(with_table(page.read_text()))
    (DOCS / "sampling.svg").write_text(figure())


if __name__ == "__main__":
    main()
