"""How many bad inputs the tests of this folder run."""

import test_broken_arrays as arrays
import test_broken_documents as documents
import test_broken_images as images
import test_broken_weights as weights
import test_pickles as pickles
import test_special_files as special

LEAST = 3500


def test_the_corpus_is_large(tmp_path):
    corpora = {
        "images": images.inputs(),
        "model configurations": documents.model_configs(),
        "references": documents.references(),
        "original configurations": documents.original_configs(),
        "run configurations": documents.run_configs(),
        "temperatures": documents.temperatures(),
        "weights": weights.inputs(),
        "CIFAR-10 batches": pickles.cifar10_batches(),
        "original checkpoints": pickles.original_checkpoints(),
        "arrays": arrays.arrays(),
        "latents": arrays.latents(),
        "ImageNet batches": arrays.imagenet_batches(),
        "archives": arrays.archives(),
        "databases": arrays.databases(tmp_path),
        "special files": special.inputs(),
    }
    different = {name: len({i.content for i in inputs}) for name, inputs in corpora.items()}
    assert sum(different.values()) >= LEAST, different
