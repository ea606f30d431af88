"""`digits`: the 1,797 handwritten digits of the UCI repository, 8x8 and grey, in the package.

Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, 1998, UCI Machine Learning
Repository (CC BY 4.0). Their 17 grey levels are stored in 4 bits: the top two are merged, and a
level is stored as `level * 16`.
"""

from importlib.resources import as_file, files

import numpy as np

from macow.data.images import ArrayImages, Split


def digits(split: Split) -> ArrayImages:
    """Images `[N, 1, 8, 8]` with labels; every fifth is test."""
    with as_file(files("macow.data") / "digits.npz") as path, np.load(path) as archive:
        images, labels = archive["images"], archive["labels"]
    test = np.arange(len(images)) % 5 == 0
    chosen = test if split == "test" else ~test
    return ArrayImages(images[chosen], labels[chosen], tuple("0123456789"))
