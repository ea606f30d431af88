"""The reference that scores are compared with, as two verbs choose it."""

from jsonargparse import Namespace

from macow import data
from macow.model import FlowModel
from macow.pretrained import find
from macow.score import Reference, make_reference


def chosen_reference(model: FlowModel, options: Namespace) -> Reference | None:
    """That of `--reference SOURCE` if given, else the one beside the model, if there is one."""
    if not options.reference:
        return Reference.beside(find(options.model))
    images = data.load(options.reference, "test", model.shape)
    return make_reference(model, images, batch_size=options.batch_size, seed=options.seed)
