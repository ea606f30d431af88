"""`macow presets`: the published configurations, as a table."""

import json
from collections.abc import Sequence

from macow.cli.parsing import parse, parser
from macow.config import RunConfig
from macow.presets import PRESETS, preset

HEADER = (
    "preset", "data", "image", "bits", "parameters", "levels", "steps", "dequantization", "batch",
    "temperature", "paper bits/dim",
)  # fmt: skip


def run(argv: Sequence[str]) -> None:
    """Prints one row per preset."""
    arguments = parser(
        "presets",
        "[--json]",
        "Lists the published configurations. LSUN's figures are bedroom / tower / church.",
    )
    arguments.add_argument("--json", action="store_true", help="print JSON")
    options = parse(arguments, argv)
    rows = [_row(name, preset(name)) for name in PRESETS]
    if options.json:
        print(json.dumps([dict(zip(HEADER, row, strict=True)) for row in rows], indent=2))
        return
    widths = [max(len(row[i]) for row in [HEADER, *rows]) for i in range(len(HEADER))]
    for row in [HEADER, *rows]:
        print(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def _row(name: str, config: RunConfig) -> tuple[str, ...]:
    model, published = config.model, PRESETS[name]
    height, width = model.size
    steps = ["+".join(map(str, blocks)) for blocks in model.flow.steps]
    return (
        name,
        published.data,
        f"{model.channels}x{height}x{width}",
        str(model.n_bits),
        f"{published.parameters:,}",
        str(len(model.flow.steps)),
        ", ".join(steps),
        "variational" if model.variational else "uniform",
        str(config.train.batch_size),
        str(config.temperature),
        published.paper_bits or "-",
    )
