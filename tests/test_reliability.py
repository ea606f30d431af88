"""Every promise in docs/reliability.md names tests, and they exist; its figures are measured."""

import ast
import csv
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROMISES = (ROOT / "docs" / "reliability.md").read_text()


def test_every_promise_is_held_by_a_test():
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PROMISES)
    assert len(named) >= 20
    for file, test in named:
        tree = ast.parse((ROOT / file).read_text())
        tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert test in tests, f"{file}::{test}"
    for table in PROMISES.split("| promise | held by |\n|---|---|\n")[1:]:
        for line in table.split("\n\n")[0].splitlines():
            assert re.search(r"`tests/[\w/]+\.py::test_\w+` \|$", line), line


def test_every_fault_test_holds_a_promise():
    for path in (ROOT / "tests" / "faults").glob("test_*.py"):
        tree = ast.parse(path.read_text())
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                assert f"::{node.name}`" in PROMISES, f"{path}::{node.name} stands for no promise"


def rows(name):
    with (ROOT / "benchmarks" / "results" / name).open() as file:
        return list(csv.DictReader(file))


def test_the_cost_of_a_save_is_measured():
    (row,) = rows("save.csv")
    assert float(row["blocked_percent_of_600_s"]) < 1
    share = float(row["blocked_percent_of_600_s"])
    assert f"{float(row['blocked_s']):.2f} s, {share:.2f}%" in PROMISES
    assert f"{float(row['written_s']):.1f} s" in PROMISES


def test_the_soak_was_run():
    counts = {row["what"]: int(row["count"]) for row in rows("soak.csv")}
    assert sum(count for what, count in counts.items() if "killed" in what) == 100
    assert counts["checkpoints lost"] == 0
    said = " ".join(PROMISES.split())
    for what in ("killed at a touch", "killed at a moment", "full disk, then killed"):
        assert f"{counts[what]} {what}" in said
    damaged = sum(count for what, count in counts.items() if what.startswith("newest checkpoint"))
    assert f"{damaged} damaged" in said
