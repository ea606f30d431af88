"""Readers of images: uint8 out, nothing known of models."""

from macow.data.digits import digits

__all__ = ["digits"]
