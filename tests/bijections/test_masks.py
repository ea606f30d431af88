"""What may depend on what: found by perturbing one pixel."""

import pytest
import torch

from cases import CASES, C, H, W
from macow.bijections import MaskedConv
from macow.bijections.raster import one_pixel_at_a_time, raster_inverse
from macow.ops.masked_conv import ORDERS


def influence(bijection, shape, i, j):
    """Which output pixels change when pixel (i, j) of the input does: `[H, W]` of booleans."""
    x = torch.randn(1, *shape, dtype=torch.double)
    moved = x.clone()
    moved[:, :, i, j] += 1.0
    with torch.no_grad():
        change = (bijection(moved)[0] - bijection(x)[0]).abs().sum(dim=(0, 1))
    return change > 1e-12


@pytest.mark.parametrize("kernel", [(2, 3), (2, 5), (1, 3), (3, 1)])
@pytest.mark.parametrize("order", ORDERS)
def test_a_pixel_reaches_exactly_its_window(order, kernel):
    kh, kw = kernel
    rows, columns = 7, 8
    case = CASES["masked-down"]
    bijection = type(case)(lambda: MaskedConv(C, kernel, order)).bijection()
    for i, j in [(0, 0), (3, 4), (6, 7), (2, 0)]:
        expected = torch.zeros(rows, columns, dtype=torch.bool)
        expected[i, j] = True
        for ahead in range(1, kh + 1):
            for aside in range(-(kw // 2), kw // 2 + 1):
                r, c = {
                    "down": (i + ahead, j + aside),
                    "up": (i - ahead, j + aside),
                    "right": (i + aside, j + ahead),
                    "left": (i + aside, j - ahead),
                }[order]
                if 0 <= r < rows and 0 <= c < columns:
                    expected[r, c] = True
        assert torch.equal(influence(bijection, (C, rows, columns), i, j), expected)


@pytest.mark.parametrize("name", ["autoregressive-conv", "maf"])
def test_raster_order_never_looks_ahead(name):
    bijection = CASES[name].bijection()
    for i, j in [(0, 0), (1, 3), (3, 5)]:
        reached = influence(bijection, (C, H, W), i, j).flatten()
        assert not reached[: i * W + j].any()
        assert reached[i * W + j]


@pytest.mark.parametrize("name", ["autoregressive-conv-reverse", "maf-reverse"])
def test_reversed_raster_order_never_looks_back(name):
    bijection = CASES[name].bijection()
    for i, j in [(0, 0), (1, 3), (3, 5)]:
        reached = influence(bijection, (C, H, W), i, j).flatten()
        assert not reached[i * W + j + 1 :].any()
        assert reached[i * W + j]


@pytest.mark.parametrize("name", ["autoregressive-conv-reverse", "maf", "flow-emerging"])
@torch.no_grad()
def test_waves_are_the_pixels_one_by_one(name):
    case = CASES[name]
    bijection = case.bijection()
    y, cond = case.inputs()
    with one_pixel_at_a_time():
        expected = bijection.inverse(y, cond)
    torch.testing.assert_close(bijection.inverse(y, cond), expected, atol=1e-10, rtol=0)


def test_an_image_takes_few_waves():
    def count(height, width, kernel):
        calls = []
        raster_inverse(
            torch.zeros(2, 3, height, width), kernel, lambda window, y: calls.append(1) or y
        )
        return len(calls)

    assert count(16, 16, (2, 3)) == 2 * 15 + 16
    assert count(3, 5, (3, 5)) == 3 * 2 + 5
    with one_pixel_at_a_time():
        assert count(3, 5, (2, 3)) == 15


def test_maf_channels_never_look_ahead():
    bijection = CASES["maf"].bijection()
    x = torch.randn(1, C, H, W, dtype=torch.double)
    for channel in range(C):
        moved = x.clone()
        moved[:, channel, 2, 2] += 1.0
        with torch.no_grad():
            change = (bijection(moved)[0] - bijection(x)[0])[0, :, 2, 2].abs() > 1e-12
        assert change[channel]
        assert not change[:channel].any()


@pytest.mark.parametrize("parity", [0, 1])
def test_checkerboard_passes_half_of_the_pixels(parity):
    bijection = CASES["checkerboard-odd" if parity else "checkerboard-even"].bijection()
    x = torch.randn(1, C, H, W, dtype=torch.double)
    with torch.no_grad():
        same = (bijection(x)[0] == x).all(dim=1)[0]
    rows, columns = torch.meshgrid(torch.arange(H), torch.arange(W), indexing="ij")
    assert torch.equal(same, (rows + columns) % 2 != parity)


def test_a_stack_of_orders_sees_everything():
    bijection = CASES["macow-unit"].bijection()
    assert influence(bijection, (C, 5, 5), 2, 2).all()
