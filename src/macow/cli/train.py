"""`macow train`: a configuration, a source of images, a folder to fill."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, set_parsing_settings

from macow.cli.parsing import device, natural, parse, parser
from macow.config import ModelConfig, RunConfig, TrainConfig
from macow.distribution import is_first, joined
from macow.documents import brief, from_dict, read_yaml
from macow.model import FlowModel
from macow.presets import preset
from macow.pretrained import load
from macow.train import fit

DESCRIPTION = """Trains a model on the train split of a source of images, validates it on the test
split and fills a run folder: report.html to look at, metrics.jsonl, samples, checkpoints, and the
best model, which every other verb and macow.load read. The same command again goes on where it
stopped. The configuration is a preset, changed by a --config file, changed by the options below.
Example: macow train --preset digits --data digits --run runs/digits --train.steps 300"""

BESIDE = {"data": str, "seed": int}
"""What a file may hold beside a configuration."""


def run(argv: Sequence[str]) -> None:
    """Parses the configuration and trains."""
    rest = list(argv)
    chosen, file, start_name = (_take(rest, name) for name in ("--preset", "--config", "--from"))
    start = load(start_name, "cpu") if start_name else None
    if {"-h", "--help"} & set(rest) and not (chosen or file or start):
        chosen = "cifar10"  # whose values stand for the defaults
    arguments = _parser(_document(chosen, file, start), file or "config")
    options = arguments.instantiate(parse(arguments, rest))
    if options.model is None:
        raise ValueError("train: which model? Give --preset, --config or --from")
    for needed, example in (("data", "--data digits"), ("run", "--run runs/digits")):
        if not options[needed]:
            raise ValueError(f"train: --{needed} is missing, as in {example}")
    with joined(options.device) as own_device:
        fit(
            RunConfig(options.model, options.train, options.temperature),
            options.data,
            options.run,
            seed=options.seed,
            device=own_device,
            start=start,
            quiet=options.quiet,
        )
        speaks = is_first() and not options.quiet
    if speaks:
        print(f"done: look at {Path(options.run) / 'report.html'}", file=sys.stderr)


def _take(argv: list[str], option: str) -> str | None:
    """Takes an option that decides the others' defaults out of the line, wherever it stands."""
    for i, word in enumerate(argv):
        if word.startswith(f"{option}="):
            del argv[i]
            return _once(word.partition("=")[2], argv, option)
        if word == option:
            if i + 1 == len(argv):
                raise ValueError(f"train: {option} needs a value")
            del argv[i]
            return _once(argv.pop(i), argv, option)
    return None


def _once(value: str, rest: list[str], option: str) -> str:
    if any(word == option or word.startswith(f"{option}=") for word in rest):
        raise ValueError(f"train: {option} is given twice")
    return value


def configuration(name: str, file: str | None) -> RunConfig:
    """A preset's, or that of a file `NAME.yaml`, changed by another file."""
    config = _of(_read(Path(name)), name) if name.endswith(".yaml") else preset(name)
    return _of(_merged(asdict(config), _read(Path(file))), file) if file else config


def _of(document: dict[str, Any], where: str) -> RunConfig:
    """Which images and which seed is left to others."""
    return from_dict(RunConfig, {k: v for k, v in document.items() if k not in BESIDE}, where)


def _document(chosen: str | None, file: str | None, start: FlowModel | None) -> dict[str, Any]:
    """A configuration: a preset, or that of the model to start from, changed by a file."""
    base: dict[str, Any] = {}
    if chosen:
        base = asdict(preset(chosen))
    elif start is not None and start.config is not None:
        base = {"model": asdict(start.config)}
    return _merged(base, _read(Path(file))) if file else base


def _read(path: Path) -> dict[str, Any]:
    document = read_yaml(path)
    if not isinstance(document, dict):
        raise ValueError(f"{path} must hold model, train or temperature")
    for key, kind in BESIDE.items():
        if type(document.get(key, kind())) is not kind:
            raise ValueError(f"{path}: {key} must be {kind.__name__}")
    return document


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merged(base[key], value) if both else value
    return merged


def _parser(given: dict[str, Any], where: str = "config") -> ArgumentParser:
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    data, seed = given.pop("data", None), given.pop("seed", 0)
    has_model = "model" in given
    config = from_dict(RunConfig, given, where) if has_model else None
    if config is None and (unknown := sorted(map(str, given.keys() - {"train", "temperature"}))):
        raise ValueError(f"{where} has unknown keys: {brief(unknown)}")
    train = (
        config.train if config else from_dict(TrainConfig, given.get("train", {}), f"{where}.train")
    )
    arguments = parser("train", "--preset NAME --data SOURCE --run FOLDER [options]", DESCRIPTION)
    arguments.add_argument("--preset", help="a published configuration; macow presets lists them")
    arguments.add_argument("--config", help="a YAML file with model, train, temperature")
    arguments.add_argument("--from", dest="start", help="a model whose weights to start from")
    arguments.add_argument("--data", default=data, help="digits, cifar10:PATH, folder:PATH, ...")
    arguments.add_argument("--run", help="the folder to fill, or to go on in")
    arguments.add_argument("--seed", type=natural, default=seed, help="of all randomness")
    arguments.add_argument("--device", type=device, help="where to compute; default: GPU if there")
    arguments.add_argument("--quiet", action="store_true", help="print mistakes only")
    arguments.add_argument(
        "--temperature",
        type=float,
        default=config.temperature if config else 1.0,
        help="what its samples are best shown at",
    )
    arguments.add_argument("--train", type=TrainConfig, default=train, help="training")
    if config:
        arguments.add_argument("--model", type=ModelConfig, default=config.model, help="model")
    else:
        arguments.add_argument("--model", type=ModelConfig | None, default=None, help="model")
    return arguments
