"""The masked convolution and its inverse, against definitions written out value by value."""

import pytest
import torch
import torch.nn.functional as F

from macow.ops import masked_conv
from macow.ops.masked_conv import ORDERS, MaskedConvWeights, reference


def random_weights(channels, hidden, kernel, *, affine=True):
    out = 2 * channels if affine else channels
    return MaskedConvWeights(
        torch.randn(hidden, channels, *kernel, dtype=torch.double) / 3,
        torch.randn(hidden, dtype=torch.double),
        torch.randn(out, hidden, dtype=torch.double) / 3,
        torch.randn(out, dtype=torch.double),
    )


@pytest.mark.parametrize("affine", [True, False])
def test_forward_is_the_definition(affine):
    channels, height, width = 2, 4, 5
    weights = random_weights(channels, 3, (2, 3), affine=affine)
    x = torch.randn(2, channels, height, width, dtype=torch.double)
    y, log_scale = masked_conv.forward(x, weights, "down")
    for b in range(2):
        for i in range(height):
            for j in range(width):
                h = weights.bias.clone()
                for a in range(2):
                    for d in range(3):
                        r, c = i - 2 + a, j - 1 + d
                        if r >= 0 and 0 <= c < width:
                            h += weights.kernel[:, :, a, d] @ x[b, :, r, c]
                raw = weights.mix @ F.elu(h) + weights.mix_bias
                scale = torch.sigmoid(raw[channels:] + 2) if affine else torch.ones(channels)
                expected = x[b, :, i, j] * scale + raw[:channels]
                torch.testing.assert_close(y[b, :, i, j], expected, atol=1e-12, rtol=0)
                if affine:
                    torch.testing.assert_close(log_scale[b, :, i, j].exp(), scale)


@pytest.mark.parametrize("order", ORDERS)
def test_gradients_flow_through_the_inverse(order):
    weights = random_weights(2, 3, (2, 3))
    y = torch.randn(1, 2, 3, 4, dtype=torch.double, requires_grad=True)
    context = torch.randn(1, 3, 3, 4, dtype=torch.double)
    assert torch.autograd.gradcheck(
        lambda y, *w: masked_conv.inverse(y, MaskedConvWeights(*w), order, context),
        (y, *(w.requires_grad_() for w in weights)),
    )


@pytest.mark.parametrize("order", ORDERS)
def test_the_inverse_feeds_only_a_window_of_rows(order, monkeypatch):
    fed = []
    original = torch.addmm
    monkeypatch.setattr(
        torch, "addmm", lambda bias, x, w: fed.append(tuple(x.shape)) or original(bias, x, w)
    )
    masked_conv.inverse(torch.randn(2, 3, 8, 6).double(), random_weights(3, 5, (2, 3)), order)
    length, across = (8, 6) if order in ("down", "up") else (6, 8)
    assert fed == [(2 * across, 2 * 3 * 3), (2 * across, 5)] * length


@pytest.mark.parametrize("order", ORDERS)
def test_turning_back_undoes_turning(order):
    x = torch.randn(1, 2, 3, 4)
    assert torch.equal(masked_conv.turn_back(masked_conv.turn(x, order), order), x)


@pytest.mark.parametrize(("count", "threads"), [(4, 1), (2731, 2)])
def test_few_hidden_units_are_left_to_one_thread(count, threads, monkeypatch):
    weights, y = random_weights(3, 12, (2, 3)), torch.zeros(count, 3, 1, 2)
    assert (count * 1 * 12 >= masked_conv.GRAIN) == (threads == 2)  # columns of a turned image
    seen, before = [], torch.get_num_threads()

    def failing(*given):
        seen.append(torch.get_num_threads())
        raise ValueError("of the scan")

    monkeypatch.setattr(reference, "inverse", failing)
    try:
        torch.set_num_threads(2)
        with pytest.raises(ValueError, match="of the scan"):
            masked_conv.inverse(y, weights, "right")
        assert seen == [threads]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
