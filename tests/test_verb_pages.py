"""A page for every verb: its options are the parser's, its examples print what it says."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from macow.cli import VERBS, main
from pages import (
    BEGIN,
    DOCS,
    END,
    actions,
    blocks,
    difference,
    page,
    picture_difference,
    printed,
    with_options,
)

FIXTURE = Path(__file__).parent / "fixtures" / "original" / "uniform"
PICTURES = {  # what an example draws, and where it is shown
    "sample": ("new/grid.png", "temperatures.png"),
    "interpolate": ("film_strip.png", "interpolation.png"),
}
every_verb = pytest.mark.parametrize("verb", VERBS)


def test_there_is_a_page_for_every_verb_and_no_other():
    found = {path.stem for path in (DOCS / "verbs").glob("*.md")}
    assert found == {*VERBS, "index"}
    for verb, what in VERBS.items():
        assert f"| [{verb}]({verb}.md) | {what} |" in page("verbs/index.md")


@every_verb
def test_the_options_are_the_parsers(verb):
    text = page(f"verbs/{verb}.md")
    assert with_options(verb, text) == text, "run `make pages`"


@every_verb
def test_only_options_that_exist_are_named(verb):
    text = re.sub(r"```console.*?```", "", page(f"verbs/{verb}.md"), flags=re.DOTALL)
    known = {option for action in actions(verb) for option in action.option_strings}
    for option in re.findall(r"(?<![\w-])--[a-z][\w.]*", text):
        nested = option.startswith("--model.variational.")  # its fields are options, too
        assert option in known | {"--help"} or (verb == "train" and nested), option


def test_every_field_of_a_configuration_says_what_it_is():
    table = page("verbs/train.md").partition(BEGIN)[2].partition(END)[0]
    rows = [row.split(" | ") for row in table.splitlines() if row.startswith("| `--")]
    assert len(rows) > 40
    assert [row[0] for row in rows if not row[-1].strip(" |")] == []


@every_verb
def test_the_examples_print_what_the_page_says(verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(FIXTURE, "original")
    examples = blocks(page(f"verbs/{verb}.md"), "console")
    assert examples
    for example in examples:
        for lines in re.split(r"^\$ macow ", example, flags=re.MULTILINE)[1:]:
            command, _, expected = lines.replace("\\\n", "").partition("\n")
            found = printed(main, shlex.split(command))
            assert not difference(expected, found), difference(expected, found)
    if verb in PICTURES:
        made, shown = PICTURES[verb]
        assert picture_difference(Path(made), DOCS / shown) < 1


@pytest.mark.parametrize(
    ("says", "prints", "same"),
    [
        ("2.155 +- 0.016", "2.155 +- 0.016\n", True),
        ("2.155", "2.157", True),
        ("2.155", "2.158", False),
        ("2.1...", "2.1551", True),
        ("a ... z", "a b c z", True),
        ("a ... z", "a b c", False),
        ("1,437 images", "1,438 images", False),
        ("two words", "two   words", True),
        ("two words", "other words", False),
        ("", "something", False),
        ("-3.2e-05", "-3.3e-05", True),
        ("-3.2e-05", "3.2e-05", False),
        ("1x8x8", "1x8x9", False),
        ("... 1.5 ... 2.5", "x 1.5 y 2.5", True),
        ("... 1.5 ... 2.5", "x 1.5 y 2.5 z", False),
        ("1,2,3 ... " * 20 + "end", "1,2,3 x " * 40 + "ende", False),  # at once, not in years
    ],
)
def test_a_page_that_is_wrong_is_found(says, prints, same):
    assert (difference(says, prints) == "") == same
