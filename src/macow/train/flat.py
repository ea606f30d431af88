"""All weights side by side: what is done to each of them is one launch for all."""

from itertools import groupby

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.swa_utils import AveragedModel

from macow.train import muon
from macow.train.muon import Stack, as_matrix

ALIGNED = 4
"""Numbers in 16 bytes: kernels read whole ones."""


class Flat:
    """The weights that an optimizer trains, its moments and their average, each in one tensor.

    Parameters and the optimizer's state become views of these, so that whoever knows them sees what
    happens here.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Adam, average: AveragedModel | None
    ) -> None:
        *muons, self._group = optimizer.param_groups
        matrices: list[Tensor] = [p for group in muons for p in group["params"]]
        others: list[Tensor] = self._group["params"]
        self._parameters = matrices + others
        self._matrices = sum(map(_room, matrices))
        self._stacks = []
        for shape, alike in groupby(matrices, as_matrix):
            rooms = [_room(p) for p in alike]
            self._stacks.append(Stack(len(rooms), rooms[0], *shape))
        self._weights = _side_by_side(self._parameters)
        self._means = _moments(optimizer, "exp_avg", self._parameters)
        self._squares = _moments(optimizer, "exp_avg_sq", others)
        states = [optimizer.state[p] for p in others]
        self._steps = torch.stack(
            [torch.as_tensor(s.get("step", 0.0)).to(others[0].device) for s in states]
        )
        for state, step in zip(states, self._steps.unbind(), strict=True):
            state["step"] = step
        self._step = self._steps.max()
        self._averages = None
        if average is not None:
            own: list[Tensor] = list(model.parameters())
            of = dict(zip(own, average.module.parameters(), strict=True))
            self._averages = _side_by_side([of[p] for p in self._parameters])

    def gradients(self) -> Tensor:
        """The parameters' gradients, which become views of it."""
        whole = torch.zeros_like(self._weights)
        known = [
            (p, view, p.grad)
            for p, view in zip(self._parameters, _views(whole, self._parameters), strict=True)
            if p.grad is not None
        ]
        torch._foreach_copy_([view for _, view, _ in known], [grad for _, _, grad in known])
        for p, view, _ in known:
            p.grad = view
        return whole

    @torch.no_grad()
    def step(self, gradients: Tensor, scale: Tensor, skipped: Tensor) -> None:
        """The optimizer's, by gradients divided by scale; none if it is to be skipped."""
        group, ours = self._group, self._matrices
        if ours:
            muon.step(
                self._weights[:ours], gradients[:ours] / scale, self._means[:ours],
                group["lr"], skipped, self._stacks,
            )  # fmt: skip
        adam(
            [self._weights[ours:]], [gradients[ours:]], [self._means[ours:]], [self._squares],
            [], [self._step],
            fused=True, capturable=True, grad_scale=scale.float(), found_inf=skipped.float(),
            amsgrad=False, maximize=False, weight_decay=0.0,
            beta1=group["betas"][0], beta2=group["betas"][1], lr=group["lr"], eps=group["eps"],
        )  # fmt: skip
        self._steps[:] = self._step

    @torch.no_grad()
    def average(self, kept: Tensor) -> None:
        """Moves the average, if there is one, towards the weights: of the old one so much stays."""
        if self._averages is not None:
            self._averages.lerp_(self._weights, (1 - kept).to(self._weights))


def _moments(optimizer: torch.optim.Adam, name: str, parameters: list[Tensor]) -> Tensor:
    """One of each parameter's, side by side; zeros where there is none yet."""
    moments = [optimizer.state[p].setdefault(name, torch.zeros_like(p)) for p in parameters]
    return _side_by_side(moments)


def _views(whole: Tensor, like: list[Tensor]) -> list[Tensor]:
    """Tensors of the same shapes within one."""
    parts = torch.split(whole, [_room(tensor) for tensor in like])
    return [part[: t.numel()].view(t.shape) for part, t in zip(parts, like, strict=True)]


@torch.no_grad()
def _side_by_side(tensors: list[Tensor]) -> Tensor:
    """One tensor that holds them; they become views of it."""
    whole = tensors[0].new_zeros(sum(map(_room, tensors)))
    for tensor, view in zip(tensors, _views(whole, tensors), strict=True):
        view.copy_(tensor)
        tensor.data = view
    return whole


def _room(tensor: Tensor) -> int:
    return -(-tensor.numel() // ALIGNED) * ALIGNED
