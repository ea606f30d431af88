"""Batches, augmentation, learning rate, average: each a function of what it says it is."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

import macow
from macow.bench.trainer import trainer
from macow.config import TrainConfig
from macow.data import load
from macow.data.images import ArrayImages, DecodedImages
from macow.train.batches import Batches, augment, batch_indices
from macow.train.optimiser import Average, learning_rate
from macow.train.run_folder import _read_record
from small_runs import changed

CPU = torch.device("cpu")
ARRAY = np.random.default_rng(0).integers(0, 256, (23, 3, 8, 6), dtype=np.uint8)


def test_every_epoch_sees_every_image_once():
    stream = np.concatenate([batch_indices(23, 5, 0, step) for step in range(46)])
    for epoch in range(10):
        assert sorted(stream[23 * epoch : 23 * (epoch + 1)]) == list(range(23))
    assert list(stream[:23]) != list(stream[23:46])


def test_order_depends_on_seed_and_step_alone():
    assert np.array_equal(batch_indices(23, 5, 3, 7), batch_indices(23, 5, 3, 7))
    assert not np.array_equal(batch_indices(23, 5, 3, 7), batch_indices(23, 5, 4, 7))


def test_a_batch_may_be_larger_than_the_set():
    assert np.bincount(batch_indices(5, 12, 0, 0), minlength=5).min() >= 2


@pytest.mark.parametrize("varied", [{}, {"mirror": True}, {"mirror": True, "shift": 4}])
def test_streaming_gives_what_memory_gives(varied):
    resident = Batches(ArrayImages(ARRAY), 5, seed=1, device=CPU, **varied)
    from PIL import Image

    lazy = DecodedImages(
        range(23), lambda i: Image.fromarray(ARRAY[i].transpose(1, 2, 0)), (3, 8, 6)
    )
    streamed = Batches(lazy, 5, seed=1, device=CPU, **varied)
    assert resident.resident is not None
    assert streamed.resident is None
    for step in (0, 1, 2, 9, 4):
        assert torch.equal(resident.at(step), streamed.at(step))
    resident.close()
    streamed.close()


def test_shifts_end():
    given = ArrayImages(ARRAY)
    shifted = Batches(given, 5, seed=1, device=CPU, shift=4, shifted=2)
    plain, never = (Batches(given, 5, seed=1, device=CPU, shift=n) for n in (4, 0))
    for step in range(4):
        same = plain if step < 2 else never
        assert torch.equal(shifted.at(step), same.at(step))
        assert not torch.equal(plain.at(step), never.at(step))
    for batches in (shifted, plain, never):
        batches.close()


def test_shifts_end_with_a_share_of_the_updates():
    config = replace(
        macow.preset("digits"), train=TrainConfig(steps=100, shift=1, shift_until=0.07)
    )
    images = load("digits", "test")
    with trainer(config, images, images, "cpu", 0) as run:
        assert run.batches.shifted == 7  # 0.07 * 100 is a little more
    with pytest.raises(ValueError, match="shift_until must be from 0 to 1, got 1.5"):
        TrainConfig(shift_until=1.5)


def crop(image, dy, dx, mirrored):
    window = image[:, dy : dy + 8, dx : dx + 6]
    return window.flip(2) if mirrored else window


def test_augmentation_is_a_crop_of_the_reflected_image_or_its_mirror():
    images = torch.from_numpy(ARRAY)
    moved = augment(images, torch.Generator().manual_seed(0), mirror=True, shift=4)
    padded = nn.functional.pad(images.float(), (4, 4, 4, 4), mode="reflect").byte()
    seen = set()
    for image, before in zip(moved, padded, strict=True):
        matches = [
            (dy, dx, mirrored)
            for dy in range(9)
            for dx in range(9)
            for mirrored in (False, True)
            if torch.equal(image, crop(before, dy, dx, mirrored))
        ]
        assert matches
        seen.add(matches[0])
    assert len(seen) > 15


def test_learning_rate_warms_up_and_falls():
    config = TrainConfig(lr=1.0, warmup=10, steps=110, decay=0.9, min_lr=0.01)
    assert learning_rate(config, 0) == pytest.approx(0.1)
    assert learning_rate(config, 9) == pytest.approx(1.0)
    assert learning_rate(config, 12) == pytest.approx(0.81)
    assert learning_rate(config, 109) == pytest.approx(0.01)
    cosine = replace(config, schedule="cosine")
    assert learning_rate(cosine, 10) == pytest.approx(1.0)
    assert learning_rate(cosine, 60) == pytest.approx(0.505)
    assert learning_rate(cosine, 110) == pytest.approx(0.01)
    assert learning_rate(replace(config, warmup=0), 0) == 1.0


def test_the_average_follows():
    model = nn.Linear(1, 1, bias=False)
    average = AveragedModel(model, multi_avg_fn=Average(0.5))
    expected = None
    for step in range(5):
        nn.init.constant_(model.weight, float(step))
        average.update_parameters(model)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = float(step) if expected is None else decay * expected + (1 - decay) * step
    assert average.module.weight.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "batch_size must be above 0, got 0"),
        ({"batch_size": 7, "batch_steps": 2}, "batch_size 7 must be divisible by batch_steps 2"),
        ({"lr": -1.0}, "lr must be above 0"),
        ({"steps": -1}, "steps must be at least 0"),
        ({"ema": 1.0}, "ema must be at least 0 and below 1"),
    ],
)
def test_training_that_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**changes)


@pytest.mark.parametrize(("augment", "shift"), [(True, 4), (False, 0)])
def test_a_run_that_knew_augment_is_still_known(augment, shift):
    config = changed(mirror=augment, shift=shift)
    record = {**asdict(config), "data": "digits", "seed": 3}
    old = {k: v for k, v in record["train"].items() if k not in ("mirror", "shift")}
    record["train"] = {**old, "augment": augment}
    found, source, seed = _read_record(json.loads(json.dumps(record)), "it")
    assert (found, source, seed) == (config, "digits", 3)
