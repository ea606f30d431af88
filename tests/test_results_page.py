"""docs/results.md says what was measured."""

import re
from collections import defaultdict
from statistics import mean

import pytest

import results
import synthesis

TEXT = (synthesis.DOCS / "results.md").read_text()


def flat(path):
    """Its text without its lines."""
    return " ".join(path.read_text().split())


SAID = flat(synthesis.DOCS / "results.md")
README = flat(synthesis.DOCS.parent / "README.md")
CHANGES = flat(synthesis.DOCS.parent / "CHANGELOG.md")
LOG = flat(synthesis.DOCS / "experiments.md").replace("**", "")


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


def bounds(row):
    """As the log has them."""
    plain = f"{row['bits_per_dim']} ± {row['error']}"
    weighted = f"{row['importance_weighted']} ± {row['importance_weighted_error']}"
    return f"| {row['draws']} | {plain} | {weighted} |"


def lasted(run):
    return f"{float(runs()[run]['seconds']):,.0f}"


def gained_by_512_draws(model):
    some = {r["draws"]: r for r in evaluated(f"{model} in 8 bits") if r["images"] == "128"}
    few, many = (float(some[draws]["importance_weighted"]) for draws in ("64", "512"))
    return few - many


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
    more = [f"{gained_by_512_draws(name):.3f}" for name in ("cifar10", "cifar10-variational")]
    told = f"512 draws give `cifar10` {more[0]} less than 64, `cifar10-variational` {more[1]}."
    assert told in SAID
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
    assert f"| 16,000 | {lasted('whole')} | {training[16_000]:.3f} at 16,000 |" in LOG
    assert all(bounds(row) in LOG for row in of_cifar10())


def test_the_run_with_learnt_noise_is_told_as_it_was():
    run, curve = runs()["learnt"], {step: bits for step, _, bits in results.curves()["learnt"]}
    assert run["steps"] == run["reached"] == "11668"
    rows = evaluated("cifar10-variational")
    (many,) = (row for row in rows if row["images"] == "10000" and row["draws"] == "64")
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
    before = float(uniform["bits_per_dim"]) - float(runs()["whole"]["training_bits"])
    assert f"{told}: it overfits by {bits - curve[11668]:.3f}, `cifar10` by {before:.3f}" in SAID
    assert f"{lasted('learnt')} s, counted alike, the first {round(0.799 * 11668):,} on" in SAID
    gains = [float(uniform[of]) - float(many[of]) for of in ("bits_per_dim", "importance_weighted")]
    told = "{:.3f} below the model it went on from, importance-weighted {:.3f}".format(*gains)
    assert f"At full size `cifar10-variational` ended {told}" in SAID
    assert "It is {:.3f} plain and {:.3f} importance-weighted below".format(*gains) in LOG
    assert kept["model"] == "cifar10-variational in 8 bits"
    lost = float(kept["bits_per_dim"]) - float(one["bits_per_dim"])
    assert f"in 8 bits, as it ships, it costs {lost:.4f} more ({kept['bits_per_dim']})" in SAID
    assert f"| learnt {bounds(many)}" in LOG
    assert f"| learnt | 1 | {one['bits_per_dim']} ± {one['error']} | |" in LOG
    looks = {row["model"]: row for row in rows if row["images"] == "2000"}
    assert len(looks) == 2
    for row in looks.values():
        assert f"| {row['bits_per_dim']} ± {row['error']} |" in LOG
    seconds = sum(float(runs()[name]["seconds"]) for name in ("whole", "learnt"))
    assert f"after {seconds:,.0f} seconds in two runs" in LOG
    assert f"learnt for {seconds / 60:.0f} minutes of one GPU" in README
    told = f"{bits:.3f}, importance-weighted {weighted:.3f}"
    assert f"a learnt dequantizer for {lasted('learnt')} s, costs {told}" in README
    assert f"a learnt dequantizer, {bits:.3f} and {weighted:.3f}" in CHANGES


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
    bits, seconds = float(runs()["small"]["test_bits"]), results.curves()["small"][-1][1]
    assert f"is at {bits:.3f} after {seconds:.0f} s" in README
    many, leaning, *_ = of_cifar10()
    plain, weighted = float(many["bits_per_dim"]), float(many["importance_weighted"])
    assert f"costs {plain:.3f} bits/dim, importance-weighted {weighted:.3f}" in README
    assert f"tightens the bound of `cifar10` to {float(leaning['bits_per_dim']):.3f}" in README
    _, early, first = results.tested("cifar10")[0]
    told = f"{first:.3f} after {early:.0f} s of one run, {plain:.3f} after {lasted('whole')} s"
    assert f"| 3.609 after 481 s | {told} of another, plain bounds |" in README


def test_the_log_tells_the_same_curves():
    for name, row in runs().items():
        if name != "small":
            found = f"{float(row['training_bits']):.3f} at {int(row['reached']):,} |"
            assert found in LOG, name


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
    assert f"{trained['bits_per_dim']} on the first 10,000 training images" in LOG


def test_what_8_bits_lose_is_told_as_it_was():
    rows = results.read("evaluation.csv")
    found = {r["model"]: r for r in rows if r["command"].endswith("--limit 2000")}
    lost = float(found["cifar10-small in 8 bits"]["bits_per_dim"])
    lost -= float(found["cifar10-small"]["bits_per_dim"])
    page = flat(synthesis.DOCS / "verbs" / "export.md")
    said = re.search(r"and 8 little \((0\.\d+)\)", page)
    assert said is not None
    assert float(said[1]) == pytest.approx(lost, abs=2e-4)


def test_better_models_find_hardly_more():
    rows = {(row["preset"], row["kind"]): row for row in results.read("anomaly_cpu.csv")}
    scores = ("likelihood", "typicality", "corrected")
    apart = []
    for kind in ("photographs", "upside down"):
        small = [float(rows["cifar10-small", kind][score]) for score in scores]
        for model in ("cifar10", "cifar10-variational"):
            areas = [rows[model, kind][score] for score in scores]
            assert f"{kind} {areas[0]}, {areas[1]} and {areas[2]}" in SAID
            apart += [float(area) - of_small for area, of_small in zip(areas, small, strict=True)]
    error = float(rows["cifar10-variational", "photographs"]["corrected_error"])
    *others, most = sorted(apart, key=abs)
    assert round(most / error) == 2
    assert abs(others[-1]) < 0.02


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
    assert "3.609 bits/dim on the test set after 475 updates of 512 images, 481 s" in LOG
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
    assert f"| {' | '.join(looks)} |" in LOG
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
    assert f"`cifar10-small-variational` is at {float(one['bits_per_dim']):.3f}" in README
    for row in found.values():
        for name in ("bits_per_dim", "importance_weighted"):
            assert not row[name] or row[name] in LOG


def test_going_on_once_more_is_told_as_it_was():
    for run in ("again", "gently"):
        rows = [row for row in results.read("variational_cpu.csv") if row["run"] == run]
        for row in rows:
            if row["test_bits"]:
                end = int(row["step"])
                before = mean(float(r["bits"]) for r in rows if end - 200 < int(r["step"]) <= end)
                assert f"| {row['test_bits']} | {before:.3f} |" in LOG
                told = row["test_bits"]
        assert told in SAID


def test_the_miniature_is_told_as_it_was():
    for row in results.read("miniature_cpu.csv"):
        given = f"| {row['lr']} | {'no' if row['shift'] == '0' else '2 pixels, until 70%'} |"
        found = f"{given} {row['training_bits']} | {row['test_bits']} |"
        assert found in LOG, row["run"]


@pytest.mark.parametrize("name", NAMED)
def test_results_name_machine_and_command(name):
    assert name in SAID or name in LOG
    for row in results.read(name):
        assert re.match(r"(torchrun .* -m -- )?macow ", row["command"])
        assert row["device"]
        assert row["commit"]
