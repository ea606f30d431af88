"""The page in a real browser: every part is used as people use it."""

import os
import re
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import expect

import macow
from browser import CHROMIUM, chromium, contrast, nameless, opened
from children import begin, wait_for
from explorers import Gate, pixels, png, served
from macow import data
from macow.sampler import latents
from macow.train import fit
from macow.web.api import MOST_UPLOAD
from macow.web.data_urls import content_of
from macow.web.explorer import FRESH
from macow.web.runs import told_apart
from macow.web.worker import OPEN_AT_ONCE
from small_runs import changed, train

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
expect.set_options(timeout=20_000)
PARTS = ("samples", "score", "between", "inside", "training")


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def digits():
    with served() as running:
        yield running


@pytest.fixture
def page(browser, digits):
    with opened(browser, digits.address) as page:
        yield page


@pytest.fixture
def model(digits):
    return digits.explorer.model


@pytest.fixture
def hold(digits):
    """From when it is called on, the digits are as slow as one likes."""
    gates, invert = [], digits.explorer.sampler.invert

    def begin():
        gates.append(Gate(digits.explorer.sampler))
        return gates[0]

    yield begin
    digits.explorer.sampler.invert = invert
    for gate in gates:
        gate.let(1000)


@pytest.fixture
def files(tmp_path):
    """Images of digits, and what is none."""
    for i, image in enumerate(data.load("digits", "test").take(np.arange(2))):
        (tmp_path / f"digit{i}.png").write_bytes(png(image[0]))
    (tmp_path / "broken.png").write_bytes(png(np.zeros((8, 8), np.uint8))[:40])
    (tmp_path / "large.png").write_bytes(bytes(MOST_UPLOAD + 1))
    return {path.stem: path for path in tmp_path.iterdir()}


def shown(images):
    """The pictures of `<img>`s, as an array `[N, C, H, W]`."""
    return np.stack([pixels(image.get_attribute("src")) for image in images.all()])


def drawn(page, text):
    """Waits for a word to screen readers, which comes when all is done."""
    expect(page.get_by_role("status").filter(has_text=text)).to_have_text(text)


def choose(page, name):
    page.get_by_role("tab", name=name).click()


def saved(page, name):
    """What a link gives to save: its name and its bytes."""
    with page.expect_download() as download:
        page.get_by_role("link", name=name).click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


# Samples


def test_the_same_seed_at_another_temperature_shows_the_same_latents(page, model):
    drawn(page, "64 samples at temperature 1")
    images = page.locator("#grid img")
    z = latents(model.shape, 0, range(64))
    assert np.array_equal(shown(images), model.decode(z).numpy())
    slider = page.get_by_role("slider", name="Temperature")
    slider.focus()
    for _ in range(4):
        slider.press("PageDown")
    temperature = float(slider.input_value())
    assert temperature < 0.7
    expect(page.locator("#temperature-is")).to_have_text(f"{temperature:.2f}")
    drawn(page, f"64 samples at temperature {temperature:g}")
    assert np.array_equal(shown(images), model.decode(temperature * z).numpy())


def test_seed_and_count(page, model):
    drawn(page, "64 samples at temperature 1")
    page.get_by_role("spinbutton", name="How many").fill("5")
    drawn(page, "5 samples at temperature 1")
    page.get_by_role("button", name="Another").click()
    expect(page.get_by_role("spinbutton", name="Seed")).to_have_value("1")
    wait_for(lambda: np.array_equal(
        shown(page.locator("#grid img")), model.decode(latents(model.shape, 1, range(5))).numpy()
    ))  # fmt: skip


def test_a_number_that_cannot_be_is_said_and_nothing_is_lost(page):
    drawn(page, "64 samples at temperature 1")
    count, alert = page.get_by_role("spinbutton", name="How many"), page.get_by_role("alert")
    count.fill("999")
    expect(alert).to_have_text(re.compile("^How many: .*256"))
    expect(page.locator("#grid img")).to_have_count(64)
    count.fill("6")
    drawn(page, "6 samples at temperature 1")
    expect(alert).to_be_hidden()
    choose(page, "Between")
    drawn(page, "24 pictures")
    page.get_by_role("spinbutton", name="To: number of the sample").fill("-1")
    page.keyboard.press("Tab")
    expect(alert).to_have_text(re.compile("^To: number of the sample: "))


def test_what_is_saved_is_what_the_api_gives(page, digits):
    drawn(page, "64 samples at temperature 1")
    name, content = saved(page, "Save as PNG")
    assert name == "digits-seed0-t1.png"
    last = digits.lines("/api/samples", {"count": 64})[-1]
    assert content == content_of(last["grid"])


def test_from_slider_to_pictures_in_less_than_a_second(page):
    drawn(page, "64 samples at temperature 1")
    slider = page.get_by_role("slider", name="Temperature")
    milliseconds = [
        slider.evaluate(
            """(slider, value) => new Promise((resolve) => {
              const began = performance.now();
              const status = document.querySelector("#samples .task [role=status]");
              new MutationObserver(() => {
                if (status.textContent.endsWith(` ${value}`)) resolve(performance.now() - began);
              }).observe(status, { childList: true });
              slider.value = value;
              slider.dispatchEvent(new Event("input", { bubbles: true }));
            })""",
            value,
        )
        for value in ("0.9", "0.8", "0.7", "0.6", "0.5", "0.4", "0.3", "0.2")
    ]
    assert min(milliseconds) < 1000  # other work on the machine only adds to it


def test_what_takes_longer_shows_progress_and_can_be_cancelled(page, digits, hold):
    drawn(page, "64 samples at temperature 1")
    gate = hold()
    before = shown(page.locator("#grid img"))
    progress = page.locator("#samples").get_by_role("progressbar")
    expect(progress).to_be_hidden()
    page.get_by_role("slider", name="Temperature").fill("0.5")
    gate.let(1)
    expect(page.get_by_text("4 of 64")).to_be_visible()
    expect(progress).to_be_visible()
    assert progress.evaluate("(bar) => bar.value") == 4 / 64
    page.get_by_role("button", name="Cancel").click()
    expect(progress).to_be_hidden()
    drawn(page, "Cancelled")
    gate.let(1)
    wait_for(lambda: digits.worker.open_jobs == 0)
    after = shown(page.locator("#grid img"))
    assert not np.array_equal(after[:4], before[:4])
    assert np.array_equal(after[4:], before[4:])


def test_a_page_that_goes_away_is_not_drawn_for(browser, digits, hold):
    gate = hold()
    with opened(browser, digits.address) as page:
        wait_for(lambda: gate.batches == 1)
        assert digits.worker.open_jobs == 1
        page.get_by_role("button", name="Another").click()  # the slow one before is cancelled
        wait_for(lambda: digits.worker.open_jobs == 1 and len(digits.worker._line) == 1)
    wait_for(lambda: digits.worker.open_jobs == 0)


def test_busy_is_said_and_waited_for(page, digits):
    drawn(page, "64 samples at temperature 1")
    digits.worker.open_jobs = OPEN_AT_ONCE
    try:
        page.get_by_role("slider", name="Temperature").fill("0.5")
        expect(page.get_by_text("busy: 8 requests are open already")).to_be_visible()
    finally:
        digits.worker.open_jobs = 0
    drawn(page, "64 samples at temperature 0.5")


def test_a_failure_is_told_where_it_happened_and_passes(page, digits):
    drawn(page, "64 samples at temperature 1")
    invert = digits.explorer.sampler.invert

    def fail(z, cond=None):
        raise FloatingPointError("decoding is not finite")

    digits.explorer.sampler.invert = fail
    alert = page.locator("#samples").get_by_role("alert")
    try:
        page.get_by_role("slider", name="Temperature").fill("0.5")
        expect(alert).to_have_text("decoding is not finite")
        expect(page.locator("#grid img")).to_have_count(64)
    finally:
        digits.explorer.sampler.invert = invert
    page.get_by_role("slider", name="Temperature").fill("0.6")
    drawn(page, "64 samples at temperature 0.6")
    expect(alert).to_be_hidden()


def test_a_server_that_is_gone_is_said_and_nothing_is_lost(browser):
    with served() as running:
        opening = opened(browser, running.address)
        page = opening.__enter__()
        drawn(page, "64 samples at temperature 1")
    page.get_by_role("button", name="Another").click()
    expect(page.locator("#samples").get_by_role("alert")).to_have_text(
        "the server does not answer: is `macow serve` still running?"
    )
    expect(page.locator("#grid img")).to_have_count(64)
    opening.__exit__(None, None, None)


def test_what_lies_beyond_is_counted(page):
    drawn(page, "64 samples at temperature 1")
    page.get_by_role("slider", name="Temperature").fill("1.5")
    drawn(page, "64 samples at temperature 1.5")
    missing = page.locator("#grid img[alt^='no sample']").count()
    assert missing > 0
    text = f"{missing} of 64 lie beyond what the model can compute: they are left out."
    expect(page.get_by_text(text)).to_be_visible()


# Score


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
    frame, place = page.locator("#frame"), page.get_by_role("slider", name="Place on the line")
    expect(frame).to_have_attribute("alt", "picture 1 of 24")
    z = 0.8 * latents(model.shape, 0, [0, 2])
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
    wish = {"start": {"sample": 0, "temperature": 0.8}, "end": {"sample": 2, "temperature": 0.8}}
    assert content == content_of(digits.lines("/api/between", wish)[-1]["film"])
    film = Image.open(BytesIO(content))
    assert (film.format, film.n_frames) == ("WEBP", 46)


def test_an_end_can_be_an_image(page, files, model):
    choose(page, "Between")
    drawn(page, "24 pictures")
    page.get_by_label("To: an image").set_input_files(files["digit1"])
    expect(page.get_by_role("img", name="To: the image")).to_be_visible()
    image = np.asarray(Image.open(files["digit1"]))[None] & 0xF0
    frame, place = page.locator("#frame"), page.get_by_role("slider", name="Place on the line")
    place.fill("23")
    wait_for(lambda: np.array_equal(shown(frame)[0], image))
    page.get_by_label("From: an image").set_input_files(files["broken"])
    expect(page.locator("#between").get_by_role("alert")).to_have_text("broken.png: not an image")
    assert np.array_equal(shown(frame)[0], image)  # nothing is lost
    page.get_by_role("button", name="Take a sample").click()
    end = model.decode(0.8 * latents(model.shape, 0, [2]))[0].numpy()
    wait_for(lambda: np.array_equal(shown(frame)[0], end))


# Inside


def test_levels_fields_and_drawing(page, model):
    choose(page, "Inside")
    rows = page.locator("#levels .level")
    expect(rows).to_have_count(3)
    expect(rows.nth(2)).to_contain_text("Level 2 anew32 latents")
    z, owners = 0.8 * latents(model.shape, 0, [0]), model.latent_levels()
    for seed in (0, 1):
        fresh = 0.8 * latents(model.shape, seed, range(FRESH, FRESH + 8))
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


# Everyone, everywhere


def test_a_conditional_model_has_a_chooser_of_labels(browser):
    torch.manual_seed(0)
    model = macow.preset("digits-conditional").model.build()
    images = torch.from_numpy(data.load("digits", "train").take(np.arange(64)))
    with macow.initializing(model):
        model(images, labels=model.labels_in_turn(range(64)))
    with served(model, "labelled") as running, opened(browser, running.address) as page:
        drawn(page, "80 samples at temperature 1")
        page.get_by_role("combobox", name="Label").select_option("7")
        expected = model.given("7").decode(latents(model.shape, 0, range(80))).numpy()
        wait_for(lambda: np.array_equal(shown(page.locator("#grid img")), expected))
        for part in ("Between", "Inside"):
            choose(page, part)
            expect(page.get_by_role("combobox", name="Label")).to_have_value("0")
        expect(page.locator("#levels img")).to_have_count(17)
        expect(page.locator("#fields li")).to_have_count(8)
        expect(page.get_by_role("alert")).to_have_count(0)


def test_a_chooser_of_files_shows_that_it_has_the_focus(page):
    page.get_by_role("tab", name="Between").click()
    chooser = page.get_by_label("From: an image")
    outline = "element => getComputedStyle(element.closest('.file')).outlineStyle"
    assert chooser.evaluate(outline) == "none"
    chooser.focus()
    assert chooser.evaluate(outline) == "solid"


def test_all_of_it_by_keyboard(page):
    drawn(page, "64 samples at temperature 1")
    page.keyboard.press("Tab")
    expect(page.get_by_role("tab", name="Samples")).to_be_focused()
    wanted = {
        "Samples": ["temperature", "seed", "another", "count", "save-grid"],
        "Score": ["score-files"],
        "Between": ["between-temperature", "frames", "play", "place", "save-film"],
        "Inside": ["level-temperature", "anew", "field-level"],
    }
    for part, ids in wanted.items():
        tab = page.get_by_role("tab", name=part)
        expect(tab).to_be_focused()
        expect(tab).to_have_attribute("aria-selected", "true")
        if part == "Between":
            drawn(page, "24 pictures")
        reached = []
        while len(reached) < 20 and not set(ids) <= set(reached):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id"))
        assert [one for one in reached if one in ids] == ids
        tab.focus()
        page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Training")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Samples")).to_be_focused()
    page.keyboard.press("End")
    expect(page.get_by_role("tabpanel", name="Training")).to_be_visible()


@pytest.mark.parametrize("part", PARTS)
def test_everything_has_a_name_fits_a_phone_and_can_be_read(browser, digits, files, part):
    for scheme, size in {"light": (360, 700), "dark": (1100, 850)}.items():
        sight = {"viewport": {"width": size[0], "height": size[1]}, "color_scheme": scheme}
        with opened(browser, digits.address, part, **sight) as page:
            expect(page.get_by_role("tabpanel")).to_have_attribute("id", part)
            if part == "score":
                chosen = [files["digit0"], files["broken"]]
                page.get_by_label("Choose images").set_input_files(chosen)
                expect(page.locator("#scores > li")).to_have_count(2)
            elif part == "inside":
                expect(page.locator("#fields li")).to_have_count(8)
            elif part != "training":
                expect(page.locator(f"#{part} a[href]")).to_be_visible()
            assert nameless(page) == []
            widths = page.evaluate(
                "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
            )
            assert widths[0] <= widths[1]
            for selector in ("h1", "#facts", "[role=tab]", f"#{part} .lead"):
                assert contrast(page, selector) >= 4.5, (scheme, selector)
            if part == "score":
                assert contrast(page, ".card .error") >= 4.5


def test_light_and_dark_are_the_systems(browser, digits):
    papers = []
    for scheme in ("light", "dark"):
        with opened(browser, digits.address, color_scheme=scheme) as page:
            papers.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    light, dark = (sum(map(int, re.findall(r"\d+", paper))) for paper in papers)
    assert light > 600 > 100 > dark


def test_nothing_but_the_page_itself_is_asked_for(browser, digits):
    with opened(browser, digits.address) as page:
        drawn(page, "64 samples at temperature 1")
        found = page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
        with pytest.raises(Exception, match="Failed to fetch"):
            page.evaluate("fetch('http://192.0.2.1/')")
    assert all(url.startswith(digits.address) for url in found)


def test_the_pictures_of_the_docs(browser, digits, files, tmp_path):
    """`make screenshots` keeps them: $SCREENSHOTS is where."""
    out = Path(os.environ.get("SCREENSHOTS", tmp_path))
    every = {"log_every": 2, "eval_every": 6, "save_every": 1000, "sample_temperatures": (0.8,)}
    config = changed(steps=30, **every)
    if "SCREENSHOTS" in os.environ:  # these are looked at
        config = changed(macow.preset("digits"), steps=240, **(every | {"eval_every": 20}))
    for name, rate in {"quick": 1e-3, "slow": 2e-4}.items():
        fit(changed(config, lr=rate), "digits", tmp_path / name, quiet=True)
    runs = told_apart([tmp_path / "quick", tmp_path / "slow"])
    low = {"width": 1100, "height": 400}  # as high as its content
    with served(runs=runs) as running, opened(browser, running.address, viewport=low) as page:
        page.get_by_role("slider", name="Temperature").fill("0.8")
        drawn(page, "64 samples at temperature 0.8")
        keep(page, out, "samples")
        choose(page, "Score")
        page.get_by_label("Choose images").set_input_files([files["digit0"]])
        expect(page.locator("#scores > li")).to_have_count(1)
        keep(page, out, "score")
        choose(page, "Training")
        expect(page.locator(".run img")).to_have_count(2)
        keep(page, out, "training")
    with opened(browser, digits.address, "inside", color_scheme="dark", viewport=low) as page:
        expect(page.locator("#levels img")).to_have_count(17)
        expect(page.locator("#fields li")).to_have_count(8)
        keep(page, out, "inside")
    phone = {"width": 390, "height": 780}
    with opened(browser, digits.address, "between", color_scheme="dark", viewport=phone) as page:
        drawn(page, "24 pictures")
        page.get_by_role("slider", name="Place on the line").fill("12")
        keep(page, out, "phone")


def keep(page, folder, name):
    page.evaluate("document.activeElement.blur(), scrollTo(0, 0)")
    path = folder / f"explorer-{name}.png"
    page.screenshot(path=path, full_page=True, animations="disabled")
    assert 5_000 < path.stat().st_size < 200_000
    assert len(np.unique(np.asarray(Image.open(path)).reshape(-1, 3), axis=0)) > 20
