"""A flow's layers written plainly in eager torch, with its stock parts: benchmarks' yardstick."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from macow.bijections.actnorm import ActNorm
from macow.bijections.base import Chain
from macow.bijections.conv1x1 import Conv1x1
from macow.bijections.coupling import Coupling
from macow.bijections.masked_conv import MaskedConv
from macow.bijections.multiscale import Factor, MultiScale, Registered, Squeezed
from macow.nets.conv_net import ConvNet
from macow.nets.weight_norm import WeightNormConv2d
from macow.ops.masked_conv import Order, turn_back


class PlainSequence(nn.Module):
    """Layers in a row."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Sums the log-dets."""
        total = x.new_zeros(x.size(0))
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        return x, total


class PlainActNorm(nn.Module):
    """Scale and bias by channel."""

    def __init__(self, layer: ActNorm) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(layer.log_scale.detach().view(-1, 1, 1))
        self.bias = nn.Parameter(layer.shift.detach().view(-1, 1, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """A constant log-det."""
        log_det = self.log_scale.sum() * x.size(2) * x.size(3)
        return x * self.log_scale.exp() + self.bias, log_det


class PlainConv1x1(nn.Module):
    """A 1x1 convolution."""

    def __init__(self, layer: Conv1x1) -> None:
        super().__init__()
        self.weight = nn.Parameter(layer.weight.detach())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """A constant log-det."""
        y = F.conv2d(x, self.weight.view(*self.weight.shape, 1, 1))
        return y, torch.slogdet(self.weight)[1] * x.size(2) * x.size(3)


class PlainCoupling(nn.Module):
    """Affine or additive coupling."""

    def __init__(self, layer: Coupling) -> None:
        super().__init__()
        self.affine, self.out = layer.affine, layer.num_transformed
        assert isinstance(layer.net, ConvNet)
        convs = (layer.net.first, layer.net.middle, layer.net.last)
        first, middle, last = (_conv(conv, padding="same") for conv in convs)
        self.net = nn.Sequential(first, nn.ELU(), middle, nn.ELU(), last)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Splits, transforms, joins."""
        z1, z2 = x[:, : -self.out], x[:, -self.out :]
        z2, log_det = _transform(z2, self.net(z1), affine=self.affine)
        return torch.cat([z1, z2], dim=1), log_det


class PlainMaskedConv(nn.Module):
    """A masked convolution in image orientation: pad on the side it reads, crop on the other."""

    def __init__(self, layer: MaskedConv) -> None:
        super().__init__()
        order = layer.order
        self.affine = layer.weights().affine
        self.conv = _conv(layer.read, padding="valid", order=order)
        self.mix = _conv(layer.mix, padding="valid")
        kh, kw = layer.read.direction.shape[2:]
        half = kw // 2
        self.pad = {
            "down": (half, half, kh, 0),
            "up": (half, half, 0, kh),
            "right": (kh, 0, half, half),
            "left": (0, kh, half, half),
        }[order]
        everything, but_first, but_last = slice(None), slice(1, None), slice(None, -1)
        self.crop = {
            "down": (but_last, everything),
            "up": (but_first, everything),
            "right": (everything, but_last),
            "left": (everything, but_first),
        }[order]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """All pixels at once."""
        rows, columns = self.crop
        h = self.conv(F.pad(x, self.pad))[:, :, rows, columns]
        return _transform(x, self.mix(F.elu(h)), affine=self.affine)


class PlainSqueezed(nn.Module):
    """Squeeze, inner layers, unsqueeze."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """By view and permutation."""
        b, c, h, w = x.shape
        x = x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 3, 5, 1, 2, 4).contiguous()
        x, log_det = self.inner(x.view(b, 4 * c, h // 2, w // 2))
        x = x.view(b, 2, 2, c, h // 2, w // 2).permute(0, 3, 4, 1, 5, 2).contiguous()
        return x.view(b, c, h, w), log_det


class PlainFactor(nn.Module):
    """A block, and what goes on after it."""

    def __init__(self, block: nn.Module, keep: int, rest: nn.Module) -> None:
        super().__init__()
        self.block, self.keep, self.rest = block, keep, rest

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Latents go back behind the rest."""
        x, log_det = self.block(x)
        kept, more = self.rest(x[:, : self.keep].contiguous())
        return torch.cat([kept, x[:, self.keep :]], dim=1), log_det + more


def plainly(layer: nn.Module) -> nn.Module:
    """The same layer, or the same flow of MaCow's and Glow's layers, with the same weights."""
    match layer:
        case MultiScale():
            return plainly(layer.tower)
        case Registered():
            return plainly(layer.block)
        case Squeezed():
            return PlainSqueezed(plainly(layer.inner))
        case Factor():
            return PlainFactor(plainly(layer.block), layer.keep, plainly(layer.rest))
        case Chain():
            return PlainSequence(*map(plainly, layer.parts))
        case ActNorm():
            return PlainActNorm(layer)
        case Conv1x1():
            return PlainConv1x1(layer)
        case Coupling():
            return PlainCoupling(layer)
        case MaskedConv():
            return PlainMaskedConv(layer)
    raise ValueError(f"no plain form of {type(layer).__name__}")


def _transform(x: Tensor, raw: Tensor, *, affine: bool) -> tuple[Tensor, Tensor]:
    if not affine:
        return x + raw, x.new_zeros(x.size(0))
    shift, log_scale = raw.chunk(2, dim=1)
    scale = torch.sigmoid(log_scale + 2.0)
    return x * scale + shift, scale.log().flatten(1).sum(dim=1)


def _conv(layer: WeightNormConv2d, *, padding: str, order: Order = "down") -> Any:
    direction = turn_back(layer.direction.detach(), order).contiguous()
    out_channels, in_channels, kh, kw = direction.shape
    conv: Any = weight_norm(nn.Conv2d(in_channels, out_channels, (kh, kw), padding=padding))
    conv.to(direction.dtype)
    gain = layer.gain.detach().view(-1, 1, 1, 1)
    state = {"original0": gain, "original1": direction}
    conv.parametrizations.weight.load_state_dict(state)
    conv.bias = nn.Parameter(layer.bias.detach())
    return conv
