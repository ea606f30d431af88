"""A real browser for tests: the Chromium of this machine, without a screen."""

import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from playwright.sync_api import expect, sync_playwright

from explorers import pixels

expect.set_options(timeout=20_000)

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@contextmanager
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield browser
        browser.close()


@contextmanager
def opened(browser, address, part="", **options):
    """A page that may ask its own server alone and must not fail; what it logs is collected."""
    options = {"viewport": {"width": 1100, "height": 850}, "color_scheme": "light", **options}
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(20_000)
    asked, failed = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.goto(f"{address}#{part}")
    yield page
    context.close()
    elsewhere = [url for url in asked if not url.startswith((address, "data:", "blob:"))]
    assert elsewhere == []
    assert failed == []


def nameless(page):
    """Of all that can be used or looked at, what a screen reader has no name for."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    kinds = {"button", "link", "slider", "spinbutton", "combobox", "image", "tab", "tabpanel"}
    shown = [node for node in nodes if not node["ignored"] and node["role"]["value"] in kinds]
    assert len(shown) > 5
    return [node["role"]["value"] for node in shown if not node.get("name", {}).get("value")]


def contrast(page, selector):
    """How much lighter one of a text and its paper is than the other (WCAG)."""
    return page.locator(selector).first.evaluate("""(element) => {
      const light = (text) => {
        const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((value) => value / 255)
          .map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const colour = (name, of) => getComputedStyle(of)[name];
      const clear = "rgba(0, 0, 0, 0)";
      let paper = element;
      while (colour("backgroundColor", paper) === clear) paper = paper.parentElement;
      const found = [colour("color", element), colour("backgroundColor", paper)].map(light);
      return (Math.max(...found) + 0.05) / (Math.min(...found) + 0.05);
    }""")


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
