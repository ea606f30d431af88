"""The page in a real browser: every other part is used as people use it."""

import re
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import expect

from browser import CHROMIUM, choose, drawn, opened, saved, shown
from children import begin, wait_for
from explorers import pixels, png, served
from macow.sampler import latents
from macow.web.data_urls import content_of
from macow.web.explorer import FRESH
from macow.web.runs import told_apart
from models import walk_with_gaps
from small_runs import changed, train

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")


def test_images_are_scored_and_what_is_none_is_named(page, digits, files):
    choose(page, "Score")
    chosen = [files["digit0"], files["broken"], files["large"]]
    page.get_by_label("Choose images").set_input_files(chosen)
    cards = page.get_by_role("list", name="Scores").get_by_role("listitem")
    expect(cards).to_have_count(3)
    expect(cards.filter(has_text="broken.png").get_by_role("alert")).to_have_text("not an image")
    expect(cards.filter(has_text="large.png").get_by_role("alert")).to_have_text(
        "large.png: 16 MB are more than 16 MB"
    )
    card = cards.filter(has_text="digit0.png")
    (found,) = digits.lines("/api/score", files["digit0"].read_bytes())
    expect(card).to_contain_text(f"bits/dim{found['bits_per_dim']:.3f}")
    expect(card).to_contain_text(
        f"costs more than {round(found['percentile'])} of 100 reference images"
    )
    expect(card).to_contain_text("every value comes back")
    expect(card.get_by_role("img", name=re.compile("beside 360 reference images"))).to_be_visible()
    most = np.unravel_index(np.argmax(found["map"]), (8, 8))
    where = f"the most in row {most[0] + 1}, column {most[1] + 1}"
    canvas = card.get_by_role("img", name=re.compile(f"bits by pixel, .*{where}"))
    painted = canvas.evaluate(
        "(canvas) => [...canvas.getContext('2d').getImageData(0, 0, 8, 8).data]"
    )
    shades = np.array(painted).reshape(8, 8, 4)[..., :3].sum(axis=2)
    assert np.unravel_index(np.argmax(shades), (8, 8)) == most
    pictures = shown(card.locator("img"))
    assert np.array_equal(pictures[0], pixels(found["image"]))
    assert np.array_equal(pictures[0], pictures[1])


def test_an_image_can_be_dropped_and_pasted(page):
    choose(page, "Score")
    content = list(png(np.full((16, 16), 200, np.uint8)))
    transfer = page.evaluate_handle(
        """(bytes) => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([new Uint8Array(bytes)], "dropped.png"));
          return transfer;
        }""",
        content,
    )
    page.locator("#score-drop").dispatch_event("drop", {"dataTransfer": transfer})
    cards = page.get_by_role("list", name="Scores").get_by_role("listitem")
    expect(cards.filter(has_text="dropped.png")).to_contain_text("bits/dim")
    page.evaluate(
        """(clipboardData) => document.body.dispatchEvent(
          new ClipboardEvent("paste", { clipboardData, bubbles: true }))""",
        transfer,
    )
    expect(cards).to_have_count(2)


# Between


def test_a_line_is_walked_played_and_saved(page, digits, model):
    choose(page, "Between")
    drawn(page, "24 pictures")
    frame, place = page.locator("#frame"), page.get_by_role("slider", name="Place on the way")
    expect(frame).to_have_attribute("alt", "picture 1 of 24")
    z = latents(model.shape, 0, [0, 2])
    ends = model.decode(z).numpy()
    assert np.array_equal(shown(frame)[0], ends[0])
    place.focus()
    place.press("End")
    expect(frame).to_have_attribute("alt", "picture 24 of 24")
    assert np.array_equal(shown(frame)[0], ends[1])
    place.press("ArrowLeft")
    expect(frame).to_have_attribute("alt", "picture 23 of 24")
    frame.evaluate("""(frame) => {
      window.seen = [];
      new MutationObserver(() => seen.push(frame.alt)).observe(frame, { attributes: true });
    }""")
    page.get_by_role("button", name="Play").click()
    ends = ("picture 24 of 24", "picture 1 of 24", "picture 2 of 24")  # there and back
    wait_for(lambda: page.evaluate("seen.length") > 40)
    seen = page.evaluate("seen")
    places = [seen.index(end) for end in ends[:2]]
    assert places == sorted(places)
    assert seen[places[1] :].count(ends[2]) > 0
    page.get_by_role("button", name="Stop").click()
    name, content = saved(page, "Save as WebP")
    assert name == "digits.webp"
    wish = {"start": {"sample": 0}, "end": {"sample": 2}}
    assert content == content_of(digits.lines("/api/between", wish)[-1]["film"])
    film = Image.open(BytesIO(content))
    assert (film.format, film.n_frames) == ("WEBP", 46)


def test_what_lies_beyond_is_left_out_of_the_film(page, model):
    choose(page, "Between")
    drawn(page, "24 pictures")
    fields = {"From: number": 2, "To: number": 9, "Pictures": 12, "Temperature of samples": 2}
    for label, value in fields.items():
        page.locator("#between").get_by_label(label).fill(str(value))
        page.keyboard.press("Enter")
    good = sum(walk_with_gaps(model))
    assert good < 12
    drawn(page, f"{good} pictures, {12 - good} left out, beyond what the model can compute")
    expect(page.locator("#frame")).to_have_attribute("alt", f"picture 1 of {good}")


def test_an_end_can_be_an_image(page, files, model):
    choose(page, "Between")
    drawn(page, "24 pictures")
    page.get_by_label("To: an image").set_input_files(files["digit1"])
    expect(page.get_by_role("img", name="To: the image")).to_be_visible()
    image = np.asarray(Image.open(files["digit1"]))[None] & 0xF0
    frame, place = page.locator("#frame"), page.get_by_role("slider", name="Place on the way")
    place.fill("23")
    wait_for(lambda: np.array_equal(shown(frame)[0], image))
    page.get_by_label("From: an image").set_input_files(files["broken"])
    expect(page.locator("#between").get_by_role("alert")).to_have_text("broken.png: not an image")
    assert np.array_equal(shown(frame)[0], image)  # nothing is lost
    page.get_by_role("button", name="Take a sample").click()
    end = model.decode(latents(model.shape, 0, [2]))[0].numpy()
    wait_for(lambda: np.array_equal(shown(frame)[0], end))


# Inside


def test_levels_fields_and_drawing(page, model):
    choose(page, "Inside")
    rows = page.locator("#levels .level")
    expect(rows).to_have_count(3)
    expect(rows.nth(2)).to_contain_text("Level 2 anew32 latents")
    z, owners = latents(model.shape, 0, [0]), model.latent_levels()
    for seed in (0, 1):
        fresh = latents(model.shape, seed, range(FRESH, FRESH + 8))
        mixed = model.decode(torch.where(owners == 2, fresh, z)).numpy()
        wait_for(lambda mixed=mixed: np.array_equal(shown(rows.nth(2).locator("img")), mixed))
        page.get_by_role("button", name="Draw anew").click()
    fields = page.get_by_role("list", name="Receptive fields")
    expect(fields.get_by_role("img", name="1. down: 7 pixels count")).to_be_visible()
    expect(fields.get_by_role("img", name="2. then up: 21 pixels count")).to_be_visible()
    expect(fields.get_by_role("img", name=re.compile("^8. then left: 249 "))).to_be_visible()
    expect(fields.locator("li").nth(1).locator("rect.new")).to_have_count(14)
    parts = page.get_by_role("list", name="Architecture").get_by_role("listitem")
    expect(parts).to_have_text(
        [
            re.compile(r"Image 1 × 8 × 8"),
            re.compile(r"Squeeze 4 × 4 × 4"),
            re.compile(r"level1\.block0 4 × 4 × 4.*82,236 parameters→ z 1 × 4 × 4"),
            re.compile(r"level1\.block1 3 × 4 × 4.*→ z 1 × 4 × 4"),
            re.compile(r"Squeeze 8 × 2 × 2"),
            re.compile(r"level2\.block0 8 × 2 × 2.*→ z 8 × 2 × 2"),
        ]
    )


# Training


def test_curves_grow_while_a_run_trains(browser, tmp_path):
    folder, other = tmp_path / "live", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (other / "metrics.jsonl").write_text('{"step": 9, "bits": 3.5, "test_bits": 3.25}\n')
    config = changed(steps=1_000_000, log_every=2, eval_every=10)
    with (
        served(runs=told_apart([folder, other])) as running,
        opened(browser, running.address, "training") as page,
    ):
        live, beside = page.locator(".run").nth(0), page.locator(".run").nth(1)
        expect(live).to_contain_text("no figures yet")
        expect(beside).to_contain_text("test bits/dim3.250")
        process = begin(train, config, folder)
        try:
            curve = page.locator("polyline.test.run0")

            def points():
                return (curve.get_attribute("points") or "").split()

            wait_for(lambda: len(points()) >= 1)
            few = len(points())
            expect(live.get_by_role("img", name=re.compile(r"samples at step \d+"))).to_be_visible()
            wait_for(lambda: len(points()) > few + 1)
            expect(page.get_by_role("img", name=re.compile("other: 3.250"))).to_be_visible()
        finally:
            process.kill()
            process.join()
        slider = live.get_by_role("slider", name="live: samples over time")
        slider.fill("0")
        expect(live).to_contain_text("Samples at step 10,")
        picture = page.context.request.get(
            running.address + live.locator("img").get_attribute("src")
        )
        assert picture.body() == (folder / "samples" / "step_0000010.png").read_bytes()


def test_without_runs_it_says_how_to_show_some(page):
    choose(page, "Training")
    expect(page.get_by_text("macow serve MODEL runs/a runs/b")).to_be_visible()
