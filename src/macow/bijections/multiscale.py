"""The multi-scale architectures: squeezing, factoring out, and the two together (section 3.2)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macow.bijections.base import Bijection
from macow.ops.layout import laid


def squeeze(x: Tensor) -> Tensor:
    """`[B, C, H, W] -> [B, 4C, H/2, W/2]`.

    Pixel offset (a, b) of channel k becomes channel (2a + b) C + k.
    """
    batch, channels, height, width = x.shape
    if height % 2 or width % 2:
        raise ValueError(f"height and width must be even to squeeze, got {height}x{width}")
    x = x.reshape(batch, channels, height // 2, 2, width // 2, 2)
    x = x.permute(0, 3, 5, 1, 2, 4)
    return laid(x.reshape(batch, 4 * channels, height // 2, width // 2))


def unsqueeze(x: Tensor) -> Tensor:
    """Undoes `squeeze`."""
    batch, channels, height, width = x.shape
    x = x.reshape(batch, 2, 2, channels // 4, height, width)
    x = x.permute(0, 3, 4, 1, 5, 2)
    return laid(x.reshape(batch, channels // 4, 2 * height, 2 * width))


class Squeezed(Bijection):
    """Runs a map on the squeezed image and puts the result back in place.

    A condition is squeezed as well, unless it is `flat`, the same at every pixel: then a quarter of
    it says all.
    """

    def __init__(self, inner: Bijection, *, flat_cond: bool = False) -> None:
        super().__init__()
        self.inner = inner
        self.flat_cond = flat_cond

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Squeezing moves pixels, so the log-det is the inner one."""
        y, log_det = self.inner(squeeze(x), self.squeeze_cond(cond))
        return unsqueeze(y), log_det

    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        """The inner inverse, on the squeezed image."""
        return unsqueeze(self.inner.inverse(squeeze(y), self.squeeze_cond(cond)))

    def forward_with_map(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """A squeezed pixel's share goes to its four pixels in equal parts."""
        y, log_det = self.inner.forward_with_map(squeeze(x), self.squeeze_cond(cond))
        spread = F.interpolate(log_det[:, None] / 4, scale_factor=2, mode="nearest")
        return unsqueeze(y), spread[:, 0]

    def squeeze_cond(self, cond: Tensor | None) -> Tensor | None:
        """The condition as the inner map sees it."""
        if cond is None:
            return None
        return cond[:, :, ::2, ::2] if self.flat_cond else squeeze(cond)


class Factor(Bijection):
    """Runs a block, sends its first `keep` channels on to `rest` and factors out the others."""

    def __init__(self, block: Bijection, keep: int, rest: Bijection) -> None:
        super().__init__()
        self.block = block
        self.keep = keep
        self.rest = rest

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Latents go back behind the channels that went on: `[rest(kept), factored]`."""
        y, log_det = self.block(x, cond)
        kept, rest_log_det = self.rest(y[:, : self.keep], cond)
        return torch.cat([kept, y[:, self.keep :]], dim=1), log_det + rest_log_det

    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        """First what went on, then the block."""
        kept = self.rest.inverse(y[:, : self.keep], cond)
        return self.block.inverse(torch.cat([kept, y[:, self.keep :]], dim=1), cond)

    def forward_with_map(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `forward`, with the sum of both maps."""
        y, log_det = self.block.forward_with_map(x, cond)
        kept, rest_log_det = self.rest.forward_with_map(y[:, : self.keep], cond)
        return torch.cat([kept, y[:, self.keep :]], dim=1), log_det + rest_log_det


class Block(NamedTuple):
    """Steps on one scale, and how many channels go on after them; the last block keeps all."""

    steps: Bijection
    keep: int


class MultiScale(Bijection):
    """Levels of blocks; every level but the unsqueezed bottom one (level 0) starts with a squeeze.

    The arithmetic is the recursion of `Squeezed` and `Factor`; the modules are named flatly, for
    people: `level1.block0.step3`.
    """

    def __init__(
        self, levels: Sequence[Sequence[Block]], *, bottom: bool, flat_cond: bool = False
    ) -> None:
        super().__init__()
        self._levels: dict[int, list[Block]] = {}
        for number, blocks in enumerate(levels, start=0 if bottom else 1):
            named = nn.ModuleDict({f"block{i}": block.steps for i, block in enumerate(blocks)})
            self.add_module(f"level{number}", named)
            self._levels[number] = [
                Block(Registered(named, f"block{i}"), block.keep) for i, block in enumerate(blocks)
            ]
        # In a tuple, so that torch does not register the same modules a second time.
        self._tower = (_tower(self._levels, flat_cond=flat_cond),)

    @property
    def tower(self) -> Bijection:
        """The recursion itself."""
        return self._tower[0]

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`x [B, C, H, W] -> z [B, C, H, W], log_det [B]`."""
        z, log_det = self.tower(laid(x), cond)
        return z.contiguous(), log_det

    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        """`z -> x`."""
        return self.tower.inverse(laid(y), cond).contiguous()

    def forward_with_map(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `forward`, with the log-det by pixel."""
        z, log_det = self.tower.forward_with_map(laid(x), cond)
        return z.contiguous(), log_det

    def latent_levels(self, shape: tuple[int, int, int]) -> Tensor:
        """Which level owns each latent: integers `[C, H, W]`."""
        labelled = {
            number: [Block(_Label(number), block.keep) for block in blocks]
            for number, blocks in self._levels.items()
        }
        owners, _ = _tower(labelled)(torch.zeros(1, *shape))
        return owners[0].long()


def _tower(levels: Mapping[int, Sequence[Block]], *, flat_cond: bool = False) -> Bijection:
    """The recursion, from the top level down: `Squeezed(Factor(block, keep, rest=Factor(...)))`."""
    flow: Bijection | None = None
    for number in sorted(levels, reverse=True):
        for steps, keep in reversed(levels[number]):
            flow = steps if flow is None else Factor(steps, keep, flow)
        assert flow is not None, "a level has at least one block"
        flow = flow if number == 0 else Squeezed(flow, flat_cond=flat_cond)
    assert flow is not None, "a flow has at least one level"
    return flow


class Registered(Bijection):
    """Stands for a block in the recursion, so that replacing the registered module counts."""

    def __init__(self, level: nn.ModuleDict, name: str) -> None:
        super().__init__()
        self._level, self._name = (level,), name

    @property
    def block(self) -> Bijection:
        """The module itself."""
        return cast(Bijection, self._level[0][self._name])

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As the block."""
        return self.block(x, cond)

    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        """As the block."""
        return self.block.inverse(y, cond)

    def forward_with_map(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As the block."""
        return self.block.forward_with_map(x, cond)


class _Label(Bijection):
    """Stands for a block when only the way of the channels is wanted: writes its level there."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self.level = level

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return torch.full_like(x, self.level), x.new_zeros(x.shape[0])

    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        return y
