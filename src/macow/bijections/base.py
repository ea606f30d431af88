"""What every invertible map promises, and how maps are put in a row."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import cast

from torch import Tensor, nn


class Bijection(nn.Module, ABC):
    """An invertible map with a known volume change.

    `forward(x, cond) -> (y, log_det)` is the parallel direction; `log_det` is nats, `[B]`, always.
    `inverse(y, cond) -> x` undoes it and never computes a log-det.
    """

    @abstractmethod
    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`x [B, C, H, W] -> y [B, C, H, W], log |det dy/dx| [B]`."""

    @abstractmethod
    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        """`y [B, C, H, W] -> x [B, C, H, W]`."""

    def forward_with_map(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `forward`, but says where the log-det comes from: `[B, H, W]`, summing to `[B]`.

        A map that treats all pixels alike spreads it evenly; the others override this.
        """
        y, log_det = self(x, cond)
        height, width = x.shape[2:]
        return y, (log_det / (height * width))[:, None, None].expand(-1, height, width)

    def log_det_map(self, x: Tensor, cond: Tensor | None = None) -> Tensor:
        """The log-det by pixel, `[B, H, W]`; its sum over pixels is `log_det`."""
        return self.forward_with_map(x, cond)[1]


class Chain(Bijection):
    """Maps applied one after the other; their names are the names of its parts."""

    def __init__(self, **parts: Bijection) -> None:
        super().__init__()
        if not parts:
            raise ValueError("a Chain needs at least one part")
        for name, part in parts.items():
            self.add_module(name, part)

    @property
    def parts(self) -> list[Bijection]:
        """In order; one that stands twice is there twice."""
        return [cast(Bijection, part) for part in self._modules.values()]

    def flat(self) -> Iterator[Bijection]:
        """The same, with the parts of chains within it one by one."""
        for part in self.parts:
            if isinstance(part, Chain):
                yield from part.flat()
            else:
                yield part

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Applies the parts in order and sums their log-dets."""
        total = x.new_zeros(x.shape[0])
        for part in self.parts:
            x, log_det = part(x, cond)
            total = total + log_det
        return x, total

    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        """Undoes the parts, last one first."""
        for part in reversed(self.parts):
            y = part.inverse(y, cond)
        return y

    def forward_with_map(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `forward`, with the sum of the parts' maps."""
        total = x.new_zeros(x.shape[0], *x.shape[2:])
        for part in self.parts:
            x, log_det = part.forward_with_map(x, cond)
            total = total + log_det
        return x, total
