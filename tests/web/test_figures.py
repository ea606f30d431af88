"""What docs/explorer.md says of the server's speed was measured."""

import csv
from pathlib import Path

from pages import page

ROOT = Path(__file__).parents[2]


def test_the_figures_of_the_server_are_measured():
    text = " ".join(page("explorer.md").split())
    with (ROOT / "benchmarks" / "results" / "serve.csv").open() as file:
        alone, crowd = csv.DictReader(file)
    assert alone["command"].startswith("macow bench serve --repeats 40")
    assert "macow bench serve --repeats 40" in text
    assert float(alone["worst_s"]) < 1  # from slider to pictures
    assert f"64 digits take {alone['median_s']} s from" in text
    assert f"last picture (worst {alone['worst_s']} s)" in text
    assert (crowd["clients"], crowd["requests"]) == ("50", "2000")
    assert (alone["errors"], crowd["errors"]) == ("0", "0")
    assert f'{crowd["answered"]} answers, {int(crowd["busy"]):,} times "busy", no error' in text
    assert f"took {crowd['median_s']} s (worst {crowd['worst_s']} s)" in text
    assert f'"busy" at most {crowd["worst_busy_s"]} s' in text
    assert f"held {crowd['mb_before']} MB before and {crowd['mb_after']} MB after" in text
    log = (ROOT / "docs" / "experiments.md").read_text()
    assert f"waits {alone['median_s']} s for 64 digits, worst {alone['worst_s']} s" in log
    assert f"{crowd['mb_before']} MB before, {crowd['mb_after']} MB after" in log
    assert int(crowd["mb_after"]) < 1.05 * int(crowd["mb_before"])
