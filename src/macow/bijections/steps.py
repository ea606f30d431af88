"""The steps flows are made of. A MaCow and a Glow differ by their step and nothing else."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from macow.bijections.actnorm import ActNorm
from macow.bijections.base import Bijection, Chain
from macow.bijections.conv1x1 import Conv1x1
from macow.bijections.coupling import CheckerboardCoupling, Coupling
from macow.bijections.emerging import Permutation, emerging_conv
from macow.bijections.maf import MaskedAutoregressive
from macow.bijections.masked_conv import MaskedConv
from macow.nets.conv_net import ConvNet
from macow.nets.resnet import ResidualNet


@dataclass(frozen=True)
class StepSpec:
    """Where a step stands and how large it is."""

    channels: int
    hidden: int
    """Hidden channels of its coupling."""
    kernel: tuple[int, int] = (2, 3)
    units: int = 2
    affine: bool = True
    cond_channels: int = 0
    index: int = 0
    """Its place in its block: alternating masks count with it."""
    after_squeeze: bool = True
    """Whether its block opens a squeezed level."""


def glow_step(
    spec: StepSpec,
    mix: Callable[[int], Bijection] = Conv1x1,
    num_transformed: int | None = None,
) -> Chain:
    """ActNorm, invertible 1x1 convolution, coupling (Glow, section 3).

    The coupling transforms half of the channels; a prior, which stands before factoring out, is the
    same step transforming those that leave.
    """
    out = num_transformed or spec.channels // 2
    given = spec.channels - out + spec.cond_channels
    net = ConvNet(given, spec.hidden, 2 * out if spec.affine else out)
    coupling = Coupling(net, out, affine=spec.affine)
    return Chain(norm=ActNorm(spec.channels), mix=mix(spec.channels), coupling=coupling)


def macow_unit(spec: StepSpec) -> Chain:
    """ActNorm and masked convolutions down and up, ActNorm and right and left."""
    down, up, right, left = (
        MaskedConv(
            spec.channels, spec.kernel, order, affine=spec.affine, cond_channels=spec.cond_channels
        )
        for order in ("down", "up", "right", "left")
    )
    norm0, norm1 = ActNorm(spec.channels), ActNorm(spec.channels)
    return Chain(norm0=norm0, down=down, up=up, norm1=norm1, right=right, left=left)


def macow_step(spec: StepSpec) -> Chain:
    """T units and a Glow step (paper, figure 2a)."""
    units: dict[str, Bijection] = {f"unit{i}": macow_unit(spec) for i in range(spec.units)}
    return Chain(**units, glow=glow_step(spec))


def emerging_step(spec: StepSpec) -> Chain:
    """A Glow step whose 1x1 convolution became a 3x3 one."""
    return glow_step(spec, mix=emerging_conv)


def maf_step(spec: StepSpec) -> Chain:
    """A Glow step whose coupling became autoregressive; every other one reads backwards."""
    flow = MaskedAutoregressive(spec.channels, spec.hidden, reverse=spec.index % 2 == 1)
    return Chain(norm=ActNorm(spec.channels), mix=Conv1x1(spec.channels), autoregressive=flow)


def realnvp_step(spec: StepSpec, num_blocks: int = 8) -> Chain:
    """ActNorm (for batch norm) and a coupling by a residual network (RealNVP, section 3.6).

    Channels alternate right after a squeeze, the checkerboard everywhere else.
    """
    c = spec.channels
    if spec.after_squeeze:
        net = ResidualNet(c - c // 2, spec.hidden, 2 * (c // 2), num_blocks)
        swap = Permutation(torch.arange(c).flip(0))
        return Chain(norm=ActNorm(c), swap=swap, coupling=Coupling(net, c // 2))
    net = ResidualNet(c, spec.hidden, 2 * c, num_blocks)
    return Chain(norm=ActNorm(c), coupling=CheckerboardCoupling(net, spec.index % 2))
