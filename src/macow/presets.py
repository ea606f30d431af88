"""One function per published run, each deriving from the one it varies."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from macow.config import FlowConfig, ModelConfig, RunConfig, TrainConfig, VariationalConfig


def cifar10() -> RunConfig:
    """MaCow, fine-grained, as published (kernel 2x3)."""
    flow = FlowConfig(
        steps=((4,), (12, 12), (12, 12), (12,)), factors=(4, 4), hidden=(24, 512, 512, 512)
    )
    return RunConfig(
        ModelConfig(flow), TrainConfig(batch_size=512, warmup=50, mirror=True, shift=4)
    )


def cifar10_org() -> RunConfig:
    """The original multi-scale architecture: half of the channels go after one block."""
    return _with_flow(cifar10(), steps=((4,), (23,), (23,), (12,)), factors=(2, 2))


def cifar10_variational() -> RunConfig:
    """With variational dequantization."""
    dequantizer = FlowConfig(steps=((4,), (4,)), hidden=(24, 256))
    return _with_variational(cifar10(), dequantizer)


def cifar10_small() -> RunConfig:
    """The same architecture, for people with an afternoon."""
    return _with_flow(cifar10(), steps=((2,), (8, 8), (6, 6), (4,)), hidden=(24, 192, 192, 192))


def cifar10_small_variational() -> RunConfig:
    """With variational dequantization, to go on from cifar10-small."""
    dequantizer = FlowConfig(steps=((2,), (2,)), hidden=(24, 128))
    return _with_variational(cifar10_small(), dequantizer)


def cifar10_conditional() -> RunConfig:
    """Given each image's class."""
    names = "airplane automobile bird cat deer dog frog horse ship truck"
    return _with_labels(cifar10(), names)


def imagenet64() -> RunConfig:
    """MaCow on the 64x64 ImageNet of van den Oord et al. (2016)."""
    flow = FlowConfig(
        steps=((4,), (16, 16), (16, 16), (12, 12), (12,)),
        factors=(4, 4, 4),
        hidden=(24, 512, 512, 512, 512),
        kernel=(2, 5),
    )
    return RunConfig(ModelConfig(flow, size=(64, 64)), TrainConfig(batch_size=160, init_images=512))


def imagenet64_org() -> RunConfig:
    """The original multi-scale architecture."""
    return _with_flow(imagenet64(), steps=((4,), (30,), (30,), (22,), (12,)), factors=(2, 2, 2))


def imagenet64_variational() -> RunConfig:
    """With variational dequantization."""
    dequantizer = FlowConfig(steps=((6,), (6,), (4,)), factors=(2,), hidden=(24, 256, 256))
    return _with_variational(imagenet64(), dequantizer)


def lsun128() -> RunConfig:
    """MaCow on one LSUN category, 5 bits, additive throughout."""
    flow = FlowConfig(
        steps=((4,), (32, 32), (32, 32), (16, 16), (12, 12), (6,)),
        factors=(4, 4, 4, 4),
        hidden=(24, 256, 256, 256, 256, 512),
        kernel=(2, 5),
        affine=False,
        affine_prior=False,
    )
    model = ModelConfig(flow, size=(128, 128), n_bits=5)
    return RunConfig(model, TrainConfig(batch_size=160, init_images=160), temperature=0.9)


def lsun128_variational() -> RunConfig:
    """With variational dequantization."""
    return _with_variational(lsun128(), _HIGH_RESOLUTION_DEQUANTIZER, noise_samples=3)


def celebahq256() -> RunConfig:
    """MaCow on CelebA-HQ, 5 bits, additive steps and affine priors."""
    flow = FlowConfig(
        steps=((4,), (24, 24), (16, 16), (16, 16), (8, 8), (4, 4), (2,)),
        factors=(4, 4, 4, 4, 4),
        hidden=(24, 256, 256, 256, 256, 256, 512),
        kernel=(2, 5),
        affine=False,
    )
    model = ModelConfig(flow, size=(256, 256), n_bits=5)
    return RunConfig(model, TrainConfig(batch_size=40, init_images=40), temperature=0.7)


def celebahq256_variational() -> RunConfig:
    """With variational dequantization."""
    return _with_variational(celebahq256(), _HIGH_RESOLUTION_DEQUANTIZER, noise_samples=2)


def glow_cifar10() -> RunConfig:
    """Glow as the paper runs it."""
    return _glow(cifar10(), levels=3, steps=32)


def glow_imagenet64() -> RunConfig:
    """Glow as the paper runs it."""
    return _glow(imagenet64(), levels=4, steps=48)


def glow_lsun128() -> RunConfig:
    """Glow as the paper runs it, additive."""
    return _glow(lsun128(), levels=5, steps=64)


def glow_celebahq256() -> RunConfig:
    """Glow as the paper runs it, additive."""
    return _glow(celebahq256(), levels=6, steps=32)


def realnvp_cifar10() -> RunConfig:
    """RealNVP as its authors ran CIFAR-10: 8 residual blocks, 64 maps, downscaled once."""
    return _with_flow(
        cifar10(), kind="realnvp", steps=((3,), (3, 4)), factors=(2,), hidden=(64, 128)
    )


def maf_cifar10() -> RunConfig:
    """Glow with its couplings made autoregressive."""
    return _with_flow(glow_cifar10(), kind="maf", hidden=(560, 560, 560))


def emerging_cifar10() -> RunConfig:
    """Glow with its 1x1 convolutions made emerging 3x3 ones."""
    return _with_flow(glow_cifar10(), kind="emerging")


def digits() -> RunConfig:
    """A small model of the 8x8 grey digits that come with the package, 4 bits; minutes on a CPU."""
    flow = FlowConfig(steps=((4, 4), (4,)), factors=(4,), hidden=(96, 96), bottom=False, units=1)
    train = TrainConfig(
        steps=420,
        batch_size=128,
        lr=4e-3,
        warmup=50,
        schedule="cosine",
        clip=1.0,
        ema=0.995,
        log_every=20,
        eval_every=140,
        save_every=140,
    )
    return RunConfig(ModelConfig(flow, channels=1, size=(8, 8), n_bits=4), train)


def digits_conditional() -> RunConfig:
    """Given which digit each image shows."""
    return _with_labels(digits(), "0 1 2 3 4 5 6 7 8 9")


_HIGH_RESOLUTION_DEQUANTIZER = FlowConfig(
    steps=((2,), (4,), (4,)), factors=(2,), hidden=(24, 256, 256)
)


def _with_flow(base: RunConfig, **changes: object) -> RunConfig:
    flow = replace(base.model.flow, **changes)  # type: ignore[arg-type]
    return replace(base, model=replace(base.model, flow=flow))


def _with_labels(base: RunConfig, names: str) -> RunConfig:
    return replace(base, model=replace(base.model, labels=tuple(names.split())))


def _with_variational(base: RunConfig, flow: FlowConfig, noise_samples: int = 1) -> RunConfig:
    model = replace(base.model, variational=VariationalConfig(flow))
    return replace(base, model=model, train=replace(base.train, noise_samples=noise_samples))


def _glow(base: RunConfig, *, levels: int, steps: int) -> RunConfig:
    affine = base.model.flow.affine
    return _with_flow(
        base,
        kind="glow",
        bottom=False,
        steps=((steps,),) * levels,
        factors=(2,) * (levels - 1),
        hidden=(512,) * levels,
        affine_prior=affine,
    )


@dataclass(frozen=True)
class Published:
    """A preset's row: how many parameters, which data, the bits/dim the paper reports."""

    preset: Callable[[], RunConfig]
    parameters: int
    data: str
    paper_bits: str = ""


PRESETS: dict[str, Published] = {
    "cifar10": Published(cifar10, 37_197_547, "CIFAR-10", "3.28"),
    "cifar10-org": Published(cifar10_org, 37_335_436, "CIFAR-10", "3.31"),
    "cifar10-variational": Published(cifar10_variational, 38_403_423, "CIFAR-10", "3.16"),
    "cifar10-small": Published(cifar10_small, 7_368_769, "CIFAR-10"),
    "cifar10-small-variational": Published(cifar10_small_variational, 7_901_087, "CIFAR-10"),
    "cifar10-conditional": Published(cifar10_conditional, 40_014_995, "CIFAR-10"),
    "imagenet64": Published(imagenet64, 117_244_127, "ImageNet-64", "3.75"),
    "imagenet64-org": Published(imagenet64_org, 119_722_444, "ImageNet-64", "3.78"),
    "imagenet64-variational": Published(imagenet64_variational, 123_100_393, "ImageNet-64", "3.69"),
    "lsun128": Published(lsun128, 166_570_083, "LSUN", "1.16 / 1.22 / 1.36"),
    "lsun128-variational": Published(
        lsun128_variational, 171_913_089, "LSUN", "0.98 / 1.02 / 1.09"
    ),
    "celebahq256": Published(celebahq256, 171_945_151, "CelebA-HQ", "0.95"),
    "celebahq256-variational": Published(celebahq256_variational, 177_288_157, "CelebA-HQ", "0.67"),
    "glow-cifar10": Published(glow_cifar10, 44_175_264, "CIFAR-10", "3.35"),
    "glow-imagenet64": Published(glow_imagenet64, 111_592_800, "ImageNet-64", "3.81"),
    "glow-lsun128": Published(glow_lsun128, 198_596_076, "LSUN", "1.20 / - / -"),
    "glow-celebahq256": Published(glow_celebahq256, 170_883_756, "CelebA-HQ", "1.03"),
    "realnvp-cifar10": Published(realnvp_cifar10, 17_250_518, "CIFAR-10", "3.49"),
    "maf-cifar10": Published(maf_cifar10, 42_601_632, "CIFAR-10"),
    "emerging-cifar10": Published(emerging_cifar10, 45_438_624, "CIFAR-10"),
    "digits": Published(digits, 267_531, "UCI digits"),
    "digits-conditional": Published(digits_conditional, 352_435, "UCI digits"),
}


def preset_names() -> tuple[str, ...]:
    """The names `preset` knows."""
    return tuple(PRESETS)


def preset(name: str) -> RunConfig:
    """The configuration of a published run: `preset("cifar10").model.build()`."""
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name].preset()
