"""The sampler: a snapshot of a model that draws what the model draws."""

import pytest
import torch

import macow
from cases import CASES
from macow.snapshot import snapshot
from models import images, tiny_model


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@torch.no_grad()
def test_a_snapshot_is_the_inverse(case):
    bijection = case.bijection()
    x, cond = case.inputs()
    undo = snapshot(bijection)
    torch.testing.assert_close(undo(x, cond), bijection.inverse(x, cond), atol=1e-10, rtol=0)
    before = undo(x, cond)
    for parameter in bijection.parameters():
        parameter.add_(1.0)
    assert torch.equal(undo(x, cond), before), "a later change has reached it"


def generator():
    return torch.Generator().manual_seed(3)


def test_it_draws_what_the_model_draws():
    model = macow.load("digits")
    sampler = model.sampler()
    drawn, expected = sampler.sample(8, 0.8, generator()), model.sample(8, 0.8, generator())
    assert drawn.dtype == torch.uint8
    assert (drawn.int() - expected.int()).abs().max() <= 16  # a level, where rounding differs
    z = model.encode(images(4, model))
    assert torch.equal(sampler.decode(z), model.decode(z))
    assert sampler.backend == "plain torch (no GPU)"


def test_autocast_does_not_reach_it():
    sampler = tiny_model().sampler()
    z = torch.randn(2, *sampler.shape)
    expected = sampler.invert(z)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(sampler.invert(z), expected)


def test_an_uninitialised_model_gives_none():
    model = tiny_model()
    model.is_initialized = False
    with pytest.raises(ValueError, match="the model is not initialised"):
        model.sampler()


def test_bad_latents_are_refused():
    sampler = tiny_model().sampler()
    good = torch.randn(2, *sampler.shape)
    for z, message in [
        (good[:, :1], r"z must be \[B, C, H, W\] with 3x8x12 values each, got shape \[2, 1"),
        (good[:0], "z must hold at least one image of 3x8x12, got an empty batch"),
        (good.double(), "z must be torch.float32 like the model, got torch.float64"),
        (good * torch.inf, "z must be finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            sampler.decode(z)
    with pytest.raises(ValueError, match="the model knows no labels"):
        sampler.decode(good, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="count must be at least 1"):
        sampler.sample(0)
    with pytest.raises(FloatingPointError, match="decoding of 2 of 2 images gave NaN"):
        sampler.decode(good * 1e30)


def lost_above(limit):
    """An inverse that leads nowhere from some latents."""

    def invert(z, cond=None):
        nowhere = z[:, :1, :1, :1] > limit
        return torch.where(nowhere, torch.inf, z.clamp(-0.9, 0.9))

    return invert


def test_draws_that_lead_to_no_image_are_drawn_again(monkeypatch):
    model = tiny_model()
    sampler = model.sampler()
    monkeypatch.setattr(sampler, "_undo", lost_above(0.2))
    together = sampler.numbered(range(12), seed=5)
    assert sampler.drawn_again > 0
    alone = torch.cat([sampler.numbered([n], seed=5) for n in range(12)])
    assert torch.equal(together, alone)
    again, z = sampler.numbered_with_latents(range(12), seed=5)
    assert torch.equal(again, together)
    assert torch.equal(sampler.decode(z), together)
    assert len(sampler.sample(12, generator=torch.Generator().manual_seed(0))) == 12
    monkeypatch.setattr(model.flow, "inverse", lost_above(0.2))
    drawn = [model.sample(12, generator=torch.Generator().manual_seed(0)) for _ in range(2)]
    assert torch.equal(*drawn)


def test_a_model_that_leads_nowhere_says_so(monkeypatch):
    model = tiny_model()
    sampler = model.sampler()
    monkeypatch.setattr(sampler, "_undo", lost_above(-torch.inf))
    with pytest.raises(FloatingPointError, match="3 of 3 images"):
        sampler.numbered(range(3))
    monkeypatch.setattr(model.flow, "inverse", lost_above(-torch.inf))
    with pytest.raises(FloatingPointError, match="3 of 3 images"):
        model.sample(3)
