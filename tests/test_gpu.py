"""What only a GPU can show: exact float32 there, and the same answers as on the CPU."""

import math
from dataclasses import replace

import pytest
import torch

import gradients
import kernels
import macow
from cases import CASES
from macow import data
from macow.bench.images import natural_images
from macow.bench.inverse import stir
from macow.bench.trainer import trainer
from macow.bijections import Coupling
from macow.evaluate import evaluate
from macow.nets.precision import exact_float32, set_network_precision
from macow.ops import glow, masked_conv
from macow.ops.serving import finite_or_plain, plain_torch
from macow.plan import Plans
from macow.train import fit
from models import images, tiny_model
from small_runs import changed

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_bijections_agree_with_the_cpu(name):
    case = CASES[name]
    bijection = case.bijection()
    x, cond = case.inputs()
    y, log_det = bijection(x, cond)
    there = bijection.cuda()
    x, cond = x.cuda(), None if cond is None else cond.cuda()
    found, found_log_det = there(x, cond)
    torch.testing.assert_close(found.cpu(), y, atol=1e-10, rtol=0)
    torch.testing.assert_close(found_log_det.cpu(), log_det, atol=1e-10, rtol=0)
    torch.testing.assert_close(there.inverse(found, cond), x, atol=1e-10, rtol=0)


def full_size(name, count):
    """A preset's model, initialised on some images, and these."""
    model = macow.preset(name).model.build()
    stir(model, torch.Generator().manual_seed(0))
    model.cuda()
    batch = natural_images(count, model.shape, torch.Generator().manual_seed(0)).cuda()
    with exact_float32(), macow.initializing(model):
        model(batch)
    return model, batch


@pytest.mark.parametrize("name", ["cifar10", "cifar10-variational", "glow-cifar10"])
@torch.no_grad()
def test_full_size_models_invert_in_float32(name):
    model, batch = full_size(name, 32)
    assert torch.equal(model.decode(model.encode(batch)), batch)
    x = model.continuous(batch, 0.5)
    with exact_float32():
        z, log_det = model.flow(x)
    exact_z, exact_log_det = model.double().flow(x.double())
    assert (z - exact_z).abs().max() < 1e-4
    assert (log_det - exact_log_det).abs().max() < 2e-2


def test_digits_score_and_sample_as_on_the_cpu():
    model, test = macow.load("digits"), data.load("digits", "test")
    here = [evaluate(model, test, lean=lean).bits_per_dim for lean in (False, True)]
    samples = model.sample(8, 0.8, torch.Generator().manual_seed(0))
    model.cuda()
    found = [evaluate(model, test, lean=lean).bits_per_dim for lean in (False, True)]
    assert found == pytest.approx(here, abs=1e-5)
    there = model.sample(8, 0.8, torch.Generator().manual_seed(0)).cpu()
    assert (there.int() - samples.int()).abs().max() <= 16  # a level, where rounding differs


@pytest.mark.parametrize("name", ["cifar10", "imagenet64"])
@torch.no_grad()
def test_latents_give_the_images_of_the_cpu(name):
    model, batch = full_size(name, 8)
    z = model.encode(batch[:2])
    there = model.sampler().decode(z).cpu()
    here = model.cpu().decode(z.cpu())
    assert (there.int() - here.int()).abs().max() <= 1


def test_what_outgrows_kernels_is_left_to_plain_torch():
    scan = kernels.Scan.of(3, 12, (2, 3), (8, 8), affine=False, extras=False)
    scan = scan.to("cuda").to(torch.float32)
    undo = masked_conv.inverter(scan.weights, "down")
    far = 1e6 * scan.y
    with plain_torch():
        expected = undo(far, None)
    assert not undo(far, None).isfinite().all()
    assert torch.equal(finite_or_plain(lambda: undo(far, None)), expected)


def test_an_evaluation_that_outgrows_kernels_is_left_to_plain_torch():
    model, test = macow.load("digits"), data.load("digits", "test")
    coupling = next(m for m in model.flow.modules() if isinstance(m, Coupling))
    with torch.no_grad():
        coupling.net.first.gain *= 1e6  # float16 ends at 65,504
    here = evaluate(model, test, limit=64).bits_per_dim
    assert evaluate(model.cuda(), test, limit=64).bits_per_dim == pytest.approx(here, rel=1e-3)


def test_an_evaluation_computes_in_the_precision_of_the_networks(monkeypatch):
    model, test, asked = macow.load("digits").cuda(), data.load("digits", "test"), []
    in_use = Plans.in_use
    monkeypatch.setattr(Plans, "in_use", lambda plans, p: asked.append(p) or in_use(plans, p))
    exact = evaluate(model, test).bits_per_dim
    assert set(asked) == {torch.float32}
    asked.clear()
    set_network_precision(model, torch.bfloat16)
    assert evaluate(model, test).bits_per_dim == pytest.approx(exact, abs=1e-2)
    assert set(asked) == {torch.bfloat16}


def test_gradients_agree_with_the_cpu():
    model = tiny_model(variational=True).double()
    batch = images(4, model)
    eps = torch.randn(batch.shape, dtype=torch.double)
    model(batch, eps=eps).mean().backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    model.cuda()
    model(batch.cuda(), eps=eps.cuda()).mean().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad.cpu(), expected[name], atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("shape", kernels.PRESET_SCANS.values(), ids=kernels.PRESET_SCANS)
@exact_float32()
def test_scans_earn_their_tolerance(shape, monkeypatch):
    scan = kernels.Scan.of(*shape, affine=True, extras=False)
    here = scan.to("cuda")
    single = here.to(torch.float32)
    for order in ("down", "left"):
        exact, plain = here.reference(order), single.reference(order)
        with monkeypatch.context() as patch:
            kernels.poisoned(patch)
            found = masked_conv.inverse(single.y, single.weights, order)
        kernels.assert_earns_its_tolerance(found, plain, exact)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", kernels.SMALL_SCANS.values(), ids=kernels.SMALL_SCANS)
@exact_float32()
def test_ragged_and_conditional_scans_earn_their_tolerance(shape, affine):
    here = kernels.Scan.of(*shape, affine=affine, extras=True).to("cuda")
    single = here.to(torch.float32)
    for order in masked_conv.ORDERS:
        undo = masked_conv.inverter(single.weights, order, single.norm)
        found = undo(single.y, single.context)
        kernels.assert_earns_its_tolerance(found, single.reference(order), here.reference(order))


@pytest.mark.parametrize(
    ("channels", "transformed", "hidden", "side", "affine"),
    [(12, 6, 512, 16, True), (48, 24, 512, 4, True), (3, 1, 24, 32, True), (96, 48, 256, 8, False)],
)
@exact_float32()
def test_glow_steps_earn_their_tolerance(channels, transformed, hidden, side, affine, monkeypatch):
    here = kernels.Glow.of(channels, transformed, hidden, (side, side), affine=affine).to("cuda")
    single = here.to(torch.float32)
    plain, exact = single.reference(), here.reference()
    kernels.poisoned(monkeypatch)
    found = glow.inverter(single.weights)(single.y, None)
    kernels.assert_earns_its_tolerance(found, plain, exact)


LEARNING = [(3, 12, 3, 32), (9, 36, 3, 16), (12, 48, 5, 32), (18, 72, 3, 8), (24, 96, 3, 8)]
LEARNING += [(36, 144, 5, 8), (48, 192, 3, 4), (72, 288, 5, 8), (96, 384, 5, 4)]


@pytest.mark.parametrize(("channels", "hidden", "width", "side"), LEARNING)
@exact_float32()
def test_masked_convolutions_learn(channels, hidden, width, side):
    shape = (channels, hidden, (2, width), (side, side))
    cases = [
        gradients.masked_convolution(*shape, order, affine=order != "up", extras=order != "down")
        for order in masked_conv.ORDERS
    ]
    gradients.assert_earn_their_tolerance(cases, "cuda")
    for case in cases:
        case.assert_close_in(torch.bfloat16, "cuda")


@pytest.mark.parametrize(
    ("channels", "transformed", "hidden", "side", "affine"),
    [(12, 6, 512, 16, True), (9, 4, 512, 16, True), (3, 1, 24, 32, True), (48, 24, 256, 8, False)],
)
@exact_float32()
def test_couplings_learn(channels, transformed, hidden, side, affine):
    shape = (channels, transformed, hidden, (side, side))
    case = gradients.coupling(*shape, affine=affine, batch=8)
    gradients.assert_earn_their_tolerance([case], "cuda")
    case.assert_close_in(torch.bfloat16, "cuda")
    gradients.assert_couples_exactly(case, "cuda")


def digits():
    return [data.load("digits", split, (1, 8, 8)) for split in ("train", "test")]


LEARNERS = {
    "plain": (dict(), 1e-3),
    "averaged": (dict(ema=0.9, clip=0.1), 1e-3),
    "muon": (dict(ema=0.9, clip=0.1, optimizer="muon"), 1e-2),  # its steps round to bfloat16 there
    "variational": (dict(variational=True, noise_samples=2), 1e-3),
    "bfloat16": (dict(precision="bfloat16"), 2e-2),
    "in parts": (dict(batch_steps=2), 1e-3),
    "variational in parts": (dict(variational=True, noise_samples=2, batch_steps=2), 1e-3),
}


@pytest.mark.parametrize("name", LEARNERS)
@exact_float32()  # a rounded product moves the variational curve by a hundredth in ten updates
def test_captured_updates_learn_as_eager_ones(name):
    """200 updates by kernels and a graph, and by plain torch one launch at a time."""
    changes, tolerance = LEARNERS[name]
    curves = []
    for fused in (True, False):
        config = changed(**{"ema": 0.0, **changes}, steps=200, mirror=False, shift=0)
        with trainer(config, *digits(), "cuda", 0) as run:
            if not fused:
                run.learn._captured = run.learn._plans = run.learn._determinants = None
            curves.append(torch.tensor([run.update()[0] for _ in range(200)]))
    assert curves[0].isfinite().all()
    torch.testing.assert_close(curves[0][:20], curves[1][:20], atol=tolerance, rtol=0)
    assert abs(curves[0][-50:].mean() - curves[1][-50:].mean()) < 0.01


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_captured_run_looks_saves_and_goes_on(precision, tmp_path):
    """Evaluations between replays, a resumed run, and one update that is not finite."""
    config = changed(precision=precision, ema=0.0, steps=8, eval_every=2, save_every=4)
    straight = fit(config, "digits", tmp_path / "straight", device="cuda", quiet=True)
    shorter = replace(config, train=replace(config.train, steps=4))
    fit(shorter, "digits", tmp_path / "resumed", device="cuda", quiet=True)
    resumed = fit(config, "digits", tmp_path / "resumed", device="cuda", quiet=True)
    for one, other in zip(straight.parameters(), resumed.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)


def test_a_captured_update_that_is_not_finite_changes_nothing():
    config = changed(steps=4)
    with trainer(config, *digits(), "cuda", 0) as run:
        run.update()
        before = [p.detach().clone() for p in run.model.parameters()]
        batch = torch.zeros(config.train.batch_size, 1, 8, 8, dtype=torch.uint8, device="cuda")
        eps = torch.full(batch.shape, torch.nan, device="cuda")
        bits, _ = run.learn(batch, [eps], None, 1e-3)()
        assert not math.isfinite(bits)
        for p, old in zip(run.model.parameters(), before, strict=True):
            assert torch.equal(p, old)
        assert math.isfinite(run.update()[0])


def test_kernels_are_compiled_for_the_first_update_and_never_again(monkeypatch):
    triton = pytest.importorskip("triton")
    compiled = []
    monkeypatch.setattr(
        triton.knobs.runtime, "jit_cache_hook", lambda **found: compiled.append(found["repr"])
    )
    config = changed(steps=40, eval_every=10)
    flow = replace(config.model.flow, hidden=(20,) * len(config.model.flow.hidden))
    config = replace(config, model=replace(config.model, flow=flow))  # of kernels of its own
    with trainer(config, *digits(), "cuda", 0) as run:
        run.update()
        run.look()
        assert compiled
        compiled.clear()
        run.run()
    assert not compiled


def test_a_sampler_draws_what_the_cpu_draws():
    model = macow.load("digits")
    here = model.sample(9, 0.8, torch.Generator().manual_seed(0))
    sampler = model.cuda().sampler()
    assert sampler.backend == "kernels"
    for _ in range(2):  # captured, then replayed
        there = sampler.sample(9, 0.8, torch.Generator().manual_seed(0)).cpu()
        assert (there.int() - here.int()).abs().max() <= 16  # a level
    z = model.encode(images(5, model).cuda())
    assert torch.equal(sampler.decode(z), model.decode(z))  # another size of batch
    expected = sampler.invert(z)
    with torch.autocast("cuda", torch.bfloat16):
        assert torch.equal(sampler.invert(z), expected)
