"""The wheel, built and installed into a clean environment outside the checkout, works there."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
USE = """
import numpy, torch, macow
from macow import data

assert "site-packages" in macow.__file__, macow.__file__
images = torch.from_numpy(data.load("digits", "test").take(numpy.arange(360)))
model = macow.preset("digits").model.build()
with macow.initializing(model):
    model(images)
model.save_pretrained("digits")
again = macow.load("./digits")
assert torch.equal(again.decode(again.encode(images)), images)
print("bits", again.bits_per_dim(images).mean().item())
"""


def run(*command, cwd):
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_works_in_a_clean_environment(tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("macow-*.whl")
    said = (ROOT / "README.md").read_text()
    assert f"nearly all of its {wheel.stat().st_size / 2**20:.0f} MiB" in " ".join(said.split())
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "-c",
        ROOT / "constraints.txt",
        wheel,
        cwd=tmp_path,
    )
    assert run(python, "-c", USE, cwd=tmp_path).startswith("bits ")
    command = tmp_path / "env" / "bin" / "macow"
    assert "cifar10" in run(command, "presets", cwd=tmp_path)
    assert "grid.png" in run(command, "sample", "digits", "--count", "4", cwd=tmp_path)
    explorer = subprocess.run([command, "serve", "digits"], capture_output=True, text=True)
    assert explorer.returncode == 2
    assert explorer.stderr == "macow: serve: needs its extra: pip install 'macow[serve]'\n"
    page = ROOT / "src" / "macow" / "web" / "page"
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if name.startswith("macow/web/page/")}
    assert found == {f"macow/web/page/{path.name}" for path in page.iterdir()}
