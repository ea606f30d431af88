"""Small runs for tests."""

import json
import os
import signal
from dataclasses import replace

import torch

from macow import distribution
from macow.bench.soak import CONFIG
from macow.config import FlowConfig, RunConfig, VariationalConfig
from macow.train import checkpoint, fit
from macow.train.figures import TIMED
from macow.train.loop import Trainer

SMALL = RunConfig(
    CONFIG.model,
    replace(
        CONFIG.train,
        steps=6,
        lr=1e-2,
        ema=0.9,
        clip=1.0,
        log_every=2,
        eval_every=3,
        save_every=2,
        sample_temperatures=(0.5, 1.0),
    ),
)
DEQUANTIZER = FlowConfig(steps=((1,),), hidden=(6,), units=1, bottom=False)


def changed(config=SMALL, *, variational=False, **train):
    model = config.model
    if variational:
        model = replace(model, variational=VariationalConfig(DEQUANTIZER, cond_channels=2))
    return RunConfig(model, replace(config.train, **train))


def rows(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def state(run, step):
    tensors, _ = checkpoint.load(run / "checkpoints" / f"step_{step}")
    return {f"{group}.{name}": t for group, ts in tensors.items() for name, t in ts.items()}


def assert_same_state(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def outcome(run, step):
    """All that a run made and that must not depend on its fate, as bytes and figures."""
    checkpoint.load(run / "checkpoints" / f"step_{step}")
    files = [*(run / "checkpoints" / f"step_{step}").iterdir(), *(run / "samples").iterdir()]
    files += [run / name for name in ("model.safetensors", "config.json", "reference.json")]
    files += [run / name for name in ("config.yaml", "images.json")]
    content = {str(file.relative_to(run)): file.read_bytes() for file in files}
    figures = [{k: v for k, v in row.items() if k not in TIMED} for row in rows(run)]
    return content, figures


def assert_same_outcome(one, other):
    assert one[1] == other[1]
    assert one[0].keys() == other[0].keys()
    for name in one[0]:
        assert one[0][name] == other[0][name], name


def train(config, run, die_at=None, *, quiet=True):
    """A run, for a process of its own: it kills itself after a step."""
    if die_at is not None:
        original = Trainer.update

        def update(self):
            result = original(self)
            if self.step == die_at and distribution.is_first():
                self.saver.wait()
            distribution.wait()
            if self.step == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        Trainer.update = update
    fit(config, "digits", run, quiet=quiet)
