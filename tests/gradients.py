"""Operations that know their gradients, beside what autograd makes of their specification."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

import kernels
from macow.ops import glow, masked_conv
from macow.ops.affine import affine_forward, affine_parameters
from macow.ops.masked_conv import MaskedConvLayer, MaskedConvMatrices, MaskedConvWeights, reference

Run = Callable[[dict[str, Tensor]], tuple[Tensor, Tensor | None]]


@dataclass(frozen=True)
class Learnt:
    """An operation `leaves -> (y, log_det_map)`, in float64, and kernels for it."""

    leaves: dict[str, Tensor]
    specified: Run
    by_kernels: Callable[[torch.dtype], Run]

    def outcome(self, run: Run, dtype: torch.dtype, device: str = "cpu") -> dict[str, Tensor]:
        """What it gives, and the gradients of a random sum of that."""
        leaves = {
            name: leaf.to(device, dtype).detach().requires_grad_()
            for name, leaf in self.leaves.items()
        }
        y, log_det = run(leaves)
        g = torch.Generator().manual_seed(7)
        loss = (y * torch.randn(y.shape, generator=g, dtype=torch.double).to(y)).sum()
        found = {"y": y}
        if log_det is not None:
            slopes = torch.randn(log_det.shape, generator=g, dtype=torch.double)
            loss = loss + (log_det * slopes.to(log_det)).sum()
            found["log_det"] = log_det
        loss.backward()
        return {name: t.detach() for name, t in found.items()} | {
            f"d_{name}": leaf.grad for name, leaf in leaves.items()
        }

    def in_float32(self, device: str = "cpu") -> dict[str, tuple[Tensor, Tensor, Tensor]]:
        """What kernels find, what plain torch does, and what is exact."""
        exact = self.outcome(self.specified, torch.double, device)
        plain = self.outcome(self.specified, torch.float32, device)
        found = self.outcome(self.by_kernels(torch.float32), torch.float32, device)
        return {name: (found[name], plain[name], value) for name, value in exact.items()}

    def assert_close_in(self, low: torch.dtype, device: str = "cpu") -> None:
        """With networks in low precision: off by a few of its roundings."""
        exact = self.outcome(self.specified, torch.double, device)
        found = self.outcome(self.by_kernels(low), torch.float32, device)
        for name, value in found.items():
            error = (value.double() - exact[name]).norm() / exact[name].norm()
            assert error < 3 * torch.finfo(low).eps, name


def assert_earn_their_tolerance(cases: list[Learnt], device: str = "cpu") -> None:
    """Together: what is lost in a sum of a few numbers is a matter of luck."""
    outcomes = [case.in_float32(device) for case in cases]
    for name in outcomes[-1]:
        of_all = zip(*(outcome[name] for outcome in outcomes if name in outcome), strict=True)
        kernels.assert_earns_its_tolerance(
            *(torch.cat([value.flatten() for value in values]) for values in of_all)
        )


def masked_convolution(channels, hidden, kernel, size, order, *, affine, extras, batch=3) -> Learnt:
    """With extras, an ActNorm before it and a condition."""
    scan = kernels.Scan.of(
        channels, hidden, kernel, size, affine=affine, extras=extras, batch=batch
    )
    leaves = {"x": scan.y, **scan.weights._asdict()}
    if extras:
        g = torch.Generator().manual_seed(3)
        norm = torch.randn(2, channels, generator=g, dtype=torch.double)
        norm[0] *= 0.3
        leaves |= {"norm": norm, "context": scan.context}

    def specified(given):
        x = given["x"]
        if extras:
            log_scale, shift = given["norm"][..., None, None]
            x = x * log_scale.exp() + shift
        weights = MaskedConvWeights(*(given[name] for name in MaskedConvWeights._fields))
        y, log_scale = reference.forward(x, weights, order, given.get("context"))
        return y, None if log_scale is None else log_scale.sum(dim=1)

    def by_kernels(low):
        def run(given):
            matrix = given["kernel"].permute(2, 3, 1, 0).reshape(-1, hidden).contiguous()
            mix = given["mix"].t().contiguous()
            lower = [m.detach().to(low) for m in (matrix, mix)]
            matrices = MaskedConvMatrices(matrix, given["bias"], mix, given["mix_bias"], *lower)
            log_scale, shift = given["norm"] if extras else (None, None)
            layer = MaskedConvLayer(
                matrices, kernel, order, given.get("context"), (log_scale, shift)
            )
            y, (log_det,) = masked_conv.convolve(given["x"], [layer])
            return y, log_det

        return run

    return Learnt(leaves, specified, by_kernels)


def coupling_matrices(given):
    """Its network's weights as products take them."""
    first, middle = (given[name].permute(2, 3, 1, 0).flatten(0, 2) for name in ("first", "middle"))
    return first.contiguous(), middle.contiguous(), given["last"].permute(1, 2, 3, 0).flatten(1)


def couple_exactly(given, *, affine):
    """By kernels without gradients, in float32; the last matrix ends in zeros, as plans give it."""
    biases = tuple(given[f"{name}_bias"] for name in ("first", "middle", "last"))
    first, middle, last = coupling_matrices(given)
    matrices = first, middle, F.pad(last, (0, -last.shape[1] % 64))
    return glow.couple_exactly(given["x"], given.get("cond"), matrices, biases, affine=affine)


def assert_couples_exactly(case: Learnt, device: str = "cpu") -> None:
    """A coupling's y and log-dets, without gradients."""
    exact = case.specified({name: leaf.to(device) for name, leaf in case.leaves.items()})
    given = {name: leaf.to(device, torch.float32) for name, leaf in case.leaves.items()}
    found = couple_exactly(given, affine=exact[1] is not None)
    for outcome in zip(found, case.specified(given), exact, strict=True):
        if outcome != (None, None, None):
            kernels.assert_earns_its_tolerance(*outcome)


def coupling(channels, transformed, hidden, size, *, affine, cond=0, batch=3) -> Learnt:
    step = kernels.Glow.of(
        channels, transformed, hidden, size, affine=affine, cond=cond, mixed=False, batch=batch
    )
    *weights, _, _ = step.weights
    names = ["first", "first_bias", "middle", "middle_bias", "last", "last_bias"]
    leaves = {"x": step.y, **dict(zip(names, weights, strict=True))}
    if cond:
        leaves["cond"] = step.cond

    def specified(given):
        x = given["x"]
        kept, changed = x[:, :-transformed], x[:, -transformed:]
        h = torch.cat([kept, given["cond"]], dim=1) if cond else kept
        h = F.elu(F.conv2d(h, given["first"], given["first_bias"], padding=1))
        h = F.elu(F.conv2d(h, given["middle"], given["middle_bias"]))
        said = F.conv2d(h, given["last"], given["last_bias"], padding=1)
        shift, log_scale = affine_parameters(said, affine=affine)
        y = torch.cat([kept, affine_forward(changed, shift, log_scale)], dim=1)
        return y, None if log_scale is None else log_scale.sum(dim=1)

    def by_kernels(low):
        def run(given):
            first, middle, last = coupling_matrices(given)
            reading, mixing, writing = (m.detach().to(low) for m in (first, middle, last))
            return glow.couple(
                given["x"], given.get("cond"),
                first, given["first_bias"], middle, given["middle_bias"], last, given["last_bias"],
                F.pad(reading, (0, 0, 0, -len(reading) % 16)).contiguous(),
                mixing.contiguous(),
                F.pad(writing, (0, -writing.shape[1] % 16)).contiguous(),
                transformed,
            )  # fmt: skip

        return run

    return Learnt(leaves, specified, by_kernels)
