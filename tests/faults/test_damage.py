"""A damaged, swapped or foreign file is noticed, named and routed around."""

import json
import shutil

import pytest

import children
import macow
from macow.train import checkpoint, fit
from small_runs import SMALL, assert_same_outcome, changed, outcome, rows, train

FILES = (
    "model.safetensors", "average.safetensors", "optimizer.safetensors", "recent.safetensors",
    "state.json", "manifest.json",
)  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished run, and another of another seed."""
    folder = tmp_path_factory.mktemp("runs")
    fit(SMALL, "digits", folder / "straight", quiet=True)
    fit(SMALL, "digits", folder / "foreign", seed=1, quiet=True)
    return folder


def newest(run):
    return checkpoint.steps(run / "checkpoints")[-1]


def cut(run, name, left=0.5):
    file = newest(run) / name
    content = file.read_bytes()
    file.write_bytes(content[: int(left * len(content))])


def flip(run, name, place=0.9):
    file = newest(run) / name
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 1
    file.write_bytes(content)


def swap(run, name):
    older = checkpoint.steps(run / "checkpoints")[-2]
    shutil.copy(older / name, newest(run) / name)


DAMAGES = {
    **{f"cut {name}": lambda run, _, name=name: cut(run, name) for name in FILES},
    **{f"emptied {name}": lambda run, _, name=name: cut(run, name, 0) for name in FILES},
    **{f"flipped {name}": lambda run, _, name=name: flip(run, name) for name in FILES},
    **{f"lost {name}": lambda run, _, name=name: (newest(run) / name).unlink() for name in FILES},
    "flipped at the start": lambda run, _: flip(run, "model.safetensors", 0),
    "swapped model": lambda run, _: swap(run, "model.safetensors"),
    "swapped state": lambda run, _: swap(run, "state.json"),
    **{
        f"manifest {name}": lambda run, _, c=content: (newest(run) / "manifest.json").write_bytes(c)
        for name, content in {
            "not text": b"\xff\xfe\x00",
            "deep": b"[" * 100_000,
            "empty": b"{}",
            "of numbers": json.dumps(dict.fromkeys(FILES, 1)).encode(),
            "of paths": json.dumps({name: "../step_4/" + name for name in FILES}).encode(),
        }.items()
    },
}


def older_as_newest(run, _):
    older = checkpoint.steps(run / "checkpoints")[-2]
    shutil.rmtree(newest(run))
    shutil.copytree(older, run / "checkpoints" / "step_6")


def foreign_as_newest(run, foreign):
    shutil.rmtree(newest(run))
    shutil.copytree(newest(foreign), run / "checkpoints" / "step_6")


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_named_and_passed_over(damage, runs, tmp_path):
    shutil.copytree(runs / "straight", tmp_path / "run")
    damage(tmp_path / "run", runs / "foreign")
    with pytest.warns(UserWarning, match=r"step_6 cannot be used: .*put aside as aside_step_6"):
        _, numbers = checkpoint.load_newest(tmp_path / "run" / "checkpoints")
    assert numbers["step"] < 6
    assert (tmp_path / "run" / "checkpoints" / "aside_step_6").exists()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda run, _: flip(run, "optimizer.safetensors"), "is not what was written"),
        (older_as_newest, "it holds step 4"),
        (foreign_as_newest, "it holds a run with seed 1, not 0"),
    ],
    ids=["flipped", "older", "foreign"],
)
def test_a_run_goes_around_a_damaged_checkpoint(damage, words, runs, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(runs / "straight", run)
    damage(run, runs / "foreign")
    with pytest.warns(UserWarning, match=words):
        fit(SMALL, "digits", run, quiet=True)
    assert_same_outcome(outcome(run, 6), outcome(runs / "straight", 6))


def test_when_none_is_left_nothing_is_touched(runs, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(runs / "straight", run)
    for path in checkpoint.steps(run / "checkpoints"):
        (path / "manifest.json").unlink()
    before = {path for path in run.rglob("*") if path.is_file()}
    for _ in range(2):
        with pytest.raises(ValueError, match="can be used: .*move them away to begin anew"):
            fit(SMALL, "digits", run, quiet=True)
    assert {path for path in run.rglob("*") if path.is_file()} == before
    assert rows(run)


@pytest.mark.parametrize("name", ["config.yaml", "images.json"])
@pytest.mark.parametrize("content", [b"", b"\xff\x00{", b"{", b'"text"', b"12"])
def test_checkpoints_know_their_run(name, content, runs, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(runs / "straight", run)
    (run / name).write_bytes(content)
    if name == "config.yaml":
        with (
            pytest.warns(UserWarning, match=f"{name} is damaged"),
            pytest.raises(ValueError, match=r"it holds a run with train.lr 0.01, not 0.02"),
        ):
            fit(changed(lr=2e-2), "digits", run, quiet=True)
    with pytest.warns(UserWarning, match=f"{name} is damaged"):
        fit(SMALL, "digits", run, quiet=True)
    assert_same_outcome(outcome(run, 6), outcome(runs / "straight", 6))


def test_a_damaged_row_is_left_out(runs, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(runs / "straight", run)
    whole = rows(run)
    lines = (run / "metrics.jsonl").read_bytes().splitlines()
    lines[1] = b'{"step": \xff'
    lines[2] = b"12"
    (run / "metrics.jsonl").write_bytes(b"\n".join(lines) + b'\n{"step": 6, "bi')
    with pytest.warns(UserWarning, match="line [23] is damaged, left out") as caught:
        fit(SMALL, "digits", run, quiet=True)
    assert len(caught) == 2
    assert rows(run) == [whole[0], *whole[3:]]


def test_what_is_left_half_written_takes_no_room_for_long(tmp_path):
    run = tmp_path / "run"
    code = children.run(
        children.touching, run / "checkpoints" / ".writing", tmp_path / "log", 5, train, SMALL, run
    )
    assert code == -9
    assert (run / "checkpoints" / ".writing").exists()
    fit(changed(steps=2), "digits", run, quiet=True)
    assert not (run / "checkpoints" / ".writing").exists()
    assert json.loads((newest(run) / "state.json").read_text())["run"]["seed"] == 0


def test_a_damaged_model_is_noticed(runs, tmp_path):
    shutil.copytree(runs / "straight", tmp_path / "run")
    file = tmp_path / "run" / "model.safetensors"
    whole = file.read_bytes()
    for place in (-1, len(whole) // 2, -4000):
        content = bytearray(whole)
        content[place] ^= 1
        file.write_bytes(content)
        with pytest.raises(
            ValueError, match="model.safetensors is damaged: .* is not what was written"
        ):
            macow.load(tmp_path / "run")
    file.write_bytes(whole)
    assert macow.load(tmp_path / "run").is_initialized
