"""A served model and a browser for its page."""

import numpy as np
import pytest

from browser import chromium, opened
from explorers import Gate, png, served
from macow import data
from macow.web.api import MOST_UPLOAD


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
    gates, undo = [], digits.explorer.sampler._undo

    def begin():
        gates.append(Gate(digits.explorer.sampler))
        return gates[0]

    yield begin
    digits.explorer.sampler._undo = undo
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
