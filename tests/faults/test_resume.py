"""Killed and started again, a run is bit for bit the run it would have been."""

import numpy as np
import pytest

import children
from small_runs import assert_same_outcome, changed, outcome, rows, state, train

STEPS = {"steps": 8, "save_every": 2, "log_every": 3, "eval_every": 4}
KILLED = -9


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 512},
        {"batch_steps": 4},
        {"mirror": False, "shift": 0, "ema": 0.0, "schedule": "cosine"},
        {"variational": True, "noise_samples": 2},
        {"optimizer": "muon"},
    ],
    ids=["augmented", "epochs", "accumulating", "plain", "variational", "muon"],
)
def test_a_killed_run_is_the_same_run(options, tmp_path):
    config = changed(**STEPS, **options)
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    assert children.run(train, config, straight) == 0
    assert children.run(train, config, killed, 5) == KILLED
    assert max(state_steps(killed)) == 4
    assert children.run(train, config, killed) == 0
    assert_same_outcome(outcome(killed, 8), outcome(straight, 8))


def state_steps(run):
    return [int(path.name[5:]) for path in (run / "checkpoints").glob("step_*")]


def all_end(processes, code):
    assert [children.end(process) for process in processes] == [code] * len(processes)


def test_two_killed_processes_are_the_same_run(tmp_path):
    config = changed(**STEPS, batch_steps=2)
    straight, killed, fewer = (tmp_path / name for name in ("straight", "killed", "fewer"))
    all_end(children.together(2, train, config, straight), 0)
    for run in (killed, fewer):
        all_end(children.together(2, train, config, run, 5), KILLED)
    all_end(children.together(2, train, config, killed), 0)
    assert_same_outcome(outcome(killed, 8), outcome(straight, 8))

    assert children.run(train, config, fewer) == 0
    one, two = state(fewer, 8), state(straight, 8)
    for name in one:
        np.testing.assert_allclose(one[name], two[name], atol=1e-3, rtol=1e-2, err_msg=name)
    ours, theirs = (
        [row["bits"] for row in rows(run) if "bits" in row] for run in (fewer, straight)
    )
    np.testing.assert_allclose(ours, theirs, atol=2e-5)
