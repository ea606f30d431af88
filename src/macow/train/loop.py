"""The training loop, top to bottom."""

import math
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel
from tqdm import tqdm

from macow import data
from macow.baselines import baselines
from macow.config import RunConfig
from macow.evaluate import evaluate
from macow.initialize import initializing
from macow.model import FlowModel
from macow.nets.precision import set_network_precision
from macow.pictures import grid
from macow.sampler import sample_batches
from macow.score import make_reference
from macow.seeds import generator_for, seed_for
from macow.train import checkpoint
from macow.train.batches import Batches
from macow.train.health import culprit, reconstruction_error
from macow.train.interruption import Interruption, memory_advice
from macow.train.optimiser import Average, adam, learning_rate, take_weights
from macow.train.report import write_report
from macow.train.run_folder import RunFolder

SAMPLES_PER_TEMPERATURE = 8


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
    shape = (config.model.channels, *config.model.size)
    train, test = (data.load(source, split, shape) for split in ("train", "test"))
    folder = RunFolder(Path(run), config, source, seed)
    trainer = Trainer(config, train, test, folder, seed, where, start, quiet=quiet)
    try:
        with memory_advice(config):
            trainer.run()
    finally:
        trainer.close()
    return trainer.shown


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
        self.folder, self.seed, self.device, self.quiet = folder, seed, device, quiet
        self.batches = Batches(
            train,
            self.config.batch_size,
            seed=seed,
            device=device,
            augmented=self.config.augment,
        )
        torch.manual_seed(seed_for(seed, "weights"))
        self.model = config.model.build().to(device)
        self.step, self.skipped, self.skipped_in_a_row = 0, 0, 0
        self.best_step: int | None = None
        self.best_bits = math.inf
        self.saved_step: int | None = None
        self._report_problems()
        folder.check_space(5 * sum(p.numel() * p.element_size() for p in self.model.parameters()))
        resumed = checkpoint.load_newest(folder.checkpoints)
        if resumed is None:
            self._begin(start)
        else:
            self.model.load_state_dict(resumed[0]["model"])
        self.average = (
            AveragedModel(self.model, multi_avg_fn=Average(self.config.ema))
            if self.config.ema
            else None
        )
        self.optimizer = adam(self.model, self.config)
        if resumed is not None:
            self._restore(*resumed)
        folder.forget_after(self.step)
        if self.config.precision == "bfloat16":
            set_network_precision(self.model, torch.bfloat16)
        if self.config.compile:
            for name, module in self.model.named_modules():
                if re.search(r"\bstep\d+$", name):
                    module.compile()
        self.baselines = _baselines(train, test, self.model.n_bits)

    @property
    def shown(self) -> FlowModel:
        """The model that is evaluated, sampled and exported: averaged, if an average is kept."""
        model = self.model if self.average is None else self.average.module
        assert isinstance(model, FlowModel)
        return model

    def run(self) -> None:
        """All steps that are left, with a look at the model every so often."""
        config = self.config
        with Interruption() as interruption, self._bar() as bar:
            recent: list[Tensor] = []
            since = time.perf_counter()
            while self.step < config.steps:
                bits, norm, lr = self.update()
                recent.append(bits)
                bar.update()
                if self.step % config.log_every == 0 or self.step == config.steps:
                    mean = torch.stack(recent).nanmean().item()
                    speed = len(recent) * config.batch_size / (time.perf_counter() - since)
                    self.folder.log(
                        {
                            "step": self.step,
                            "bits": mean,
                            "lr": lr,
                            "grad_norm": norm,
                            "images_per_s": speed,
                            "skipped": self.skipped,
                        }
                    )
                    self._say(
                        bar, f"{mean:.4f} bits/dim on training batches, {speed:,.0f} images/s"
                    )
                    recent, since = [], time.perf_counter()
                if self.step % config.eval_every == 0 or self.step == config.steps:
                    self.look(bar)
                    since = time.perf_counter()
                if self.step % config.save_every == 0 or self.step == config.steps:
                    self.save()
                if interruption.asked:
                    self.save()
                    interruption.leave()
        write_report(self.folder.path, self.folder.rows(), self.baselines, done=True)
        if self.best_step is not None:
            beside = ", ".join(f"{name} {bits:.3f}" for name, bits in self.baselines.items())
            self._print(f"test: {self.best_bits:.3f} bits/dim at step {self.best_step} ({beside})")

    def update(self) -> tuple[Tensor, float, float]:
        """One update: forward, backward, clip, Adam, average."""
        config, model = self.config, self.model
        lr = learning_rate(config, self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        images = self.batches.at(self.step)
        noise = generator_for(self.seed, "noise", self.step, device=self.device)
        draws = [model.draw_noise(images, noise) for _ in range(config.noise_samples)]
        self.optimizer.zero_grad(set_to_none=True)
        bits = images.new_zeros((), dtype=torch.float32)
        for part in torch.arange(len(images), device=self.device).chunk(config.batch_steps):
            eps, *more = (draw[part] for draw in draws)
            log_prob = model(images[part], eps=eps, more_eps=torch.stack(more) if more else None)
            loss = -log_prob.sum() / (len(images) * model.num_dims * math.log(2))
            loss.backward()
            bits += loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip or math.inf)
        if torch.isfinite(norm) and torch.isfinite(bits):
            self.optimizer.step()
            if self.average is not None:
                self.average.update_parameters(model)
            self.skipped_in_a_row = 0
        else:
            self._skip(images, draws[0])
        self.step += 1
        return bits, norm.item(), lr

    def look(self, bar: Any) -> None:
        """Evaluates, samples, reports; exports the model if it is the best so far."""
        model, config = self.shown, self.config
        batch_size = max(1, config.batch_size // config.batch_steps)
        result = evaluate(
            model, self.test, batch_size=batch_size, seed=self.seed, limit=config.eval_images
        )
        some = torch.from_numpy(self.test.take(np.arange(min(16, len(self.test)))))
        error = reconstruction_error(model, some.to(self.device))
        self.folder.log(
            {
                "step": self.step,
                "test_bits": result.bits_per_dim,
                "test_bits_error": result.bits_per_dim_error,
                "reconstruction": error,
            }
        )
        self._sample(model)
        best = result.bits_per_dim < self.best_bits
        if best:
            self.best_bits, self.best_step = result.bits_per_dim, self.step
            model.save_pretrained(self.folder.path)
            reference = make_reference(
                model, self.test, batch_size=batch_size, limit=min(result.images, 1000)
            )
            reference.write(self.folder.path)
            self.save()
        write_report(self.folder.path, self.folder.rows(), self.baselines, done=False)
        note = ", the best so far" if best else f" (best {self.best_bits:.4f})"
        self._say(bar, f"{result.bits_per_dim:.4f} bits/dim on {result.images} test images{note}")

    def save(self) -> None:
        """Writes a checkpoint, once for a step."""
        if self.saved_step == self.step:
            return
        tensors = {
            "model": self.model.state_dict(),
            "optimizer": checkpoint.optimizer_tensors(self.optimizer),
        }
        if self.average is not None:
            tensors["average"] = self.average.state_dict()
        numbers = {
            "best_step": self.best_step,
            "best_bits": self.best_bits if self.best_step is not None else None,
            "skipped": self.skipped,
            "skipped_in_a_row": self.skipped_in_a_row,
        }
        checkpoint.save(self.folder.checkpoints, self.step, tensors, numbers)
        checkpoint.prune(self.folder.checkpoints, self.config.keep, self.best_step)
        self.saved_step = self.step

    def close(self) -> None:
        """Ends readers and writers."""
        self.batches.close()
        self.folder.close()

    def _begin(self, start: FlowModel | None) -> None:
        """Fresh weights, set by a first batch; of weights to start from only what they lack."""
        if start is not None and take_weights(self.model, start):
            return
        fresh = self.model if start is None else self.model.dequantizer
        count = min(self.config.init_images, len(self.train))
        augmented = self.config.augment
        first = Batches(
            self.train, count, seed=self.seed, device=self.device, augmented=augmented, ahead=1
        )
        images = first.at(0)
        first.close()
        noise = generator_for(self.seed, "initial noise", device=self.device)
        with initializing(fresh):
            fresh(images, eps=self.model.draw_noise(images, noise))

    def _restore(self, tensors: checkpoint.State, numbers: dict[str, Any]) -> None:
        checkpoint.restore_optimizer(self.optimizer, tensors["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(tensors["average"])
        self.step = self.saved_step = numbers["step"]
        self.skipped, self.skipped_in_a_row = numbers["skipped"], numbers["skipped_in_a_row"]
        if numbers["best_step"] is not None:
            self.best_step, self.best_bits = numbers["best_step"], numbers["best_bits"]
        self._print(f"{self.folder.path}: goes on from step {self.step:,}")

    def _sample(self, model: FlowModel) -> None:
        rows: list[Tensor] = []
        for temperature in self.config.sample_temperatures:
            try:
                rows += sample_batches(
                    model,
                    SAMPLES_PER_TEMPERATURE,
                    temperature=temperature,
                    seed=self.seed,
                    batch_size=SAMPLES_PER_TEMPERATURE,
                )
            except FloatingPointError:  # a young model may not invert far latents: show none
                rows.append(torch.zeros(SAMPLES_PER_TEMPERATURE, *model.shape, dtype=torch.uint8))
        if rows:
            picture = grid(torch.cat(rows).numpy(), SAMPLES_PER_TEMPERATURE)
            self.folder.save_samples(self.step, picture)

    def _skip(self, images: Tensor, eps: Tensor) -> None:
        self.skipped += 1
        self.skipped_in_a_row += 1
        where = culprit(self.model, images, eps)
        self._print(f"step {self.step + 1}: skipped, {where} is not finite")
        if self.skipped_in_a_row >= self.config.max_skipped:
            raise FloatingPointError(
                f"{self.skipped_in_a_row} updates in a row were not finite ({where}): "
                "lower --train.lr, set --train.clip 1, or lengthen --train.warmup"
            )

    def _report_problems(self) -> None:
        problems = list(dict.fromkeys(self.train.problems + self.test.problems))
        for line in problems[:20]:
            self._print(f"left out {line}")
        if problems:
            self._print(f"{len(problems)} files could not be used")

    def _bar(self) -> Any:
        hidden = self.quiet or not sys.stderr.isatty()
        return tqdm(total=self.config.steps, initial=self.step, unit=" updates", disable=hidden)

    def _say(self, bar: Any, line: str) -> None:
        if bar.disable:
            self._print(f"step {self.step:,}/{self.config.steps:,}: {line}")
        else:
            bar.set_postfix_str(line)

    def _print(self, line: str) -> None:
        if not self.quiet:
            print(line, file=sys.stderr, flush=True)


def _baselines(train: data.Images, test: data.Images, n_bits: int) -> dict[str, float]:
    if math.prod(train.shape) > 4096:
        return {"uniform": float(n_bits)}
    some = [images.take(np.arange(min(len(images), 10_000))) for images in (train, test)]
    return baselines(some[0], some[1], n_bits)
