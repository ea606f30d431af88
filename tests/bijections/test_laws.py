"""The laws every bijection obeys, in float64, on every case."""

from copy import deepcopy

import pytest
import torch
from safetensors.torch import load, save

from cases import CASES, Case

CONDITIONAL = {name: case for name, case in CASES.items() if case.cond_channels}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
every_conditional_case = pytest.mark.parametrize("case", CONDITIONAL.values(), ids=CONDITIONAL)


@every_case
@torch.no_grad()
def test_round_trip(case: Case):
    bijection = case.bijection()
    x, cond = case.inputs()
    y, _ = bijection(x, cond)
    assert y.shape == x.shape
    assert (y - x).abs().max() > 1e-3, "a case that does nothing proves nothing"
    assert (bijection.inverse(y, cond) - x).abs().max() < 1e-10
    assert (bijection(bijection.inverse(x, cond), cond)[0] - x).abs().max() < 1e-10


@every_case
def test_log_det_is_autograds(case: Case):
    bijection = case.bijection()
    x, cond = case.inputs(batch=2)
    _, log_det = bijection(x, cond)
    assert log_det.shape == (2,)
    for i in range(2):
        one = None if cond is None else cond[i : i + 1]
        jacobian = torch.autograd.functional.jacobian(
            lambda v, one=one: bijection(v, one)[0], x[i : i + 1]
        )
        expected = torch.linalg.slogdet(jacobian.reshape(x[0].numel(), -1)).logabsdet
        assert abs(log_det[i] - expected) < 1e-9


@every_case
@torch.no_grad()
def test_log_det_map_sums_to_log_det(case: Case):
    bijection = case.bijection()
    x, cond = case.inputs()
    log_det_map = bijection.log_det_map(x, cond)
    assert log_det_map.shape == (3, *case.shape[1:])
    torch.testing.assert_close(
        log_det_map.sum(dim=(1, 2)), bijection(x, cond)[1], atol=1e-12, rtol=0
    )


@every_case
@torch.no_grad()
def test_images_of_a_batch_do_not_meet(case: Case):
    bijection = case.bijection()
    x, cond = case.inputs()
    y, log_det = bijection(x, cond)
    for i in range(3):
        one = None if cond is None else cond[i : i + 1]
        y_one, log_det_one = bijection(x[i : i + 1], one)
        torch.testing.assert_close(y_one, y[i : i + 1], atol=1e-12, rtol=0)
        torch.testing.assert_close(log_det_one, log_det[i : i + 1], atol=1e-12, rtol=0)
        torch.testing.assert_close(bijection.inverse(y_one, one), x[i : i + 1], atol=1e-10, rtol=0)


@every_case
@torch.no_grad()
def test_state_survives_saving(case: Case):
    bijection = case.bijection()
    state = load(save({k: v.clone() for k, v in bijection.state_dict().items()}))
    other = case.build().double()
    other.load_state_dict(state)
    x, cond = case.inputs()
    for bit, again in zip(bijection(x, cond), other(x, cond), strict=True):
        assert torch.equal(bit, again)


@every_conditional_case
@torch.no_grad()
def test_condition_matters(case: Case):
    bijection = case.bijection()
    x, cond = case.inputs()
    assert (bijection(x, cond)[0] - bijection(x, cond + 1)[0]).abs().max() > 1e-3


@every_case
def test_gradients_flow_through_the_inverse(case: Case):
    bijection = case.bijection()
    x, cond = case.inputs(batch=1)
    y = bijection(x, cond)[0].detach().requires_grad_()
    direction = torch.randn_like(x)
    (gradient,) = torch.autograd.grad((bijection.inverse(y, cond) * direction).sum(), y)
    step = 1e-6 * torch.randn_like(x)
    with torch.no_grad():
        ahead, behind = bijection.inverse(y + step, cond), bijection.inverse(y - step, cond)
        moved = ((ahead - behind) * direction).sum() / 2
    assert abs(moved - (gradient * step).sum()) < 1e-4 * abs(moved) + 1e-12


@every_case
@torch.no_grad()
def test_float32_and_copies_work(case: Case):
    bijection = deepcopy(case.bijection()).float()
    x, cond = case.inputs()
    x32 = x.float()
    cond32 = None if cond is None else cond.float()
    y, log_det = bijection(x32, cond32)
    assert y.dtype == log_det.dtype == torch.float32
    assert (bijection.inverse(y, cond32) - x32).abs().max() < 2e-3
