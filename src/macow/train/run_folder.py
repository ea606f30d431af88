"""The folder of a run: its configuration, its figures, its pictures."""

import json
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from PIL import Image

from macow._version import __version__
from macow.config import RunConfig, from_dict

FREE_TO_CHANGE = (
    "steps", "log_every", "eval_every", "eval_images", "save_every", "keep",
    "sample_temperatures", "max_skipped", "compile", "batch_steps",
)  # fmt: skip
"""What a run may be continued with another value of: none of it changes the mathematics."""


class RunFolder:
    """`config.yaml`, `env.json`, `metrics.jsonl`, `tensorboard/`, `samples/`, `checkpoints/`."""

    def __init__(self, path: Path, config: RunConfig, source: str, seed: int) -> None:
        self.path = path
        self.config = config
        self.source = source
        self.seed = seed
        self.checkpoints = path / "checkpoints"
        self._tensorboard: Any = None
        self._check_same_run()
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        (path / "samples").mkdir(exist_ok=True)
        document = {**asdict(config), "data": source, "seed": seed}
        (path / "config.yaml").write_text(yaml.safe_dump(_plain(document), sort_keys=False))
        environment = {
            "command": sys.argv,
            "seed": seed,
            "macow": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        }
        (path / "env.json").write_text(json.dumps(environment, indent=2) + "\n")

    def _check_same_run(self) -> None:
        """A folder that holds another run is left alone."""
        file = self.path / "config.yaml"
        if not file.exists():
            return
        try:
            document = yaml.safe_load(file.read_text())
            source, seed = document.pop("data"), document.pop("seed")
            there = from_dict(RunConfig, document, str(file))
        except (yaml.YAMLError, AttributeError, KeyError) as error:
            raise ValueError(f"{file} is not a run's configuration: {error}") from None
        free = {name: getattr(self.config.train, name) for name in FREE_TO_CHANGE}
        there = replace(there, train=replace(there.train, **free))
        for what, found, wanted in [
            *_differences(asdict(there), asdict(self.config)),
            ("data", source, self.source),
            ("seed", seed, self.seed),
        ]:
            if found != wanted:
                raise ValueError(
                    f"{self.path} holds a run with {what} {found}, not {wanted}: "
                    "choose another --run, or the same configuration to continue it"
                )

    def check_space(self, needed: int) -> None:
        """Says at the start what would go wrong at the first checkpoint."""
        free = shutil.disk_usage(self.path).free
        if free < needed:
            raise ValueError(
                f"{self.path}: checkpoints need {needed / 1e6:,.0f} MB, {free / 1e6:,.0f} are free"
            )

    def forget_after(self, step: int) -> None:
        """Drops figures from beyond the checkpoint a run goes on from."""
        kept = [row for row in self.rows() if row["step"] <= step]
        self._write(kept)

    def log(self, row: Mapping[str, Any]) -> None:
        """Appends figures of a step to `metrics.jsonl` and TensorBoard."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        for name, value in row.items():
            if name != "step" and isinstance(value, int | float) and self.tensorboard:
                self.tensorboard.add_scalar(name, value, row["step"])

    def rows(self) -> list[dict[str, Any]]:
        """All figures so far."""
        file = self.path / "metrics.jsonl"
        if not file.exists():
            return []
        rows = []
        for line in file.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                continue  # a line cut off by a crash
        return rows

    def save_samples(self, step: int, picture: Image.Image) -> None:
        """A grid of samples, beside the earlier ones."""
        picture.save(self.path / "samples" / f"step_{step:07d}.png")

    @property
    def tensorboard(self) -> Any:
        """TensorBoard's writer, or False without the library."""
        if self._tensorboard is None:
            try:
                from torch.utils.tensorboard import SummaryWriter

                self._tensorboard = SummaryWriter(str(self.path / "tensorboard"))
            except ModuleNotFoundError:
                self._tensorboard = False
        return self._tensorboard

    def close(self) -> None:
        """Flushes what is open."""
        if self._tensorboard:
            self._tensorboard.close()

    def _write(self, rows: list[dict[str, Any]]) -> None:
        temporary = self.path / "metrics.jsonl.part"
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.replace(temporary, self.path / "metrics.jsonl")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _differences(found: Any, wanted: Any, where: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(found, dict) and isinstance(wanted, dict):
        return [
            difference
            for key in found
            for difference in _differences(found[key], wanted[key], f"{where}.{key}".strip("."))
        ]
    return [] if found == wanted else [(where, found, wanted)]
