"""Exact likelihoods of images with masked convolutional generative flows."""

from macow import train
from macow._version import __version__
from macow.initialize import initializing
from macow.model import FlowModel
from macow.original import load_original
from macow.presets import preset, preset_names
from macow.pretrained import load

__all__ = [
    "FlowModel",
    "__version__",
    "initializing",
    "load",
    "load_original",
    "preset",
    "preset_names",
    "train",
]
