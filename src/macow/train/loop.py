"""The training loop, top to bottom."""

import math
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from macow import data, distribution
from macow.check import reconstruction_error
from macow.config import RunConfig
from macow.evaluate import evaluate
from macow.model import FlowModel
from macow.nets.precision import set_network_precision
from macow.pretrained import load
from macow.score import make_reference
from macow.seeds import generator_for, seed_for
from macow.train import checkpoint
from macow.train.batches import Batches, own_part, shifted_updates
from macow.train.console import Console, Timer
from macow.train.health import NOWHERE, culprit
from macow.train.interruption import Interruption, memory_advice
from macow.train.optimiser import Average, first_weights, learning_rate, optimizer_of
from macow.train.report import run_baselines, write_report
from macow.train.run_folder import RunFolder
from macow.train.samples import sample_grid
from macow.train.saving import Saver
from macow.train.update import Update


def fit(
    config: RunConfig,
    source: str,
    run: str | Path,
    *,
    seed: int = 0,
    device: str | torch.device | None = None,
    start: FlowModel | None = None,
    quiet: bool = False,
) -> FlowModel:
    """Trains a model on a source's train split, validates on its test split, fills the run folder.

    Called again with the same arguments it goes on from the newest checkpoint. `start` gives
    weights to begin with, also of a model with another dequantizer. Returns the best model.
    """
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    folder = RunFolder(Path(run), config, source, seed)
    train, test = (data.load(source, split, config.model.shape) for split in ("train", "test"))
    folder.check_images(train, test)
    try:
        with memory_advice(config.train):
            trainer = Trainer(config, train, test, folder, seed, where, start, quiet=quiet)
            trainer.run()
    finally:
        folder.close()
    distribution.wait()
    return trainer.shown if trainer.best_step is None else load(folder.path, where)


Given = tuple[Tensor, Tensor | None, list[Tensor]]
"""Images, labels and noise of an update."""


class Trainer:
    """A model on its way: what a step changes, and what is shown and kept of it."""

    def __init__(
        self,
        config: RunConfig,
        train: data.Images,
        test: data.Images,
        folder: RunFolder,
        seed: int,
        device: torch.device,
        start: FlowModel | None,
        *,
        quiet: bool,
    ) -> None:
        self.config, self.train, self.test = config.train, train, test
        self.folder, self.seed, self.device = folder, seed, device
        self.console = Console(quiet=quiet)
        self.saver = Saver(folder.checkpoints, self.config.keep, self.console)
        self.batches = Batches(
            train,
            self.config.batch_size,
            seed=seed,
            device=device,
            mirror=self.config.mirror,
            shift=self.config.shift,
            shifted=shifted_updates(self.config),
            part=own_part(self.config),
            names=config.model.labels,
        )
        torch.manual_seed(seed_for(seed, "weights"))
        self.model = config.model.build().to(device)
        self.step, self.skipped, self.skipped_in_a_row = 0, 0, 0
        self.best_step: int | None = None
        self.best_bits = math.inf
        self.recent: list[float] = []
        self._ahead: tuple[int, Given | None] = (0, None)
        self.optimizer = optimizer_of(self.model, self.config)
        folder.take(self.model)
        self.console.introduce(train, test, self.model)
        resumed = checkpoint.load_newest(folder.checkpoints, folder.check)
        if resumed is None:
            first_weights(self.model, start, train, self.config, seed, self.console)
        else:
            checkpoint.restore_model(self.model, resumed[0], folder.checkpoints)
            if start is not None:
                self.console.say("the weights to start from are not used: the run has its own")
        self.average = (
            AveragedModel(self.model, multi_avg_fn=Average(self.config.ema))
            if self.config.ema
            else None
        )
        if resumed is not None:
            self._restore(*resumed)
        folder.begin(self.step)
        self.timer = Timer(self.config.batch_size, folder.figures.seconds)
        if self.config.precision == "bfloat16":
            set_network_precision(self.model, torch.bfloat16)
        if self.config.compile and device.type != "cuda":
            for name, module in self.model.named_modules():
                if re.search(r"\bstep\d+$", name):
                    module.compile()
        self.learn = Update(self.model, self.optimizer, self.average, self.config)
        self.baselines = run_baselines(train, test, self.model.n_bits)

    @property
    def shown(self) -> FlowModel:
        """The model that is evaluated, sampled and exported: averaged, if an average is kept."""
        model = self.model if self.average is None else self.average.module
        assert isinstance(model, FlowModel)
        return model

    def run(self) -> None:
        """All steps that are left, with a look at the model every so often."""
        config = self.config
        with (
            closing(self.batches),
            self.console.open(config.steps, self.step),
            Interruption(self.console) as interruption,
            self.saver,
        ):
            self.timer.restart()
            while self.step < config.steps:
                bits, norm, lr = self.update()
                self.recent.append(bits)
                self.console.step()
                self.timer.step()
                if self.step % config.log_every == 0 or self.step == config.steps:
                    mean, speed = torch.tensor(self.recent).nanmean().item(), self.timer.speed()
                    self._log(
                        bits=mean, lr=lr, grad_norm=norm, images_per_s=speed, skipped=self.skipped
                    )
                    line = f"{mean:.4f} bits/dim on training batches, {speed:,.0f} images/s"
                    self.console.figure(self.step, line)
                    self.recent = []
                if self.step % config.eval_every == 0 or self.step == config.steps:
                    self.look()
                    self.timer.restart()
                if self.step % config.save_every == 0 or self.step == config.steps:
                    self.save()
                if interruption.agreed(self.device):
                    self._stop()
                    interruption.leave()
            self._finish()
        if self.best_step is not None:
            beside = ", ".join(f"{name} {bits:.3f}" for name, bits in self.baselines.items())
            best = f"{self.best_bits:.3f} bits/dim at step {self.best_step}"
            self.console.say(f"test: {best} ({beside})")

    def update(self) -> tuple[float, float, float]:
        """One update of the weights; says its bits/dim, the gradients' norm, the rate."""
        ahead, given = self._ahead
        images, labels, draws = given if given and ahead == self.step else self._given(self.step)
        lr = learning_rate(self.config, self.step)
        figures = self.learn(images, draws, labels, lr)
        after = self.step + 1
        more = after < self.config.steps
        self._ahead = after, self._given(after) if more else None  # while a GPU learns
        bits, norm = figures()
        if math.isfinite(norm) and math.isfinite(bits):
            self.skipped_in_a_row = 0
        else:
            self._skip(images, draws[0], labels)
        self.step += 1
        return bits, norm, lr

    def _given(self, step: int) -> Given:
        images = self.batches.at(step)
        noise = generator_for(self.seed, "noise", step, device=self.device)
        whole = images.new_empty(self.config.batch_size, *self.model.shape)  # noise is of all of it
        draws = [
            self.model.draw_noise(whole, noise)[self.batches.part]
            for _ in range(self.config.noise_samples)
        ]
        return images, self.batches.labels_at(step), draws

    def look(self) -> None:
        """Evaluates, samples, reports; exports the model if it is the best so far."""
        model, config = self.shown, self.config
        if self.average is None:
            set_network_precision(model, None)  # figures are float32, whatever training is
        batch_size = max(1, config.batch_size // (config.batch_steps * distribution.count()))
        result = evaluate(
            model, self.test, batch_size=batch_size, seed=self.seed, limit=config.eval_images
        )
        some = torch.from_numpy(self.test.take(np.arange(min(16, len(self.test)))))
        error = reconstruction_error(model, some.to(self.device))
        self._log(
            test_bits=result.bits_per_dim,
            test_bits_error=result.bits_per_dim_error,
            reconstruction=error,
        )
        if distribution.is_first() and config.sample_temperatures:
            picture = sample_grid(model, config.sample_temperatures, self.seed)
            with self._unless_full("samples"):
                self.folder.save_samples(self.step, picture)
        best = result.bits_per_dim < self.best_bits
        if best and self._export(model, batch_size, result.images):
            self.best_bits, self.best_step = result.bits_per_dim, self.step
            self.save()
        self._report("Training")
        note = ", the best so far" if best else f" (best {self.best_bits:.4f})"
        line = f"{result.bits_per_dim:.4f} bits/dim on {result.images} test images{note}"
        self.console.say(f"step {self.step:,}: {line}")
        if self.average is None and config.precision == "bfloat16":
            set_network_precision(model, torch.bfloat16)

    def save(self) -> None:
        """Writes a checkpoint, once for a step, while training goes on."""
        if not distribution.is_first():
            return
        tensors = {
            "model": self.model.state_dict(),
            "optimizer": checkpoint.optimizer_tensors(self.optimizer),
            "recent": {"bits": torch.tensor(self.recent)},
        }
        if self.average is not None:
            tensors["average"] = self.average.state_dict()
        numbers = {
            "best_step": self.best_step,
            "best_bits": self.best_bits if self.best_step is not None else None,
            "skipped": self.skipped,
            "skipped_in_a_row": self.skipped_in_a_row,
            "run": self.folder.record,
            "images": self.folder.images,
        }
        with self._unless_full("figures"):
            self.folder.figures.settle()
        self.saver.save(self.step, tensors, numbers, self.best_step)

    def _restore(self, tensors: checkpoint.State, numbers: dict[str, Any]) -> None:
        checkpoint.restore_optimizer(self.optimizer, tensors["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(tensors["average"])
        self.step = self.saver.step = numbers["step"]
        self.recent = tensors["recent"]["bits"].tolist() if "recent" in tensors else []
        self.skipped, self.skipped_in_a_row = numbers["skipped"], numbers["skipped_in_a_row"]
        if numbers["best_step"] is not None:
            self.best_step, self.best_bits = numbers["best_step"], numbers["best_bits"]
        self.console.say(f"{self.folder.path}: goes on from step {self.step:,}")

    def _log(self, **figures: float | None) -> None:
        with self._unless_full("figures"):
            self.folder.figures.log(
                {"step": self.step, "seconds": round(self.timer.seconds(), 1), **figures}
            )

    def _export(self, model: FlowModel, batch_size: int, images: int) -> bool:
        """Writes the model into the run folder; says in every process whether that went well."""
        done = False
        if distribution.is_first():
            limit = min(images, 1000)
            reference = make_reference(model, self.test, batch_size=batch_size, limit=limit)
            with self._unless_full("model"):
                model.save_pretrained(self.folder.path)
                reference.write(self.folder.path)
                done = True
        return bool(distribution.largest(int(done), self.device))

    def _stop(self) -> None:
        """Keeps what is finished: a checkpoint, the report, and a model if there was none yet."""
        self.console.then = "the run stops"
        self.save()
        self.saver.wait()
        if self.best_step is None and distribution.is_first():
            with self._unless_full("model"):
                self.shown.save_pretrained(self.folder.path)
        self._report("Stopped")
        if self.saver.step == self.step:
            self.console.say(f"step {self.step:,}: saved; the same command goes on from here")
        distribution.wait()  # the first to leave ends the others

    def _finish(self) -> None:
        """A run has ended when its last step is saved: one more try, then it is a failure."""
        self.saver.wait()
        if distribution.is_first() and self.step and self.saver.step != self.step:
            self.save()
            self.saver.wait()
            if self.saver.step != self.step:
                raise OSError(f"the last step could not be saved: {self.saver.problem}")
        self._report("Finished")

    def _report(self, state: str) -> None:
        if distribution.is_first():
            with self._unless_full("report"):
                rows = self.folder.figures.rows()
                write_report(self.folder.path, rows, self.baselines, state=state)

    @contextmanager
    def _unless_full(self, what: str) -> Iterator[None]:
        """A file that cannot be written is missed, not a reason to stop learning."""
        try:
            yield
        except OSError as error:
            self.console.missed(self.step, what, error)

    def _skip(self, images: Tensor, eps: Tensor, labels: Tensor | None) -> None:
        self.skipped += 1
        self.skipped_in_a_row += 1
        here = culprit(self.model, images, eps, labels, passes=self.config.batch_steps)
        found = distribution.gathered(here)
        where = next((place for place in found if place != NOWHERE), NOWHERE)
        self.console.say(f"step {self.step + 1}: skipped, {where} is not finite")
        if self.skipped_in_a_row >= self.config.max_skipped:
            raise FloatingPointError(
                f"{self.skipped_in_a_row} updates in a row were not finite ({where}): "
                "lower --train.lr, set --train.clip 1, or lengthen --train.warmup"
            )
