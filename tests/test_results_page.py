"""docs/results.md says what was measured."""

import re
from collections import defaultdict
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


def epochs(run, updates):
    return round(updates * int(runs()[run]["images"]) / 50_000)


def test_its_figures_are_those_of_the_runs():
    small, seconds = runs()["small"], results.curves()["small"][-1][1]
    bits, past = float(small["test_bits"]), epochs("small", int(small["steps"]))
    end = f"| {bits:.3f} | plain, one draw | {past} | all | {seconds:.0f} s |"
    assert f"| `cifar10-small`, ships | 7.4 {end}" in SAID
    trained = float(small["training_bits"])
    assert f"after {past} epochs, at {trained:.3f} and {bits:.3f}" in SAID


def test_the_recipes_are_told_as_they_were():
    found, at = runs(), results.curves()
    whole, chosen = found["muon2"], found["muon4"]
    assert f"over {int(whole['reached']):,} updates" in SAID
    assert f"Muon at 2e-3 ended at {float(whole['training_bits']):.3f}" in SAID
    stopped = f"at {float(chosen['training_bits']):.3f} when it was stopped after"
    assert f"{stopped} {int(chosen['reached']):,}" in SAID
    bits = {run: {step: bits for step, _, bits in at[run]} for run in found}
    leads = [bits["adam2"][1050] - bits["muon2"][1050], bits["adam4"][400] - bits["muon4"][400]]
    assert f"{leads[0]:.3f} bits/dim ahead of Adam at a rate of 2e-3 after 1,050 updates" in SAID
    assert f"and {leads[1]:.3f} at 4e-3, where Adam was stopped after 400" in SAID


def test_the_run_that_was_cut_short_is_told_as_it_was():
    long = runs()["cifar10"]
    planned = f"planned for {int(long['steps']):,} updates and **was cut short**"
    assert f"{planned} after {int(long['reached']):,}" in SAID
    looks = results.tested("cifar10")
    for step, seconds, bits in looks:
        where = f"{epochs('cifar10', step)} | {step / int(long['steps']):.0%}"
        assert f"| 37.2 | {bits:.3f} | plain, one draw | {where} | {seconds:.0f} s |" in SAID
    found = [r for r in evaluated("cifar10 after") if r["images"] == "10000"]
    assert [float(r["bits_per_dim"]) for r in found] == [bits for *_, bits in looks]


def evaluated(name):
    return [row for row in results.read("evaluation.csv") if row["model"].startswith(name)]


def of_cifar10():
    """Uniform noise, leaning noise, and uniform noise for the weights as they ship."""
    whole = [row for row in evaluated("cifar10") if row["images"] == "10000"]
    as_trained = [row for row in whole if row["model"] == "cifar10"]
    many = next(row for row in as_trained if row["draws"] == "64")
    leaning = next(row for row in as_trained if "--lean" in row["command"])
    (few,) = (row for row in as_trained if row not in (many, leaning))
    (kept,) = (row for row in whole if row["model"] == "cifar10 in 8 bits")
    return many, leaning, few, kept


def lasted(run):
    return f"{float(runs()[run]['seconds']):,.0f}"


def test_the_whole_run_is_told_as_it_was():
    run, (many, leaning, few, kept) = runs()["whole"], of_cifar10()
    assert run["steps"] == run["reached"] == "16000"
    bits, weighted = float(many["bits_per_dim"]), float(many["importance_weighted"])
    error = float(many["importance_weighted_error"])
    past = epochs("whole", int(run["steps"]))
    end = f"plain, mean of 64 draws | {past} | all | {lasted('whole')} s |"
    assert f"| **{bits:.3f}** | {end}" in SAID
    assert f"| **{weighted:.3f}** | importance-weighted, 64 draws |" in SAID
    assert f"**`cifar10` is at {weighted:.3f} ± {error:.3f} after nineteen minutes" in SAID
    some = {row["draws"]: row for row in evaluated("cifar10") if row["images"] == "128"}
    told = [float(some[draws]["importance_weighted"]) for draws in ("64", "512")]
    assert f"512 draws give `cifar10` {told[0] - told[1]:.3f} less than 64" in SAID
    lost = float(kept["bits_per_dim"]) - float(few["bits_per_dim"])
    assert f"in 8 bits, which costs {lost:.4f} ({kept['bits_per_dim']})" in SAID
    assert f"| `cifar10` | uniform | 37.2 | {bits:.3f} | {weighted:.3f} | 64 |" in SAID
    means = [float(leaning[name]) for name in ("bits_per_dim", "importance_weighted")]
    assert "| 37.2 | {:.3f} | {:.3f} | 8 |".format(*means) in SAID
    training = {step: bits for step, _, bits in results.curves()["whole"]}
    ends = round(0.8 * int(run["steps"]))
    step = training[ends + 100] - training[ends]
    assert f"Until update {ends:,} training images were shifted" in SAID
    assert f"cost {step:.2f} bits/dim less than true ones" in SAID
    told = f"training batches cost {training[16_000]:.3f} and test images {bits:.3f}"
    assert f"{told}, so `cifar10` overfits by {bits - training[16_000]:.2f}" in SAID
    learnt = results.curves()["whole"][-1][1]
    assert f"counts updates alone, {learnt:,.0f} s with the first and its compilation" in SAID
    log = " ".join((synthesis.DOCS / "experiments.md").read_text().split())
    assert f"| 16,000 | {lasted('whole')} | {training[16_000]:.3f} at 16,000 |" in log
    for row in of_cifar10():
        plain = f"{row['bits_per_dim']} ± {row['error']}"
        weighted = f"{row['importance_weighted']} ± {row['importance_weighted_error']}"
        assert f"| {row['draws']} | {plain} | {weighted} |" in log.replace("**", "")


def test_the_run_with_learnt_noise_is_told_as_it_was():
    run, curve = runs()["learnt"], {step: bits for step, _, bits in results.curves()["learnt"]}
    assert run["steps"] == run["reached"] == "11668"
    rows = evaluated("cifar10-variational")
    (many,) = (row for row in rows if row["draws"] == "64")
    one, kept = (row for row in rows if row["images"] == "10000" and row["draws"] == "1")
    uniform, *_ = of_cifar10()
    bits, weighted = float(many["bits_per_dim"]), float(many["importance_weighted"])
    end = f"plain, mean of 64 draws | {epochs('learnt', 11668)} after those of `cifar10` | all"
    assert f"| 38.4 | **{bits:.3f}** | {end} | {lasted('learnt')} s after those |" in SAID
    error = float(many["importance_weighted_error"])
    assert f"`cifar10-variational` at {weighted:.3f} ± {error:.3f} after nineteen more**" in SAID
    end = f"38.4 | **{bits:.3f}** | **{weighted:.3f}** | 64 |"
    assert f"learnt, {lasted('learnt')} s of one H200 | {end}" in SAID
    told = f"training batches cost {curve[11668]:.3f} and test images {bits:.3f}"
    assert f"{told}: it overfits less, by {bits - curve[11668]:.2f}" in SAID
    ahead = float(uniform["bits_per_dim"]) - bits
    assert f"At full size it is {ahead:.3f} ahead of the uniform noise" in SAID
    assert kept["model"] == "cifar10-variational in 8 bits"
    lost = float(kept["bits_per_dim"]) - bits
    assert f"In 8 bits it loses {lost:.4f} ({kept['bits_per_dim']})" in SAID
    log = " ".join((synthesis.DOCS / "experiments.md").read_text().split()).replace("**", "")
    told = f"{ahead:.3f} plain and {float(uniform['importance_weighted']) - weighted:.3f}"
    assert f"{told} importance-weighted" in log
    plain = f"{many['bits_per_dim']} ± {many['error']}"
    weights = f"{many['importance_weighted']} ± {many['importance_weighted_error']}"
    assert f"| learnt | 64 | {plain} | {weights} |" in log
    assert f"| learnt | 1 | {one['bits_per_dim']} ± {one['error']} | |" in log


def test_the_ablation_is_told_as_it_was():
    bits = {
        name: [mean(float(end[kind]) for end in ends) for kind in ("test_bits", "weighted")]
        for name, ends in results.learnt().items()
    }
    plain = {name: of_test for name, (of_test, _) in bits.items()}
    ahead = [f"{plain['glow'] - plain[name]:.2f}" for name in ("fine-grained", "original")]
    assert f"are {ahead[0]} to {ahead[1]} bits/dim ahead of a Glow as large" in SAID
    assert f"is {plain['glow'] - plain['variational']:.3f} ahead" in SAID
    behind = plain["fine-grained"] - plain["original"]
    assert f"{behind:.3f} behind the original multi-scale" in SAID
    weighted = {name: of_weighted for name, (_, of_weighted) in bits.items()}
    assert sorted(plain, key=plain.get) == sorted(weighted, key=weighted.get)


def test_the_readme_tells_the_same():
    readme = " ".join((synthesis.DOCS.parent / "README.md").read_text().split())
    bits, seconds = float(runs()["small"]["test_bits"]), results.curves()["small"][-1][1]
    assert f"is at {bits:.3f} after {seconds:.0f} s" in readme
    many, leaning, *_ = of_cifar10()
    plain, weighted = float(many["bits_per_dim"]), float(many["importance_weighted"])
    assert f"costs {plain:.3f} bits/dim, importance-weighted {weighted:.3f}" in readme
    assert f"tightens the bound of `cifar10` to {float(leaning['bits_per_dim']):.3f}" in readme
    _, early, first = results.tested("cifar10")[0]
    told = f"{first:.3f} after {early:.0f} s of one run, {plain:.3f} after {lasted('whole')} s"
    assert f"| 3.609 after 481 s | {told} of another, plain bounds |" in readme


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
    weighted = [float(many[f"importance_weighted{name}"]) for name in ("", "_error")]
    plain = f"the same plain bound, {float(many['bits_per_dim']):.3f}"
    assert "{}, and the importance-weighted bound {:.3f} ± {:.3f}".format(plain, *weighted) in SAID
    assert many["bits_per_dim"] == whole["bits_per_dim"]
    assert leaning["command"].endswith("--lean")
    assert leaning["images"] == "10000"
    means = [float(leaning[name]) for name in ("bits_per_dim", "importance_weighted")]
    assert "| 7.4 | {:.3f} | {:.3f} | {} |".format(*means, leaning["draws"]) in SAID
    uniform = f"{float(many['bits_per_dim']):.3f} | {weighted[0]:.3f} | 64 |"
    assert f"| `cifar10-small` | uniform | 7.4 | {uniform}" in SAID
    ended = next(row for row in evaluated("cifar10") if "--train.steps 16000" in row["command"])
    told = f"was {float(ended['reconstruction']):.4f} grey levels for `cifar10`"
    assert f"{told} and {float(whole['reconstruction']):.4f} for `cifar10-small`" in SAID
    log = (synthesis.DOCS / "experiments.md").read_text()
    assert f"{trained['bits_per_dim']} on the first 10,000 training images" in log


def test_what_8_bits_lose_is_told_as_it_was():
    rows = results.read("evaluation.csv")
    found = {r["model"]: r for r in rows if r["command"].endswith("--limit 2000")}
    lost = float(found["cifar10-small in 8 bits"]["bits_per_dim"])
    lost -= float(found["cifar10-small"]["bits_per_dim"])
    page = " ".join((synthesis.DOCS / "verbs" / "export.md").read_text().split())
    said = re.search(r"and 8 little \((0\.\d+)\)", page)
    assert said is not None
    assert float(said[1]) == pytest.approx(lost, abs=2e-4)


def test_a_better_model_finds_no_more():
    rows = {(row["preset"], row["kind"]): row for row in results.read("anomaly_cpu.csv")}
    for kind in ("photographs", "upside down"):
        scores = ("likelihood", "typicality", "corrected")
        areas, small = ([rows[of, kind][s] for s in scores] for of in ("cifar10", "cifar10-small"))
        assert f"{kind} {areas[0]}, {areas[1]} and {areas[2]}" in SAID
        assert max(abs(float(a) - float(b)) for a, b in zip(areas, small, strict=True)) < 0.02


def test_lost_draws_are_those_of_the_results():
    lost = defaultdict(list)
    for row in results.read("lost_draws_cpu.csv"):
        assert row["draws"] == "512"
        lost[row["command"].split()[2]].append((row["temperature"], row["repeated"]))
    temperatures = ("0.7", "0.8", "0.9", "1.0")
    found = {"cifar10-small": "0 0 0 11", "cifar10": "6 2 2 5", "cifar10-variational": "6 2 6 15"}
    for model, repeated in found.items():
        assert lost[model] == list(zip(temperatures, repeated.split(), strict=True))
    assert "of `cifar10` 6, 2, 2 and 5" in SAID
    assert "of `cifar10-variational` 6, 2, 6 and 15" in SAID
    assert "of `cifar10-small` eleven (2.1 ± 0.6%) at 1 and none below" in SAID


def test_the_authors_figure_is_in_the_log():
    log = " ".join((synthesis.DOCS / "experiments.md").read_text().split())
    assert "3.609 bits/dim on the test set after 475 updates of 512 images, 481 s" in log
    assert f"| 3.609 | not recorded | {475 * 512 / 50_000:.0f} | hardly begun | 481 s |" in SAID
    assert results.LEVELS["authors' code, 481 s"] == 3.609


NAMED = [f"{name}.csv" for name in ("recipe_gpu", "anomaly_cpu", "evaluation", "lost_draws_cpu")]
NAMED += [f"{name}_cpu.csv" for name in ("miniature", "ablation", "inverse", "variational")]


def test_learnt_noise_is_told_as_it_was():
    ends = {row["run"]: row for row in results.read("variational_cpu.csv") if row["test_bits"]}
    assert "for 1,500 updates of 32, and once with such a dequantizer, for 1,280" in SAID
    assert [ends[run]["step"] for run in ("uniform", "variational")] == ["1500", "1280"]
    uniform, learnt = (float(ends[run]["test_bits"]) for run in ("uniform", "variational"))
    told = f"ended at {uniform:.3f} bits/dim of the test images, learnt noise at {learnt:.3f}"
    assert f"{told}: {uniform - learnt:.3f} ahead" in SAID


def test_the_longer_run_of_learnt_noise_is_told_as_it_was():
    rows = [row for row in results.read("variational_cpu.csv") if row["run"] == "longer"]
    looks = [row["test_bits"] for row in rows if row["test_bits"]]
    log = (synthesis.DOCS / "experiments.md").read_text()
    assert f"| {' | '.join(looks)} |" in log
    found = {
        (row["images"], row["draws"]): row
        for row in results.read("evaluation.csv")
        if row["model"] == "cifar10-small-variational"
    }
    one, many = found["10000", "1"], found["10000", "8"]
    assert f"updates of 64: {float(one['bits_per_dim']):.3f} with one draw" in SAID
    means = [float(many[name]) for name in ("bits_per_dim", "importance_weighted")]
    assert "| 7.9 | {:.3f} | {:.3f} | 8 |".format(*means) in SAID
    kept = found["1000", "1"]["bits_per_dim"]
    assert f"{float(kept) - float(looks[-1]):.4f} bits/dim ({kept} of the first 1,000" in SAID
    assert f"the run itself had found {looks[-1]}" in SAID
    readme = " ".join((synthesis.DOCS.parent / "README.md").read_text().split())
    assert f"`cifar10-small-variational` is at {float(one['bits_per_dim']):.3f}" in readme
    for row in found.values():
        for name in ("bits_per_dim", "importance_weighted"):
            assert not row[name] or row[name] in log


def test_going_on_once_more_is_told_as_it_was():
    log = (synthesis.DOCS / "experiments.md").read_text()
    for run in ("again", "gently"):
        rows = [row for row in results.read("variational_cpu.csv") if row["run"] == run]
        for row in rows:
            if row["test_bits"]:
                end = int(row["step"])
                before = mean(float(r["bits"]) for r in rows if end - 200 < int(r["step"]) <= end)
                assert f"| {row['test_bits']} | {before:.3f} |" in log
                told = row["test_bits"]
        assert told in SAID


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
        assert re.match(r"(torchrun .* -m -- )?macow ", row["command"])
        assert row["device"]
        assert row["commit"]
