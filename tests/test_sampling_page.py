"""docs/sampling.md: its table and its picture are the results', its code runs."""

import synthesis
from pages import DOCS, blocks, page


def test_the_table_and_the_picture_are_those_of_the_results():
    text = page("sampling.md")
    assert synthesis.with_table(text) == text, "run make pages"
    assert (DOCS / "sampling.svg").read_text() == synthesis.figure(), "run make pages"


def test_kernels_lose_at_most_twice_what_plain_torch_loses():
    for name, row in synthesis.costs().items():
        assert float(row["error"]) < 2 * float(row["plain_error"]), name
        assert float(row["largest"]) < 2 * float(row["plain_largest"]), name


def test_growth_is_as_the_page_says():
    times = {name: float(row["ms_per_image"]) for name, row in synthesis.costs().items()}
    assert f"the time {times['celebahq256'] / times['cifar10']:.0f} times" in page("sampling.md")


def test_the_code_runs():
    for block in blocks(page("sampling.md"), "python"):
        exec(block, {})
