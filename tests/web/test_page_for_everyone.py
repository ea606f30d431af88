"""The page for everyone: labels, keyboard, names, phones, light and dark, and its pictures."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import expect

import macow
from browser import CHROMIUM, choose, contrast, drawn, nameless, opened, shown
from children import wait_for
from explorers import served
from macow import data
from macow.sampler import latents
from macow.train import fit
from macow.web.runs import told_apart
from small_runs import changed

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
PARTS = ("samples", "score", "between", "inside", "training")


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
        page.get_by_role("slider", name="Place on the way").fill("12")
        keep(page, out, "phone")


def keep(page, folder, name):
    page.evaluate("document.activeElement.blur(), scrollTo(0, 0)")
    path = folder / f"explorer-{name}.png"
    page.screenshot(path=path, full_page=True, animations="disabled")
    assert 5_000 < path.stat().st_size < 200_000
    assert len(np.unique(np.asarray(Image.open(path)).reshape(-1, 3), axis=0)) > 20
