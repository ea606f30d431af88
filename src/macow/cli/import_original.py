"""`macow import-original`: a checkpoint of the authors' code becomes a model folder."""

from collections.abc import Sequence

from macow.cli.parsing import parse, parser, size
from macow.original import load_original


def run(argv: Sequence[str]) -> None:
    """Reads the checkpoint and writes the folder."""
    arguments = parser(
        "import-original",
        "CONFIG WEIGHTS OUT [options]",
        "Converts a checkpoint of the authors' code to a folder that macow.load reads.",
    )
    arguments.add_argument("config", help="its config.json")
    arguments.add_argument("weights", help="its model.pt")
    arguments.add_argument("out", help="the folder to write")
    arguments.add_argument("--n_bits", type=int, default=8, help="bits it was trained for")
    arguments.add_argument("--size", default="32,32", help="its images' HEIGHT,WIDTH")
    options = parse(arguments, argv)
    model = load_original(options.config, options.weights, options.n_bits, size(options.size))
    model.save_pretrained(options.out)
    parameters = sum(p.numel() for p in model.parameters())
    print(
        f"{options.out}: {parameters:,} parameters, {model.n_bits} bits, images {list(model.shape)}"
    )
