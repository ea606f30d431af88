"""The folder of a run: its configuration, its figures, its pictures."""

import fcntl
import io
import json
import platform
import shutil
import sys
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

import torch
import yaml
from PIL import Image

from macow import distribution, files
from macow._version import __version__, commit
from macow.config import RunConfig
from macow.data.images import Images
from macow.documents import from_dict, read_yaml
from macow.model import FlowModel
from macow.train.checkpoint import steps
from macow.train.figures import Figures

FREE_TO_CHANGE = (
    "log_every", "eval_every", "save_every", "keep", "sample_temperatures", "max_skipped",
    "compile", "batch_steps",
)  # fmt: skip
"""What a run may be continued with another value of: none of it changes the mathematics. Nor does
the number of steps, but under a cosine or where shifts end."""


class RunFolder:
    """`config.yaml`, `env.json`, `metrics.jsonl`, `tensorboard/`, `samples/`, `checkpoints/`."""

    def __init__(self, path: Path, config: RunConfig, source: str, seed: int) -> None:
        self.path = path
        self.config = config
        self.source = source
        self.seed = seed
        self.checkpoints = path / "checkpoints"
        self.figures = Figures(path)
        self.images: dict[str, str] = {}
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
        self.images = {"train": train.fingerprint(), "test": test.fingerprint()}
        file = self.path / "images.json"
        if not file.exists() or not steps(self.checkpoints):
            return
        try:
            before = dict(json.loads(file.read_bytes()))
        except (ValueError, TypeError) as error:
            warnings.warn(f"{file} is damaged: {error}; its checkpoints decide", stacklevel=2)
            return
        self._compare_images(before)

    def check(self, numbers: dict[str, Any]) -> None:
        """A checkpoint must be of this run: of the same configuration, seed and images."""
        if "run" in numbers:
            self._compare(_read_record(numbers["run"], "it"), "it")
            self._compare_images(numbers["images"])

    @property
    def record(self) -> dict[str, Any]:
        """What a run is: its configuration, source and seed."""
        return _plain({**asdict(self.config), "data": self.source, "seed": self.seed})

    def take(self, model: FlowModel) -> None:
        """From here on the folder is this run's, and no other process's."""
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
        missing = max(1, self.config.train.keep + 2 - len(steps(self.checkpoints)))
        self._check_space(4 * weights * missing)

    def begin(self, step: int) -> None:
        """Writes down what the run is, and forgets what lies beyond the step it goes on from."""
        self.figures.begin(step)
        if not distribution.is_first():
            return
        (self.path / "samples").mkdir(exist_ok=True)
        for picture in (self.path / "samples").glob("step_*.png"):
            if int(picture.stem[5:]) > step:
                picture.unlink()
        files.write(self.path / "images.json", json.dumps(self.images, indent=2) + "\n")
        files.write(self.path / "config.yaml", yaml.safe_dump(self.record, sort_keys=False))
        files.flush(self.path.parent)
        environment = {
            "command": sys.argv,
            "seed": self.seed,
            "macow": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "commit": commit(),
            "processes": distribution.count(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        }
        if step == 0:  # as it began, whatever it goes on with
            files.write(self.path / "env.json", json.dumps(environment, indent=2) + "\n")

    def _check_same_run(self) -> None:
        """A folder that holds another run is left alone."""
        file = self.path / "config.yaml"
        if not file.exists() or not steps(self.checkpoints):
            return  # nothing was learnt there
        try:
            found = _read_record(read_yaml(file), str(file))
        except ValueError as error:
            reason = " ".join(str(error).split())
            warnings.warn(f"{file} is damaged: {reason}; its checkpoints decide", stacklevel=3)
        else:
            self._compare(found, str(self.path))

    def _compare(self, record: tuple[RunConfig, Any, Any], where: str) -> None:
        there, source, seed = record
        train = there.train
        ends = train.schedule == "cosine" or (train.shift and train.shift_until < 1)
        names = (*FREE_TO_CHANGE, *([] if ends else ["steps"]))
        free = {name: getattr(self.config.train, name) for name in names}
        there = replace(there, train=replace(there.train, **free))
        for what, found, wanted in [
            *_differences(asdict(there), asdict(self.config)),
            ("data", source, self.source),
            ("seed", seed, self.seed),
        ]:
            if found != wanted:
                raise ValueError(
                    f"{where} holds a run with {what} {found}, not {wanted}: "
                    "choose another --run, or the same configuration to continue it"
                )

    def _compare_images(self, before: dict[str, str]) -> None:
        for split, found in self.images.items():
            if before.get(split) != found:
                raise ValueError(
                    f"{self.source}: its {split} images are not those that {self.path} began with "
                    f"({before.get(split)}, now {found})"
                )

    def _check_space(self, needed: int) -> None:
        """Says at the start what would go wrong at the first checkpoint."""
        free = shutil.disk_usage(self.path).free
        if free < needed:
            raise ValueError(
                f"{self.path}: checkpoints need {needed / 1e6:,.0f} MB, {free / 1e6:,.0f} are free"
            )

    def save_samples(self, step: int, picture: Image.Image) -> None:
        """A grid of samples, beside the earlier ones."""
        content = io.BytesIO()
        picture.save(content, "PNG")
        files.write(self.path / "samples" / f"step_{step:07d}.png", content.getvalue())

    def close(self) -> None:
        """Flushes what is open, gives the folder free."""
        self.figures.close()
        if self._lock is not None:
            self._lock.close()


def _read_record(document: Any, where: str) -> tuple[RunConfig, Any, Any]:
    if not isinstance(document, dict) or not document.keys() >= {"data", "seed"}:
        raise ValueError(f"{where} is not a run's configuration with data and seed")
    rest = {name: value for name, value in document.items() if name not in ("data", "seed")}
    train = rest.get("train")
    if isinstance(train, dict) and type(train.get("augment")) is bool:  # its name before 0.1.0
        known = {name: value for name, value in train.items() if name != "augment"}
        both = {"mirror": train["augment"], "shift": 4 * train["augment"]}
        rest["train"] = {**both, **known}
    return from_dict(RunConfig, rest, where), document["data"], document["seed"]


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
