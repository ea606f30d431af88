"""Class-conditional models: likelihoods, pictures and latents given a label."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import macow
from macow import cli, data
from macow.config import FlowConfig, ModelConfig
from macow.data.images import ArrayImages, DecodedImages
from macow.evaluate import evaluate
from macow.export import export_program
from macow.initialize import initializing
from macow.score import score
from macow.train import fit
from macow.train.batches import Batches
from models import images, tiny_config

NAMES = ("cat", "dog", "frog")
LABELS = torch.tensor([0, 1, 2, 1])


def conditional_model(seed=0, **options):
    torch.manual_seed(seed)
    model = replace(tiny_config(**options), labels=NAMES, label_channels=2).build()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("gain"):
                parameter.copy_(0.05 * torch.rand_like(parameter) + 0.02)
    with initializing(model):
        model(images(15, model), labels=torch.arange(15) % 3)
    return model


@pytest.mark.parametrize("variational", [False, True])
@torch.no_grad()
def test_a_label_is_a_model_of_its_own(variational):
    model = conditional_model(variational=variational).double()
    some = images(4, model)
    eps = model.draw_noise(some, torch.Generator().manual_seed(1))
    together = model.log_prob(some, eps=eps, labels=LABELS)
    for i, label in enumerate(LABELS):
        one = model.given(NAMES[label])
        alone = one.log_prob(some[i : i + 1], eps=eps[i : i + 1])
        torch.testing.assert_close(alone, together[i : i + 1], atol=1e-9, rtol=0)
        z = model.encode(some[i : i + 1], labels=LABELS[i : i + 1])
        torch.testing.assert_close(one.encode(some[i : i + 1]), z, atol=1e-12, rtol=0)
    others = model.log_prob(some, eps=eps, labels=(LABELS + 1) % 3)
    assert ((others - together).abs() > 0.01).all(), "the label makes no difference"
    x = model.continuous(some, 0.5)
    apart = (model.log_density(x, LABELS) - model.log_density(x, (LABELS + 1) % 3)).abs()
    assert (apart > 0.01).all()


def test_decoding_needs_the_same_label():
    model = conditional_model()
    some = images(4, model)
    z = model.encode(some, LABELS)
    assert torch.equal(model.decode(z, LABELS), some)
    assert not torch.equal(model.decode(z, (LABELS + 1) % 3), some)


def test_labels_take_turns_when_sampling():
    model = conditional_model()
    drawn = model.sample(4, generator=torch.Generator().manual_seed(3))
    turns = torch.tensor([0, 1, 2, 0])
    again = model.sample(4, generator=torch.Generator().manual_seed(3), labels=turns)
    assert torch.equal(drawn, again)
    frogs = model.given("frog").sample(4, generator=torch.Generator().manual_seed(3))
    assert torch.equal(frogs[2], drawn[2])
    assert not torch.equal(frogs[0], drawn[0])


def test_every_label_and_every_condition_learns():
    model = conditional_model()
    model(images(4, model), labels=LABELS).sum().backward()
    assert all((parameter.grad != 0).any() for parameter in model.parameters())
    assert (model.label_map.values.grad.abs().sum(dim=1) > 0).all()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "the model is conditional: which label?"),
        (torch.tensor([0, 1, 2, 3]), "labels must be from 0 to 2, got 0 to 3"),
        (torch.tensor([0, 1, 2, -1]), "labels must be from 0 to 2, got -1 to 2"),
        (torch.tensor([0, 1]), r"labels must be int64 of shape \[4\], got torch.int64 of shape"),
        (torch.zeros(4), r"labels must be int64 of shape \[4\], got torch.float32"),
    ],
)
def test_bad_labels_are_refused(labels, message):
    model = conditional_model()
    some = images(4, model)
    for use in (model.log_prob, model.encode):
        with pytest.raises(ValueError, match=message):
            use(some, labels=labels)


def test_labels_for_a_model_without_them_are_refused():
    model = macow.load("digits")
    with pytest.raises(ValueError, match="the model knows no labels"):
        model.log_prob(images(4, model), labels=LABELS)
    with pytest.raises(ValueError, match="the model knows no labels, so not 'cat' either"):
        model.given("cat")
    with pytest.raises(ValueError, match="label must be one of cat, dog, frog, got 'cow'"):
        conditional_model().given("cow")


@pytest.mark.parametrize("labels", [("a",), ("a", "a"), ("a", "")])
def test_labels_are_different_names(labels):
    with pytest.raises(ValueError, match="labels must be two or more different names"):
        replace(tiny_config(), labels=labels)


def test_saving_keeps_the_labels(tmp_path):
    model = conditional_model()
    model.save_pretrained(tmp_path)
    loaded = macow.load(tmp_path)
    assert loaded.labels == NAMES
    z = torch.randn(4, *model.shape)
    assert torch.equal(loaded.decode(z, LABELS), model.decode(z, LABELS))


@torch.no_grad()
def test_the_exported_program_takes_labels(tmp_path):
    flow = FlowConfig(steps=((1,),), hidden=(6,), units=1, bottom=False)
    model = ModelConfig(flow, size=(4, 4), labels=NAMES, label_channels=2).build()
    model.is_initialized = True
    export_program(model, tmp_path / "likelihood.pt2")  # verifies itself
    program = torch.export.load(tmp_path / "likelihood.pt2").module()
    some = images(4, model)
    eps = model.draw_noise(some)
    torch.testing.assert_close(program(some, eps, LABELS), model(some, eps=eps, labels=LABELS))


# Data with labels


def save_pictures(folder, count, value):
    folder.mkdir(parents=True)
    for i in range(count):
        pixels = np.full((8, 8, 3), value, np.uint8)
        pixels[0, 0] = i
        Image.fromarray(pixels).save(folder / f"{i}.png")


def test_sub_folders_are_labels(tmp_path):
    for split, count in (("train", 6), ("test", 2)):
        for value, name in ((10, "dog"), (200, "cat")):
            save_pictures(tmp_path / split / name / "inner", count, value)
    train = data.load(f"folder:{tmp_path}", "train", (3, 8, 8))
    assert train.label_names == ("cat", "dog")
    last = train.array[:, 0, 7, 7]
    assert np.array_equal(
        np.where(last == 10, "dog", "cat"), np.array(["cat", "dog"])[train.labels]
    )
    assert np.array_equal(data.label_numbers(train, ("dog", "cow", "cat")), 2 * (train.labels == 0))
    with pytest.raises(ValueError, match="label 'cat' is none of the model's.*'\\[cat, dog\\]'"):
        data.label_numbers(train, ("dog", "cow"))
    save_pictures(tmp_path / "flat", 3, 1)
    assert data.load(f"folder:{tmp_path / 'flat'}", "train", (3, 8, 8)).labels is None


def test_a_folder_split_by_content_keeps_its_labels(tmp_path):
    for value, name in ((10, "dog"), (200, "cat")):
        save_pictures(tmp_path / name, 12, value)
    for split in ("train", "test"):
        some = data.load(f"folder:{tmp_path}", split, (3, 8, 8))
        assert np.array_equal(some.array[:, 0, 7, 7], np.array([200, 10])[some.labels])


def test_packing_keeps_labels_and_their_names(tmp_path, capsys):
    assert cli.main(["data", "pack", "digits", str(tmp_path)]) == 0
    assert "labels: 0 (136), 1 (154)" in capsys.readouterr().out
    packed, digits = data.load(f"packed:{tmp_path}", "test"), data.load("digits", "test")
    assert packed.label_names == digits.label_names
    assert np.array_equal(packed.labels, digits.labels)
    (tmp_path / "test_labels.json").write_text('["0", "1"]')
    with pytest.raises(ValueError, match="labels must be 360 whole numbers"):
        data.load(f"packed:{tmp_path}", "test")
    (tmp_path / "test_labels.json").write_text("{")
    with pytest.raises(ValueError, match="test_labels.json is not JSON"):
        data.load(f"packed:{tmp_path}", "test")


@pytest.mark.filterwarnings("ignore:left out")
def test_what_stands_in_for_a_broken_image_has_its_label():
    def read(value):
        if value == 1:
            raise ValueError("broken")
        return Image.fromarray(np.full((8, 8, 3), value, np.uint8))

    some = DecodedImages([0, 1, 2, 3], read, (3, 8, 8))
    some.labels, some.label_names = np.array([0, 1, 0, 1]), ("even", "odd")
    assert some.take(np.arange(4))[:, 0, 0, 0].tolist() == [0, 3, 2, 3]


def test_processes_see_the_labels_of_their_images():
    pixels = np.repeat(np.arange(20, dtype=np.uint8), 3 * 8 * 8).reshape(20, 3, 8, 8)
    source = ArrayImages(pixels, np.arange(20) % 3)
    for part in (slice(0, 4), slice(4, 8)):
        batches = Batches(
            source,
            8,
            seed=0,
            device=torch.device("cpu"),
            part=part,
            names=source.label_names,
        )
        for step in range(6):
            assert torch.equal(batches.at(step)[:, 0, 0, 0].long() % 3, batches.labels_at(step))
        batches.close()


# A run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels") / "run"
    base = macow.preset("digits-conditional")
    flow = replace(base.model.flow, steps=((1,), (1,)), factors=(2,), hidden=(16, 16))
    train = replace(
        base.train,
        steps=40,
        batch_size=64,
        warmup=5,
        eval_every=40,
        eval_images=64,
        lr=2e-2,
        ema=0.0,
    )
    config = replace(base, model=replace(base.model, flow=flow), train=train)
    fit(config, "digits", folder, quiet=True)
    return folder


def test_a_trained_model_knows_which_digit_it_sees(run):
    model, test = macow.load(run), data.load("digits", "test")
    result = evaluate(model, test)
    assert list(result.by_label) == list("0123456789")
    assert sum(of_label.images for of_label in result.by_label.values()) == 360
    weighted = sum(b.images * b.bits_per_dim for b in result.by_label.values()) / 360
    assert abs(weighted - result.bits_per_dim) < 1e-9
    wrong = ArrayImages(test.array, (test.labels + 1) % 10, test.label_names)
    assert evaluate(model, wrong).bits_per_dim > result.bits_per_dim + 0.05


def test_the_verbs_take_a_label(run, tmp_path, capsys):
    assert cli.main(["evaluate", str(run), "--data", "digits", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {digit}  " in shown for digit in range(10))
    sample = ["sample", str(run), "--quiet", "--temperature", "0.7"]
    assert cli.main([*sample, "--count", "20", "--out", str(tmp_path / "all")]) == 0
    assert cli.main([*sample, "--count", "4", "--label", "3", "--out", str(tmp_path / "3")]) == 0
    third, other = "00003.png", "00002.png"
    assert (tmp_path / "all" / third).read_bytes() == (tmp_path / "3" / third).read_bytes()
    assert (tmp_path / "all" / other).read_bytes() != (tmp_path / "3" / other).read_bytes()
    threes, out = str(tmp_path / "3" / third), tmp_path / "scores.csv"
    bits = []
    for label in ("3", "1"):
        assert cli.main(["score", str(run), threes, "--label", label, "--out", str(out)]) == 0
        bits.append(float(next(csv.DictReader(out.read_text().splitlines()))["bits_per_dim"]))
    assert bits[0] != bits[1]
    latents = str(tmp_path / "z.npz")
    assert cli.main(["encode", str(run), threes, "--label", "3", "--out", latents]) == 0
    assert (
        cli.main(["decode", str(run), latents, "--label", "3", "--out", str(tmp_path / "d")]) == 0
    )
    assert (tmp_path / "d" / "00000_00003.png").read_bytes() == Path(threes).read_bytes()
    film = ["--label", "3", "--frames", "3", "--out", str(tmp_path / "film.webp")]
    assert cli.main(["interpolate", str(run), "sample:0", "sample:1", *film]) == 0
    assert cli.main(["check", str(run)]) == 0
    assert cli.main(["export", str(run), str(tmp_path / "given")]) == 0
    assert "Labels: 0, 1, 2" in (tmp_path / "given" / "README.md").read_text()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["score", "{run}", "{run}/samples"], "is conditional: give --label, one of 0, 1"),
        (["sample", "{run}", "--label", "x"], "label must be one of 0, 1, 2"),
        (["sample", "digits", "--label", "3"], "the model knows no labels, so not '3' either"),
        (["evaluate", "{run}", "--data", "packed:{run}"], "no such file"),
    ],
)
def test_a_wrong_label_is_one_line(argv, message, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main([word.format(run=run) for word in argv]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_unlabelled_images_are_refused(run, tmp_path, capsys):
    save_pictures(tmp_path / "flat", 4, 9)
    assert cli.main(["evaluate", str(run), "--data", f"folder:{tmp_path / 'flat'}"]) == 2
    assert "these images have no labels" in capsys.readouterr().err


def test_any_labelled_source_has_figures_by_label(capsys):
    argv = ["evaluate", "digits", "--data", "digits", "--limit", "40", "--json", "--quiet"]
    assert cli.main(argv) == 0
    by_label = json.loads(capsys.readouterr().out)["by_label"]
    assert sum(figure["images"] for figure in by_label.values()) == 40


def test_a_damaged_model_stays_damaged_given_a_label(run, tmp_path):
    model = macow.load(run)
    state = model.state_dict()
    state["flow.level1.block0.step0.unit0.down.mix.bias"][0] = torch.inf
    model.load_state_dict(state)
    test = data.load("digits", "test")
    some = torch.from_numpy(test.array[:2])
    for use in (
        lambda: model.given("3").log_prob(some),
        lambda: model.given("3").sampler(),
        lambda: evaluate(model, test),
        lambda: score(model, some, labels=torch.tensor([0, 1])),
    ):
        with pytest.raises(
            FloatingPointError, match=r"1 weights are not finite, flow\.(inner\.)?level1"
        ):
            use()


def test_packing_again_leaves_no_labels_of_other_images(tmp_path):
    assert cli.main(["data", "pack", "digits", str(tmp_path / "packed")]) == 0
    for split in ("train", "test"):
        save_pictures(tmp_path / "flat" / split, 3, 7)
    pack = ["data", "pack", f"folder:{tmp_path / 'flat'}", str(tmp_path / "packed")]
    assert cli.main([*pack, "--size", "8,8"]) == 0
    assert data.load(f"packed:{tmp_path / 'packed'}", "train").labels is None
