"""Masked autoregressive flow on images (Papamakarios et al., 2017), for comparison."""

from torch import Tensor

from macow.bijections.base import Bijection
from macow.bijections.raster import causal_window, earlier_pixels, raster_inverse
from macow.nets.autoregressive import AutoregressiveNet
from macow.ops.affine import affine_forward, affine_inverse, affine_parameters


class MaskedAutoregressive(Bijection):
    """Each value is shifted and scaled given all that comes before it in its window.

    Before means: earlier pixels in raster order, then earlier channels of the same pixel; `reverse`
    reads the image from its last pixel. Forward is one pass; the inverse is a chain of `C` steps
    for each wave of pixels.
    """

    def __init__(
        self,
        channels: int,
        hidden_channels: int,
        kernel: tuple[int, int] = (2, 3),
        *,
        reverse: bool = False,
    ) -> None:
        super().__init__()
        if kernel[0] < 1 or kernel[1] < 3 or kernel[1] % 2 == 0:
            raise ValueError(f"kernel must be (kh, kw) with kw odd and above 1, got {kernel}")
        self.kernel = kernel
        self.reverse = reverse
        self.net = AutoregressiveNet(channels, hidden_channels, 2, earlier_pixels(kernel))

    def forward_with_map(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`[B, H, W]`: the log-scales of a pixel, summed."""
        x = self._turn(x)
        shift, log_scale = affine_parameters(self.net(causal_window(x, self.kernel)), affine=True)
        assert log_scale is not None
        return self._turn(affine_forward(x, shift, log_scale)), self._turn(log_scale).sum(dim=1)

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`log_det = sum(log_scale)`."""
        y, log_det = self.forward_with_map(x, cond)
        return y, log_det.sum(dim=(1, 2))

    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        """Wave after wave of pixels, channel after channel, in the type of the weights."""
        net = self.net.by_degree()

        def solve(window: Tensor, y_pixels: Tensor) -> Tensor:
            def value(channel: int, raw: Tensor) -> Tensor:
                shift, log_scale = affine_parameters(raw, affine=True)
                return affine_inverse(y_pixels[:, channel, None], shift, log_scale)

            return net(window, value)

        return self._turn(raster_inverse(self._turn(y), self.kernel, solve))

    def _turn(self, x: Tensor) -> Tensor:
        return x.flip(2, 3) if self.reverse else x
