"""`macow check`: is this model sound."""

import json
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import torch

from macow import data
from macow.check import check, own_samples, verdict
from macow.cli.parsing import model_parser, parse
from macow.pretrained import load

DESCRIPTION = """Looks whether a model is initialised and finite, whether a layer scales to
extremes, and whether images come back through its inverse, step by step; says where trouble comes
from, and a verdict. Exit code 0: sound or usable, 1: not sound. Without --data the images are the
model's own samples. Example: macow check runs/mine --data digits"""


def run(argv: Sequence[str]) -> int:
    """Prints the findings; 1 if one is an error."""
    arguments = model_parser("check", "[options]", DESCRIPTION, batch_size=16)
    arguments.add_argument("--data", help="source of images to run through; default: its samples")
    arguments.add_argument("--json", action="store_true", help="print JSON")
    options = parse(arguments, argv)
    model = load(options.model, options.device)
    if options.data:
        source = data.load(options.data, "test", model.shape)
        images = torch.from_numpy(source.take(np.arange(min(options.batch_size, len(source)))))
    else:
        images = own_samples(model, options.batch_size, options.seed)
    findings = check(model, images.to(model.device))
    if options.json:
        print(json.dumps({"verdict": verdict(findings), "findings": [*map(asdict, findings)]}))
    else:
        for finding in findings:
            print(f"{finding.level:<8} {finding.text}")
        print(f"{options.model} is {verdict(findings)}")
    return 1 if any(finding.level == "error" for finding in findings) else 0
