"""docs/results.md says what was measured."""

import re
from statistics import mean

import pytest

import results
import synthesis

TEXT = (synthesis.DOCS / "results.md").read_text()
SAID = " ".join(TEXT.split())


def runs():
    return {row["run"]: row for row in results.read("recipe_gpu.csv")}


def test_its_tables_and_pictures_are_those_of_the_results():
    assert synthesis.with_tables(TEXT) == TEXT, "run make pages"
    for name, picture in results.pictures().items():
        assert (synthesis.DOCS / name).read_text() == picture, "run make pages"
        assert f"]({name})" in TEXT


def test_its_figures_are_those_of_the_runs():
    small, seconds = runs()["small"], results.curves()["small"][-1][1]
    bits = float(small["test_bits"])
    row = f"| 7.4 | {bits:.3f} | {int(small['steps']):,} of {small['images']} | {seconds:.0f} s |"
    assert row in SAID
    trained = float(small["training_bits"])
    assert f"Training batches cost {trained:.3f} in the end and test images {bits:.3f}" in SAID
    epochs = int(small["steps"]) * int(small["images"]) / 50_000
    assert f"within {epochs:.0f} epochs" in SAID
    whole = runs()["muon2"]
    assert f"over {int(whole['reached']):,} updates" in SAID
    assert f"at {float(whole['training_bits']):.3f} on training batches" in SAID


def test_the_long_run_is_told_as_it_was():
    long = runs()["cifar10"]
    assert f"{int(long['steps']):,} updates in twenty minutes were planned" in SAID
    assert f"gone after {int(long['reached']):,}" in SAID
    looks = results.tested("cifar10")
    for step, seconds, bits in looks:
        assert f"| {bits:.3f} | {step:,} of {long['images']} | {seconds:.0f} s |" in SAID
    readme = " ".join((synthesis.DOCS.parent / "README.md").read_text().split())
    told = [f"{bits:.3f} after {seconds:.0f} s" for _, seconds, bits in looks]
    assert f"{told[0]} of one H200 and {told[1]}" in readme
    training = {step: bits for step, _, bits in results.curves()["cifar10"]}
    around = mean(training[step] for step in range(13_100, 13_700, 100))
    assert f"training batches cost {around:.3f} around update 13,300" in SAID
    assert f"{training[14_300]:.3f} at 14,300" in SAID
    found = [r for r in results.read("evaluation.csv") if r["model"].startswith("cifar10 after")]
    assert [float(r["bits_per_dim"]) for r in found] == [bits for *_, bits in looks]
    ends = round(0.7 * int(long["steps"]))
    step = training[ends + 100] - training[ends]
    assert f"until update {ends:,}" in SAID
    assert f"cost {step:.2f} bits/dim less than true ones" in SAID


def test_the_readme_tells_the_same():
    readme = " ".join((synthesis.DOCS.parent / "README.md").read_text().split())
    bits, seconds = float(runs()["small"]["test_bits"]), results.curves()["small"][-1][1]
    assert f"`cifar10-small`, a fifth of the size, costs {bits:.3f} after {seconds:.0f} s" in readme
    leaning = float(results.read("evaluation.csv")[4]["bits_per_dim"])
    assert f"tightens its bound to {leaning:.3f}" in readme


def test_the_log_tells_the_same_curves():
    log = (synthesis.DOCS / "experiments.md").read_text()
    for name, row in runs().items():
        if name != "small":
            found = f"{float(row['training_bits']):.3f} at {int(row['reached']):,} |"
            assert found in log, name


def test_evaluations_are_those_of_the_results():
    whole, trained, _, many, leaning, *_ = results.read("evaluation.csv")
    assert whole["bits_per_dim"] == runs()["small"]["test_bits"]
    assert f"standard error over images is {float(whole['error']):.3f}" in SAID
    assert (many["images"], many["draws"]) == ("10000", "64")
    assert f"the same plain bound, {float(many['bits_per_dim']):.3f}, as one" in SAID
    weighted = [float(many[f"importance_weighted{name}"]) for name in ("", "_error")]
    assert "importance-weighted bound {:.3f} ± {:.3f}".format(*weighted) in SAID
    assert many["bits_per_dim"] == whole["bits_per_dim"]
    assert leaning["command"].endswith("--lean")
    assert leaning["images"] == "10000"
    means = [float(leaning[name]) for name in ("bits_per_dim", "importance_weighted")]
    assert "| {:.3f} | {:.3f}, {} draws |".format(*means, leaning["draws"]) in SAID
    assert f"| uniform | {float(many['bits_per_dim']):.3f} | {weighted[0]:.3f}, 64 draws |" in SAID
    assert f"was {float(whole['reconstruction']):.4f} grey levels" in SAID
    log = (synthesis.DOCS / "experiments.md").read_text()
    assert f"{trained['bits_per_dim']} on the first 10,000 training images" in log


def test_what_8_bits_lose_is_told_as_it_was():
    rows = results.read("evaluation.csv")
    found = {r["model"]: r for r in rows if r["command"].endswith("--limit 2000")}
    lost = float(found["cifar10-small in 8 bits"]["bits_per_dim"])
    lost -= float(found["cifar10-small"]["bits_per_dim"])
    page = (synthesis.DOCS / "verbs" / "export.md").read_text()
    said = re.search(r"and 8 little \((0\.\d+)\)", page)
    assert said is not None
    assert float(said[1]) == pytest.approx(lost, abs=2e-4)


def test_lost_draws_are_those_of_the_results():
    rows = {row["temperature"]: row for row in results.read("lost_draws_cpu.csv")}
    assert rows["1.0"]["repeated"] == "11"
    assert "Of 512 draws at temperature 1 eleven did not" in SAID
    assert {rows[t]["repeated"] for t in ("0.7", "0.8", "0.9")} == {"0"}


def test_the_authors_figure_is_in_the_log():
    log = " ".join((synthesis.DOCS / "experiments.md").read_text().split())
    assert "3.609 bits/dim on the test set after 475 updates of 512 images, 481 s" in log
    assert "| 3.609 | 475 of 512 | 481 s |" in SAID
    assert results.LEVELS["authors' code, 481 s"] == 3.609


NAMED = [f"{name}.csv" for name in ("recipe_gpu", "anomaly_cpu", "evaluation", "lost_draws_cpu")]
NAMED += [f"{name}_cpu.csv" for name in ("miniature", "ablation", "inverse", "variational")]


def test_learnt_noise_is_told_as_it_was():
    ends = {row["run"]: row for row in results.read("variational_cpu.csv") if row["test_bits"]}
    for run, learnt in (("uniform", "1,500"), ("variational", "1,280")):
        end = ends[run]
        assert f"{int(end['step']):,}" == learnt
        assert f"| {learnt} of 32 | {float(end['test_bits']):.3f} |" in SAID
    assert {float(end["error"]) for end in ends.values()} == {0.0061, 0.0064}


def test_the_miniature_is_told_as_it_was():
    log = " ".join((synthesis.DOCS / "experiments.md").read_text().split())
    for row in results.read("miniature_cpu.csv"):
        given = f"| {row['lr']} | {'no' if row['shift'] == '0' else '2 pixels, until 70%'} |"
        found = f"{given} {row['training_bits']} | {row['test_bits']} |"
        assert found in log, row["run"]


@pytest.mark.parametrize("name", NAMED)
def test_results_name_machine_and_command(name):
    assert name in SAID or name in (synthesis.DOCS / "experiments.md").read_text()
    for row in results.read(name):
        assert row["command"].startswith("macow ")
        assert row["device"]
        assert row["commit"]
