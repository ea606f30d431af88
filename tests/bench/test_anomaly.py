"""Scores against other kinds of images: the areas, and the whole measurement on digits."""

import numpy as np
import pytest
from PIL import Image

from macow.bench import anomaly
from macow.score import Score


def scored(bits, typicality):
    return [Score(b, 0, 0, 1, b - 1, 50, t) for b, t in zip(bits, typicality, strict=True)]


def areas(found):
    return found.likelihood.mean, found.typicality.mean, found.corrected.mean


def test_areas_count_pairs():
    own = scored([1, 2, 3, 4], [0.2, 0.9, 0.9, 0.2])
    dear = scored([5, 6], [0, 0])
    found = anomaly._detection("dear", dear, own, 2)
    assert areas(found) == (1, 1, 1)
    assert found.bits_per_dim == 5.5
    cheap = scored([0, 2.5], [0, 0.9])
    found = anomaly._detection("cheap", cheap, own, 2)
    assert found.likelihood.mean == (0 + 2) / 8
    assert found.typicality.mean == (4 + 2 * 0.5) / 8  # two ties
    assert areas(anomaly._detection("same", own, own, 4))[:2] == (0.5, 0.5)


def test_errors_are_from_picture_to_picture():
    own = scored([1, 2, 3, 4], [0.5] * 4)
    others = scored([0, 5, 0, 5], [0.5] * 4)  # in turn of a cheap picture and of a dear one
    one_each, of_two = (anomaly._detection("kind", others, own, n) for n in (4, 2))
    assert one_each.likelihood == (0.5, pytest.approx(1 / 12**0.5))
    assert of_two.likelihood == (0.5, 0.5)  # the pieces of a picture are no new pictures
    assert of_two.typicality == (0.5, 0)


def test_errors_are_as_large_as_the_luck():
    rng = np.random.default_rng(0)

    def once():
        draws = (scored(rng.normal(size=n), np.zeros(n)) for n in (50, 80))
        return anomaly._detection("same", *draws, 50).likelihood

    areas = [once() for _ in range(400)]
    luck = np.std([area.mean for area in areas])
    assert np.mean([area.error for area in areas]) == pytest.approx(luck, rel=0.1)


def test_errors_of_the_same_pictures_are_as_large_as_the_luck():
    rng = np.random.default_rng(0)

    def once():
        own = rng.normal(size=80)
        turned = own + 0.3 * rng.normal(size=80)
        pair = scored(turned, np.zeros(80)), scored(own, np.zeros(80))
        return [anomaly._detection("turned", *pair, 80, paired=p).likelihood for p in (True, False)]

    paired, apart = zip(*[once() for _ in range(400)], strict=True)
    luck = np.std([area.mean for area in paired])
    assert np.mean([area.error for area in paired]) == pytest.approx(luck, rel=0.1)
    assert np.mean([area.error for area in apart]) > 3 * luck  # who ignores it


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    for name in "ab":
        Image.fromarray(rng.integers(0, 256, (60, 80, 3), dtype=np.uint8)).save(
            tmp_path / f"{name}.png"
        )
    return tmp_path


def test_digits_are_told_from_noise(photos, monkeypatch):
    monkeypatch.setattr(anomaly, "EACH", 40)
    found = {one.kind: one for one in anomaly.measure("digits", "digits", photos)}
    assert 0.3 < found["its own, the reference"].likelihood.mean < 0.7
    assert {one.images for one in found.values()} == {40}
    assert found["noise"].likelihood == (1, 0)
    assert found["photographs"].likelihood == (1, 0)
    assert found["photographs"].pictures == 2
    assert found["upside down"].likelihood.error < found["digits"].likelihood.error
    assert found["digits"].likelihood.mean < 0.7  # its own kind, from the training images


def test_what_is_missing_is_said(photos, tmp_path):
    with pytest.raises(ValueError, match="digits has 360 test images, 2,000 are needed"):
        list(anomaly.measure("digits", "digits", photos))
    with pytest.raises(ValueError, match="no photographs"):
        list(anomaly.measure("digits", "digits", tmp_path / "nothing"))
