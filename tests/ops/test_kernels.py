"""Kernels against the reference, by Triton's interpreter."""

import pytest
import torch

pytest.importorskip("triton")

import gradients
import kernels
from cases import CASES, Case
from macow.ops import glow, masked_conv, serving
from macow.ops.glow import kernel as glow_kernel
from macow.ops.masked_conv import ORDERS
from macow.ops.masked_conv import kernel as scan_kernel
from macow.snapshot import snapshot

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="test_gpu.py runs them there")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", kernels.SMALL_SCANS.values(), ids=kernels.SMALL_SCANS)
def test_scans_are_the_reference(shape, affine, order, monkeypatch):
    for extras in (False, True):
        scan = kernels.Scan.of(*shape, affine=affine, extras=extras)
        exact, single = scan.reference(order), scan.to(torch.float32)
        plain = single.reference(order)
        with monkeypatch.context() as patch:
            kernels.poisoned(patch)
            found = scan_kernel.inverse(
                single.y,
                scan_kernel.pack(single.weights),
                order,
                single.context,
                norm=single.norm,
            )
        kernels.assert_earns_its_tolerance(found, plain, exact)


def test_small_cases_cover_both_kernels():
    for name, (channels, hidden, kernel, size) in kernels.SMALL_SCANS.items():
        blocks = scan_kernel._blocks(max(size), channels, hidden, channels, *kernel, room=220_000)
        assert blocks.resident == (not name.startswith("streamed")), name


def test_every_way_to_cut_a_scan_gives_the_same():
    scan = kernels.Scan.of(6, 20, (2, 3), (4, 5), affine=True, extras=True)
    exact, single = scan.reference("left"), scan.to(torch.float32)
    ways = [
        scan_kernel.Blocks(1, 16, 32, 32, 4, ahead=True),
        scan_kernel.Blocks(2, 8, 64, 32, 4),
        scan_kernel.Blocks(4, 8, 16, 16, 4, resident=False, rest=16),
        scan_kernel.Blocks(1, 64, 64, 32, 4, resident=False),
    ]
    for blocks in ways:
        found = scan_kernel.inverse(
            single.y,
            scan_kernel.pack(single.weights),
            "left",
            single.context,
            norm=single.norm,
            blocks=blocks,
        )
        kernels.assert_earns_its_tolerance(found, single.reference("left"), exact)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy says what overflows
def test_what_float16_cannot_hold_shows():
    scan = kernels.Scan.of(3, 9, (2, 3), (4, 5), affine=False, extras=False, batch=1)
    single = scan.to(torch.float32)
    single.y[0, 0, 1, 2] = 1e5
    plain = single.reference("down")
    found = scan_kernel.inverse(single.y, scan_kernel.pack(single.weights), "down")
    assert found[:, :, 2:].isnan().any()
    reached = found.isnan()
    torch.testing.assert_close(found[~reached], plain[~reached], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    "step",
    [
        dict(channels=5, transformed=2, hidden=20, size=(4, 6), affine=True),
        dict(channels=12, transformed=6, hidden=16, size=(3, 5), affine=False),
        dict(channels=70, transformed=10, hidden=24, size=(2, 2), affine=True),
        dict(channels=6, transformed=3, hidden=80, size=(2, 3), affine=True, cond=2),
        dict(channels=4, transformed=2, hidden=300, size=(1, 2), affine=True),
        dict(channels=40, transformed=9, hidden=20, size=(2, 2), affine=True, mixed=False),
    ],
    ids=str,
)
def test_glow_steps_are_the_reference(step, layout, monkeypatch):
    case = kernels.Glow.of(**step)
    exact, single = case.reference(), case.to(torch.float32)
    plain = single.reference()
    kernels.poisoned(monkeypatch)
    y = single.y.contiguous(memory_format=layout)
    found = glow_kernel.inverse(y, glow_kernel.pack(single.weights), single.cond)
    kernels.assert_earns_its_tolerance(found, plain, exact)


@pytest.mark.parametrize(
    "step",
    [
        dict(channels=5, transformed=2, hidden=20, size=(4, 6), affine=True),
        dict(channels=12, transformed=6, hidden=16, size=(3, 5), affine=False),
        dict(channels=6, transformed=3, hidden=80, size=(2, 3), affine=True, cond=2),
        dict(channels=40, transformed=9, hidden=300, size=(2, 2), affine=True),
    ],
    ids=str,
)
def test_couplings_without_gradients_are_the_reference(step, monkeypatch):
    case = gradients.coupling(**step)
    kernels.poisoned(monkeypatch)
    gradients.assert_couples_exactly(case)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy says what overflows
def test_a_coupling_that_outgrows_float16_shows():
    case = gradients.coupling(channels=4, transformed=2, hidden=16, size=(3, 4), affine=True)
    given = {name: leaf.float() for name, leaf in case.leaves.items()}
    given["first"] = 1e6 * given["first"]
    y, log_det = gradients.couple_exactly(given, affine=True)
    assert y[:, 2:].isnan().all()
    assert log_det.isnan().all()


@pytest.mark.parametrize("name", ["macow-step", "flow-fine-grained", "flow-conditional"])
@torch.no_grad()
def test_a_snapshot_of_kernels_inverts_a_flow(name, monkeypatch):
    case: Case = CASES[name]
    bijection = case.bijection()
    x, cond = case.inputs()
    exact = bijection.inverse(x, cond)
    single = bijection.float()
    x32, cond32 = x.float(), None if cond is None else cond.float()
    plain = single.inverse(x32, cond32)
    for op in (masked_conv, glow):
        monkeypatch.setattr(op, "kernels_serve", lambda *_: True)
    undo = snapshot(single)
    called = []
    for op in (scan_kernel, glow_kernel):
        original = op.inverse
        monkeypatch.setattr(
            op,
            "inverse",
            lambda *a, original=original, **k: called.append(original) or original(*a, **k),
        )
    kernels.assert_earns_its_tolerance(undo(x32, cond32), plain, exact)
    assert len(set(called)) == 2, "both kinds of kernels are at work"


def test_a_cpu_is_served_by_plain_torch():
    assert not serving.kernels_serve(torch.zeros(1))
    assert serving.missing(torch.device("cpu")) == "no GPU"
