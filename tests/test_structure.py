"""The rooms of the package: imports go one way, names are for people, a step compiles whole."""

import ast
from pathlib import Path

import pytest
import torch

import macow
from cases import CASES
from macow.bijections import ActNorm
from models import images, tiny_config, tiny_model

PACKAGE = Path(macow.__file__).parent
# A module may import from its own room and from rooms further up this list.
ROOMS = [
    {
        "ops",
        "seeds",
        "pictures",
        "baselines",
        "_version",
        "files",
        "documents",
        "inputs",
    },
    {"nets", "distribution", "weights", "capture"},
    {"bijections", "guarded"},
    {"dequantize"},
    {"snapshot", "volume", "alike"},
    {"sampler"},
    {"model"},
    {"initialize", "plan"},
    {"config"},
    {"presets", "original", "pretrained"},
    {"evaluate", "latents", "check"},
    {"score"},
    {"export"},
    {"train"},
    {"bench"},
    {"web"},
    {"cli"},
    {"__init__", "__main__"},
]


def imports():
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        tree = ast.parse(path.read_text())
        typing_only = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if id(node) in typing_only:
                continue
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                yield path, room, node.module
            elif isinstance(node, ast.Import):
                for name in node.names:
                    yield path, room, name.name


def test_imports_go_one_way():
    rank = {room: i for i, rooms in enumerate(ROOMS) for room in rooms}
    for path, room, module in imports():
        if module.split(".")[0] != "macow" or module == "macow":
            continue  # `from macow import data` names no room
        target = module.split(".")[1]
        if room == "data":
            assert target == "data", f"{path}: data stands alone"
        if target == "data":
            assert room in ("data", "evaluate", "score", "train", "bench", "web", "cli"), (
                f"{path} imports data"
            )
            continue
        assert rank[target] <= rank[room], f"{path} imports {module}"
        if rank[target] == rank[room]:
            assert target == room, f"{path} imports {module}"


def test_heavy_and_optional_packages_stay_in_their_rooms():
    allowed = {"triton": "ops", "jsonargparse": "cli", "starlette": "web", "uvicorn": "web"}
    for path, room, module in imports():
        package = module.split(".")[0]
        assert allowed.get(package, room) == room, f"{path} imports {package}"


def test_modules_stay_small():
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 350, path


def test_names_are_for_people():
    names = set(tiny_config(variational=True).build().state_dict())
    assert "flow.level1.block0.step0.unit1.right.read.direction" in names
    assert "flow.level0.block0.step0.glow.coupling.net.first.gain" in names
    assert "flow.level1.block1.prior.norm.log_scale" in names
    assert "dequantizer.flow.level1.block0.step0.unit0.up.context.bias" in names
    assert "initialized" in names
    assert len(names) == len({name.replace("_tower", "") for name in names})


def test_replacing_a_block_counts():
    model = tiny_model()
    x = torch.rand(1, *model.shape)
    before = model.flow(x)[0]
    model.flow.level1["block0"] = ActNorm(12)
    assert not torch.equal(model.flow(x)[0], before)
    assert "flow.level1.block0.shift" in model.state_dict()


def test_a_whole_model_compiles_without_graph_breaks():
    model = tiny_model(variational=True)
    batch = images(2, model)
    eps = torch.randn(batch.shape)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(batch, eps=eps), model(batch, eps=eps))
    torch.compiler.reset()


@pytest.mark.parametrize(
    "name", ["macow-step", "glow-step", "emerging-step", "maf-step", "realnvp-channel-step"]
)
def test_compiles_without_graph_breaks(name):
    case = CASES[name]
    bijection = case.bijection()
    compiled = torch.compile(bijection, fullgraph=True, backend="aot_eager")
    x, cond = case.inputs()
    y, log_det = compiled(x, cond)
    expected, expected_log_det = bijection(x, cond)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(log_det, expected_log_det)
    torch.compiler.reset()
