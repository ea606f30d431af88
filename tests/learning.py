"""The tables of docs/scaling.md out of benchmarks/results (make pages)."""

import synthesis

AUTHORS = {
    "cifar10": (529, 66),
    "imagenet64": (25.1, 396),
    "lsun128": (5.7, 1777),
    "celebahq256": (1.9, 5272),
}
"""Images/s and MiB an image of the authors' code (docs/experiments.md, 2026-11-15)."""
UPDATES = 1_500_000
"""Until the paper's learning rate has fallen to a hundredth: its runs' length."""
LINKS = {8: 450e9, 16: 50e9, 64: 50e9, 512: 50e9}
"""GPUs, and bytes a second that one of them sends: NVLink in a host, 400 Gbit/s between hosts."""
REACHED, HOP = 0.8, 1e-5
"""The share of that which an all-reduce reaches, and seconds of each of its steps: assumed."""


def runs():
    return synthesis.costs("training_gpu.csv")


def seconds(row):
    """Of an update."""
    return float(row["images"]) / float(row["images_per_s"])


def training_table():
    rows = []
    for name, (speed, memory) in AUTHORS.items():
        row = runs()[name]
        here, slope = float(row["images_per_s"]), float(row["mib_per_image"])
        constant = float(row["peak_mib"]) - slope * int(row["images"])
        rows.append(
            [
                *(f"`{name}`", row["images"], speed, f"{here:,.4g}", f"{here / speed:.1f}"),
                *(f"{memory:,}", f"{slope:.4g}", f"{constant:,.0f}", row["first_s"]),
            ]
        )
    return synthesis.table(
        "preset, batch, authors' images/s, here, ratio, authors' MiB an image, here, MiB beside, "
        "first update after s",
        rows,
    )


def scaling_table():
    found = synthesis.costs("scaling_gpu.csv")
    base = seconds(found["as it is"]) / int(found["as it is"]["images"])
    rows = []
    for title, row in found.items():
        cost = seconds(row) / int(row["images"])
        millions = int(row["parameters"]) / 1e6
        speed = f"{float(row['images_per_s']):,.4g}"
        rows.append(
            [title, f"{millions:.1f}", row["images"], speed, f"{cost / base:.2f}"]
            + [row["mib_per_image"]]
        )
    return synthesis.table(
        "`cifar10`, million parameters, batch, images/s, cost of an image, MiB an image", rows
    )


def exchange(row, gpus):
    """Seconds of an all-reduce of all gradients around a ring."""
    sent = 2 * (gpus - 1) / gpus * 4 * int(row["parameters"])
    return sent / (REACHED * LINKS[gpus]) + 2 * (gpus - 1) * HOP


def parallel_table():
    rows = []
    for name in AUTHORS:
        row = runs()[name]
        megabytes = 4 * int(row["parameters"]) / 1e6
        times = [f"{1e3 * exchange(row, gpus):.1f}" for gpus in LINKS]
        rows.append([f"`{name}`", f"{megabytes:,.0f}", f"{1e3 * seconds(row):,.0f}", *times])
    counts = ", ".join(f"{gpus} GPUs" for gpus in LINKS)
    return synthesis.table(f"ms, MB of gradients, update on one GPU, {counts}", rows)


def length_table():
    rows = []
    for name, (speed, _) in AUTHORS.items():
        row = runs()[name]
        images = UPDATES * int(row["images"])
        here = images / float(row["images_per_s"]) / 86400
        rows.append([f"`{name}`", row["images"], f"{images / speed / 86400:,.0f}", f"{here:,.1f}"])
    return synthesis.table("preset, batch, days by the authors' code, days here", rows)


TABLES = {
    "training": training_table,
    "scaling": scaling_table,
    "parallel": parallel_table,
    "length": length_table,
}
