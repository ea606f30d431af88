"""The tables and pictures of docs/results.md out of benchmarks/results (make pages)."""

import csv
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

import synthesis
from charts import Axis, chart

SHOWN = {
    "adam1": "Adam, 1e-3",
    "adam2": "Adam, 2e-3",
    "adam4": "Adam, 4e-3",
    "muon2": "Muon, 2e-3",
    "muon4": "Muon, 4e-3",
}
"""Runs of the picture that compares recipes."""
TRAINED = {"small": "cifar10-small", "whole": "cifar10", "learnt": "cifar10-variational"}
"""Runs of the picture that shows how long it takes."""
AFTER = {"learnt": "whole"}
"""A run that went on from another's weights."""
LOOKED = {**TRAINED, "cifar10": "another run"}
"""Runs whose weights all test images were given to."""
LEVELS = {
    "MaCow, published": 3.28,
    "MaCow, learnt noise, published": 3.16,
    "Glow, published": 3.35,
    "authors' code, 481 s": 3.609,
}
"""docs/experiments.md, and the papers."""


def read(name):
    return list(csv.DictReader((synthesis.RESULTS / name).read_text().splitlines()))


def curves():
    """Of each run `(update, seconds, bits)` of training batches."""
    found, batch = defaultdict(list), {r["run"]: int(r["images"]) for r in read("recipe_gpu.csv")}
    for row in read("recipe_curves_gpu.csv"):
        if row["bits"]:
            before, spent, _ = found[row["run"]][-1] if found[row["run"]] else (0, 0.0, 0)
            step = int(row["step"])
            spent += (step - before) * batch[row["run"]] / float(row["images_per_s"])
            found[row["run"]].append((step, spent, float(row["bits"])))
    return found


def tested(run):
    """What all test images cost by a run's weights: `(update, seconds, bits)`."""
    spent = {step: seconds for step, seconds, _ in curves()[run]}
    rows = [r for r in read("recipe_curves_gpu.csv") if r["run"] == run and r["test_bits"]]
    return [(int(r["step"]), spent[int(r["step"])], float(r["test_bits"])) for r in rows]


def began(run, found):
    """Seconds of the run whose weights it went on from, if of any."""
    return found[AFTER[run]][-1][1] if run in AFTER else 0.0


def by_bits(lines, note, title, tenths, **more):
    """Curves from nothing on; upwards from so many tenths of a bit/dim."""
    far = max(x for curve in lines.values() for x, _ in curve)
    step = next(n for n in (50, 100, 200, 250, 500) if far / n <= 6)
    across = Axis(list(range(0, int(far) + 1, step)), far)
    upwards = Axis([bits / 10 for bits in range(tenths, 39)])
    return chart(lines, across, upwards, f"{note}; upwards: bits/dim", title, **more)


def pictures():
    """Files of docs/ and what they hold."""
    found = curves()
    recipes = {name: [(n, bits) for n, _, bits in found[run]] for run, name in SHOWN.items()}
    learnt = {
        name: [(began(run, found) + seconds, bits) for _, seconds, bits in found[run]]
        for run, name in TRAINED.items()
    }
    dots = {
        f"{name}, test, {bits:.3f}": (began(run, found) + seconds, bits)
        for run, name in LOOKED.items()
        for _, seconds, bits in tested(run)
    }
    return {
        "ablation.svg": ablation_picture(),
        "variational.svg": variational_picture(),
        "longer.svg": longer_picture(),
        "recipes.svg": by_bits(recipes, "updates of 256 images", "recipes compared", 34),
        "learning.svg": by_bits(
            learnt,
            "seconds of updates on one H200",
            "cifar10-small, cifar10 and cifar10-variational learning",
            30,
            levels=LEVELS,
            dots=dots,
        ),
    }


def ablation_picture():
    """Training batches, the mean of all seeds, against the mean of their seconds."""
    points = defaultdict(lambda: defaultdict(list))
    for row in read("ablation_cpu.csv"):
        at = (float(row["seconds"]), float(row["training_bits"]))
        points[Path(row["model"]).stem][int(row["updates"])].append(at)
    lines = {
        name: [
            (mean(second for second, _ in seeds), mean(bits for _, bits in seeds))
            for seeds in points[name].values()
        ]
        for name in COMPARED
    }
    return chart(
        lines,
        Axis([0, 30, 60, 90, 120, 150, 180], max(line[-1][0] for line in lines.values())),
        Axis([4.5, 4.6, 4.7, 4.8, 4.9, 5.0]),
        "seconds on one core; upwards: bits/dim of training batches",
        "four models compared",
    )


def variational_picture():
    """What learnt noise gives beside uniform noise on the same batches, 50 updates at a time."""
    bits = defaultdict(dict)
    for row in read("variational_cpu.csv"):
        bits[row["run"]][int(row["step"])] = float(row["bits"])
    apart = [(n, found - bits["uniform"][n]) for n, found in bits["variational"].items()]
    fives = [apart[i : i + 5] for i in range(0, len(apart) - 4, 5)]
    line = [(mean(n for n, _ in five), mean(bits for _, bits in five)) for five in fives]
    return chart(
        {"learnt noise": line},
        Axis([0, 250, 500, 750, 1000, 1250], apart[-1][0]),
        Axis([-0.08, -0.06, -0.04, -0.02, 0, 0.02]),
        "updates of 32 images; upwards: bits/dim beside uniform noise, training batches",
        "a learnt dequantizer beside uniform noise",
        levels={"uniform noise": 0},
    )


def longer_picture():
    """What a learnt dequantizer came to in the end: batches, 100 updates at a time, and looks."""
    rows = [row for row in read("variational_cpu.csv") if row["run"] == "longer"]
    tens = [rows[i : i + 10] for i in range(0, len(rows), 10)]
    line = [
        (mean(int(r["step"]) for r in ten), mean(float(r["bits"]) for r in ten)) for ten in tens
    ]
    looks = [(int(r["step"]), float(r["test_bits"])) for r in rows if r["test_bits"]]
    return chart(
        {"training batches": line},
        Axis([0, 600, 1200, 1800, 2400]),
        Axis([3.25, 3.3, 3.35, 3.4, 3.45]),
        "updates of 64 images; upwards: bits/dim",
        "cifar10-small-variational learning",
        levels={"uniform noise, test": on_a_thousand()},
        dots={f"test, {bits:.3f}": (step, bits) for step, bits in looks},
    )


def on_a_thousand():
    """What cifar10-small costs on the first 1,000 test images."""
    rows = [row for row in read("evaluation.csv") if row["model"] == "cifar10-small"]
    return next(float(row["bits_per_dim"]) for row in rows if row["images"] == "1000")


def anomaly_table():
    rows = [
        [row["kind"], row["pictures"], row["bits"]]
        + [
            f"{float(row[name]):.3f} ± {float(row[f'{name}_error']):.3f}"
            for name in ("likelihood", "typicality", "corrected")
        ]
        for row in read("anomaly_cpu.csv")
        if row["preset"] == "cifar10-small"
    ]
    return synthesis.table("images, pictures, bits/dim, likelihood, typicality, corrected", rows)


COMPARED = ("original", "fine-grained", "variational", "glow")


def learnt():
    """Of each model in miniature the ends of its runs, one a seed."""
    found = defaultdict(list)
    for row in read("ablation_cpu.csv"):
        if row["test_bits"]:
            found[Path(row["model"]).stem].append(row)
    return found


def ablation_table():
    rows = []
    for name in COMPARED:
        ends = learnt()[name]
        tested = [float(end["test_bits"]) for end in ends]
        spent = [1e3 * float(end["seconds"]) / int(end["updates"]) for end in ends]
        row = [f"{int(ends[0]['parameters']):,}", f"{mean(spent):.0f}", ends[0]["updates"]]
        seeds = " ".join(f"{bits:.3f}" for bits in tested)
        rows.append([name, *row, f"{mean(tested):.3f} ± {stdev(tested):.3f}", seeds])
    return synthesis.table(
        "model, parameters, ms an update, updates, bits/dim test ± between seeds, seed by seed",
        rows,
    )


TABLES = {"anomaly": anomaly_table, "ablation": ablation_table}
