"""Configurations: what does not fit together is said at once."""

from dataclasses import asdict, replace

import pytest

from macow.config import FlowConfig, ModelConfig, TrainConfig, VariationalConfig
from macow.documents import from_dict
from models import TINY, tiny_config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": ()}, "at least one squeezed level"),
        ({"steps": ((1,),)}, "at least one squeezed level"),
        ({"steps": ((1,), (0, 1), (1,))}, "steps must be positive"),
        ({"steps": ((1,), (), (1,))}, "steps must be positive"),
        ({"steps": ((1, 1), (1,), (1,))}, "the bottom level must be one block"),
        ({"hidden": (8, 8)}, "hidden must be 3 positive numbers"),
        ({"hidden": (8, 8, 0)}, "hidden must be 3 positive numbers"),
        ({"factors": ()}, r"one number for each of the 1 level\(s\)"),
        ({"factors": (2,)}, "factors must exceed the blocks"),
        ({"kernel": (2, 4)}, "kernel must be .* kw odd"),
        ({"kernel": (0, 3)}, "kernel must be"),
        ({"units": 0}, "units must be at least 1"),
    ],
)
def test_flows_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": (8, 10)}, r"size must be divisible by 4 to be squeezed 2 times, got \(8, 10\)"),
        ({"size": (0, 8)}, "size must be divisible"),
        ({"n_bits": 0}, "n_bits must be from 1 to 8, got 0"),
        ({"n_bits": 9}, "n_bits must be from 1 to 8, got 9"),
        ({"channels": 0}, "channels must be from 1 to 65,536, got 0"),
    ],
)
def test_models_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(tiny_config(), **changes)


def test_a_dequantizer_may_squeeze_more_often_than_the_flow():
    deep = FlowConfig(steps=((1,), (1,), (1,), (1,)), factors=(2, 2), hidden=(4, 4, 4, 4))
    with pytest.raises(ValueError, match="divisible by 8"):
        ModelConfig(TINY, size=(12, 12), variational=VariationalConfig(deep))


def test_what_a_kind_cannot_do_is_refused():
    for kind in ("maf", "realnvp"):
        flow = replace(TINY, kind=kind, steps=((1,), (1,)), factors=(), hidden=(8, 8))
        with pytest.raises(ValueError, match="conditional flow cannot be"):
            VariationalConfig(flow).build(3, 8)
        with pytest.raises(ValueError, match="no additive form"):
            replace(flow, affine=False)
    with pytest.raises(ValueError, match="at most the channels they divide"):
        ModelConfig(replace(TINY, factors=(100,))).build()


def test_grey_images_have_no_bottom_level():
    with pytest.raises(ValueError, match="set bottom=False for grey images"):
        ModelConfig(TINY, channels=1).build()


def test_an_unconditional_dequantizer_is_refused():
    with pytest.raises(ValueError, match="cond_channels must be at least 1"):
        VariationalConfig(TINY, cond_channels=0).build(3, 8)


def test_reading_is_strict():
    good = asdict(tiny_config(variational=True))
    assert from_dict(ModelConfig, good) == tiny_config(variational=True)
    for spoil, message in [
        ({**good, "size": "big"}, r"config.size must be a list of 2 values, got 'big'"),
        ({**good, "flow": 3}, "config.flow must be an object, got 3"),
        ({**good, "n_bits": True}, "config.n_bits must be int, got True"),
        ({**good, "flow": {**good["flow"], "steps": [[1], [1.5]]}}, r"steps\[1\]\[0\] must be int"),
        ({**good, "variational": {"flow": {}}}, "config.variational.flow: .*steps"),
    ]:
        with pytest.raises(ValueError, match=message):
            from_dict(ModelConfig, spoil)
    assert from_dict(TrainConfig, {}) == TrainConfig()
