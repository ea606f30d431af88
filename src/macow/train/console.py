"""What a run says: a bar on a terminal, plain lines elsewhere, nothing if it is to be quiet."""

import sys
import time
from typing import Any

from tqdm import tqdm

from macow import distribution
from macow.data.images import Images
from macow.model import FlowModel

QUIET = 60.0
"""Seconds after which a run without a bar says how far it is."""


class Console:
    """The first process's voice; the others are silent."""

    def __init__(self, *, quiet: bool) -> None:
        self.silent = quiet or not distribution.is_first()
        self.then = "training goes on"
        self.bar: Any = None

    def open(self, total: int, done: int) -> Any:
        """A context with a bar, where there is a terminal to show it on."""
        hidden = self.silent or not sys.stderr.isatty()
        self.total, self.done = total, done
        self.first: tuple[int, float] | None = None
        self.spoken = time.perf_counter()
        self.bar = tqdm(total=total, initial=done, unit=" updates", disable=hidden)
        return self.bar

    def introduce(self, train: Images, test: Images, model: FlowModel) -> None:
        """Says what is trained on what, and what could not be used."""
        problems = list(dict.fromkeys(train.problems + test.problems))
        for line in problems[:20]:
            self.say(f"left out {line}")
        if problems:
            self.say(f"{len(problems)} files in all could not be used")
        parameters = sum(p.numel() for p in model.parameters())
        shape = "x".join(map(str, model.shape))
        self.say(
            f"{len(train):,} images to learn from, {len(test):,} to test, as {shape} of "
            f"{model.n_bits} bits; {parameters:,} parameters on {model.device}"
        )

    def step(self) -> None:
        """One update is done; who hears nothing for long is told how many are left."""
        self.bar.update()
        self.done, now = self.done + 1, time.perf_counter()
        if self.first is None:  # it compiles
            self.first = self.done, now
        elif self.bar.disable and now - self.spoken > QUIET:
            done, since = self.first
            left = (self.total - self.done) * (now - since) / (self.done - done)
            self.say(f"step {self.done:,} of {self.total:,}, about {lasting(left)} left")

    def figure(self, step: int, line: str) -> None:
        """A passing figure: beside the bar, or a line."""
        if self.bar is not None and not self.bar.disable:
            self.bar.set_postfix_str(line)
        else:
            self.say(f"step {step:,}: {line}")

    def missed(self, step: int, what: str, error: Exception) -> None:
        """A file could not be written, which is no reason to stop learning."""
        self.say(f"step {step:,}: no {what}, {error}; {self.then}")

    def say(self, line: str) -> None:
        """A line that stays."""
        self.spoken = time.perf_counter()
        if not self.silent:
            tqdm.write(line, file=sys.stderr)
            sys.stderr.flush()


def lasting(seconds: float) -> str:
    """A time in words."""
    for unit, long in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 100 * long / 60:
            return f"{seconds / long:.{0 if unit == 'min' else 1}f} {unit}"
    return f"{seconds:.0f} s"


class Timer:
    """How many images a second are learnt from since it was last asked, and a run's seconds."""

    def __init__(self, batch_size: int, before: float) -> None:
        """`before`: seconds that a run took until it was stopped."""
        self.batch_size = batch_size
        self.before = before
        self.begun: float | None = None
        self.restart()

    def restart(self) -> None:
        """From here on."""
        self.steps, self.since = 0, time.perf_counter()

    def step(self) -> None:
        """One update is done."""
        self.steps += 1
        if self.begun is None:  # what the first one compiles is no learning
            self.begun = time.perf_counter()

    def seconds(self) -> float:
        """Since the first update of this start, looks at the model included, and those before."""
        return self.before + (0.0 if self.begun is None else time.perf_counter() - self.begun)

    def speed(self) -> float:
        """Images a second; begins anew."""
        speed = self.steps * self.batch_size / (time.perf_counter() - self.since)
        self.restart()
        return speed
