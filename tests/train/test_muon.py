"""Muon: matrices change by orthogonal ones, alone or side by side."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from macow.train import checkpoint, muon
from macow.train.flat import Flat
from macow.train.muon import MuonAndAdam, orthogonal
from macow.train.optimiser import optimizer_of
from small_runs import changed


@pytest.mark.parametrize("shape", [(2, 5, 9), (3, 9, 5), (1, 16, 16)])
def test_singular_values_come_near_one(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    values = torch.linalg.svdvals(orthogonal(matrices))
    assert values.min() > 0.4
    assert values.max() < 1.3
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    along = torch.einsum("nij,nij->n", orthogonal(matrices), u @ v)
    assert (along / min(shape[1:]) > 0.7).all()  # the same directions, none turned round


def test_nothing_comes_of_nothing():
    assert torch.equal(orthogonal(torch.zeros(1, 3, 4)), torch.zeros(1, 3, 4))


def learner():
    torch.manual_seed(0)
    sizes = [(3, 5, 3), (5, 5, 1), (5, 5, 1), (2, 5, 2), (8, 5, 1)]  # the last two of one shape
    model = nn.Sequential(*(nn.Conv2d(*size) for size in sizes))
    matrices = [layer.weight for layer in model]
    biases = [layer.bias for layer in model]
    return model, MuonAndAdam(matrices, biases, lr=0.1, fused=True)


def gradients_of(model, step):
    for i, p in enumerate(model.parameters()):
        p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(10 * step + i))


def test_side_by_side_it_is_the_same():
    (plain, one), (model, other) = learner(), learner()
    flat = Flat(model, other, None)
    for step in range(3):
        gradients_of(plain, step)
        one.step()
        gradients_of(model, step)
        flat.step(flat.gradients(), torch.ones(()), torch.zeros((), dtype=torch.bool))
    for p, q in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(p, q)
        assert one.state[p].keys() == other.state[q].keys()
        for name, value in one.state[p].items():
            torch.testing.assert_close(other.state[q][name], value)


def test_a_matrix_moves_as_far_as_the_rate_says():
    model, optimizer = learner()
    before = [layer.weight.detach().clone() for layer in model]
    gradients_of(model, 0)
    optimizer.step()
    for layer, old in zip(model, before, strict=True):
        moved = (layer.weight - old).square().mean().sqrt()
        assert 0.6 < moved / (0.1 * muon.SIZE) < 1.2


def test_matrices_are_turned_and_not_made_longer():
    model, optimizer = learner()
    before = [layer.weight.detach().clone() for layer in model]
    for step in range(5):
        gradients_of(model, step)
        optimizer.step()
    for layer, old in zip(model, before, strict=True):
        assert layer.weight.norm().item() == pytest.approx(old.norm().item(), rel=1e-5)
        along = nn.functional.cosine_similarity(layer.weight.flatten(), old.flatten(), dim=0)
        assert along < 0.99


def test_a_skipped_step_changes_nothing():
    model, optimizer = learner()
    flat = Flat(model, optimizer, None)
    before = copy.deepcopy(model.state_dict())
    gradients_of(model, 0)
    model[0].weight.grad[0] = torch.nan
    flat.step(flat.gradients(), torch.ones(()), torch.ones((), dtype=torch.bool))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert not optimizer.state[model[0].weight]["exp_avg"].any()


def test_its_state_comes_back():
    model, optimizer = learner()
    gradients_of(model, 0)
    optimizer.step()
    again, other = learner()
    again.load_state_dict(model.state_dict())
    kept = {name: t.clone() for name, t in checkpoint.optimizer_tensors(optimizer).items()}
    checkpoint.restore_optimizer(other, kept)
    for learning, by in ((model, optimizer), (again, other)):
        gradients_of(learning, 1)
        by.step()
    for p, q in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(p, q)


def test_it_takes_the_convolutions_of_networks_and_leaves_the_rest_to_adam():
    config = changed(variational=True)
    model = config.model.build()
    optimizer = optimizer_of(model, replace(config.train, optimizer="muon"))
    ours, others = (set(group["params"]) for group in optimizer.param_groups)
    for name, parameter in model.named_parameters():
        assert parameter in (ours if name.endswith("direction") else others)
