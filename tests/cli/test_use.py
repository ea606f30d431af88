"""What people do with a trained model: score, encode, decode, interpolate, check, export."""

import csv
import json

import numpy as np
import pytest
import torch
from PIL import Image

import macow
from macow.cli import main
from macow.export import export, export_program
from macow.latents import apply_attribute, arc, decoded, mean_latent
from macow.pretrained import find
from macow.score import Reference, score
from models import tiny_model, walk_with_gaps


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A folder of six digits, and a file that is no image."""
    folder = tmp_path_factory.mktemp("drawn")
    assert main(["sample", "digits", "--count", "6", "--out", str(folder), "--quiet"]) == 0
    (folder / "grid.png").unlink()
    (folder / "notes.txt").write_text("hello")
    return folder


def test_score_gives_a_row_a_file(drawn, tmp_path, capsys):
    out = tmp_path / "scores.csv"
    argv = ["score", "digits", str(drawn), "--out", str(out), "--batch_size", "4"]
    assert main(argv) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["file"].rsplit("/", 1)[1] for row in rows][-1] == "notes.txt"
    assert rows[-1]["error"] == "not an image"
    assert "6 images scored, 1 could not be" in capsys.readouterr().err
    for row in rows[:-1]:
        difference = float(row["bits_per_dim"]) - float(row["codec_bits_per_dim"])
        assert float(row["corrected"]) == pytest.approx(difference)
        assert 0 <= float(row["percentile"]) <= 100
        assert 0 <= float(row["typicality"]) <= 1
    lines = tmp_path / "scores.jsonl"
    assert main(["score", "digits", str(drawn), "--out", str(lines), "--reference", "digits"]) == 0
    again = [json.loads(line) for line in lines.read_text().splitlines()]
    assert again[0]["bits_per_dim"] == pytest.approx(float(rows[0]["bits_per_dim"]), abs=1e-4)


@torch.no_grad()
def test_a_score_is_what_the_model_says():
    model = tiny_model(variational=True, n_bits=5)
    images = torch.randint(0, 256, (3, *model.shape), dtype=torch.uint8)
    alone = score(model, images[1:2])[0]
    together = score(model, images)[1]
    assert alone.bits_per_dim == pytest.approx(together.bits_per_dim, abs=1e-4)
    assert alone.bits_per_dim == pytest.approx(model.bits_per_dim(images[1:2]).item(), rel=0.1)
    assert score(model, images, seed=1)[1].bits_per_dim != together.bits_per_dim


def test_noise_is_unusual_and_a_black_image_simple():
    model = macow.load("digits")
    reference = Reference.beside(macow.pretrained.find("digits"))
    noise = torch.randint(0, 256, (1, 1, 8, 8), dtype=torch.uint8)
    black = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    unusual, simple = (score(model, image, reference=reference)[0] for image in (noise, black))
    assert unusual.percentile == 100
    assert unusual.typicality == 0
    assert simple.codec_bits_per_dim < unusual.codec_bits_per_dim


def test_percentiles_follow_the_quantiles(tmp_path):
    reference = Reference(3, (1.0, 2.0, 3.0), (0.0, 0.0, 0.0))
    assert reference.percentile(0.5) == 0
    assert reference.percentile(2.5) == 75
    assert reference.percentile(9.0) == 100
    reference.write(tmp_path)
    assert Reference.beside(tmp_path) == reference
    (tmp_path / "reference.json").write_text("{}")
    with pytest.raises(ValueError, match="not a reference"):
        Reference.beside(tmp_path)


def test_latents_lead_back_to_the_files(drawn, tmp_path, capsys):
    npz, out = tmp_path / "latents.npz", tmp_path / "back"
    images = [str(path) for path in sorted(drawn.glob("*.png"))]
    assert main(["encode", "digits", *images, "--out", str(npz)]) == 0
    with np.load(npz) as archive:
        assert archive["latents"].shape == (6, 1, 8, 8)
        assert archive["names"].tolist() == images
    assert main(["decode", "digits", str(npz), "--out", str(out), "--batch_size", "4"]) == 0
    for path, back in zip(images, sorted(out.iterdir()), strict=True):
        assert np.array_equal(np.asarray(Image.open(path)), np.asarray(Image.open(back)))
    capsys.readouterr()
    npz = tmp_path / "new" / "latents.npz"
    assert main(["encode", "digits", str(drawn), "--out", str(npz)]) == 1
    assert npz.exists()
    assert "notes.txt: not an image" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["webp", "gif"])
def test_films_start_and_end_at_their_images(drawn, tmp_path, suffix):
    film = tmp_path / f"film.{suffix}"
    ends = [str(drawn / "00000.png"), "sample:3"]
    assert main(["interpolate", "digits", *ends, "--out", str(film), "--frames", "5"]) == 0
    with Image.open(film) as animation:
        assert animation.n_frames == 8  # there and back
        animation.seek(0)
        first = np.asarray(animation.convert("L").resize((8, 8), Image.Resampling.NEAREST))
    start = np.asarray(Image.open(drawn / "00000.png"))
    assert np.abs(first.astype(int) - start).max() <= (0 if suffix == "webp" else 8)
    with Image.open(tmp_path / "film_strip.png") as strip:
        assert strip.width > strip.height


def test_arcs_keep_their_distance_from_the_origin():
    start, end = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    end = 2 * end
    points = arc(start, end, 5)
    assert torch.equal(points[0], start)
    assert torch.equal(points[-1], end)
    shares = torch.linspace(0, 1, 5)
    lengths = torch.lerp(start.norm(), end.norm(), shares)
    torch.testing.assert_close(points.flatten(1).norm(dim=1), lengths)
    middle = start / lengths[0] + end / lengths[-1]
    torch.testing.assert_close(points[2], middle * lengths[2] / middle.norm())
    cosines = torch.cosine_similarity(points[:-1].flatten(1), points[1:].flatten(1))
    torch.testing.assert_close(cosines, cosines[:1].expand(4))
    torch.testing.assert_close(arc(start, start, 3), start.expand(3, -1, -1, -1))
    nothing = torch.zeros_like(start)
    torch.testing.assert_close(arc(nothing, end, 3)[1], end / 2)
    assert arc(start, -start, 3).isfinite().all()
    assert torch.equal(arc(nothing, nothing, 3), nothing.expand(3, -1, -1, -1))
    with pytest.raises(ValueError, match="frames must be at least 2, got 1"):
        arc(start, end, 1)


def test_films_leave_out_what_leads_to_no_image(tmp_path, capsys):
    model, film = macow.load("digits"), tmp_path / "film.webp"
    good = walk_with_gaps(model)
    assert good[0]
    assert good[-1]
    lost = good.count(False)
    assert lost > 0
    ends = ["sample:2", "sample:9", "--temperature", "2", "--frames", "12"]
    assert main(["interpolate", "digits", *ends, "--out", str(film)]) == 0
    assert capsys.readouterr().out.endswith(f"latents lead to no image: {lost}\n")
    with Image.open(film) as animation:
        assert animation.n_frames == 2 * (12 - lost) - 2
    with pytest.raises(FloatingPointError, match="beyond what the model can compute"):
        decoded(model, torch.full((1, *model.shape), 1e30))


def test_films_overwrite_no_image(drawn, tmp_path, capsys):
    face, strip = tmp_path / "face.webp", tmp_path / "face_strip.png"
    Image.open(drawn / "00000.png").save(face, lossless=True)
    Image.open(drawn / "00001.png").save(strip)
    before = face.read_bytes(), strip.read_bytes()
    for ends in ([str(face), "sample:1"], ["sample:1", str(strip)]):
        assert main(["interpolate", "digits", *ends, "--out", str(face)]) == 2
        assert "would be overwritten" in capsys.readouterr().err
    assert (face.read_bytes(), strip.read_bytes()) == before
    argv = ["interpolate", "digits", "sample:1", "sample:2", "--temperature", "-1"]
    assert main([*argv, "--out", str(tmp_path / "film.webp")]) == 2
    assert "--temperature" in capsys.readouterr().err


def test_attributes_are_differences_of_mean_latents(drawn, tmp_path):
    few, many = tmp_path / "few", tmp_path / "many"
    for folder, numbers in ((few, (0, 1)), (many, (2, 3, 4))):
        folder.mkdir()
        for i in numbers:
            (folder / f"{i}.png").write_bytes((drawn / f"{i:05d}.png").read_bytes())
    argv = ["interpolate", "digits", str(drawn / "00000.png"), "--frames", "3"]
    argv += ["--toward", str(few), "--away", str(many), "--out", str(tmp_path / "film.webp")]
    assert main(argv) == 0
    model = macow.load("digits")
    images = torch.from_numpy(
        np.stack([np.asarray(Image.open(drawn / f"{i:05d}.png"))[None] for i in range(4)])
    )
    mean = mean_latent(model, [images[:3], images[3:]])
    torch.testing.assert_close(mean, model.encode(images).mean(dim=0), atol=1e-5, rtol=0)
    moved = apply_attribute(model, images, 0.1 * mean, [0.0, 1.0])
    assert moved.shape == (4, 2, 1, 8, 8)
    assert torch.equal(moved[:, 0], images)
    with pytest.raises(ValueError, match="no images"):
        mean_latent(model, [])


def spoil(change):
    model = macow.load("digits")
    with torch.no_grad():
        change(model)
    return model


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (lambda m: None, 0, "is sound"),
        (lambda m: m.flow.level1["block0"].step2.glow.norm.shift.fill_(float("nan")), 1,
         "flow.level1.block0.step2.glow.norm.shift"),
        (lambda m: m.flow.level1["block1"].step0.glow.norm.log_scale.fill_(60.0), 1,
         "flow.level1.block1.step0.glow.norm scales a channel"),
        (lambda m: m.flow.level2["block0"].step1.glow.mix.weight.copy_(torch.ones(8, 8)), 1,
         "flow.level2.block0.step1.glow.mix is nearly singular"),
        (lambda m: setattr(m, "is_initialized", False), 1, "not initialised"),
    ],
)  # fmt: skip
def test_check_finds_what_is_wrong_and_where(change, code, words, tmp_path, capsys):
    spoil(change).save_pretrained(tmp_path)
    assert main(["check", str(tmp_path)]) == code
    assert words in capsys.readouterr().out
    assert main(["check", str(tmp_path), "--data", "digits", "--json"]) == code
    assert json.loads(capsys.readouterr().out)["findings"]


def test_a_model_that_saw_no_images_is_named_by_every_verb(drawn, tmp_path, capsys):
    macow.preset("digits").model.build().save_pretrained(tmp_path / "new")
    model, image = str(tmp_path / "new"), str(drawn / "00000.png")
    for line in (
        ["evaluate", model, "--data", "digits", "--limit", "8"],
        ["evaluate", model, "--data", "digits", "--limit", "8", "--lean"],
        ["sample", model, "--count", "1", "--out", str(tmp_path / "drawn")],
        ["score", model, image],
        ["encode", model, image, "--out", str(tmp_path / "z.npz")],
        ["export", model, str(tmp_path / "given"), "--reference", "digits"],
    ):
        assert main(line) == 2, line
        assert "the model is not initialised" in capsys.readouterr().err


def test_export_keeps_a_run_and_a_reference(tmp_path, capsys):
    run, given = tmp_path / "run", tmp_path / "given"
    run.mkdir()
    (run / "config.yaml").write_text("a run's\n")
    assert main(["export", "digits", str(run)]) == 2
    assert "is a run" in capsys.readouterr().err
    assert [path.name for path in run.iterdir()] == ["config.yaml"]
    model, reference = macow.load("digits"), Reference.beside(find("digits"))
    export(model, given, reference)
    card = (given / "README.md").read_text()
    assert "reference images" in card
    export(model, given)
    assert (given / "README.md").read_text() == card
    assert Reference.beside(given) == reference


def test_a_program_that_is_wrong_is_not_written(tmp_path, monkeypatch):
    model = tiny_model(size=(8, 8))
    monkeypatch.setattr(torch, "allclose", lambda *_, **__: False)
    with pytest.raises(ArithmeticError, match="gives other likelihoods"):
        export_program(model, tmp_path / "likelihood.pt2")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("bits", ["32", "8"])
def test_export_is_a_model_for_others(bits, tmp_path, capsys):
    model = tiny_model(variational=True, size=(8, 8))
    model.save_pretrained(tmp_path / "model")
    out = tmp_path / "given"
    argv = ["export", str(tmp_path / "model"), str(out), "--reference", "digits", "--program"]
    assert main([*argv, "--bits", bits]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md", "config.json", "likelihood.pt2", "model.safetensors", "reference.json",
    ]  # fmt: skip
    card = (out / "README.md").read_text()
    assert "variational dequantization" in card
    assert "360 reference images" in card
    program = torch.export.load(out / "likelihood.pt2").module()
    images = torch.randint(0, 256, (5, *model.shape), dtype=torch.uint8)
    eps = torch.randn(images.shape)
    with torch.no_grad():
        torch.testing.assert_close(
            program(images, eps), macow.load(out)(images, eps=eps), rtol=1e-4, atol=1e-2
        )
        before = model(images, eps=eps)
    assert torch.allclose(program(images, eps), before, rtol=1e-4) == (bits == "32")
