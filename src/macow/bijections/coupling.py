"""Coupling layers: one part of the image is shifted and scaled given the other (RealNVP, Glow)."""

import torch
from torch import Tensor, nn

from macow.bijections.base import Bijection
from macow.ops.affine import affine_forward, affine_inverse, affine_parameters


def _with_condition(x: Tensor, cond: Tensor | None) -> Tensor:
    return x if cond is None else torch.cat([x, cond], dim=1)


class Coupling(Bijection):
    """Transforms the last `num_transformed` channels given the others.

    `y1 = x1; y2 = x2 * exp(log_scale(x1)) + shift(x1)`; a condition is concatenated to `x1`.
    """

    def __init__(self, net: nn.Module, num_transformed: int, *, affine: bool = True) -> None:
        super().__init__()
        self.net = net
        self.num_transformed = num_transformed
        self.affine = affine

    def forward_with_map(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`[B, H, W]`: the log-scales of a pixel, summed."""
        given, x2 = self._split(x)
        shift, log_scale = self._shift_and_scale(given, cond)
        y = torch.cat([given, affine_forward(x2, shift, log_scale)], dim=1)
        return y, x.new_zeros(x[:, 0].shape) if log_scale is None else log_scale.sum(dim=1)

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`log_det = sum(log_scale)`."""
        y, log_det = self.forward_with_map(x, cond)
        return y, log_det.sum(dim=(1, 2))

    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        """As parallel as `forward`: the network sees the part that never changed."""
        given, y2 = self._split(y)
        shift, log_scale = self._shift_and_scale(given, cond)
        return torch.cat([given, affine_inverse(y2, shift, log_scale)], dim=1)

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:, : -self.num_transformed], x[:, -self.num_transformed :]

    def _shift_and_scale(self, given: Tensor, cond: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return affine_parameters(self.net(_with_condition(given, cond)), affine=self.affine)


class CheckerboardCoupling(Bijection):
    """Transforms every other pixel given the rest (RealNVP, section 3.4).

    `parity` 0 transforms the pixels whose row and column add up to an even number, 1 the others.
    """

    def __init__(self, net: nn.Module, parity: int) -> None:
        super().__init__()
        self.net = net
        self.parity = parity

    def forward_with_map(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`[B, H, W]`: the log-scales of a pixel, summed; 0 where it is only passed on."""
        shift, log_scale = self._shift_and_scale(x, cond)
        return affine_forward(x, shift, log_scale), log_scale.sum(dim=1)

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`log_det = sum(log_scale)`."""
        y, log_det = self.forward_with_map(x, cond)
        return y, log_det.sum(dim=(1, 2))

    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        """As parallel as `forward`."""
        return affine_inverse(y, *self._shift_and_scale(y, cond))

    def _shift_and_scale(self, x: Tensor, cond: Tensor | None) -> tuple[Tensor, Tensor]:
        rows, columns = (torch.arange(n, device=x.device) for n in x.shape[2:])
        transformed = (rows[:, None] + columns) % 2 == self.parity
        given = x.masked_fill(transformed, 0.0)
        shift, log_scale = affine_parameters(self.net(_with_condition(given, cond)), affine=True)
        assert log_scale is not None
        return shift.masked_fill(~transformed, 0.0), log_scale.masked_fill(~transformed, 0.0)
