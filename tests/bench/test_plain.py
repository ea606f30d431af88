"""The yardstick computes what the flow computes."""

import pytest
import torch

from cases import CASES
from macow.bench.images import natural_images
from macow.bench.plain import plainly

PLAIN = [
    name
    for name, case in CASES.items()
    if name.startswith(("masked", "coupling", "macow", "glow", "flow"))
    and not case.cond_channels
    and not name.endswith(("realnvp", "emerging", "maf"))
]


@pytest.mark.parametrize("name", PLAIN)
@torch.no_grad()
def test_plain_layers_agree(name):
    bijection = CASES[name].bijection()
    x, _ = CASES[name].inputs()
    y, log_det = bijection(x)
    plain_y, plain_log_det = plainly(bijection).double()(x)
    torch.testing.assert_close(plain_y, y, atol=1e-10, rtol=0)
    torch.testing.assert_close(plain_log_det, log_det, atol=1e-10, rtol=0)


def test_what_has_no_plain_form_is_named():
    with pytest.raises(ValueError, match="no plain form of MaskedAutoregressive"):
        plainly(CASES["maf"].build())


def test_images_look_natural():
    images = natural_images(8, (3, 32, 48), torch.Generator().manual_seed(0)).double()
    assert images.shape == (8, 3, 32, 48)
    beside = (images[..., 1:] - images[..., :-1]).std()
    assert beside < 0.5 * images.std()
