"""What stands at a model's door: is it initialised, are its weights and its results numbers."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from macow.weights import require_finite, require_finite_weights


class Guarded(nn.Module):
    """A module that knows whether it was initialised and whether it was loaded damaged."""

    initialized: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("initialized", torch.tensor(data=False))
        self._is_initialized = False  # the buffer's value, known without asking the device
        self._was_damaged = False
        self.register_load_state_dict_post_hook(_look_at_weights)  # type: ignore[no-untyped-call]

    @property
    def is_initialized(self) -> bool:
        """Whether the first batch has been seen, or weights were loaded."""
        if not self._is_initialized:  # asking the buffer waits for the device: only until it is so
            self._is_initialized = bool(self.initialized)
        return self._is_initialized

    @is_initialized.setter
    def is_initialized(self, value: bool) -> None:
        self.initialized.fill_(value)
        self._is_initialized = value

    def _require_initialized(self) -> None:
        if not self.is_initialized:
            raise ValueError(
                "the model is not initialised: run `with macow.initializing(model): model(images)` "
                "on a batch of training images, or load weights"
            )

    def require_finite(self, values: Tensor, what: str) -> Tensor:
        """Gives back likelihoods, latents or images `[B, ...]` if they are all numbers."""
        return require_finite(values, what, self.named_parameters())

    def require_undamaged(self) -> None:
        """Infinite weights can vanish on the way and give images that look like images."""
        if self._was_damaged:
            require_finite_weights(self.named_parameters())

    def _take_over(self, other: "Guarded") -> None:
        """What is known of another one, whose weights it shares."""
        self.is_initialized = other.is_initialized
        self._was_damaged = other._was_damaged

    @contextmanager
    def _inverting(self) -> Iterator[None]:
        """What cannot be inverted is named."""
        self.require_undamaged()
        try:
            yield
        except torch.linalg.LinAlgError as error:
            require_finite_weights(self.named_parameters())
            raise FloatingPointError(f"the model cannot be inverted: {error}") from None


def _look_at_weights(model: nn.Module, _: object) -> None:
    assert isinstance(model, Guarded)
    model._is_initialized = bool(model.initialized)
    model._was_damaged = not all(weight.isfinite().all() for weight in model.parameters())
