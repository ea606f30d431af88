"""The code of the tutorial and of other pages runs, and prints what they say."""

from pathlib import Path

import pytest
import torch

from pages import DOCS, difference, fenced, page, picture_difference, printed

PICTURES = {"bits.png", "ring.png"}


@pytest.fixture
def _its_own_torch():
    """The tutorial switches gradients off and prints short numbers; one thread suits it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_grad_enabled(True)
    torch.set_printoptions(profile="default")


@pytest.mark.usefixtures("_its_own_torch")
@pytest.mark.parametrize("name", ["index", "tutorial", "reading", "labels", "troubles"])
def test_a_page_prints_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    found, ran = "", 0
    for language, block in fenced(page(f"{name}.md")):
        if language == "python":
            assert not found, f"the page does not show that this was printed: {found}"
            found, ran = printed(exec, block, names), ran + 1
        else:
            assert language == "text"
            assert not difference(block, found), difference(block, found)
            found = ""
    assert not found
    assert ran
    assert {path.name for path in Path().iterdir()} == (PICTURES if name == "tutorial" else set())
    for path in Path().iterdir():
        assert picture_difference(path, DOCS / path.name) < 1
