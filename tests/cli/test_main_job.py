"""From image files to bits and pictures, with the command alone."""

import json

import numpy as np
import pytest
import yaml
from PIL import Image

import macow
from macow.cli import main

SMALL = [
    "--model.flow.steps", "[[1],[1]]", "--model.flow.factors", "[2]",
    "--model.flow.hidden", "[8,8]",
    "--train.steps", "2", "--train.batch_size", "8", "--train.eval_every", "2",
    "--train.log_every", "1", "--train.eval_images", "16",
]  # fmt: skip


def train(run, *more, data="digits"):
    return main(["train", "--preset", "digits", "--data", data, "--run", str(run), *SMALL, *more])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run = tmp_path_factory.mktemp("run")
    assert train(run) == 0
    return run


def test_a_folder_of_pictures_is_all_it_takes(tmp_path, capsys):
    rng = np.random.default_rng(0)
    (tmp_path / "pictures").mkdir()
    for i in range(30):
        pixels = rng.integers(0, 256, (12 + i % 3, 14, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{i}.jpg")
    (tmp_path / "pictures" / "notes.txt").write_text("not a picture")
    inside = tmp_path / "pictures" / "run"
    assert train(inside, data=f"folder:{tmp_path / 'pictures'}") == 2
    assert "lies inside the images' folder" in capsys.readouterr().err
    assert train(tmp_path / "out" / "run", data=f"folder:{tmp_path / 'pictures'}") == 0
    printed = capsys.readouterr().err
    assert "left out" in printed
    assert "notes.txt: not an image" in printed
    assert "report.html" in printed
    assert main(["sample", str(tmp_path / "out" / "run"), "--out", str(tmp_path / "new")]) == 0


def test_the_configuration_is_preset_then_file_then_options(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    file.write_text("train: {lr: 0.5, warmup: 7}\ntemperature: 0.6\n")
    run = tmp_path / "run"
    argv = ["--train.lr", "0.25", "--config", str(file)]
    assert train(run, *argv) == 0
    document = yaml.safe_load((run / "config.yaml").read_text())
    assert document["train"]["lr"] == 0.25
    assert document["train"]["warmup"] == 7
    assert document["train"]["ema"] == 0.995
    assert document["temperature"] == 0.6
    assert main(["train", "--config", str(run / "config.yaml"), "--run", str(run)]) == 0
    assert "goes on from step 2" in capsys.readouterr().err


@pytest.mark.parametrize("name", macow.preset_names())
def test_options_change_only_their_field(name):
    from dataclasses import asdict, replace

    from macow.cli.train import _parser
    from macow.presets import preset

    config = preset(name)
    arguments = _parser(asdict(config))
    parsed = arguments.instantiate(arguments.parse_args([]))
    assert (parsed.model, parsed.train, parsed.temperature) == (
        config.model,
        config.train,
        config.temperature,
    )
    parsed = arguments.instantiate(
        arguments.parse_args(["--train.lr", "0.5", "--model.flow.kernel", "[2,7]"])
    )
    assert parsed.train == replace(config.train, lr=0.5)
    flow = replace(config.model.flow, kernel=(2, 7))
    assert parsed.model == replace(config.model, flow=flow)


def test_weights_may_come_from_another_model(trained, tmp_path):
    run = tmp_path / "run"
    argv = ["train", "--from", str(trained), "--data", "digits", "--run", str(run)]
    argv += ["--train.steps", "0", "--quiet"]
    assert main(argv) == 0


def test_evaluate(trained, capsys):
    argv = ["evaluate", str(trained), "--data", "digits", "--num_samples", "3", "--limit", "20"]
    assert main(argv) == 0
    printed = capsys.readouterr().out
    assert "20 test images of digits, 3 draws" in printed
    assert "importance-weighted" in printed
    assert main([*argv, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["images"] == 20
    assert result["importance_weighted"] < result["bits_per_dim"]


def test_sample(trained, tmp_path):
    argv = ["sample", str(trained), "--count", "5", "--seed", "1", "--batch_size", "2", "--quiet"]
    assert main([*argv, "--out", str(tmp_path / "a"), "--npz", "--temperature", "0.5"]) == 0
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == [*(f"{i:05d}.png" for i in range(5)), "grid.png", "samples.npz"]
    with np.load(tmp_path / "a" / "samples.npz") as archive:
        assert archive["arr_0"].shape == (5, 8, 8, 1)
        assert archive["arr_0"].dtype == np.uint8
        picture = np.asarray(Image.open(tmp_path / "a" / "00003.png"))
        assert np.array_equal(archive["arr_0"][3, :, :, 0], picture)
    assert main([*argv, "--out", str(tmp_path / "b"), "--temperature", "0.2,0.5"]) == 0
    again = np.asarray(Image.open(tmp_path / "b" / "t0.5_00003.png"))
    assert np.array_equal(again, picture)
    assert (tmp_path / "b" / "t0.2_00004.png").exists()


def test_data_info_and_pack(tmp_path, capsys):
    assert main(["data", "info", "digits"]) == 0
    assert "train: 1,437 images of 1x8x8" in capsys.readouterr().out
    assert main(["data", "pack", "digits", str(tmp_path / "packed"), "--size", "4"]) == 0
    packed = macow.data.load(f"packed:{tmp_path / 'packed'}", "test")
    assert packed.shape == (3, 4, 4)
    assert len(packed) == len(packed.labels) == 360
    assert main(["data", "info", f"packed:{tmp_path / 'packed'}"]) == 0


def test_the_shipped_digits_work_right_away(tmp_path, capsys):
    assert main(["sample", "digits", "--count", "4", "--out", str(tmp_path / "out")]) == 0
    assert main(["evaluate", "digits", "--data", "digits", "--json"]) == 0
    result = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert result["bits_per_dim"] <= 2.20


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["train", "--data", "digits", "--run", "r"], "which model? Give --preset"),
        (["train", "--preset", "digits", "--run", "r"], "--data is missing"),
        (["train", "--preset", "digits", "--data", "digits"], "--run is missing"),
        (["train", "--preset"], "--preset needs a value"),
        (["train", "--preset", "nope", "--data", "digits", "--run", "r"], "unknown preset 'nope'"),
        (["train", "--preset", "digits", "--train.wings", "2"], "--train.wings"),
        (["train", "--preset", "digits", "--train.lr", "fast"], "train.lr"),
        (["train", "--preset", "digits", "--model.n_bits", "9"], "n_bits must be from 1 to 8"),
        (["train", "--preset", "digits", "--seed", "-1"], "--seed: must be a whole number from 0"),
        (["train", "--config", "/nowhere.yaml"], "/nowhere.yaml: No such file"),
        (
            ["train", "--preset", "digits", "--data", "folder:/nowhere", "--run", "r"],
            "/nowhere: no such folder",
        ),
        (["evaluate", "/nowhere", "--data", "digits"], "/nowhere: no such folder"),
        (["evaluate", "digits"], "required: data"),
        (["evaluate", "digits", "--data", "tapes"], "unknown data source 'tapes'"),
        (["sample", "digits", "--temperature", "hot"], "--temperature must be numbers >= 0"),
        (["sample", "digits", "--count", "0"], "count"),
        (["sample", "digits", "--seed", "-1"], "--seed: must be a whole number from 0"),
        (["sample", "/nowhere"], "/nowhere: no such folder"),
        (["data", "pack", "digits"], "which folder?"),
        (["data", "pack", "digits", "out", "--channels", "3"], "--channels needs --size"),
        (["data", "info", "folder:/nowhere", "--size", "8,8"], "/nowhere: no such folder"),
        (["data", "info", "folder:/"], "as in --size 64,64"),
        (["score", "digits", "/nowhere"], "/nowhere: no such file or folder"),
        (["encode", "digits", "/nowhere.png"], "/nowhere.png: no such file"),
        (["decode", "digits", "/nowhere.npz"], "/nowhere.npz: No such file"),
        (["interpolate", "digits", "a.png"], "give two images, or one with"),
        (["interpolate", "digits", "a.png", "b.png", "--out", "f.mp4"], ".webp or .gif"),
        (["interpolate", "digits", "sample:x", "sample:1"], "a sample is sample:NUMBER"),
        (["interpolate", "digits", "/nowhere.png", "sample:1"], "/nowhere.png: no such file"),
        (["check", "/nowhere"], "/nowhere: no such folder"),
        (["export", "/nowhere", "out"], "/nowhere: no such folder"),
    ],
)
def test_mistakes_are_one_line(argv, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1, printed
    assert message in printed
    assert not list(tmp_path.iterdir()), "a mistake must leave nothing behind"
