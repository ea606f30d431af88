"""What simple models make of the same images: the figures a flow has to beat."""

import math

import numpy as np


def baselines(train: np.ndarray, test: np.ndarray, n_bits: int, seed: int = 0) -> dict[str, float]:
    """Test bits per dimension of three densities fitted to `train`, uint8 `[N, C, H, W]` both.

    `uniform` knows nothing, `histogram` each value's own distribution (counts plus one), `gaussian`
    mean and full covariance, with uniform dequantization. The last is left out where there are not
    twice as many images as an image has values.
    """
    train, test = (images.reshape(len(images), -1) >> (8 - n_bits) for images in (train, test))
    found = {"uniform": float(n_bits), "histogram": _histogram(train, test, 2**n_bits)}
    if 2 * train.shape[1] <= len(train) and train.shape[1] <= 4096:
        found["gaussian"] = _gaussian(train, test, seed)
    return found


def _histogram(train: np.ndarray, test: np.ndarray, num_levels: int) -> float:
    places = np.arange(train.shape[1]) * num_levels
    counts = np.bincount((places + train).ravel(), minlength=train.shape[1] * num_levels)
    log_probs = np.log2((counts + 1) / (len(train) + num_levels))
    return float(-log_probs[places + test].mean())


def _gaussian(train: np.ndarray, test: np.ndarray, seed: int) -> float:
    noise = np.random.default_rng(seed)
    x, y = (levels + noise.random(levels.shape) for levels in (train, test))
    mean, covariance = x.mean(axis=0), np.cov(x, rowvar=False)
    root = np.linalg.cholesky(covariance)
    z = np.linalg.solve(root, (y - mean).T)
    dims = len(mean)
    log_density = -0.5 * (z**2).sum(axis=0) - np.log(np.diag(root)).sum()
    log_density -= 0.5 * dims * math.log(2 * math.pi)
    return float(-log_density.mean() / (dims * math.log(2)))
