"""Several processes are one run: the same losses, the same files, each image once."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import macow
from macow.cli import main
from small_runs import state

SMALL = [
    "--model.flow.steps", "[[1],[1]]", "--model.flow.factors", "[2]",
    "--model.flow.hidden", "[8,8]", "--train.steps", "4", "--train.batch_size", "16",
    "--train.eval_every", "4", "--train.log_every", "1", "--train.eval_images", "50",
    "--train.mirror", "true", "--train.shift", "4", "--train.init_images", "64",
]  # fmt: skip


def together(processes, *argv, nodes=1):
    """Runs the command under torchrun; several nodes are several torchruns on this machine."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    port = 29500 + os.getpid() % 1000
    launchers = []
    for node in range(nodes):
        where = ["--standalone"]
        if nodes > 1:
            where = [f"--nnodes={nodes}", f"--node-rank={node}", "--master-addr=127.0.0.1"]
            where.append(f"--master-port={port}")
        command = [sys.executable, "-m", "torch.distributed.run", *where]
        command += [f"--nproc-per-node={processes}", "-m", "--", "macow", *argv]
        launchers.append(
            subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    done = [launcher.communicate(timeout=300) for launcher in launchers]
    for launcher, (_, errors) in zip(launchers, done, strict=True):
        assert launcher.returncode == 0, errors
    return "".join(out for out, _ in done), "".join(errors for _, errors in done)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    run = tmp_path_factory.mktemp("alone") / "run"
    assert main(["train", "--preset", "digits", "--data", "digits", "--run", str(run), *SMALL]) == 0
    return run


def losses(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row["bits"] for row in rows if "bits" in row]


@pytest.mark.parametrize(("processes", "nodes"), [(2, 1), (2, 2)])
def test_training_gives_the_same_curve(processes, nodes, alone, tmp_path):
    run = tmp_path / "run"
    argv = ["train", "--preset", "digits", "--data", "digits", "--run", str(run), *SMALL]
    _, printed = together(processes, *argv, nodes=nodes)
    assert printed.count("images to learn from") == 1, "only the first process speaks"
    assert len(losses(run)) == 4
    np.testing.assert_allclose(losses(run), losses(alone), atol=2e-5)
    one, many = state(alone, 4), state(run, 4)
    for name in one:
        np.testing.assert_allclose(many[name], one[name], atol=1e-3, rtol=1e-2, err_msg=name)


def test_processes_print_no_warnings(tmp_path):
    argv = ["train", "--preset", "digits", "--data", "digits", "--run", str(tmp_path / "run")]
    wide = ["--model.flow.hidden", "[96,96]", "--train.batch_size", "64", "--train.steps", "1"]
    _, printed = together(2, *argv, *SMALL, *wide)
    assert "Warning" not in printed, "at this width torch finds fault with gradients' strides"


def test_evaluate_sample_and_score_give_what_one_process_gives(alone, tmp_path, capsys):
    evaluating = ["evaluate", str(alone), "--data", "digits", "--json", "--num_samples", "2"]
    evaluating += ["--limit", "45", "--batch_size", "8", "--quiet", "--lean"]
    printed, _ = together(2, *evaluating)
    capsys.readouterr()
    assert main(evaluating) == 0
    assert json.loads(printed) == json.loads(capsys.readouterr().out)

    folders = [tmp_path / "one", tmp_path / "two"]
    sampling = ["sample", str(alone), "--count", "7", "--batch_size", "3", "--npz", "--quiet"]
    assert main([*sampling, "--out", str(folders[0])]) == 0
    together(2, *sampling, "--out", str(folders[1]))
    names = [sorted(path.name for path in folder.iterdir()) for folder in folders]
    assert names[0] == names[1]
    for name in names[0]:
        if name.endswith(".png"):
            assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name

    scoring = ["score", str(alone), str(folders[0]), "--batch_size", "3", "--quiet"]
    assert main([*scoring, "--out", str(tmp_path / "one.csv")]) == 0
    together(2, *scoring, "--out", str(tmp_path / "two.csv"))
    assert (tmp_path / "one.csv").read_text() == (tmp_path / "two.csv").read_text()


def test_a_batch_that_cannot_be_shared_is_refused(tmp_path):
    argv = ["train", "--preset", "digits", "--data", "digits", "--run", str(tmp_path / "run")]
    argv += ["--train.batch_size", "7"]
    with pytest.raises(AssertionError, match="must be divisible by 2 processes"):
        together(2, *argv)
    assert macow.train.checkpoint.steps(tmp_path / "run" / "checkpoints") == []
