"""The site: it builds, a dead link breaks it, its pages are complete and ask nobody else."""

import re
import shutil
import subprocess
import sys
from operator import attrgetter

import pytest

import macow
import macow.check
import macow.export
import macow.latents
from macow import bijections
from macow.bijections import Bijection
from macow.data import SOURCES
from pages import DOCS, page

ROOT = DOCS.parent


def build(source, site):
    # Not --quiet: it hides warnings from --strict, too.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    where = ["-f", str(source / "mkdocs.yml"), "-d", str(site)]
    return subprocess.run([*command, *where], capture_output=True, text=True)


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    return tmp_path


def test_the_site_builds_and_asks_nobody_else(tmp_path):
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 20
    for path in pages:
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", path.read_text()):
            assert not re.search(r"(?:src|href)=\"(?:https?:)?//", tag), f"{path}: {tag}"
    for style in tmp_path.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", style.read_text()), style
        assert not re.search(r"@import", style.read_text()), style


@pytest.mark.parametrize(
    ("addition", "complaint"),
    [
        ("\n[gone](nowhere.md)\n", "nowhere.md"),
        ("\n[gone](troubles.md#happiness)\n", "happiness"),
        ("\n[gone](#happiness)\n", "happiness"),
        ("\n![gone](nowhere.png)\n", "nowhere.png"),
    ],
)
def test_a_dead_link_breaks_the_build(addition, complaint, copy):
    with (copy / "docs" / "reading.md").open("a") as file:
        file.write(addition)
    done = build(copy, copy / "site")
    assert done.returncode != 0
    assert complaint in done.stdout + done.stderr


def test_a_page_nobody_finds_breaks_the_build(copy):
    (copy / "docs" / "lost.md").write_text("# Lost\n")
    done = build(copy, copy / "site")
    assert done.returncode != 0
    assert "lost.md" in done.stdout + done.stderr


def test_the_readme_leads_to_every_part():
    readme = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\(([^)#]+)\)", readme)
    for link in links:
        assert link.startswith("https://") or (ROOT / link).exists(), link
    for name in {path.name for path in DOCS.glob("*.md")} - {"index.md"}:
        assert f"docs/{name}" in links, name
    assert "docs/verbs/index.md" in links


def test_python_names_exist_and_none_is_forgotten():
    named = set(re.findall(r"`(macow(?:\.\w+)+)", page("api.md")))
    for name in named:
        attrgetter(name.removeprefix("macow."))(macow)
    public = {f"macow.{name}" for name in macow.__all__} - {"macow.train"}
    public |= {f"macow.bijections.{name}" for name in bijections.__all__}
    kinds = [kind for kind in macow.FlowModel.__mro__ if kind.__module__.startswith("macow")]
    methods = [name for kind in kinds for name in vars(kind) if name[0] != "_"]
    public |= {f"macow.FlowModel.{name}" for name in methods}
    assert public <= named, public - named


def test_the_mathematics_of_every_bijection_is_told():
    sections = dict(re.findall(r"^## (\w+)$(.*?)(?=^## |\Z)", page("mathematics.md"), re.M | re.S))
    maps = [getattr(bijections, name) for name in bijections.__all__]
    for kind in maps:
        if isinstance(kind, type) and issubclass(kind, Bijection) and kind is not Bijection:
            for word in ("    forward ", "    inverse ", "    log-det "):
                assert word in sections[kind.__name__], (kind.__name__, word)
    assert "emerging_conv" in page("mathematics.md")


@pytest.mark.parametrize(
    "trouble",
    [
        "NaN at the start of training",
        "Black samples",
        "Bits/dim are far off",
        "Images do not come back from their latents",
        "ActNorm on several GPUs",
        "Resuming",
    ],
)
def test_the_classic_troubles_are_answered(trouble):
    assert f"\n## {trouble}" in page("troubles.md")


@pytest.mark.parametrize(
    "message",
    [
        "holds a run with",
        "images are not those that",
        "another process is training in",
        "is damaged",
        "holds a model, not a run",
        ": skipped, ",
    ],
)
def test_messages_are_quoted_as_they_are(message):
    source = "".join(path.read_text() for path in (ROOT / "src/macow/train").glob("*.py"))
    assert message in page("troubles.md")
    assert message in source


def test_every_source_is_named():
    for source in SOURCES:
        assert f"| `{source}" in page("verbs/data.md")
