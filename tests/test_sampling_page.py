"""docs/sampling.md: its tables, picture and figures are the results', its code runs."""

import pytest

import synthesis
from pages import DOCS, blocks, page


def said() -> str:
    return " ".join(page("sampling.md").split())


def test_the_tables_and_the_picture_are_those_of_the_results():
    text = page("sampling.md")
    for made in (synthesis.sizes_table(), synthesis.peers_table()):
        assert made in text, "run make pages"
    assert synthesis.with_tables(text) == text, "run make pages"
    assert (DOCS / "sampling.svg").read_text() == synthesis.figure(), "run make pages"


@pytest.mark.parametrize("results", [synthesis.costs(), synthesis.peers()])
def test_kernels_lose_at_most_twice_what_plain_torch_loses(results):
    for name, row in results.items():
        assert float(row["error"]) < 2 * float(row["plain_error"]), name
        assert float(row["largest"]) < 2 * float(row["plain_largest"]), name


@pytest.mark.parametrize("results", [synthesis.costs(), synthesis.peers()])
def test_the_commands_are_those_of_the_results(results):
    (command,) = {row["command"] for row in results.values()}
    assert command in said().replace("\\ ", "")


def test_the_papers_slow_downs_are_those_of_its_times():
    times = {name: paper.split() for name, (_, paper, _) in synthesis.PEERS.items()}
    glow, glow_elsewhere = 5.3, 5
    assert times["glow-cifar10"] == [f"{glow};", f"{glow_elsewhere}", "‡"]
    for name, (_, _, slow_down) in list(synthesis.PEERS.items())[1:]:
        base = glow_elsewhere if "‡" in times[name] else glow
        assert f"{float(times[name][0]) / base:.1f}" == slow_down, name
    assert float(times["cifar10"][0]) == synthesis.PAPER["cifar10"]


def test_growth_is_as_the_page_says():
    times = {name: float(row["ms_per_image"]) for name, row in synthesis.costs().items()}
    assert f"the time {times['celebahq256'] / times['cifar10']:.0f} times" in said()


def test_slow_downs_are_as_the_page_says():
    times = {name: float(row["ms_per_image"]) for name, row in synthesis.costs().items()}
    ratio = f"{times['cifar10'] / times['glow-cifar10']:.1f}"
    assert ratio == f"{synthesis.slow_down('cifar10'):.1f}"
    assert f"here it is {ratio} times" in said()
    maf = synthesis.peers()["maf-cifar10"]
    one, batch = float(maf["one_image_ms"]), float(maf["ms_per_image"]) * int(maf["batch_size"])
    assert f"one image takes {one / 1e3:.1f} s, 100 take {batch / 1e3:.1f} s" in said()
    last = synthesis.peers()["cifar10"]["with_snapshot"]
    assert f"where it came last, it is {last}" in said()


def test_limits_are_as_the_page_says():
    for name, decimals in (("celebahq256", 0), ("cifar10", 1)):
        row = synthesis.costs()[name]
        one, batch = float(row["one_image_ms"]), 100 * float(row["ms_per_image"])
        assert f"one image takes {one:.{decimals}f} ms, 100 take {batch:.{decimals}f}" in said()
    arithmetic, memory = 3 * 369 / 990, 3.0 / 4.8
    assert f"in {arithmetic:.1f} ms" in said()
    assert f"{memory:.1f} ms at 4.8 TB/s" in said()
    assert "almost five times the sum" in said()
    times = float(synthesis.costs()["celebahq256"]["ms_per_image"]) / (arithmetic + memory)
    assert 4.5 < times < 5


def test_the_code_runs():
    for block in blocks(page("sampling.md"), "python"):
        exec(block, {})
