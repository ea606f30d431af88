"""Invertible maps, one per file, all by the contract of `Bijection`."""

from macow.bijections.actnorm import ActNorm
from macow.bijections.base import Bijection, Chain
from macow.bijections.conv1x1 import Conv1x1
from macow.bijections.coupling import CheckerboardCoupling, Coupling
from macow.bijections.emerging import AutoregressiveConv, Permutation, emerging_conv
from macow.bijections.given import Given
from macow.bijections.maf import MaskedAutoregressive
from macow.bijections.masked_conv import MaskedConv
from macow.bijections.multiscale import Block, Factor, MultiScale, Squeezed, squeeze, unsqueeze

__all__ = [
    "ActNorm",
    "AutoregressiveConv",
    "Bijection",
    "Block",
    "Chain",
    "CheckerboardCoupling",
    "Conv1x1",
    "Coupling",
    "Factor",
    "Given",
    "MaskedAutoregressive",
    "MaskedConv",
    "MultiScale",
    "Permutation",
    "Squeezed",
    "emerging_conv",
    "squeeze",
    "unsqueeze",
]
