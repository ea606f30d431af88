"""The JSON API: what it answers is what the library says, and what cannot be is one clear line."""

import base64
import json
import re
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

import macow
from explorers import pixels, png, served
from macow import data
from macow.pictures import grid
from macow.sampler import latents
from macow.score import Reference, bits_map, score
from macow.web import explorer
from macow.web.api import MOST_UPLOAD, Api
from macow.web.explorer import FRESH
from macow.web.worker import Worker
from models import tiny_model, walk_with_gaps
from pages import page


@pytest.fixture(scope="module")
def model():
    return macow.load("digits")


@pytest.fixture(scope="module")
def conditional():
    torch.manual_seed(0)
    model = macow.preset("digits-conditional").model.build()
    images = torch.from_numpy(data.load("digits", "train").take(np.arange(64)))
    with macow.initializing(model):
        model(images, labels=model.labels_in_turn(range(64)))
    with served(model, "conditional") as running:
        yield running


def test_it_says_what_the_model_is(digits, model):
    about = json.loads(digits.ask("GET", "/api/model")[2])
    assert about["shape"] == [1, 8, 8]
    assert about["parameters"] == 267_531
    assert about["labels"] == []
    assert sum(about["reference"]["shares"]) == pytest.approx(1)
    blocks = [part for part in about["drawing"] if part["kind"] == "block"]
    assert [block["name"] for block in blocks] == [
        "level1.block0", "level1.block1", "level2.block0"
    ]  # fmt: skip
    assert sum(np.prod(block["latents"]) for block in blocks) == model.num_dims
    flow = sum(p.numel() for p in model.flow.parameters())
    assert sum(block["parameters"] for block in blocks) == flow


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_samples_are_those_of_the_seed_at_any_temperature(digits, model, temperature):
    wish = {"count": 11, "seed": 7, "temperature": temperature}
    *batches, last = digits.lines("/api/samples", wish)
    assert len(batches) > 1
    assert [batch["first"] for batch in batches] == [0, 4]
    found = np.stack([pixels(url) for batch in batches for url in batch["images"]])
    expected = model.decode(temperature * latents(model.shape, 7, range(11))).numpy()
    assert np.array_equal(found, expected)
    assert np.array_equal(pixels(last["grid"])[0], np.asarray(grid(expected)))


def test_draws_that_lead_nowhere_are_repeated_as_by_the_sampler(digits, model):
    *batches, last = digits.lines("/api/samples", {"count": 64, "temperature": 2})
    found = np.stack([pixels(url) for batch in batches for url in batch["images"]])
    sampler = model.sampler()
    assert np.array_equal(found, sampler.numbered(range(64), 2).numpy())
    assert last["repeated"] == sampler.drawn_again > 0
    first = model.flow.inverse(2 * latents(model.shape, 0, range(64)))
    number = first.isfinite().flatten(1).all(dim=1).tolist().index(False)
    end = {"sample": number, "temperature": 2}
    *_, last, _ = digits.lines("/api/between", {"end": end})
    assert np.array_equal(pixels(last["images"][-1]), found[number])
    original, *_ = digits.lines("/api/levels", {"start": end})
    assert np.array_equal(pixels(original["original"]), found[number])


def test_levels_that_lead_nowhere_are_drawn_anew(digits, model):
    z, fresh = latents(model.shape, 0, [0]), 2 * latents(model.shape, 0, range(FRESH, FRESH + 16))
    mixed = torch.where(model.latent_levels() == 2, fresh, z)
    good = model.flow.inverse(mixed).isfinite().flatten(1).all(dim=1).tolist()
    assert not all(good)
    *_, last = digits.lines("/api/levels", {"start": {}, "temperature": 2, "count": 16})
    assert last["level"] == 2
    pictures = np.stack([pixels(url) for url in last["images"]])
    assert np.array_equal(pictures[good], model.decode(mixed[good]).numpy())


def test_what_lies_beyond_is_left_out(digits, model):
    *batches, last = digits.lines("/api/samples", {"count": 64, "temperature": 3})
    urls = [url for batch in batches for url in batch["images"]]
    x, _ = model.sampler().attempted(range(64), 3)
    good = x.isfinite().flatten(1).all(dim=1).tolist()
    assert not all(good)
    assert [url is not None for url in urls] == good
    assert pixels(last["grid"]).shape[1] > 500
    wish = {"end": {"sample": good.index(False), "temperature": 3}}
    assert digits.lines("/api/between", wish)[-1]["error"].startswith("beyond what the model can")
    status, text = digits.mistake("/api/levels", {"start": wish["end"]})
    assert (status, text[:30]) == (500, "beyond what the model can compute"[:30])


def test_a_score_is_that_of_the_library(digits, model):
    image = data.load("digits", "test").take(np.arange(1))
    (found,) = digits.lines("/api/score", png(image[0, 0]))
    reference = Reference.beside(macow.pretrained.find("digits"))
    (expected,) = score(model, torch.from_numpy(image), reference=reference)
    assert found["bits_per_dim"] == pytest.approx(expected.bits_per_dim, abs=1e-4)
    assert found["percentile"] == pytest.approx(expected.percentile, abs=0.1)
    assert np.mean(found["map"]) == pytest.approx(expected.bits_per_dim, abs=1e-3)
    assert np.array_equal(pixels(found["reconstruction"]), pixels(found["image"]))
    assert np.array_equal(pixels(found["image"]), image[0] & 0xF0)
    assert found["values_lost"] == 0
    assert 0 < found["round_trip_error"] < 0.01


@pytest.mark.parametrize("variational", [False, True])
def test_the_map_of_bits_adds_up_to_the_score(variational):
    model = tiny_model(variational=variational)
    images = torch.randint(0, 256, (3, *model.shape), dtype=torch.uint8)
    scores = torch.tensor([found.bits_per_dim for found in score(model, images, seed=5)])
    mean = bits_map(model, images, seed=5).sum(dim=(1, 2)) / model.num_dims
    torch.testing.assert_close(mean, scores, atol=1e-4, rtol=1e-4)


def test_an_image_is_fitted(digits):
    large = np.zeros((40, 60, 3), np.uint8)
    large[:, :30] = 255
    found = pixels(digits.lines("/api/image", png(large))[0]["image"])
    assert found.shape == (1, 8, 8)
    assert found[0, 0, 0] > 200 > 40 > found[0, 0, 7]


def test_a_film_leaves_out_what_lies_beyond(digits, model, monkeypatch):
    ends = [{"sample": number, "temperature": 2} for number in (2, 9)]
    wish = {"start": ends[0], "end": ends[1], "frames": 12}
    *batches, last = digits.lines("/api/between", wish)
    found = [url is not None for batch in batches for url in batch["images"]]
    good = walk_with_gaps(model)
    assert found == good
    assert 2 < sum(good) < 12
    for size in (1, 2):  # batches of which none leads to an image
        monkeypatch.setattr(explorer, "FIRST_BATCH", size)
        monkeypatch.setattr(explorer, "BATCH_SECONDS", 0)
        *again, _ = digits.lines("/api/between", wish)
        assert [url is not None for batch in again for url in batch["images"]] == good
    film = Image.open(BytesIO(base64.b64decode(last["film"].partition(",")[2])))
    assert film.n_frames == 2 * sum(good) - 2


def test_a_line_begins_and_ends_where_it_should(digits, model):
    image = pixels(digits.lines("/api/image", png(np.full((8, 8), 96, np.uint8)))[0]["image"])
    url = f"data:image/png;base64,{base64.b64encode(png(image[0])).decode()}"
    wish = {"start": {"image": url}, "end": {"sample": 5, "seed": 3, "temperature": 0.7}}
    *batches, last = digits.lines("/api/between", {**wish, "frames": 9})
    frames = [pixels(url) for batch in batches for url in batch["images"]]
    assert len(frames) == 9
    assert np.array_equal(frames[0], image)
    end = model.decode(0.7 * latents(model.shape, 3, [5]))[0].numpy()
    assert np.array_equal(frames[-1], end)
    film = Image.open(BytesIO(base64.b64decode(last["film"].partition(",")[2])))
    assert film.format == "WEBP"
    assert film.n_frames == 16  # there and back


def test_a_level_is_drawn_anew_and_the_others_stay(digits, model):
    wish = {"start": {"sample": 2, "temperature": 0.8}, "count": 3, "temperature": 0.9, "seed": 4}
    first, *rows = digits.lines("/api/levels", wish)
    z = 0.8 * latents(model.shape, 0, [2])
    assert np.array_equal(pixels(first["original"]), model.decode(z)[0].numpy())
    owners = model.latent_levels()
    assert [row["level"] for row in rows] == [1, 2]
    fresh = 0.9 * latents(model.shape, 4, range(FRESH, FRESH + 3))
    for row in rows:
        mixed = model.decode(torch.where(owners == row["level"], fresh, z)).numpy()
        assert np.array_equal(np.stack([pixels(url) for url in row["images"]]), mixed)
        assert row["latents"] == (owners == row["level"]).sum()
        assert row["change"] > 1


def test_a_conditional_model_takes_a_label(conditional):
    model = conditional.explorer.model
    *batches, _ = conditional.lines("/api/samples", {"count": 3, "label": "7"})
    found = np.stack([pixels(url) for batch in batches for url in batch["images"]])
    expected = model.given("7").decode(latents(model.shape, 0, range(3))).numpy()
    assert np.array_equal(found, expected)
    *batches, last = conditional.lines("/api/samples", {"count": 20})
    turns = model.decode(latents(model.shape, 0, range(20)), model.labels_in_turn(range(20)))
    assert np.array_equal(pixels(last["grid"])[0], np.asarray(grid(turns.numpy(), 10)))
    file = png(np.zeros((8, 8), np.uint8))
    (found,) = conditional.lines("/api/score?label=7", file)
    (expected,) = score(model.given("7"), torch.zeros(1, 1, 8, 8, dtype=torch.uint8))
    assert found["bits_per_dim"] == pytest.approx(expected.bits_per_dim, abs=1e-4)
    assert found["percentile"] is None
    for path, wish in [
        ("/api/score", file),
        ("/api/between", {"start": {}, "end": {}}),
        ("/api/levels", {"start": {}}),
        ("/api/fields", {"level": 1}),
    ]:
        assert conditional.mistake(path, wish) == (
            400, "choose a label, one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
        )  # fmt: skip
    ends = {"start": {"sample": 1}, "end": {"sample": 2}, "label": "3", "frames": 2}
    assert len(conditional.lines("/api/between", ends)) == 2
    assert len(conditional.lines("/api/levels", {"start": {}, "label": "3"})) == 3
    assert len(conditional.lines("/api/fields", {"level": 1, "label": "3"})) == 8


HUGE = png(np.zeros((6000, 6000), bool))
END = {"sample": 0}


@pytest.mark.parametrize(
    ("path", "wish", "status", "words"),
    [
        ("samples", b"{", 400, "the request is not JSON"),
        ("samples", b"\xff", 400, "utf-8"),
        ("samples", [], 400, "the request must be an object"),
        ("samples", {"cuont": 3}, 400, "the request has unknown keys: cuont"),
        ("samples", {"count": "many"}, 400, "the request.count must be int, got 'many'"),
        ("samples", {"count": 0}, 400, "count must be from 1, got 0"),
        ("samples", {"count": 257}, 400, "count must be at most 256, got 257"),
        ("samples", {"temperature": -1}, 400, "temperature must be from 0 to 10.0, got -1.0"),
        ("samples", b'{"temperature": NaN}', 400, "NaN is not a number"),
        ("samples", {"seed": -1}, 400, "seed must be from 0 to 4,294,967,295, got -1"),
        ("samples", {"seed": 2**80}, 400, "seed must be from 0 to 4,294,967,295"),
        ("samples", {"label": "7"}, 400, "the model knows no labels, so not '7' either"),
        ("image", b"", 400, "not an image"),
        ("image", b"no image at all", 400, "not an image"),
        ("image", HUGE, 400, "6000x6000 is more than 33,554,432 pixels"),
        ("image", png(np.zeros((4, 4), np.uint8)), 400, "4x4 is smaller than 8x8"),
        ("score", HUGE[:40], 400, "not an image"),
        ("score", b"%!PS-Adobe-3.0 EPSF-3.0", 400, "not an image"),
        ("score", b"\x80\x04\x95.", 400, "not an image"),
        ("between", {"start": 3}, 400, "the request.start must be an object, got 3"),
        ("between", {"start": END, "end": END, "frames": 121}, 400, "frames must be from 2 to 120"),
        ("between", {"start": {"image": "/etc/passwd"}, "end": END}, 400, "must be a data URL"),
        ("between", {"start": {"image": "data:image/png;base64,?"}, "end": END}, 400, "not base64"),
        ("levels", {"start": END, "count": 17}, 400, "count must be from 1 to 16, got 17"),
        ("fields", {"level": 9}, 400, "level 9 has no masked convolution; levels that have: 1, 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_clear_line(digits, path, wish, status, words):
    found, text = digits.mistake(f"/api/{path}", wish)
    assert found == status
    assert words in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "path",
    ["/nowhere", "/..%2f..%2fetc/passwd", "/page/index.html", "/api/runs/0/samples/0",
     "/api/runs/-1/samples/0", "/api/runs/0/samples/..%2f..%2fconfig.yaml", "/main.js/.."],
)  # fmt: skip
def test_no_path_leads_anywhere_else(digits, path):
    status, _, body = digits.ask("GET", path)
    assert status == 404
    assert "error" in json.loads(body)


def test_a_wrong_method_is_said(digits):
    assert digits.ask("GET", "/api/samples")[0] == 405
    assert digits.ask("POST", "/api/model")[0] == 405


def test_an_upload_has_a_limit(digits):
    said = {"Content-Length": str(MOST_UPLOAD + 1)}
    status, _, body = digits.ask("POST", "/api/score", b"x", said)
    assert status == 413
    assert json.loads(body)["error"] == "more than 16,777,216 bytes"

    def chunks():  # without a word on how many there are
        yield from [bytes(1 << 20)] * 17

    status, _, body = digits.ask("POST", "/api/score", chunks())
    assert status == 413


def test_every_address_is_documented_and_no_other(digits):
    routes = Api(digits.explorer, [], Worker()).routes()
    found = {
        f"{method} {re.sub(r':int', '', route.path)}"
        for route in routes
        for method in route.methods - {"HEAD"}
        if route.path.startswith("/api/")
    }
    told = set(re.findall(r"^\| `((?:GET|POST) /api[^`?]*)", page("explorer.md"), re.MULTILINE))
    assert told == found
