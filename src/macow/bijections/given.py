"""A conditional map whose condition is settled."""

import torch
from torch import Tensor

from macow.bijections.base import Bijection
from macow.nets.label_map import LabelMap


class Given(Bijection):
    """`inner` for images that all have one label: a map that needs no condition any more."""

    def __init__(self, inner: Bijection, label_map: LabelMap, label: int) -> None:
        super().__init__()
        self.inner = inner
        self.label_map = label_map
        self.label = label

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `inner` given the label."""
        return self.inner(x, self._cond(x))

    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        """As `inner` given the label."""
        return self.inner.inverse(y, self._cond(y))

    def forward_with_map(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `inner` given the label."""
        return self.inner.forward_with_map(x, self._cond(x))

    def _cond(self, x: Tensor) -> Tensor:
        batch, _, height, width = x.shape
        labels = torch.full((batch,), self.label, device=x.device)
        return self.label_map(labels, (height, width))
