"""A run that is killed, damaged and resumed many times over, held to one that nobody disturbed."""

import os
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from macow.bench.faults import Touches, forkserver
from macow.config import FlowConfig, ModelConfig, RunConfig, TrainConfig
from macow.pretrained import load
from macow.train import checkpoint, fit
from macow.train.figures import TIMED, Figures

FLOW = FlowConfig(steps=((1,), (1,)), factors=(2,), hidden=(8, 8), units=1, bottom=False)
CONFIG = RunConfig(
    ModelConfig(FLOW, channels=1, size=(8, 8), n_bits=4),
    TrainConfig(
        steps=1_000_000,
        batch_size=16,
        warmup=2,
        lr=1e-3,
        ema=0.99,
        init_images=64,
        log_every=5,
        eval_every=12,
        eval_images=32,
        save_every=3,
        mirror=True,
        shift=4,
        sample_temperatures=(1.0,),
    ),
)
TOUCHES = 160
"""A process dies at one of its first so many touches of a file: of some, no checkpoint is left."""
AFTERWARDS = 10
"""Updates of the last process, which nobody disturbs."""


@dataclass(frozen=True)
class Soaked:
    """What was done to a run, and what came of it."""

    faults: Counter[str]
    steps: int
    lost: int
    """Checkpoints that were whole, that nobody damaged, and that a run did not go on from."""
    identical: bool
    """Whether weights, moments, average, figures, pictures and model are the undisturbed run's."""
    seconds: float


def soak(repeats: int = 100, seed: int = 0) -> Soaked:
    """Kills a run so often, at its touches of files or at any moment; damages what it left."""
    began = time.perf_counter()
    choose = random.Random(seed)
    faults: Counter[str] = Counter()
    lost = reached = 0
    with tempfile.TemporaryDirectory() as folder:
        run, straight = Path(folder) / "run", Path(folder) / "straight"
        for _ in range(repeats):
            before = _newest(run)
            faults[_disturbed(run, choose)] += 1
            after = _newest(run)
            lost += after < before
            reached = max(reached, after, *(row["step"] for row in Figures(run).rows()))
            if (run / "config.json").exists():
                load(run)
            if choose.random() < 0.5 and len(_whole(run)) > 1:
                faults[_damage(run, choose)] += 1
        steps = reached + AFTERWARDS  # all that was exported on the way is lived through again
        for path in (run, straight):
            code = _live(path, steps)
            if code:
                raise RuntimeError(f"a run that nobody disturbed ended with {code}")
        identical = _outcome(run, steps) == _outcome(straight, steps)
    return Soaked(faults, steps, lost, identical, time.perf_counter() - began)


def _disturbed(run: Path, choose: random.Random) -> str:
    """One life of a run, to its violent end; says which."""
    kind = choose.choice(["killed at a touch", "killed at a touch", "killed at a moment", "full"])
    at = choose.randrange(1, TOUCHES)
    if kind == "killed at a touch":
        _live(run, CONFIG.train.steps, at=at)
    elif kind == "killed at a moment":
        _live(run, CONFIG.train.steps, seconds=choose.uniform(0.0, 1.2))
    else:  # then killed
        _live(run, CONFIG.train.steps, at=at, full=True, seconds=choose.uniform(0.6, 1.2))
        kind = "full disk, then killed"
    return kind


def _live(
    run: Path, steps: int, at: int = 0, *, full: bool = False, seconds: float | None = None
) -> int:
    process = forkserver("macow.bench.soak").Process(
        target=_train, args=(run, steps, at, full)
    )  # fmt: skip
    process.start()
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
    assert process.exitcode is not None
    return process.exitcode


def _train(run: Path, steps: int, at: int, full: bool) -> None:  # noqa: FBT001
    torch.set_num_threads(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    tqdm.set_lock(threading.RLock())  # its own is shared by processes, and left over by killed ones
    if full:  # for checkpoints alone: a model that could not be exported is another history
        Touches(run / "checkpoints", at, "full", lasting=20).install()
    elif at:
        Touches(run, at).install()
    config = replace(CONFIG, train=replace(CONFIG.train, steps=steps))
    fit(config, "digits", run, device="cpu", quiet=True)


def _whole(run: Path) -> list[Path]:
    found = []
    for path in checkpoint.steps(run / "checkpoints"):
        try:
            checkpoint.load(path)
        except ValueError:
            continue
        found.append(path)
    return found


def _newest(run: Path) -> int:
    whole = _whole(run)
    return int(whole[-1].name.removeprefix("step_")) if whole else 0


def _damage(run: Path, choose: random.Random) -> str:
    """Spoils a file of the newest checkpoint; says how."""
    *_, older, newest = _whole(run)
    file = choose.choice(sorted(newest.iterdir()))
    content = file.read_bytes()
    kind = choose.choice(["cut", "flipped", "removed", "swapped"])
    if kind == "cut":
        file.write_bytes(content[: choose.randrange(len(content))])
    elif kind == "flipped":
        place = choose.randrange(len(content))
        flipped = bytes([content[place] ^ 1 << choose.randrange(8)])
        file.write_bytes(content[:place] + flipped + content[place + 1 :])
    elif kind == "removed":
        file.unlink()
    else:
        shutil.rmtree(newest)
        shutil.copytree(older, newest)
    return f"newest checkpoint {kind}"


def _outcome(run: Path, step: int) -> Any:
    files = [*(run / "checkpoints" / f"step_{step}").iterdir(), *(run / "samples").iterdir()]
    files += [run / name for name in ("model.safetensors", "config.json", "reference.json")]
    rows = Figures(run).rows()
    figures = [{k: v for k, v in row.items() if k not in TIMED} for row in rows]
    return {str(file.relative_to(run)): file.read_bytes() for file in files}, figures
