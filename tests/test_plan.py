"""A plan computes what its flow does, and so do its gradients."""

import pytest
import torch
from torch import Tensor

from cases import CASES
from macow import plan
from macow.bijections import ActNorm, Chain, Conv1x1
from macow.bijections.multiscale import Factor, Squeezed
from macow.config import FlowConfig, ModelConfig, VariationalConfig
from macow.nets.precision import set_network_precision
from macow.ops import aside
from macow.plan import Plans
from macow.volume import Determinants
from models import images, stirred, tiny_model


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_its_flow(name, measured):
    case = CASES[name]
    flow, (x, cond) = case.bijection(), case.inputs()
    x = x.clone().requires_grad_()
    if measured:
        Determinants(flow).take()
    leaves = [x, *(p for p in flow.parameters() if p.requires_grad)]
    results = []
    for forward in (flow, plan.plan(flow)):
        y, log_det = forward(x, cond)
        slopes = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
        loss = (y * slopes).sum() + log_det.cos().sum()
        grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        results.append([y, log_det, *grads])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


def test_a_plan_counts_every_log_det_once():
    """Some mixes follow a norm, one does not; those of one size stand on two levels."""
    inner = Chain(norm=ActNorm(4), mix=Conv1x1(4))
    flow = Chain(
        norm=ActNorm(4),
        mix=Conv1x1(4),
        again=Conv1x1(4),
        rest=Squeezed(Factor(ActNorm(16), 4, inner)),
    ).double()
    x = torch.randn(2, 4, 4, 4, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, dtype=torch.double)
    for found, expected in zip(plan.plan(flow)(x), flow(x), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


def test_a_part_may_stand_in_several_places(monkeypatch):
    mix, norm = Conv1x1(4), ActNorm(4)
    flow = Chain(norm=norm, mix=mix, more=ActNorm(4), again=mix, norm_again=norm)
    x = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    gradients, late = [], Late()
    for forward in (flow, plan.plan(flow)):
        y, log_det = forward(x)
        flow.zero_grad()
        (y.square().sum() + log_det.sum()).backward()
        gradients.append([p.grad.clone() for p in flow.parameters()])
        monkeypatch.setattr(aside, "_side", lambda: late)
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected)


def test_plans_with_kernels_give_the_loss_and_its_gradients(monkeypatch):
    pytest.importorskip("triton")
    flow = FlowConfig(steps=((1,), (1,)), hidden=(6, 8), units=1)
    noise = VariationalConfig(flow, cond_channels=2)
    model = stirred(ModelConfig(flow, size=(4, 4), n_bits=8, variational=noise).build())
    batch = images(2, model)
    eps = model.draw_noise(batch, torch.Generator().manual_seed(0))

    def learnt(low=None):
        model.zero_grad()
        if low is None:
            loss = model(batch, eps=eps).mean()
        else:
            with Plans(model).in_use(low):
                loss = model(batch, eps=eps).mean()
        loss.backward()
        return loss.item(), {name: p.grad.clone() for name, p in model.named_parameters()}

    def assert_close(found, tolerance):
        assert found[0] == pytest.approx(expected[0], rel=tolerance)
        for name, grad in found[1].items():
            error = (grad - expected[1][name]).norm()
            assert error <= tolerance * (expected[1][name].norm() + 1e-3), name

    expected = learnt()
    assert_close(learnt(torch.float32), 1e-5)
    monkeypatch.setattr(plan, "kernels_train", lambda x: True)  # Triton's interpreter runs them
    assert_close(learnt(torch.float32), 1e-5)
    coupled = []
    exactly = plan.glow.couple_exactly
    monkeypatch.setattr(
        plan.glow, "couple_exactly", lambda *a, **k: coupled.append(a) or exactly(*a, **k)
    )
    with torch.no_grad(), Plans(model).in_use(torch.float32):  # by kernels that know no gradients
        assert model(batch, eps=eps).mean().item() == pytest.approx(expected[0], rel=1e-5)
    assert coupled
    set_network_precision(model, torch.float16)  # with bfloat16 the interpreter's products are off
    assert_close(learnt(torch.float16), 1e-2)


class Late:
    """A side whose results are there when it is joined, and not a moment earlier."""

    def __init__(self):
        self.pending = []

    def start(self, run, read):
        found = run()
        flat = (
            [found] if isinstance(found, Tensor) else [t for part in found for t in _tensors(part)]
        )
        self.pending += [(tensor, tensor.clone()) for tensor in flat]
        for tensor in flat:
            tensor.fill_(torch.nan)
        return found

    def join(self):
        for tensor, value in self.pending:
            tensor.copy_(value)
        self.pending = []


def _tensors(part):
    return [part] if isinstance(part, Tensor) else [t for t in part if t is not None]


def test_gradients_put_aside_are_waited_for(monkeypatch):
    """Of layers that are used once, and of a dequantizer's, which every draw of noise uses."""
    pytest.importorskip("triton")
    flow = FlowConfig(steps=((1,), (1,)), hidden=(6, 6), units=1)
    noise = VariationalConfig(flow, cond_channels=2)
    glow = FlowConfig(steps=((1,), (1,)), hidden=(6, 6), kind="glow")
    model = stirred(ModelConfig(glow, size=(2, 2), n_bits=8, variational=noise).build())
    batch = images(1, model)
    eps = torch.stack([model.draw_noise(batch) for _ in range(2)])

    def gradients():
        model.zero_grad()
        with Plans(model).in_use(torch.float32):
            model(batch, eps=eps[0], more_eps=eps[1:]).mean().backward()
        aside.join()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    expected, late = gradients(), Late()
    monkeypatch.setattr(plan, "kernels_train", lambda x: True)  # Triton's interpreter runs them
    monkeypatch.setattr(aside, "_side", lambda: late)
    for grad, value in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(grad, value, atol=1e-4, rtol=1e-4)
    assert late.pending == []


def test_plans_leave_no_trace():
    model = tiny_model()
    batch = images(2, model)
    eps = model.draw_noise(batch)
    before = model(batch, eps=eps)
    with Plans(model).in_use(torch.float32):
        model(batch, eps=eps)
    assert "forward" not in vars(model.flow)
    assert torch.equal(model(batch, eps=eps), before)
