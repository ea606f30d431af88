"""What the authors' checkpoints mean, spelt out by their own names: an independent second reading.

One interpreter walks a configuration in their naming and computes forward in image orientation.
With a `Recorder` it also invents the weights it asks for, so that any configuration can be tested.
"""

import math

import torch
import torch.nn.functional as F


class Recorder(dict):
    """A state dict that invents what is missing."""

    def __call__(self, name, shape):
        if name not in self:
            scale = 0.3 if name.endswith("weight_v") else 0.1
            self[name] = scale * torch.randn(shape)
            if name.endswith(("weight_g",)):
                self[name] = 0.1 + 0.2 * torch.rand(shape)
            if name.endswith("conv1x1.weight"):
                self[name] = torch.linalg.qr(torch.randn(shape))[0]
                self[f"{name}_inv"] = torch.linalg.inv(self[name])
        assert tuple(self[name].shape) == tuple(shape), name
        return self[name].double()


def conv(state, name, x, out, kernel, **options):
    shape = (out, x.shape[1], *kernel)
    v, g = state(f"{name}.weight_v", shape), state(f"{name}.weight_g", (out, 1, 1, 1))
    weight = v * g / v.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    return F.conv2d(x, weight, state(f"{name}.bias", (out,)), **options)


def deconv(state, name, x, out):
    v = state(f"{name}.weight_v", (x.shape[1], out, 3, 3))
    g = state(f"{name}.weight_g", (1, out, 1, 1))
    weight = v * g / v.transpose(0, 1).flatten(1).norm(dim=1).view(1, -1, 1, 1)
    bias = state(f"{name}.bias", (out,))
    return F.conv_transpose2d(x, weight, bias, stride=2, padding=1, output_padding=1)


def transform(x, raw, affine):
    if not affine:
        return x + raw, x.new_zeros(len(x))
    mu, log_scale = raw.chunk(2, dim=1)
    scale = torch.sigmoid(log_scale + 2)
    return x * scale + mu, scale.log().flatten(1).sum(dim=1)


def actnorm(state, name, x):
    log_scale = state(f"{name}.log_scale", (x.shape[1], 1, 1))
    y = x * log_scale.exp() + state(f"{name}.bias", (x.shape[1], 1, 1))
    return y, log_scale.sum() * x.shape[2] * x.shape[3]


def conv1x1(state, name, x):
    weight = state(f"{name}.weight", (x.shape[1], x.shape[1]))
    y = torch.einsum("ij,bjhw->bihw", weight, x)
    return y, torch.linalg.slogdet(weight)[1] * x.shape[2] * x.shape[3]


def nice(state, name, x, s, hidden, out, affine):
    z1, z2 = x[:, : x.shape[1] - out], x[:, x.shape[1] - out :]
    h = z1 if s is None else torch.cat([z1, s], dim=1)
    h = F.elu(conv(state, f"{name}.net.conv1.conv", h, hidden, (3, 3), padding=1))
    h = F.elu(conv(state, f"{name}.net.conv2.conv", h, hidden, (1, 1)))
    raw = conv(state, f"{name}.net.conv3.conv", h, out * (1 + affine), (3, 3), padding=1)
    z2, log_det = transform(z2, raw, affine)
    return torch.cat([z1, z2], dim=1), log_det


def masked(state, name, x, s, kernel, order, affine):
    c = x.shape[1]
    hidden = 4 * c if c <= 96 else min(2 * c, 512)
    kh, kw = kernel
    half = kw // 2
    height, width = x.shape[2:]
    size, pad, rows, columns = {
        0: ((kh, kw), (half, half, kh, 0), slice(height), slice(width)),
        1: ((kh, kw), (half, half, 0, kh), slice(1, height + 1), slice(width)),
        2: ((kw, kh), (kh, 0, half, half), slice(height), slice(width)),
        3: ((kw, kh), (0, kh, half, half), slice(height), slice(1, width + 1)),
    }[order]
    h = conv(state, f"{name}.net.masked_conv.conv", F.pad(x, pad), hidden, size)
    h = h[:, :, rows, columns]
    if s is not None:
        h = h + conv(state, f"{name}.s_conv.conv", s, hidden, (3, 3), padding=1)
    return transform(
        x, conv(state, f"{name}.net.conv1x1.conv", F.elu(h), c * (1 + affine), (1, 1)), affine
    )


def chain(x, layers):
    total = x.new_zeros(len(x))
    for layer, *arguments in layers:
        x, log_det = layer(arguments[0], arguments[1], x, *arguments[2:])
        total = total + log_det
    return x, total


def glow_step(state, name, x, s, hidden, affine, coupling="coupling", out=None):
    out = x.shape[1] // 2 if out is None else out
    return chain(x, [
        (actnorm, state, f"{name}.actnorm"),
        (conv1x1, state, f"{name}.conv1x1"),
        (nice, state, f"{name}.{coupling}", s, hidden, out, affine),
    ])  # fmt: skip


def macow_step(state, name, x, s, config, hidden):
    kernel, affine = config["kernel_size"], config.get("scale", True)
    layers = []
    for u in range(2):
        unit = f"{name}.units.{u}"
        for half in range(2):
            layers.append((actnorm, state, f"{unit}.actnorm{half + 1}"))
            for order in (2 * half, 2 * half + 1):
                layers.append((masked, state, f"{unit}.conv{order + 1}", s, kernel, order, affine))
    layers.append((glow_step, state, f"{name}.glow_step", s, hidden, affine))
    return chain(x, layers)


def squeeze(x):
    parts = [x[:, :, a::2, b::2] for a in range(2) for b in range(2)]
    return torch.cat(parts, dim=1)


def unsqueeze(x):
    b, c, h, w = x.shape
    out = x.new_empty(b, c // 4, 2 * h, 2 * w)
    for k in range(4):
        out[:, :, k // 2 :: 2, k % 2 :: 2] = x[:, k * c // 4 : (k + 1) * c // 4]
    return out


def flow(state, name, x, s, config):
    """`x -> (z, log_det)` of a MaCow or a Glow."""
    glow = config.get("type") == "glow"
    bottom = not glow and config.get("bottom", True)
    total = x.new_zeros(len(x))
    factored, channels = [], []
    levels = config["num_steps"]
    for i, num_steps in enumerate(levels):
        block = f"{name}.blocks.{i}"
        if not (i == 0 and bottom):
            x, s = squeeze(x), None if s is None else squeeze(s)
        hidden = 512 if glow else config["hidden_channels"][i]
        step = (
            (lambda n, x, s=s: glow_step(state, n, x, s, 512, config.get("scale", True)))
            if glow
            else (lambda n, x, s=s, hidden=hidden: macow_step(state, n, x, s, config, hidden))
        )
        outer = i == len(levels) - 1 or (i == 0 and bottom)
        groups = [num_steps] if outer or glow else num_steps
        leaving = []
        factor = 2 if glow else (None if outer else config["factors"][i - bottom])
        for b, count in enumerate(groups):
            for k in range(count):
                inner = f"{block}.steps.{k}" if outer or glow else f"{block}.layers.{b}.{k}"
                x, log_det = step(inner, x)
                total = total + log_det
            if outer:
                continue
            out = x.shape[1] // factor
            prior = f"{block}.prior" if glow else f"{block}.priors.{b}"
            affine = config.get("scale", True) if glow else config.get("prior_scale", True)
            width = min(8 * x.shape[1], 512) if glow else hidden
            x, log_det = glow_step(state, prior, x, s, width, affine, "nice", out)
            total = total + log_det
            leaving.insert(0, x[:, x.shape[1] - out :])
            x, factor = x[:, : x.shape[1] - out], factor - 1
        factored.append(leaving)
        channels.append(not (i == 0 and bottom))
    for leaving, squeezed in zip(reversed(factored), reversed(channels), strict=True):
        x = torch.cat([x, *leaving], dim=1)
        x = unsqueeze(x) if squeezed else x
    return x, total


def resnet(state, name, x, width):
    for b in range(2):
        block = f"{name}.main.{b}"
        skip = x
        if x.shape[1] != width:
            skip = conv(state, f"{block}.downsample.conv", x, width, (1, 1))
        h = F.elu(conv(state, f"{block}.conv1.conv", x, width, (3, 3), padding=1))
        x = F.elu(skip + conv(state, f"{block}.conv2.conv", h, width, (3, 3), padding=1))
    return x


def encoder(state, name, x, config):
    bottom, levels = config.get("bottom", True), config["levels"]
    if bottom:
        x, widths = resnet(state, f"{name}.resnet_bottom", x, 32), [32]
    else:
        x, widths = conv(state, f"{name}.nin_bottom.conv", x, 8, (3, 3), padding=1), [8]
    for i in range(levels - 1 if bottom else levels):
        widths.append(min(widths[-1] + 32, 128))
        x = F.elu(conv(state, f"{name}.down{i}.conv", x, widths[-1], (3, 3), stride=2, padding=1))
        x = resnet(state, f"{name}.resnet{i}", x, widths[-1])
    for i, width in enumerate(reversed(widths[:-1])):
        x = F.elu(deconv(state, f"{name}.up{i}.deconv", x, width))
    return conv(state, f"{name}.s_level.conv", x, config["s_channels"], (1, 1))


def dequantize(state, image, eps, n_bits, config):
    """`(u, log_q)` of their variational dequantizer."""
    s = encoder(
        state,
        "dequant_flow.encoder",
        2 * (image // 2 ** (8 - n_bits)).double() / 2**n_bits - 1,
        config,
    )
    h, log_det = flow(state, "dequant_flow.macow", eps, s, config)
    u = torch.sigmoid(h)
    log_det = log_det + (u * (1 - u)).log().flatten(1).sum(dim=1)
    normal = -0.5 * (eps.square() + math.log(2 * math.pi)).flatten(1).sum(dim=1)
    return u, normal - log_det
