"""What run folders tell while they train."""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from macow.documents import read_yaml
from macow.train.figures import Figures

MOST = 1e9
"""Of a figure: NaN, infinity and what no screen shows are left out."""
MOST_POINTS = 600
"""Of a curve: more than a screen shows."""


def told_apart(folders: Sequence[Path]) -> list["Run"]:
    """Runs, each named by as many parts of its path's end as tell it from the others."""
    paths, depth = [folder.resolve().parts for folder in folders], 1
    while len({path[-depth:] for path in paths}) < len(set(paths)):
        depth += 1
    return [
        Run(folder, "/".join(path[-depth:])) for folder, path in zip(folders, paths, strict=True)
    ]


class Run:
    """A run folder, read again when its figures have changed."""

    def __init__(self, folder: Path, name: str) -> None:
        if not folder.is_dir():
            raise ValueError(f"{folder}: no such folder")
        self.folder = folder
        self.name = name
        self._seen: tuple[int, int] | None = None
        self._rows: list[dict[str, Any]] = []

    def about(self) -> dict[str, Any]:
        """Its curves so far, and the steps it drew samples at."""
        rows: list[dict[str, Any]]
        rows, config, problem = [], self._config(), None
        try:
            rows = self._figures()
        except OSError as error:
            problem = f"its figures cannot be read: {error.strerror}"
        test, speed = _curve(rows, "test_bits"), _curve(rows, "images_per_s")
        return {
            "name": self.name,
            "problem": problem,
            "steps": _steps(config),
            "step": int(rows[-1]["step"]) if rows else 0,
            "age_s": None if self._seen is None else round(time.time() - self._seen[0] / 1e9, 1),
            "images_per_s": speed[-1][1] if speed else None,
            "best": min((bits for _, bits in test), default=None),
            "train": _thinned(_curve(rows, "bits")),
            "test": _thinned(test),
            "samples": self._sample_steps(),
        }

    def samples(self, step: int) -> bytes:
        """The picture of a step."""
        file = self.folder / "samples" / f"step_{step:07d}.png"
        if not file.is_file():
            raise ValueError(f"{self.name} has no samples of step {step}")
        return file.read_bytes()

    def _figures(self) -> list[dict[str, Any]]:
        file = self.folder / "metrics.jsonl"
        if not file.is_file():
            self._seen, self._rows = None, []
            return []
        status = file.stat()
        seen = (status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            self._rows = Figures(self.folder).rows()
            self._seen = seen
        return self._rows

    def _config(self) -> dict[str, Any]:
        try:
            found = read_yaml(self.folder / "config.yaml")
        except (OSError, ValueError):  # not there yet, or damaged: its curves count all the same
            return {}
        return found if isinstance(found, dict) else {}

    def _sample_steps(self) -> list[int]:
        names = [path.name for path in (self.folder / "samples").glob("step_*.png")]
        found = [re.fullmatch(r"step_(\d{7,})\.png", name) for name in names]
        return sorted(int(match[1]) for match in found if match)


def _steps(config: dict[str, Any]) -> int | None:
    train = config.get("train")
    steps = train.get("steps") if isinstance(train, dict) else None
    return steps if type(steps) is int else None


def _curve(rows: list[dict[str, Any]], name: str) -> list[list[float]]:
    """The steps at which a figure is known, with it."""
    known = [(int(row["step"]), row[name]) for row in rows if type(row.get(name)) in (int, float)]
    return [[step, value] for step, value in known if abs(value) < MOST]


def _thinned(points: list[list[float]]) -> list[list[float]]:
    if len(points) <= MOST_POINTS:
        return points
    return [points[i] for i in np.linspace(0, len(points) - 1, MOST_POINTS).astype(int)]
