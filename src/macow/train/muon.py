"""Muon (Jordan et al., 2024): a matrix moves as far in every direction that its gradient has.

Adam moves all numbers alike but knows nothing of the matrix they belong to, so a few directions get
most of a step. Here the running mean of gradients is replaced by the nearest orthogonal matrix.
"""

import math
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

MOMENTUM = 0.95
SIZE = 0.2
"""Root mean square of the change that a rate of 1 makes: about Adam's, so that they share rates."""
TURNS = 5
"""Of the iteration: most singular values are then between 0.7 and 1.2."""


def orthogonal(matrices: Tensor) -> Tensor:
    """Roughly the nearest ones with orthogonal rows or columns, `[..., rows, columns]`.

    An odd polynomial of a matrix is that of its singular values; this one, of degree five, drives
    them towards 1.
    """
    x = matrices.mT if matrices.shape[-2] > matrices.shape[-1] else matrices
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-12)
    x = x.bfloat16() if x.is_cuda else x
    for _ in range(TURNS):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    x = x.to(matrices)
    return x.mT if matrices.shape[-2] > matrices.shape[-1] else x


def step(
    weights: Tensor, gradients: Tensor, means: Tensor, rate: float | Tensor, skipped: Tensor
) -> None:
    """Changes matrices `[n, rows, columns]` and the means of their gradients, unless skipped."""
    known = torch.where(skipped, means, means.lerp(gradients, 1 - MOMENTUM))
    ahead = gradients.lerp(known, MOMENTUM)
    size = SIZE * math.sqrt(max(weights.shape[1:]))
    weights.copy_(torch.where(skipped, weights, weights - rate * size * orthogonal(ahead)))
    means.copy_(known)


class MuonAndAdam(torch.optim.Adam):
    """Muon for some weights, each seen as a matrix `[out, the rest]`; Adam for the others."""

    def __init__(
        self, matrices: Iterable[Tensor], others: Iterable[Tensor], **options: Any
    ) -> None:
        by_shape = sorted(matrices, key=as_matrix)
        super().__init__([{"params": by_shape}, {"params": list(others)}], **options)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Changes all weights that have a gradient."""
        ours = self.param_groups.pop(0)
        try:
            super().step(closure)
        finally:
            self.param_groups.insert(0, ours)
        for shape, alike in groupby((p for p in ours["params"] if p.grad is not None), as_matrix):
            parameters = list(alike)
            means = [self.state[p].setdefault("exp_avg", torch.zeros_like(p)) for p in parameters]
            gradients = [p.grad for p in parameters]
            weights, slopes, known = (
                torch.stack(tensors).view(-1, *shape) for tensors in (parameters, gradients, means)
            )
            step(weights, slopes, known, ours["lr"], weights.new_zeros((), dtype=torch.bool))
            for tensors, changed in ((parameters, weights), (means, known)):
                torch._foreach_copy_(tensors, list(changed.view(-1, *parameters[0].shape)))


def as_matrix(weight: Tensor) -> tuple[int, int]:
    """Its rows and columns."""
    return len(weight), weight.numel() // len(weight)
