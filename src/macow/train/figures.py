"""The figures of a run: `metrics.jsonl` and TensorBoard."""

import json
import math
import shutil
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from macow import distribution, files

LONGEST = 1e9
"""Seconds; what claims more is damaged."""
TIMED = ("images_per_s", "seconds")
"""What differs between two runs that are otherwise the same."""


class Figures:
    """A row of JSON for each look at a run; what cannot be written now is written with the next."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "metrics.jsonl"
        self.waiting: list[dict[str, Any]] = []
        self.step, self.seconds = 0, 0.0
        self._tensorboard: Any = None

    def begin(self, step: int) -> None:
        """Drops figures from beyond the step a run goes on from; the rest have its seconds."""
        self.step = step
        if distribution.is_first():
            kept = [row for row in self.rows() if row["step"] <= step]
            self.seconds = seconds(kept)
            files.write(self.file, _lines(kept))

    def log(self, row: Mapping[str, Any]) -> None:
        """Appends the figures of a step; not finite ones as null."""
        if not distribution.is_first():
            return
        row = {name: value if _known(value) else None for name, value in row.items()}
        self.waiting.append(row)
        files.append(self.file, _lines(self.waiting))
        self.waiting = []
        if self.tensorboard and shutil.disk_usage(self.folder).free > files.AT_ONCE:
            try:
                for name, value in row.items():
                    if name != "step" and value is not None:
                        self.tensorboard.add_scalar(name, value, row["step"])
            except OSError:
                self._tensorboard = None  # its thread is dead: a new one with the next row
                raise
        self.step = row["step"]

    def settle(self) -> None:
        """Waits until the disk has all rows: a checkpoint promises what came before it."""
        if self.file.exists():
            files.flush(self.file)

    def rows(self) -> list[dict[str, Any]]:
        """All figures so far; a damaged line is left out, with a warning if it is not the last."""
        if not self.file.exists():
            return []
        rows: list[dict[str, Any]] = []
        lines = self.file.read_bytes().splitlines()
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                int(row["step"])
                rows.append(row)
            except (ValueError, TypeError, KeyError, OverflowError):
                if number < len(lines):  # the last may have been cut off by a crash
                    warnings.warn(f"{self.file}: line {number} is damaged, left out", stacklevel=2)
        return rows

    @property
    def tensorboard(self) -> Any:
        """TensorBoard's writer, or False without the library."""
        if self._tensorboard is None:
            try:
                from torch.utils.tensorboard import SummaryWriter

                where = str(self.folder / "tensorboard")
                self._tensorboard = SummaryWriter(where, purge_step=self.step + 1)
            except ModuleNotFoundError:
                self._tensorboard = False
        return self._tensorboard

    def close(self) -> None:
        """Flushes what is open."""
        if self._tensorboard:
            with suppress(OSError):  # the rows are in metrics.jsonl
                self._tensorboard.close()


def seconds(rows: Iterable[Mapping[str, Any]]) -> float:
    """The largest that rows have written down, 0 if none has."""
    found: list[Any] = [row.get("seconds") for row in rows]
    return max((s for s in found if type(s) in (int, float) and 0 <= s < LONGEST), default=0.0)


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)
