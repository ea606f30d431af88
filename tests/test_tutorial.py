"""The tutorial runs from top to bottom and prints what it says."""

from pathlib import Path

import pytest
import torch

from pages import DOCS, difference, fenced, page, picture_difference, printed


@pytest.fixture
def _its_own_torch():
    """The tutorial switches gradients off and prints short numbers; one thread suits it best."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_grad_enabled(True)
    torch.set_printoptions(profile="default")


@pytest.mark.usefixtures("_its_own_torch")
def test_the_tutorial_prints_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    found, compared = "", 0
    for language, block in fenced(page("tutorial.md")):
        if language == "python":
            assert not found, f"the page does not show that this was printed: {found}"
            found = printed(exec, block, names)
        else:
            assert language == "text"
            assert not difference(block, found), difference(block, found)
            found, compared = "", compared + 1
    assert not found
    assert compared > 10
    assert picture_difference(Path("bits.png"), DOCS / "bits.png") < 1
    assert picture_difference(Path("ring.png"), DOCS / "ring.png") < 10  # training adds up rounding
