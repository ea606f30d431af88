"""Every promise of docs/reliability.md names a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_promise_has_its_test():
    promises = re.findall(
        r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/reliability.md").read_text()
    )
    assert len(promises) > 20
    for file, name in promises:
        assert f"def {name}(" in (ROOT / file).read_text(), f"{file}::{name}"
