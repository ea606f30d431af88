"""An update, step by step and as a GPU captures it: the same weights either way."""

import copy
from dataclasses import replace

import pytest
import torch
from torch.optim.swa_utils import AveragedModel

from macow.plan import Plans
from macow.train.flat import Flat
from macow.train.optimiser import Average
from macow.train.update import Update
from macow.volume import Determinants
from models import images, tiny_model
from small_runs import SMALL


class Learner:
    """A model with all that changes when it learns."""

    def __init__(self, model, *, captured, **train):
        self.model = copy.deepcopy(model)
        self.config = replace(SMALL.train, **train)
        optimizer = torch.optim.Adam(self.model.parameters(), lr=0.0, fused=captured)
        self.average = AveragedModel(self.model, multi_avg_fn=Average(self.config.ema))
        self.update = Update(self.model, optimizer, self.average, self.config)
        if captured:  # as on a GPU, but run each time
            self.update._plans = Plans(self.model)
            self.update._determinants = Determinants(self.model)
            self.update._measure()
            self.update._flat = Flat(self.model, optimizer, self.average)
            self.update._captured = lambda given: self.update._pass(given, learn=True)

    def learn(self, step, eps=None):
        batch = images(8, self.model, seed=step)
        noise = torch.Generator().manual_seed(step)
        draws = [self.model.draw_noise(batch, noise) if eps is None else eps]
        return self.update(batch, draws, None, 1e-3 / (1 + step))()

    def weights(self):
        pairs = [*self.model.named_parameters(), *self.average.named_parameters()]
        return {name: p.detach().clone() for name, p in pairs}


@pytest.mark.parametrize("clip", [0.0, 0.1])
@pytest.mark.parametrize("variational", [False, True])
def test_the_captured_update_is_the_update(variational, clip):
    model = tiny_model(variational=variational).double()
    learners = [Learner(model, captured=captured, clip=clip) for captured in (False, True)]
    for step in range(4):
        expected, found = (learner.learn(step) for learner in learners)
        assert found == pytest.approx(expected, rel=1e-6)
    expected, found = (learner.weights() for learner in learners)
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, atol=1e-7, rtol=1e-6)
    assert int(learners[1].average.n_averaged) == 4


@pytest.mark.parametrize("captured", [False, True])
def test_an_update_that_is_not_finite_changes_nothing(captured):
    learner = Learner(tiny_model(), captured=captured)
    learner.learn(0)
    before = learner.weights()
    eps = torch.full((8, *learner.model.shape), torch.nan)
    bits, norm = learner.learn(1, eps=eps)
    assert bits != bits or norm != norm
    for name, weight in learner.weights().items():
        assert torch.equal(weight, before[name]), name
    assert int(learner.average.n_averaged) == 1
    learner.learn(2)
    assert not all(torch.equal(w, before[n]) for n, w in learner.weights().items())


class Refuses:
    """What a graph says to something it cannot hold."""

    ready = False

    def __init__(self, error):
        self.error = error

    def __call__(self, given):
        raise self.error


def test_what_cannot_be_captured_is_learnt_step_by_step():
    learner = Learner(tiny_model(), captured=False)
    before = learner.weights()
    learner.update._captured = Refuses(RuntimeError("operation not permitted\nwhen capturing"))
    with pytest.warns(
        UserWarning, match="not captured, so they are slow: operation not permitted$"
    ):
        learner.learn(0)
    assert not all(torch.equal(w, before[n]) for n, w in learner.weights().items())
    learner.learn(1)  # and says so once


def test_a_full_gpu_is_not_taken_for_a_refusal():
    learner = Learner(tiny_model(), captured=False)
    learner.update._captured = Refuses(torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(torch.OutOfMemoryError):
        learner.learn(0)
    assert learner.update._captured is not None
