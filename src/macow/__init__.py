"""Exact likelihoods of images with masked convolutional generative flows."""

from importlib.metadata import version

from macow.initialize import initializing
from macow.model import FlowModel
from macow.original import load_original
from macow.presets import preset, preset_names
from macow.pretrained import load

__version__ = version("macow")
__all__ = ["FlowModel", "initializing", "load", "load_original", "preset", "preset_names"]
