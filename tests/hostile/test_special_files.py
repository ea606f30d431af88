"""Paths that are no plain files, and files that may not be read."""

import json
import os
import shutil
import stat

import attempts
import numpy as np
import pytest
from PIL import Image
from sandbox import Input, assert_all_answered, run

from children import require_open_checkout
from macow import data
from macow.cli import main
from macow.cli.sample import usual_temperature
from macow.data.arrays import mapped, npz_member
from macow.documents import read_json
from macow.original import load_original
from macow.pretrained import load
from macow.score import Reference

NOBODY = 65534


def sound_image(path):
    Image.fromarray(np.full((9, 9, 3), 80, np.uint8)).save(path, "png")


def prepare_pipe(path):
    os.mkfifo(path)


def prepare_loop(path):
    path.symlink_to(path)


def prepare_dangling(path):
    path.symlink_to(path.parent / "nowhere")


def prepare_folder(path):
    path.mkdir()


def prepare_zeros(path):
    path.symlink_to("/dev/zero")


def prepare_null(path):
    path.symlink_to("/dev/null")


def prepare_terminal(path):
    path.symlink_to("/dev/stdin")


SPECIAL = {
    "pipe": prepare_pipe,
    "loop": prepare_loop,
    "dangling": prepare_dangling,
    "folder": prepare_folder,
    "endless": prepare_zeros,
    "empty device": prepare_null,
    "standard input": prepare_terminal,
}


def an_image(path):
    found = [image for _, image in data.each_image([path], attempts.SHAPE)]
    raise ValueError(f"{path}: {found}")  # a folder has none, the others a reason


def original(path):
    load_original(attempts.FIXTURE / "config.json", path, size=(8, 8))


def cifar10(path):
    data.load(f"cifar10:{path}", "test")


def celebahq(path):
    data.load(f"celebahq:{path}", "test", attempts.SHAPE)


def a_folder_of(path):
    data.load(f"folder:{path.parent}", "test", attempts.SHAPE)


def a_model_of(path):
    load(path.parent)


def a_run_of(path):
    usual_temperature(path.parent)


READERS = {
    "an image": (an_image, "image.png"),
    "a folder of images": (a_folder_of, "image.png"),
    "a reference": (Reference.read, "reference.json"),
    "a configuration": (read_json, "config.json"),
    "a model": (a_model_of, "config.json"),
    "weights": (original, "model.pt"),
    "an array": (mapped, "train.npy"),
    "latents": (lambda path: npz_member(path, "latents"), "latents.npz"),
    "batches": (cifar10, "cifar.tar"),
    "faces": (celebahq, "faces.npy"),
}
CASES = {
    f"{reader} is a {kind}": (reader, kind) for reader in READERS for kind in SPECIAL
}  # an empty folder of faces and the like is refused as well


def attempt(folder, content):
    reader, kind = json.loads(content)
    read, name = READERS[reader]
    SPECIAL[kind](folder / name)
    return read(folder / name)


def inputs():
    return [Input(name, json.dumps(case).encode()) for name, case in CASES.items()]


def test_special_files_are_refused(tmp_path):
    answers = run(attempt, inputs(), tmp_path)
    assert_all_answered(answers)
    assert {answer.kind for answer in answers} == {"refused"}, answers


def test_a_folder_with_everything_in_it_gives_its_images(tmp_path, capsys):
    """What is no image is passed over or named; a loop is not followed."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    for kind, prepare in SPECIAL.items():
        prepare(folder / f"{kind}.png")
    (folder / "round").symlink_to(folder)
    sound_image(folder / "folder.png" / "inside.png")
    for name in ("a.png", "wrong.jpg", "no suffix", "new\nline.png", "\x1b[2J.png", "\udcff.png"):
        sound_image(folder / name)
    (folder / "text.png").write_text("hello")
    found = dict(data.each_image([folder], attempts.SHAPE))
    good = [path.name for path, image in found.items() if not isinstance(image, str)]
    assert len(good) == 7
    assert found[folder / "text.png"] == "not an image"
    out = tmp_path / "scores.csv"
    assert main(["score", "digits", str(folder), "--out", str(out), "--quiet"]) == 0
    assert len(out.read_text().splitlines()) >= 8
    assert main(["score", "digits", str(folder), "--quiet"]) == 0
    assert main(["encode", "digits", str(folder), "--out", str(tmp_path / "z.npz"), "--quiet"]) == 1
    decoded = ["decode", "digits", str(tmp_path / "z.npz"), "--out", str(tmp_path / "out")]
    assert main([*decoded, "--quiet"]) == 0
    assert len([*(tmp_path / "out").iterdir()]) == 7
    for line in capsys.readouterr().err.splitlines():
        assert line.isprintable()


def as_nobody(act):
    """Runs in a child that may read little; returns what it says."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            os.write(there, act().encode()[:60_000])
        except BaseException as error:
            os.write(there, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(there)
    with os.fdopen(here) as file:
        said = file.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("reader", READERS)
def test_what_may_not_be_read_is_refused(reader, tmp_path):
    """First, that the system itself refuses: a test of permissions as root would test nothing."""
    require_open_checkout()
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    read, name = READERS[reader]
    path = tmp_path / "closed" / name
    path.parent.mkdir()
    path.parent.chmod(0o755)
    path.write_bytes(b"secret")
    path.chmod(0)

    def act():
        with pytest.raises(PermissionError):
            path.open("rb")
        try:
            read(path)
        except (ValueError, OSError) as error:
            return f"refused: {error}"
        return "read"

    said = as_nobody(act)
    assert said.startswith("refused: "), said
    assert str(path.parent) in said
    path.chmod(0o644)
    shutil.rmtree(path.parent)
