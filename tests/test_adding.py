"""The bijection of docs/adding.md obeys the laws, and the laws would notice if it did not."""

import inspect

import pytest
import torch

from bijections import test_laws as laws
from cases import CASES
from pages import blocks, difference, page, printed

CODE = blocks(page("adding.md"), "python")
NAME = "sinh-arcsinh"
LAWS = [
    law
    for name, law in vars(laws).items()
    if name.startswith("test_") and list(inspect.signature(law).parameters) == ["case"]
]


@pytest.fixture
def run(monkeypatch):
    """Runs the page's code; its case is gone afterwards."""
    monkeypatch.setitem(CASES, NAME, None)

    def run(*code):
        names = {"__name__": "page"}
        found = "".join(printed(exec, block, names) for block in code)
        return CASES[NAME], found

    return run


def test_its_laws_are_those_of_the_others():
    assert {"test_round_trip", "test_log_det_is_autograds"} <= {law.__name__ for law in LAWS}


@pytest.mark.parametrize("law", [law for law in LAWS if "condition" not in law.__name__])
def test_the_example_obeys(law, run):
    case, _ = run(*CODE[:2])
    law(case)


def test_the_example_is_used_as_the_page_says(run):
    _, found = run(*CODE)
    (expected,) = blocks(page("adding.md"), "text")
    assert not difference(expected, found), difference(expected, found)


@pytest.mark.parametrize(
    ("right", "wrong", "law"),
    [
        ("= log_tail + log_cosh", "= log_cosh", laws.test_log_det_is_autograds),
        ("asinh() / self", "asinh() * self", laws.test_round_trip),
        ("dim=(1, 2))", "dim=(0, 1, 2))", laws.test_log_det_is_autograds),
    ],
)
def test_a_mistake_in_the_example_is_found(right, wrong, law, run):
    assert right in CODE[0]
    case, _ = run(CODE[0].replace(right, wrong), CODE[1])
    with pytest.raises((AssertionError, RuntimeError)):
        law(case)


def test_it_starts_as_the_identity(run):
    x = torch.randn(2, 4, 4, 6, dtype=torch.double)
    y, log_det = run(*CODE[:2])[0].build().double()(x)
    torch.testing.assert_close(y, x)
    torch.testing.assert_close(log_det, torch.zeros(2, dtype=torch.double))
