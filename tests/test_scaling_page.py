"""The page about the cost of learning says what was measured."""

import pytest

import learning
import synthesis

TEXT = (synthesis.DOCS / "scaling.md").read_text()
SAID = " ".join(TEXT.split())


def test_its_tables_are_those_of_the_results():
    for make in learning.TABLES.values():
        assert make() in TEXT, "run make pages"
    assert synthesis.with_tables(TEXT) == TEXT, "run make pages"


def test_its_sentences_follow_from_them():
    runs = learning.runs()
    assert f"MiB an image to {runs['cifar10']['mib_per_image']}" in SAID
    cifar10 = runs["cifar10"]
    shares = {n: learning.exchange(cifar10, n) / learning.seconds(cifar10) for n in (8, 16, 512)}
    assert (
        "{:.0%} of an update for `cifar10` on 8 GPUs, {:.0%} on 16, {:.0%} on 512".format(
            *(share / (1 + share) for share in shares.values())
        )
        in SAID
    )
    longest = max(learning.exchange(row, n) for row in runs.values() for n in learning.LINKS)
    assert longest < min(map(learning.seconds, runs.values())) / 2
    peak = float(runs["celebahq256"]["peak_mib"]) * 2**20
    assert f"takes {peak / 1e9:.0f} GB" in SAID


def test_the_days_are_those_of_the_speeds():
    row = learning.runs()["imagenet64"]
    days = learning.UPDATES * learning.seconds(row) / 86400
    assert round(days) == 4
    assert "take four days of one GPU" in SAID
    assert f"some {round(days * 24 * 3, -1):.0f} dollars" in SAID


@pytest.mark.parametrize("name", ["training_gpu.csv", "scaling_gpu.csv", "precision_gpu.csv"])
def test_results_name_machine_and_command(name):
    path = synthesis.RESULTS / name
    assert path.name in SAID or path.name in (synthesis.DOCS / "experiments.md").read_text()
    for row in synthesis.csv.DictReader(path.read_text().splitlines()):
        assert row["command"].startswith("macow bench ")
        assert "H200" in row["device"]
        assert row["commit"]
