"""Gradients of the kernels for training, by Triton's interpreter."""

import pytest
import torch

pytest.importorskip("triton")
import gradients
import kernels
from macow.ops.launch import sum_of_rows
from macow.ops.masked_conv import ORDERS, training

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="test_gpu.py runs them there")


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", kernels.SMALL_SCANS.values(), ids=kernels.SMALL_SCANS)
def test_a_masked_convolution_knows_its_gradients(shape, affine, monkeypatch):
    monkeypatch.setattr(training, "KEPT_UP_TO", 1024 if affine else 0)
    orders = ORDERS if shape[0] < 40 else ("down", "left")  # the interpreter takes 12 s for each
    gradients.assert_earn_their_tolerance(
        [
            gradients.masked_convolution(*shape, order, affine=affine, extras=order != "down")
            for order in orders
        ]
    )


@pytest.mark.parametrize("order", ORDERS)
def test_a_masked_convolution_computes_in_low_precision(order):
    learnt = gradients.masked_convolution(9, 36, (2, 3), (4, 5), order, affine=True, extras=True)
    learnt.assert_close_in(torch.float16)


@pytest.mark.parametrize(
    "step",
    [
        dict(channels=6, transformed=3, hidden=20, size=(4, 5), affine=True),
        dict(channels=9, transformed=4, hidden=40, size=(3, 3), affine=False),
        dict(channels=3, transformed=1, hidden=16, size=(1, 2), affine=True, cond=2),
        dict(channels=20, transformed=10, hidden=70, size=(2, 2), affine=True),
        dict(channels=4, transformed=2, hidden=256, size=(2, 8), affine=True, batch=8),
    ],
    ids=str,
)
def test_a_coupling_knows_its_gradients(step):
    learnt = gradients.coupling(**step)
    gradients.assert_earn_their_tolerance([learnt])
    learnt.assert_close_in(torch.float16)


@pytest.mark.parametrize(("limit", "units_kept"), [(13 * 17 - 1, False), (13 * 17, True)])
def test_the_input_is_kept_and_units_of_small_images(limit, units_kept, monkeypatch):
    monkeypatch.setattr(training, "KEPT_UP_TO", limit)
    learnt = gradients.masked_convolution(
        3, 12, (2, 3), (13, 17), "down", affine=True, extras=False
    )
    leaves = {name: t.float().requires_grad_() for name, t in learnt.leaves.items()}
    kept = []

    def keep(tensor):
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        learnt.by_kernels(torch.float16)(leaves)
    pixels = 3 * 13 * 17  # more than there are weights in a matrix
    units = [(pixels, 12)] if units_kept else []
    assert [t.shape for t in kept if t.numel() >= pixels] == [leaves["x"].shape, *units]


@pytest.mark.parametrize("which", [0, 1])
def test_either_result_may_be_all_that_is_used(which):
    shape = (3, 9, (2, 3), (3, 4), "up")
    convolution = gradients.masked_convolution(*shape, affine=True, extras=False)
    step = gradients.coupling(6, 3, 16, (3, 4), affine=True)
    for learnt in (convolution, step):
        found = []
        for run in (learnt.specified, learnt.by_kernels(torch.float32)):
            leaves = {name: t.float().requires_grad_() for name, t in learnt.leaves.items()}
            run(leaves)[which].square().sum().backward()
            found.append({name: leaf.grad for name, leaf in leaves.items()})
        for name, grad in found[0].items():
            expected = torch.zeros_like(found[1][name]) if grad is None else grad
            torch.testing.assert_close(found[1][name], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("rows", [1, 128, 300])
def test_rows_are_summed(rows):
    parts = torch.randn(rows, 21, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(sum_of_rows(parts[:, :19]), parts[:, :19].sum(dim=0))


def test_sums_are_shared_by_few_programs_and_by_many(monkeypatch):
    for programs in (1, 2, 100):
        monkeypatch.setattr(training, "PROGRAMS", programs)
        gradients.assert_earn_their_tolerance(
            [
                gradients.masked_convolution(5, 20, (2, 3), (9, 8), order, affine=True, extras=True)
                for order in ("left", "up")
            ]
        )
