"""Where float32 means float32, and where networks may do with less."""

import pytest
import torch

from macow.nets.precision import exact_float32, network_precision, set_network_precision
from models import images, tiny_model


def switches():
    backends = torch.backends
    return (
        backends.cudnn.conv.fp32_precision,
        backends.cudnn.rnn.fp32_precision,
        backends.cuda.matmul.fp32_precision,
        backends.cudnn.allow_tf32,  # raises where torch's older and newer switches disagree
        backends.cuda.matmul.allow_tf32,
    )


def test_tf32_is_off_within_and_as_it_was_after():
    before = switches()
    with exact_float32():
        assert switches() == ("ieee", "ieee", "ieee", False, False)
        with exact_float32():
            assert switches() == ("ieee", "ieee", "ieee", False, False)
    assert switches() == before
    with pytest.raises(KeyError), exact_float32():
        raise KeyError
    assert switches() == before


@torch.no_grad()
def test_only_networks_compute_in_bfloat16():
    model = tiny_model(variational=True)
    batch = images(4, model)
    eps = torch.randn(batch.shape)
    expected = model(batch, eps=eps)
    seen = set()
    for name, module in model.named_modules():
        if name.endswith((".net", "encoder")):
            module.register_forward_hook(lambda m, i, output: seen.add(output.dtype))
        if name.endswith("net.middle"):
            module.register_forward_hook(lambda m, i, output: seen.add(("inside", output.dtype)))
    assert network_precision(model) == torch.float32
    set_network_precision(model, torch.bfloat16)
    assert network_precision(model) == torch.bfloat16
    lower = model(batch, eps=eps)
    assert seen == {torch.float32, ("inside", torch.bfloat16)}
    assert lower.dtype == torch.float32
    assert not torch.equal(lower, expected)
    torch.testing.assert_close(lower, expected, rtol=2e-2, atol=1.0)
    set_network_precision(model, None)
    assert network_precision(model) == torch.float32
    assert torch.equal(model(batch, eps=eps), expected)
