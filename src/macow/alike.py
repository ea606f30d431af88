"""Small layers of one size, taken together: what is done to each of them is one launch for all."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import nn

from macow.bijections.actnorm import ActNorm, NormRow
from macow.bijections.base import Chain
from macow.bijections.conv1x1 import Conv1x1, Mix, log_abs_dets
from macow.ops.aside import apart


class Alike:
    """The ActNorms of a flow, and its 1x1 convolutions that follow one."""

    def __init__(self, flow: nn.Module) -> None:
        self._followed = {
            norm: after
            for chain in flow.modules()
            if isinstance(chain, Chain)
            for norm, after in pairwise(chain.flat())
            if isinstance(norm, ActNorm) and isinstance(after, Conv1x1)
        }
        alike: dict[tuple[int, bool], list[ActNorm]] = defaultdict(list)
        for part in flow.modules():
            if isinstance(part, ActNorm):
                alike[len(part.shift), part in self._followed].append(part)
        self._groups = list(alike.values())

    @contextmanager
    def together(self) -> Iterator[None]:
        """Within it the layers, used once, have what was `made` of their parameters."""
        try:
            for norms in self._groups:
                self._make(norms)
            yield
        finally:
            for norms in self._groups:
                for norm in norms:
                    norm.made = None
            for mix in self._followed.values():
                mix.made = None

    def _make(self, norms: list[ActNorm]) -> None:
        log_scales = torch.stack([norm.log_scale for norm in norms])
        shifts = torch.stack([norm.shift for norm in norms])
        for norm, log_scale, shift in zip(norms, apart(log_scales), apart(shifts), strict=True):
            norm.made = NormRow(log_scale, shift, log_scales)
        mixes = [self._followed[norm] for norm in norms if norm in self._followed]
        if mixes:
            weights = torch.stack([mix.weight for mix in mixes])
            joined = (weights * log_scales.exp()[:, None, :])[:, :, :, None, None]
            biases = (weights @ shifts[:, :, None]).squeeze(2)
            log_dets = log_abs_dets(mixes, weights)
            for mix, weight, bias in zip(mixes, apart(joined), apart(biases), strict=True):
                mix.made = Mix(weight, bias, log_dets)
