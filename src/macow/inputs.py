"""What a model accepts: each check raises a `ValueError` that says what was found."""

import torch
from torch import Tensor

Shape = tuple[int, int, int]


def require_image_batch(images: Tensor, shape: Shape) -> None:
    """uint8 `[B, C, H, W]`."""
    if not isinstance(images, Tensor) or images.dtype != torch.uint8:
        found = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(f"images must be a uint8 tensor from 0 to 255, got {found}")
    _require_shape("images", images, shape)


def require_floats(name: str, x: Tensor, shape: Shape, dtype: torch.dtype) -> None:
    """`[B, C, H, W]` in the model's type."""
    if x.dtype != dtype:
        raise ValueError(f"{name} must be {dtype} like the model, got {x.dtype}")
    _require_shape(name, x, shape)


def require_noise(eps: Tensor, images: Tensor, num_samples: int, dtype: torch.dtype) -> None:
    """Noise for each image, and for each sample of it if there are several."""
    shape = images.shape if num_samples == 1 else (num_samples, *images.shape)
    if eps.shape != shape or eps.dtype != dtype:
        raise ValueError(
            f"eps must be {dtype} of shape {list(shape)} for {num_samples} sample(s), "
            f"got {eps.dtype} of shape {list(eps.shape)}"
        )


def require_within(name: str, x: Tensor, low: float, high: float) -> None:
    """`low <= x < high` everywhere."""
    if not ((x >= low) & (x < high)).all():  # so it is for NaN
        found = "NaN" if x.isnan().any() else f"values from {x.min():.6g} to {x.max():.6g}"
        raise ValueError(f"{name} must lie in [{low}, {high}), got {found}")


def _require_shape(name: str, x: Tensor, shape: Shape) -> None:
    wanted = "x".join(map(str, shape))
    if x.dim() != 4 or tuple(x.shape[1:]) != shape:
        raise ValueError(
            f"{name} must be [B, C, H, W] with {wanted} values each, got shape {list(x.shape)}"
        )
    if x.shape[0] == 0:
        raise ValueError(f"{name} must hold at least one image of {wanted}, got an empty batch")
