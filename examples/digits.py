"""Builds the digits preset, scores the embedded digits and draws new ones: `make demo` runs it."""

from pathlib import Path

import torch
from PIL import Image

import macow
from macow.data import digits


def main() -> None:
    """Says what an image costs before any training, and shows that latents lead back to it."""
    torch.manual_seed(0)
    train, test = (torch.from_numpy(digits(split)[0]) for split in ("train", "test"))
    model = macow.preset("digits").model.build()
    with macow.initializing(model):
        model(train)

    with torch.no_grad():
        bits = model.bits_per_dim(test, generator=torch.Generator().manual_seed(0))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"digits: {len(train):,} to learn from, {len(test)} to test, 8x8 pixels of 4 bits")
    print(f"model: {parameters:,} parameters, initialised on the training images, not yet trained")
    print(f"test: {bits.mean():.3f} bits/dim")
    exact = torch.equal(model.decode(model.encode(test)), test)
    print(f"decode(encode(test)) == test: {exact}")

    samples = model.sample(64, temperature=0.8, generator=torch.Generator().manual_seed(1))
    grid = torch.cat([test[:64].view(8, 8, 8, 8), samples.view(8, 8, 8, 8)], dim=1)
    picture = Image.fromarray(grid.permute(0, 2, 1, 3).reshape(64, 128).numpy())
    path = Path("runs/digits.png")
    path.parent.mkdir(exist_ok=True)
    picture.resize((1024, 512), Image.Resampling.NEAREST).save(path)
    print(f"{path}: test digits on the left, samples on the right")


if __name__ == "__main__":
    main()
