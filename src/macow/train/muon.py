"""Muon (Jordan et al., 2024): a matrix moves as far in every direction that its gradient has.

Adam scales each number by itself and knows nothing of the matrix it belongs to, so a few directions
get most of a step. Here the running mean of gradients is replaced by the nearest orthogonal matrix.

The matrices are directions, whose length does not matter to a weight-normalised layer. Steps would
make them longer, and so turn them less and less; they are kept as long as they were.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

MOMENTUM = 0.95
SIZE = 0.2
"""Root mean square of the change that a rate of 1 makes: about Adam's, so that they share rates."""
TURNS = 5
"""Of the iteration: most singular values are then between 0.7 and 1.2."""


class Stack(NamedTuple):
    """Matrices of one shape, one after the other, each with some room."""

    number: int
    room: int
    rows: int
    columns: int

    def of(self, flat: Tensor) -> Tensor:
        """`[number, rows, columns]`, where they begin."""
        return flat.as_strided((self.number, self.rows, self.columns), (self.room, self.columns, 1))


def orthogonal(matrices: Tensor) -> Tensor:
    """Roughly the nearest ones with orthogonal rows or columns, `[n, rows, columns]`.

    An odd polynomial of a matrix is that of its singular values; this one, of degree five, drives
    them towards 1.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True) + 1e-12)
    x = x.bfloat16() if x.is_cuda else x
    for _ in range(TURNS):
        square = x @ x.mT
        polynomial = torch.baddbmm(square, square, square, beta=-4.7750, alpha=2.0315)
        x = torch.baddbmm(x, polynomial, x, beta=3.4445)
    return x.mT if tall else x


def step(
    weights: Tensor,
    gradients: Tensor,
    means: Tensor,
    rate: float | Tensor,
    skipped: Tensor,
    stacks: Sequence[Stack],
) -> None:
    """Turns matrices, and changes the means of their gradients, unless it is to be skipped.

    All are flat, the matrices in stacks.
    """
    means.copy_(torch.where(skipped, means, means.lerp(gradients, 1 - MOMENTUM)))
    ahead = gradients.lerp(means, MOMENTUM)
    moves = torch.zeros_like(ahead)
    place = 0
    for stack in stacks:
        size = SIZE * math.sqrt(max(stack.rows, stack.columns))
        stack.of(moves[place:]).copy_(size * orthogonal(stack.of(ahead[place:])))
        place += stack.number * stack.room
    moved = weights - torch.where(skipped, 0.0, rate * moves)
    place = 0
    for stack in stacks:
        new = stack.of(moved[place:])
        new.mul_(_norms(stack.of(weights[place:])) / _norms(new))
        place += stack.number * stack.room
    weights.copy_(moved)


def _norms(matrices: Tensor) -> Tensor:
    return torch.linalg.vector_norm(matrices, dim=(1, 2), keepdim=True)


class MuonAndAdam(torch.optim.Adam):
    """Muon for some weights, each seen as a matrix `[out, the rest]`; Adam for the others."""

    def __init__(
        self, matrices: Iterable[Tensor], others: Iterable[Tensor], **options: Any
    ) -> None:
        by_shape = sorted(matrices, key=as_matrix)
        super().__init__([{"params": by_shape}, {"params": list(others)}], **options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """As any optimizer: Adam would look for steps of the matrices, which count none."""
        torch.optim.Optimizer.__setstate__(self, state)

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
                torch.cat([tensor.flatten() for tensor in tensors])
                for tensors in (parameters, gradients, means)
            )
            stack = Stack(len(parameters), parameters[0].numel(), *shape)
            never = weights.new_zeros((), dtype=torch.bool)
            step(weights, slopes, known, ours["lr"], never, [stack])
            for tensors, changed in ((parameters, weights), (means, known)):
                parts = torch.split(changed, stack.room)
                views = [part.view_as(t) for part, t in zip(parts, tensors, strict=True)]
                torch._foreach_copy_(tensors, views)


def as_matrix(weight: Tensor) -> tuple[int, int]:
    """Its rows and columns."""
    return len(weight), weight.numel() // len(weight)
