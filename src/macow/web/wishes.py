"""What a page may ask for: each field is read strictly, and what does not fit is named."""

from dataclasses import dataclass, field
from typing import TypeVar

from macow.documents import from_dict, loads

Wish = TypeVar("Wish")

MOST_SEED = 2**32 - 1
HOTTEST = 10.0
MOST_FRAMES = 120
MOST_RESAMPLED = 16


@dataclass(frozen=True)
class Samples:
    """Samples 0 to count - 1 of a seed; labels take turns unless one is chosen."""

    count: int = 64
    temperature: float = 1.0
    seed: int = 0
    label: str | None = None

    def __post_init__(self) -> None:
        _require("count", self.count, 1, None)
        _require_draw(self.temperature, self.seed)


@dataclass(frozen=True)
class End:
    """A sample by its number, or an image as a data URL, which then comes first."""

    image: str | None = None
    sample: int = 0
    seed: int = 0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _require("sample", self.sample, 0, MOST_SEED)
        _require_draw(self.temperature, self.seed)


@dataclass(frozen=True)
class Between:
    """The way from one end to the other."""

    start: End = field(default_factory=End)
    end: End = field(default_factory=lambda: End(sample=1))
    frames: int = 24
    label: str | None = None

    def __post_init__(self) -> None:
        _require("frames", self.frames, 2, MOST_FRAMES)


@dataclass(frozen=True)
class Levels:
    """Images like one, each level in turn drawn anew `count` times."""

    start: End = field(default_factory=End)
    count: int = 8
    temperature: float = 1.0
    seed: int = 0
    label: str | None = None

    def __post_init__(self) -> None:
        _require("count", self.count, 1, MOST_RESAMPLED)
        _require_draw(self.temperature, self.seed)


@dataclass(frozen=True)
class Fields:
    """The receptive fields of a level's masked convolutions."""

    level: int = 1
    label: str | None = None


def read(kind: type[Wish], content: bytes) -> Wish:
    """A wish from the JSON of a request."""
    return from_dict(kind, loads(content.decode(), "the request"), "the request")


def _require_draw(temperature: float, seed: int) -> None:
    _require("temperature", temperature, 0, HOTTEST)
    _require("seed", seed, 0, MOST_SEED)


def _require(name: str, value: float, low: float, high: float | None) -> None:
    if value < low or (high is not None and value > high):
        wanted = f"from {low:,}" if high is None else f"from {low:,} to {high:,}"
        raise ValueError(f"{name} must be {wanted}, got {value:,}")
