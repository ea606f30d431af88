"""What is told of a model's inside: its sizes, and what its masked convolutions see."""

import numpy as np
import pytest
import torch

import macow
from macow.bijections import MaskedConv
from macow.web.inside import drawing, masked_convs, receptive_fields
from models import tiny_model


def fields(model, level=1):
    return {
        found["name"].rpartition(".")[2]: np.array(found["field"]) > 0
        for found in list(receptive_fields(model, level))[:4]
    }


def around(seen):
    """The pixels that count, as rows and columns from the middle."""
    rows, columns = np.nonzero(seen)
    middle = (seen.shape[0] - 1) // 2
    return set(zip((rows - middle).tolist(), (columns - middle).tolist(), strict=True))


def test_a_masked_convolution_sees_the_rows_behind_it():
    seen = fields(macow.load("digits"))
    window = {(row, column) for row in (-2, -1) for column in (-1, 0, 1)}
    assert around(seen["down"]) == window | {(0, 0)}
    both = {(row, column) for row in (1, 2) for column in (-1, 0, 1)}
    reach = {(r + a, c + b) for r, c in both | {(0, 0)} for a, b in window | {(0, 0)}}
    assert around(seen["up"]) == reach
    assert around(seen["up"]) < around(seen["right"]) < around(seen["left"])


def test_a_field_is_what_moving_a_pixel_moves():
    """The same by perturbation, as the paper's figure says it."""
    model = tiny_model()
    (_, first), (_, second) = masked_convs(model)[0][:2]
    side = np.array(next(receptive_fields(model, 0))["field"]).shape[0]
    x = torch.randn(1, 3, side, side)

    def middle(x):
        return second(first(x)[0])[0][0, :, side // 2, side // 2]

    moved = np.zeros((side, side), bool)
    with torch.no_grad():
        for row in range(side):
            for column in range(side):
                other = x.clone()
                other[0, :, row, column] += 1
                moved[row, column] = not torch.equal(middle(other), middle(x))
    found = np.array(list(receptive_fields(model, 0))[1]["field"]) > 0
    assert np.array_equal(found, moved)


def test_an_untrained_convolution_sees_only_its_pixel():
    model = macow.preset("cifar10-small").model.build()
    first = next(receptive_fields(model, min(masked_convs(model))))
    assert around(np.array(first["field"]) > 0) == {(0, 0)}


def test_every_masked_convolution_is_found_in_its_level():
    model = macow.load("digits")
    found = [conv for convs in masked_convs(model).values() for _, conv in convs]
    assert found == [m for m in model.flow.modules() if isinstance(m, MaskedConv)]
    assert len(found) == 48


def test_a_flow_without_them_says_so():
    model = macow.preset("glow-cifar10").model.build()
    assert masked_convs(model) == {}
    with pytest.raises(ValueError, match="levels that have: none"):
        next(receptive_fields(model, 1))


@pytest.mark.parametrize("name", ["cifar10-small", "realnvp-cifar10", "digits-conditional"])
def test_the_drawing_holds_every_value_and_parameter(name):
    model = macow.preset(name).model.build()
    for one in (model, model.given("0")) if model.labels else (model,):
        blocks = [part for part in drawing(one) if part["kind"] == "block"]
        assert sum(np.prod(block["latents"]) for block in blocks) == model.num_dims
        total = sum(p.numel() for p in model.flow.parameters())
        assert sum(block["parameters"] for block in blocks) == total
        for block in blocks:
            assert np.prod(block["latents"]) <= np.prod(block["shape"])
