"""One dict of cases that every law runs on: a new bijection is one new line."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from macow.bijections import (
    ActNorm,
    AutoregressiveConv,
    Bijection,
    Chain,
    CheckerboardCoupling,
    Conv1x1,
    Coupling,
    Factor,
    MaskedAutoregressive,
    MaskedConv,
    Permutation,
    Squeezed,
    emerging_conv,
)
from macow.bijections.steps import (
    StepSpec,
    emerging_step,
    glow_step,
    macow_step,
    macow_unit,
    maf_step,
    realnvp_step,
)
from macow.config import FlowConfig
from macow.initialize import initializing
from macow.nets.conv_net import ConvNet
from macow.ops.masked_conv import ORDERS

C, H, W = 4, 4, 6


@dataclass(frozen=True)
class Case:
    build: Callable[[], Bijection]
    shape: tuple[int, int, int] = (C, H, W)
    cond_channels: int = 0
    flat_cond: bool = False

    def bijection(self) -> Bijection:
        """In float64, initialised on noise, then moved: no transform is trivial, none is wild."""
        torch.manual_seed(1)
        bijection = self.build().double()
        with torch.no_grad():
            for name, parameter in bijection.named_parameters():
                if name.endswith("gain"):
                    parameter.copy_(0.1 * torch.rand_like(parameter) + 0.1)
            with initializing(bijection):
                bijection(*self.inputs(batch=16))
            for parameter in bijection.parameters():
                parameter.add_(0.02 * torch.randn_like(parameter))
        return bijection

    def inputs(self, batch: int = 3) -> tuple[Tensor, Tensor | None]:
        generator = torch.Generator().manual_seed(2)
        x = torch.randn(batch, *self.shape, dtype=torch.double, generator=generator)
        if not self.cond_channels:
            return x, None
        size = (batch, self.cond_channels, *self.shape[1:])
        cond = torch.randn(size, dtype=torch.double, generator=generator)
        return x, cond[:, :, :1, :1].expand(size) if self.flat_cond else cond


SPEC = StepSpec(channels=C, hidden=8)
TINY = FlowConfig(steps=((1,), (1, 1), (1,)), factors=(4,), hidden=(6, 8, 8))


def coupling(out: int, *, affine: bool = True, cond: int = 0) -> Coupling:
    net = ConvNet(C - out + cond, 8, 2 * out if affine else out)
    return Coupling(net, out, affine=affine)


def flow(cond_channels: int = 0, channels: int = 3, **changes: object) -> Callable[[], Bijection]:
    return lambda: replace(TINY, **changes).build(channels, cond_channels)


def shared_part(part: Bijection) -> Chain:
    return Chain(first=part, between=Conv1x1(C), again=part)


IMAGE = (3, 8, 4)
CASES: dict[str, Case] = {
    "actnorm": Case(lambda: ActNorm(C)),
    "conv1x1": Case(lambda: Conv1x1(C)),
    "permutation": Case(lambda: Permutation(torch.tensor([2, 0, 3, 1]))),
    "coupling": Case(lambda: coupling(2)),
    "coupling-uneven": Case(lambda: coupling(1)),
    "coupling-additive": Case(lambda: coupling(2, affine=False)),
    "coupling-conditional": Case(lambda: coupling(2, cond=2), cond_channels=2),
    "checkerboard-even": Case(lambda: CheckerboardCoupling(ConvNet(C, 8, 2 * C), 0)),
    "checkerboard-odd": Case(lambda: CheckerboardCoupling(ConvNet(C, 8, 2 * C), 1)),
    "checkerboard-conditional": Case(
        lambda: CheckerboardCoupling(ConvNet(C + 2, 8, 2 * C), 1), cond_channels=2
    ),
    **{f"masked-{o}": Case(lambda o=o: MaskedConv(C, (2, 3), o)) for o in ORDERS},
    **{f"masked-2x5-{o}": Case(lambda o=o: MaskedConv(C, (2, 5), o)) for o in ORDERS},
    **{
        f"masked-additive-{o}": Case(lambda o=o: MaskedConv(C, (2, 3), o, affine=False))
        for o in ORDERS
    },
    **{
        f"masked-conditional-{o}": Case(
            lambda o=o: MaskedConv(C, (2, 3), o, cond_channels=2), cond_channels=2
        )
        for o in ORDERS
    },
    **{
        f"masked-conditional-additive-2x5-{o}": Case(
            lambda o=o: MaskedConv(C, (2, 5), o, affine=False, cond_channels=2), cond_channels=2
        )
        for o in ORDERS
    },
    "masked-1x1": Case(lambda: MaskedConv(C, (1, 1), "down")),
    "masked-3x7": Case(lambda: MaskedConv(C, (3, 7), "left")),
    "masked-taller-than-image": Case(lambda: MaskedConv(C, (5, 3), "up")),
    "masked-one-row": Case(lambda: MaskedConv(C, (2, 3), "down"), shape=(C, 1, W)),
    "autoregressive-conv": Case(lambda: AutoregressiveConv(torch.eye(C), (2, 3))),
    "autoregressive-conv-reverse": Case(
        lambda: AutoregressiveConv(torch.eye(C), (2, 3), reverse=True)
    ),
    "emerging": Case(lambda: emerging_conv(C)),
    "maf": Case(lambda: MaskedAutoregressive(C, 12)),
    "maf-reverse": Case(lambda: MaskedAutoregressive(C, 12, reverse=True)),
    "squeezed": Case(lambda: Squeezed(glow_step(StepSpec(4 * 2, 8))), shape=(2, H, W)),
    "factor": Case(lambda: Factor(glow_step(SPEC), 3, ActNorm(3))),
    "chain": Case(lambda: Chain(a=ActNorm(C), b=Conv1x1(C))),
    "chain-shared-part": Case(lambda: shared_part(ActNorm(C))),
    "macow-unit": Case(lambda: macow_unit(SPEC)),
    "macow-step": Case(lambda: macow_step(SPEC)),
    "macow-step-3-units": Case(lambda: macow_step(replace(SPEC, units=3))),
    "glow-step": Case(lambda: glow_step(SPEC)),
    "glow-step-conditional": Case(
        lambda: glow_step(replace(SPEC, cond_channels=2)), cond_channels=2
    ),
    "emerging-step-conditional": Case(
        lambda: emerging_step(replace(SPEC, cond_channels=2)), cond_channels=2
    ),
    "emerging-step": Case(lambda: emerging_step(SPEC)),
    "maf-step": Case(lambda: maf_step(SPEC)),
    "realnvp-channel-step": Case(lambda: realnvp_step(SPEC, 1)),
    "realnvp-checkerboard-step": Case(lambda: realnvp_step(replace(SPEC, after_squeeze=False), 1)),
    "flow-fine-grained": Case(flow(), IMAGE),
    "flow-original": Case(flow(steps=((1,), (1,), (1,)), factors=(2,)), IMAGE),
    "flow-M6": Case(flow(steps=((1,), (1, 1, 1), (1,)), factors=(6,)), IMAGE),
    "flow-no-bottom": Case(flow(steps=((1, 1), (1,)), hidden=(8, 8), bottom=False), IMAGE),
    "flow-grey": Case(
        flow(channels=1, steps=((1, 1), (1,)), hidden=(8, 8), bottom=False), (1, 8, 4)
    ),
    "flow-additive": Case(flow(affine=False), IMAGE),
    "flow-additive-priors": Case(flow(affine=False, affine_prior=False), IMAGE),
    "flow-2x5": Case(flow(kernel=(2, 5)), IMAGE),
    "flow-one-unit": Case(flow(units=1), IMAGE),
    "flow-conditional": Case(flow(cond_channels=2), IMAGE, cond_channels=2),
    "flow-labelled": Case(
        lambda: TINY.build(3, 2, flat_cond=True), IMAGE, cond_channels=2, flat_cond=True
    ),
    "flow-glow": Case(
        flow(kind="glow", steps=((1,), (1,)), factors=(2,), hidden=(8, 8), bottom=False), IMAGE
    ),
    "flow-emerging": Case(
        flow(kind="emerging", steps=((1,), (1,)), factors=(2,), hidden=(8, 8), bottom=False),
        (3, 4, 4),
    ),
    "flow-maf": Case(
        flow(kind="maf", steps=((2,), (1,)), factors=(2,), hidden=(24, 24), bottom=False),
        (3, 4, 4),
    ),
    "flow-realnvp": Case(
        flow(kind="realnvp", steps=((1,), (1, 2)), factors=(2,), hidden=(4, 4)), (3, 4, 4)
    ),
}


class NormalQuantile(Bijection):
    """`z = Phi^-1((x + 1) / 2)`: under a normal prior, x is uniform on [-1, 1)."""

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        z = 2**0.5 * torch.erfinv(x)
        slope = -torch.distributions.Normal(0.0, 1.0).log_prob(z) - torch.log(torch.tensor(2.0))
        return z, slope.flatten(1).sum(dim=1)

    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        return torch.erf(y / 2**0.5)


class Diagonal(Bijection):
    """`z = (x - mean) / std`: under a normal prior, x is `N(mean, std^2)`, value by value."""

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.mean, self.std = nn.Parameter(mean), nn.Parameter(std)

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return (x - self.mean) / self.std, -self.std.log().sum().expand(len(x))

    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        return y * self.std + self.mean
