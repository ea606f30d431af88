"""The folder of a run: its configuration, its figures, its pictures."""

import fcntl
import json
import math
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

import torch
import yaml
from PIL import Image

from macow import distribution
from macow._version import __version__, commit
from macow.config import RunConfig, from_dict
from macow.data.images import Images
from macow.model import FlowModel
from macow.train.checkpoint import steps

FREE_TO_CHANGE = (
    "log_every", "eval_every", "save_every", "keep", "sample_temperatures", "max_skipped",
    "compile", "batch_steps",
)  # fmt: skip
"""What a run may be continued with another value of: none of it changes the mathematics. Nor does
the number of steps, but under a cosine."""


class RunFolder:
    """`config.yaml`, `env.json`, `metrics.jsonl`, `tensorboard/`, `samples/`, `checkpoints/`."""

    def __init__(self, path: Path, config: RunConfig, source: str, seed: int) -> None:
        self.path = path
        self.config = config
        self.source = source
        self.seed = seed
        self.checkpoints = path / "checkpoints"
        self._tensorboard: Any = None
        self._lock: IO[str] | None = None
        if (path / "config.json").exists() and not (path / "config.yaml").exists():
            raise ValueError(f"{path} holds a model, not a run: choose another --run")
        kind, _, where = source.partition(":")
        inside = Path(where).expanduser().resolve() if kind in ("folder", "celebahq") else None
        if inside is not None and path.resolve().is_relative_to(inside):
            raise ValueError(f"{path} lies inside the images' folder: choose another --run")
        self._check_same_run()

    def check_images(self, train: Images, test: Images) -> None:
        """The images must be those the run began with."""
        file = self.path / "images.json"
        if not file.exists() or not steps(self.checkpoints):
            return
        before = json.loads(file.read_text())
        for split, images in (("train", train), ("test", test)):
            found = images.fingerprint()
            if before.get(split) != found:
                raise ValueError(
                    f"{self.source}: its {split} images are not those that {self.path} began with "
                    f"({before.get(split)}, now {found})"
                )

    def begin(self, model: FlowModel, train: Images, test: Images) -> None:
        """Takes the folder: from here on it is this run's, and no other process's."""
        distribution.wait()  # all have looked before anything is written
        if not distribution.is_first():
            return
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"another process is training in {self.path}") from None
        weights = sum(p.numel() * p.element_size() for p in model.parameters())
        self._check_space(4 * weights * (self.config.train.keep + 2))
        path, config, source, seed = self.path, self.config, self.source, self.seed
        (path / "samples").mkdir(exist_ok=True)
        images = {"train": train.fingerprint(), "test": test.fingerprint()}
        (path / "images.json").write_text(json.dumps(images, indent=2) + "\n")
        document = {**asdict(config), "data": source, "seed": seed}
        (path / "config.yaml").write_text(yaml.safe_dump(_plain(document), sort_keys=False))
        environment = {
            "command": sys.argv,
            "seed": seed,
            "macow": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "commit": commit(),
            "processes": distribution.count(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        }
        if not steps(self.checkpoints):  # as it began, whatever it goes on with
            (path / "env.json").write_text(json.dumps(environment, indent=2) + "\n")

    def _check_same_run(self) -> None:
        """A folder that holds another run is left alone."""
        file = self.path / "config.yaml"
        if not file.exists() or not steps(self.checkpoints):
            return  # nothing was learnt there
        try:
            document = yaml.safe_load(file.read_text())
            source, seed = document.pop("data"), document.pop("seed")
            there = from_dict(RunConfig, document, str(file))
        except (yaml.YAMLError, AttributeError, KeyError) as error:
            raise ValueError(f"{file} is not a run's configuration: {error}") from None
        names = (*FREE_TO_CHANGE, *(["steps"] if there.train.schedule != "cosine" else []))
        free = {name: getattr(self.config.train, name) for name in names}
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

    def _check_space(self, needed: int) -> None:
        """Says at the start what would go wrong at the first checkpoint."""
        free = shutil.disk_usage(self.path).free
        if free < needed:
            raise ValueError(
                f"{self.path}: checkpoints need {needed / 1e6:,.0f} MB, {free / 1e6:,.0f} are free"
            )

    def forget_after(self, step: int) -> None:
        """Drops figures from beyond the checkpoint a run goes on from."""
        if not distribution.is_first():
            return
        kept = [row for row in self.rows() if row["step"] <= step]
        temporary = self.path / "metrics.jsonl.part"
        temporary.write_text("".join(json.dumps(row) + "\n" for row in kept))
        os.replace(temporary, self.path / "metrics.jsonl")

    def log(self, row: Mapping[str, Any]) -> None:
        """Appends figures of a step to `metrics.jsonl` and TensorBoard; not finite ones as null."""
        if not distribution.is_first():
            return
        row = {name: value if _known(value) else None for name, value in row.items()}
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        for name, value in row.items():
            if name != "step" and value is not None and self.tensorboard:
                self.tensorboard.add_scalar(name, value, row["step"])

    def rows(self) -> list[dict[str, Any]]:
        """All figures so far."""
        file = self.path / "metrics.jsonl"
        if not file.exists():
            return []
        rows: list[dict[str, Any]] = []
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
        """Flushes what is open, gives the folder free."""
        if self._lock is not None:
            self._lock.close()
        if self._tensorboard:
            self._tensorboard.close()


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


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
