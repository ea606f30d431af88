"""The figures of docs/sampling.md and the README out of benchmarks/results (make pages).

`learning.py` makes those of docs/scaling.md.
"""

import csv
from pathlib import Path

from charts import Axis, chart

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS.parent / "benchmarks" / "results"
SIZES = {"cifar10": 32, "imagenet64": 64, "lsun128": 128, "celebahq256": 256}
PAPER = {"cifar10": 38.7, "imagenet64": 104.7, "lsun128": 267.9, "celebahq256": 434.2}
"""Table 3 (b) of the paper, ms an image on a TITAN X."""
AUTHORS = {"cifar10": 24.9, "imagenet64": 61.0, "lsun128": 175.7, "celebahq256": 250.0}
"""The authors' published code on an H200 (docs/experiments.md)."""


PEERS = {
    "glow-cifar10": ("Glow", "5.3; 5 ‡", "1.0"),
    "maf-cifar10": ("MAF", "3000 ‡", "600.0"),
    "emerging-cifar10": ("Emerging", "1800 ‡", "360.0"),
    "cifar10": ("MaCow", "38.7", "7.3"),
}
"""Table 3 (a) of the paper, ms an image and slow-down; ‡: from Hoogeboom et al. (2019)."""


def costs(name: str = "sampling_gpu.csv") -> dict[str, dict[str, str]]:
    text = (RESULTS / name).read_text()
    return {row["model"]: row for row in csv.DictReader(text.splitlines())}


def peers() -> dict[str, dict[str, str]]:
    return costs("sampling_peers_gpu.csv")


def slow_down(name: str) -> float:
    """Against our Glow of the same run."""
    times = {model: float(row["ms_per_image"]) for model, row in peers().items()}
    return times[name] / times["glow-cifar10"]


def sizes_table() -> str:
    return table(
        "preset, size, paper (TITAN X), authors' code (H200), here (H200), with the snapshot, "
        "best batch, one image alone, loses, plain torch loses",
        [
            [
                *(f"`{name}`", f"{size} x {size}", PAPER[name], AUTHORS[name]),
                *(row["ms_per_image"], row["with_snapshot"]),
                *(f"{row['best_ms']} ({row['best_batch']})", row["one_image_ms"]),
                *(row["error"], row["plain_error"]),
            ]
            for name, size in SIZES.items()
            for row in [costs()[name]]
        ],
    )


def peers_table() -> str:
    return table(
        "CIFAR-10, paper, slow-down, here (H200), slow-down, pixel by pixel, one image alone",
        [
            [
                *(label, paper, paper_slow_down, row["ms_per_image"], f"{slow_down(name):.1f}"),
                *(row["pixel_by_pixel_ms"], row["one_image_ms"]),
            ]
            for name, (label, paper, paper_slow_down) in PEERS.items()
            for row in [peers()[name]]
        ],
    )


def readme_tables() -> str:
    """Both in short."""
    flows = [
        [label, paper, paper_slow_down, peers()[name]["ms_per_image"], f"{slow_down(name):.1f}"]
        for name, (label, paper, paper_slow_down) in PEERS.items()
    ]
    sizes = [
        [f"`{name}`", f"{size} x {size}", PAPER[name], AUTHORS[name], costs()[name]["ms_per_image"]]
        for name, size in SIZES.items()
    ]
    return (
        table("(a) CIFAR-10, paper, slow-down, here (H200), slow-down", flows)
        + "\n"
        + table("(b) MaCow, size, paper (TITAN X), authors' code (H200), here (H200)", sizes)
    )


def table(heads: str, rows: list[list[object]]) -> str:
    lines = [heads.split(", "), ["---"] * len(heads.split(", ")), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def figure() -> str:
    """Time against image size, both in powers of two."""
    here = {name: float(costs()[name]["ms_per_image"]) for name in SIZES}
    times = {"macow, H200": here, "authors' code, H200": AUTHORS, "paper, TITAN X": PAPER}
    return chart(
        {label: [(size, ms[name]) for name, size in SIZES.items()] for label, ms in times.items()},
        Axis([*SIZES.values()], powers=True),
        Axis([2.0**power for power in range(-3, 10, 2)], powers=True),
        "side of the image in pixels; upwards: ms an image, batch 100",
        "milliseconds an image against its side",
    )


def with_tables(text: str) -> str:
    """A page with the tables it has places for as they ought to be."""
    import learning
    import results

    made = {"sizes": sizes_table, "peers": peers_table, "speed": readme_tables}
    made |= {**learning.TABLES, **results.TABLES}
    for name, make in made.items():
        begin, end = f"<!-- {name}: made by `make pages` -->\n", f"<!-- end of {name} -->\n"
        if begin in text:
            before, rest = text.split(begin)
            _, after = rest.split(end)
            text = f"{before}{begin}\n{make()}\n{end}{after}"
    return text


def main() -> None:
    import results

    pages = [DOCS / name for name in ("sampling.md", "scaling.md", "results.md")]
    for path in (*pages, DOCS.parent / "README.md"):
        path.write_text(with_tables(path.read_text()))
    for name, picture in {"sampling.svg": figure(), **results.pictures()}.items():
        (DOCS / name).write_text(picture)


if __name__ == "__main__":
    main()
