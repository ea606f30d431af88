"""`macow export`: a model as a folder to give away."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from macow.cli.parsing import model_parser, parse
from macow.cli.reference import chosen_reference
from macow.export import export, export_program
from macow.pretrained import load

DESCRIPTION = """Writes a folder that macow.load reads and model hubs accept: config.json,
model.safetensors, README.md (a model card) and reference.json, quantiles of a source's test images
for percentiles without the data. --program also writes likelihood.pt2, the forward pass as a
torch.export program, verified against the model.
Example: macow export runs/digits my-digits --reference digits"""


def run(argv: Sequence[str]) -> None:
    """Exports, with a reference if one is given or known."""
    arguments = model_parser("export", "OUT [options]", DESCRIPTION, batch_size=64)
    arguments.add_argument("out", help="the folder to write")
    arguments.add_argument("--reference", help="a source of images, such as digits")
    arguments.add_argument(
        "--bits", type=int, choices=[32, 16, 8], default=32, help="of each weight of the networks"
    )
    arguments.add_argument("--program", action="store_true", help="also write likelihood.pt2")
    options = parse(arguments, argv)
    model = load(options.model, options.device)
    if options.bits < 32:  # a new reference, and the program, are of what others will load
        with TemporaryDirectory() as short:
            model.save_pretrained(short, bits=options.bits)
            model = load(short, options.device)
    reference = chosen_reference(model, options)
    out = Path(options.out)
    export(model, out, reference, bits=options.bits)
    if options.program:
        export_program(model, out / "likelihood.pt2")
    if not options.quiet:
        print(f"{out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
