"""The 1,797 handwritten digits of the UCI repository, 8x8 and grey, inside the package.

Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, 1998, UCI Machine Learning
Repository (CC BY 4.0). Their 17 grey levels are stored in 4 bits: the top two are merged, and a
level is stored as `level * 16`.
"""

from importlib.resources import as_file, files
from typing import Literal

import numpy as np


def digits(split: Literal["train", "test"]) -> tuple[np.ndarray, np.ndarray]:
    """Images `[N, 1, 8, 8]` and labels `[N]`, uint8; every fifth image is test."""
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    with as_file(files("macow.data") / "digits.npz") as path, np.load(path) as archive:
        images, labels = archive["images"], archive["labels"]
    test = np.arange(len(images)) % 5 == 4
    chosen = test if split == "test" else ~test
    return images[chosen], labels[chosen]
