"""Samples in a real browser: drawn, held up, cancelled, and what is said when it fails."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from browser import CHROMIUM, choose, drawn, opened, saved, shown
from children import wait_for
from explorers import served
from macow.sampler import latents
from macow.web.data_urls import content_of
from macow.web.worker import OPEN_AT_ONCE

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")


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
    undo = digits.explorer.sampler._undo

    def fail(z, cond=None):
        raise FloatingPointError("decoding is not finite")

    digits.explorer.sampler._undo = fail
    alert = page.locator("#samples").get_by_role("alert")
    try:
        page.get_by_role("slider", name="Temperature").fill("0.5")
        expect(alert).to_have_text("decoding is not finite")
        expect(page.locator("#grid img")).to_have_count(64)
    finally:
        digits.explorer.sampler._undo = undo
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
    slider = page.get_by_role("slider", name="Temperature")
    slider.evaluate("slider => slider.max = 3")  # up to 1.5 this model repeats a draw or two
    slider.fill("3")
    drawn(page, "64 samples at temperature 3")
    missing = page.locator("#grid img[alt^='no sample']").count()
    assert missing > 0
    text = f"{missing} of 64 lie beyond what the model can compute: they are left out."
    expect(page.get_by_text(text)).to_be_visible()
