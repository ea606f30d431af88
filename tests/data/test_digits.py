"""The embedded digits."""

import numpy as np
import pytest

from macow.data import digits


def test_digits_are_whole_and_split():
    images, labels = digits("train")
    test_images, test_labels = digits("test")
    assert images.shape == (1438, 1, 8, 8)
    assert test_images.shape == (359, 1, 8, 8)
    assert images.dtype == test_images.dtype == np.uint8
    assert set(np.unique(images)) == set(range(0, 256, 16))
    assert np.bincount(np.concatenate([labels, test_labels])).min() > 170


def test_an_unknown_split_is_named():
    with pytest.raises(ValueError, match="'train' or 'test', got 'valid'"):
        digits("valid")
