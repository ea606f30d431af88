"""Weights side by side: what torch's own Adam and average do, in a few launches."""

import copy

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from macow.train.flat import Flat


def learner():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 1))
    return model, torch.optim.Adam(model.parameters(), lr=0.1, fused=True)


def gradients_of(model, step):
    for i, p in enumerate(model.parameters()):
        g = torch.Generator().manual_seed(10 * step + i)
        p.grad = torch.randn(p.shape, generator=g)


def test_steps_are_adams():
    (plain, adam), (model, optimizer) = learner(), learner()
    average = AveragedModel(model)
    flat = None
    for step in range(5):
        gradients_of(plain, step)
        adam.step()
        gradients_of(model, step)
        if step < 2:  # a run that was begun without it
            optimizer.step()
            continue
        if flat is None:
            average.update_parameters(model)
            flat = Flat(model, optimizer, average)
        flat.step(flat.gradients(), torch.ones(()), torch.zeros((), dtype=torch.bool))
        first, *others = (p.grad.untyped_storage().data_ptr() for p in model.parameters())
        assert set(others) == {first}
    for p, q in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(p, q)
    for p, q in zip(plain.parameters(), model.parameters(), strict=True):
        for name, value in adam.state[p].items():
            torch.testing.assert_close(optimizer.state[q][name], value)


def test_a_skipped_step_changes_nothing_and_an_average_moves():
    model, optimizer = learner()
    average = AveragedModel(model)
    flat = Flat(model, optimizer, average)
    before = copy.deepcopy(model.state_dict())
    gradients_of(model, 0)
    flat.step(flat.gradients(), torch.ones(()), torch.ones((), dtype=torch.bool))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    with torch.no_grad():
        for p in model.parameters():
            p += 1
    flat.average(torch.tensor(0.75))
    for (name, value), moved in zip(before.items(), average.module.parameters(), strict=True):
        torch.testing.assert_close(moved, value + 0.25, msg=name)


def test_weights_begin_where_wide_loads_can():
    model, optimizer = learner()
    Flat(model, optimizer, None)
    assert [p.data_ptr() % 16 for p in model.parameters()] == [0, 0, 0, 0]
