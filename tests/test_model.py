"""The model's public face: likelihoods, samples, latents, files, and what it refuses."""

import json
import math
from pathlib import Path

import pytest
import torch

import macow
from macow.initialize import initializing
from macow.model import FORMAT
from models import images, tiny_config, tiny_model

FORMATS = Path(__file__).parent / "fixtures" / "formats"
BOTH = pytest.mark.parametrize("variational", [False, True])


@pytest.mark.parametrize("n_bits", range(1, 9))
@BOTH
def test_likelihood_is_its_definition(variational, n_bits):
    model = tiny_model(variational=variational, n_bits=n_bits).double()
    batch = images(3, model)
    eps = torch.rand(batch.shape, dtype=torch.double)
    with torch.no_grad():
        u, log_q = model.dequantizer(batch, eps)
        levels = torch.div(batch, 2 ** (8 - n_bits), rounding_mode="floor")
        x = 2 * (levels + u) / 2**n_bits - 1
        z, log_det = model.flow(x)
        normal = torch.distributions.Normal(0.0, 1.0).log_prob(z).flatten(1).sum(dim=1)
        expected = normal + log_det - log_q - model.num_dims * (n_bits - 1) * math.log(2)
        torch.testing.assert_close(model.log_prob(batch, eps=eps), expected)
        torch.testing.assert_close(
            model.bits_per_dim(batch, eps=eps), -expected / model.num_dims / math.log(2)
        )
        torch.testing.assert_close(model.log_density(x), normal + log_det)
    assert u.min() >= 0
    assert u.max() < 1


@BOTH
def test_several_samples_are_importance_weighted(variational):
    model = tiny_model(variational=variational)
    batch = images(3, model)
    eps = torch.rand(5, *batch.shape)
    with torch.no_grad():
        each = torch.stack([model.log_prob(batch, eps=one) for one in eps])
        together = model.log_prob(batch, num_samples=5, eps=eps)
    torch.testing.assert_close(together, torch.logsumexp(each, dim=0) - math.log(5))


@BOTH
def test_a_generator_decides_the_noise(variational):
    model = tiny_model(variational=variational)
    batch = images(2, model)

    def score(seed):
        with torch.no_grad():
            return model.log_prob(batch, generator=torch.Generator().manual_seed(seed))

    assert torch.equal(score(1), score(1))
    assert not torch.equal(score(1), score(2))


@pytest.mark.parametrize("n_bits", range(1, 9))
def test_decoding_undoes_encoding(n_bits):
    model = tiny_model(n_bits=n_bits)
    batch = torch.randint(0, 256, (4, *model.shape), dtype=torch.uint8)
    batch[0], batch[1] = 0, 255
    z = model.encode(batch)
    assert z.shape == batch.shape
    assert torch.equal(model.decode(z), batch >> (8 - n_bits) << (8 - n_bits))


def test_samples_depend_on_seed_and_temperature_alone():
    model = tiny_model(n_bits=5)
    seeded = lambda: torch.Generator().manual_seed(3)  # noqa: E731
    together = model.sample(4, temperature=0.7, generator=seeded())
    generator = seeded()
    one_by_one = torch.cat([model.sample(1, 0.7, generator) for _ in range(4)])
    assert together.dtype == torch.uint8
    assert together.shape == (4, *model.shape)
    assert (together.int() - one_by_one.int()).abs().max() <= 8  # a level, where rounding differs
    assert (together % 8 == 0).all()
    assert not torch.equal(together, model.sample(4, 1.0, seeded()))
    cold = model.sample(2, temperature=0.0)
    assert torch.equal(cold[0], cold[1])


def test_latent_levels_say_who_owns_what():
    model = tiny_model()
    levels = model.latent_levels()
    assert levels.shape == model.shape
    assert levels.unique().tolist() == [1, 2]
    assert (levels == 1).float().mean() == 0.5  # M = 4 with two blocks: a quarter leaves twice
    z = torch.randn(1, *model.shape)
    moved = torch.where(levels == 1, z + 0.1, z)
    top = model.flow.level2
    inputs = []
    handle = top["block0"].register_forward_pre_hook(lambda m, args: inputs.append(args[0]))
    for latent in (z, moved):
        model.flow(model.flow.inverse(latent))
    handle.remove()
    torch.testing.assert_close(inputs[0], inputs[1], atol=1e-4, rtol=1e-4)


@BOTH
def test_an_uninitialised_model_says_so(variational):
    model = tiny_config(variational=variational).build()
    batch = images(2, model)
    for ask in (model.log_prob, model.bits_per_dim, model.encode, model):
        with pytest.raises(ValueError, match="not initialised"):
            ask(batch)
    for ask in (model.decode, model.log_density):
        with pytest.raises(ValueError, match="not initialised"):
            ask(torch.zeros(1, *model.shape))
    with pytest.raises(ValueError, match="not initialised"):
        model.sample(1)


def test_being_initialised_is_part_of_the_state():
    model = tiny_model()
    other = tiny_config().build()
    other.load_state_dict(model.state_dict())
    assert other.is_initialized
    other.load_state_dict(tiny_config().build().state_dict())
    assert not other.is_initialized


@BOTH
def test_saving_and_loading(variational, tmp_path):
    model = tiny_model(variational=variational, n_bits=5)
    model.save_pretrained(tmp_path / "model")
    again = macow.load(tmp_path / "model")
    assert again.config == model.config
    batch = images(2, model)
    eps = torch.rand(batch.shape)
    with torch.no_grad():
        assert torch.equal(again.log_prob(batch, eps=eps), model.log_prob(batch, eps=eps))
    files = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert files == ["config.json", "model.safetensors"]
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["format"] == 1
    assert config["macow"] == macow.__version__


def spoil_config(change):
    def spoil(folder):
        config = json.loads((folder / "config.json").read_text())
        change(config)
        (folder / "config.json").write_text(json.dumps(config))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "it has no config.json"),
        (lambda f: (f / "model.safetensors").unlink(), "it has no model.safetensors"),
        (lambda f: (f / "config.json").write_text("{"), "is not JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "no format number"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\0" * 99), "is damaged"),
        (spoil_config(lambda c: c.update(format=99)), "format 99.*update macow"),
        (spoil_config(lambda c: c.update(format=True)), "no format number"),
        (spoil_config(lambda c: c.update(wings=2)), "unknown keys: wings"),
        (spoil_config(lambda c: c["model"].update(wings=2)), "unknown keys: wings"),
        (
            spoil_config(lambda c: c["model"]["flow"].update(hidden=[10**12] * 3)),
            "hidden and kernel must be at most 65,536",
        ),
        (lambda f: (f / "config.json").write_text("[" * 100_000), "is not JSON"),
        (spoil_config(lambda c: c["model"].update(n_bits="8")), "n_bits must be int, got '8'"),
        (spoil_config(lambda c: c["model"].update(n_bits=9)), "n_bits must be from 1 to 8"),
        (spoil_config(lambda c: c["model"].pop("flow")), "flow"),
        (spoil_config(lambda c: c["model"]["flow"].update(kind="wolf")), "kind must be one of"),
        (spoil_config(lambda c: c["model"]["flow"].update(kernel=[2])), "list of 2 values"),
        (spoil_config(lambda c: c["model"]["flow"].update(hidden=[7, 8, 8])), "does not fit"),
    ],
)
def test_bad_folders_are_named(spoil, message, tmp_path):
    tiny_model().save_pretrained(tmp_path)
    spoil(tmp_path)
    with pytest.raises(ValueError, match=message):
        macow.load(tmp_path)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match="nowhere: no such folder"):
        macow.load(tmp_path / "nowhere")


BAD_IMAGES = {
    "float": (
        lambda b: b.float(),
        "must be a uint8 tensor from 0 to 255, got torch.float32",
    ),
    "int64": (lambda b: b.long(), "must be a uint8 tensor from 0 to 255, got torch.int64"),
    "numpy": (lambda b: b.numpy(), "must be a uint8 tensor from 0 to 255, got ndarray"),
    "channels": (lambda b: b[:, :1], r"3x8x12 values each, got shape \[2, 1, 8, 12\]"),
    "size": (lambda b: b[:, :, :6], r"3x8x12 values each, got shape \[2, 3, 6, 12\]"),
    "no batch": (lambda b: b[0], r"must be \[B, C, H, W\].*got shape \[3, 8, 12\]"),
    "empty": (lambda b: b[:0], "at least one image of 3x8x12, got an empty batch"),
}


@pytest.mark.parametrize(("spoil", "message"), BAD_IMAGES.values(), ids=BAD_IMAGES)
def test_bad_images_are_refused(spoil, message):
    model = tiny_model()
    batch = spoil(images(2, model))
    for ask in (model.log_prob, model.bits_per_dim, model.encode, model):
        with pytest.raises(ValueError, match=message):
            ask(batch)


BAD_FLOATS = {
    "nan": (lambda x: x * math.nan, "NaN"),
    "dtype": (lambda x: x.double(), "float32 like the model, got torch.float64"),
    "shape": (lambda x: x[:, :2], "3x8x12"),
    "empty": (lambda x: x[:0], "empty batch"),
}


@pytest.mark.parametrize(("spoil", "message"), BAD_FLOATS.values(), ids=BAD_FLOATS)
def test_bad_continuous_input_is_refused(spoil, message):
    model = tiny_model()
    for ask in (model.log_density, model.decode):
        with pytest.raises(ValueError, match=message):
            ask(spoil(torch.zeros(2, *model.shape)))


def test_noise_that_is_not_finite_is_refused():
    model = tiny_model(variational=True)
    batch = images(2, model)
    with pytest.raises(ValueError, match="eps must be finite"):
        model.log_prob(batch, eps=torch.full(batch.shape, math.nan))


@torch.no_grad()
def test_x_stays_below_the_upper_edge_of_its_level():
    model = tiny_model()
    batch = torch.full((1, *model.shape), 255, dtype=torch.uint8)
    x = model.continuous(batch, torch.full(batch.shape, 1 - 2**-24))
    assert x.max() < 1
    model.log_density(x)


def test_loading_keeps_type_and_disturbs_no_generator(tmp_path):
    model = tiny_model().double()
    model.save_pretrained(tmp_path)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    again = macow.load(tmp_path)
    assert torch.equal(torch.rand(1), expected)
    assert again.dtype == torch.float64
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])


def test_out_of_range_is_refused():
    model = tiny_model()
    with pytest.raises(ValueError, match=r"x must lie in \[-1, 1\), got values from 1 to 1"):
        model.log_density(torch.ones(1, *model.shape))
    batch = images(2, model)
    with pytest.raises(ValueError, match=r"eps must lie in \[0, 1\), got values from 2 to 2"):
        model.log_prob(batch, eps=torch.full(batch.shape, 2.0))
    with pytest.raises(ValueError, match=r"eps must be torch.float32 of shape \[3, 2, 3, 8, 12\]"):
        model.log_prob(batch, num_samples=3, eps=torch.rand(batch.shape))
    with pytest.raises(ValueError, match="num_samples must be at least 1, got 0"):
        model.log_prob(batch, num_samples=0)
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        model.sample(0)
    for temperature in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="temperature must be a number >= 0"):
            model.sample(1, temperature=temperature)
    with pytest.raises(ValueError, match="must be even to squeeze, got 7x12"):
        model.flow(torch.zeros(1, 3, 7, 12))


def test_decoding_never_gives_nan_silently():
    model = tiny_model()
    with pytest.raises(FloatingPointError, match="NaN or infinity"):
        model.decode(torch.full((1, *model.shape), 1e38))


@BOTH
def test_gradients_reach_every_parameter(variational):
    model = tiny_model(variational=variational)
    model(images(4, model)).mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_initialising_twice_is_refused():
    model = tiny_model()
    with pytest.raises(ValueError, match="initialised already"), initializing(model):
        pass


@pytest.mark.parametrize("folder", sorted(FORMATS.iterdir()), ids=lambda path: path.name)
def test_every_older_format_loads(folder):
    """A folder as each format was first written; its likelihoods are those of then."""
    model = macow.load(folder)
    expected = json.loads((folder / "expected.json").read_text())["bits_per_dim"]
    found = model.bits_per_dim(images(16, model)[:4], eps=torch.full((4, *model.shape), 0.5))
    assert found.tolist() == pytest.approx(expected, abs=1e-5)


def test_there_is_a_folder_of_every_format():
    assert sorted(int(path.name) for path in FORMATS.iterdir()) == [*range(1, FORMAT + 1)]
