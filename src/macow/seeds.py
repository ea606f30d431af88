"""Randomness as a function of where it is used: no generator's state is ever stored."""

import zlib

import numpy as np
import torch


def seed_for(seed: int, purpose: str, *where: int) -> int:
    """A seed for one use: `seed_for(0, "noise", step)`."""
    entropy = (seed, zlib.crc32(purpose.encode()), *where)
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))


def generator_for(
    seed: int, purpose: str, *where: int, device: str | torch.device = "cpu"
) -> torch.Generator:
    """A fresh generator for one use."""
    return torch.Generator(device).manual_seed(seed_for(seed, purpose, *where))
