"""`macow serve`: a page on this machine to look into a model."""

import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from macow.cli.parsing import model_parser, natural, parse
from macow.cli.sample import usual_temperature
from macow.pretrained import find, load
from macow.score import Reference

DESCRIPTION = """Opens a page on this machine, for nobody else: samples by temperature and seed,
scores of images and where their bits go, films between images, what each level and each masked
convolution does, and the curves of runs while they train. MODEL, if it is a run folder, is also
shown as a run. Ctrl-C ends it. Example: macow serve digits runs/a runs/b"""


def run(argv: Sequence[str]) -> None:
    """Loads the model, listens, says where, and answers."""
    arguments = model_parser("serve", "[RUN...] [options]", DESCRIPTION, batch_size=64)
    arguments.add_argument("runs", nargs="*", default=[], help="run folders whose training to show")
    arguments.add_argument("--port", type=natural, default=8000, help="0: any that is free")
    arguments.add_argument("--open", action="store_true", help="open the page in a browser")
    options = parse(arguments, argv)
    try:
        from macow.web.explorer import Explorer
        from macow.web.runs import told_apart
        from macow.web.server import listen, server
        from macow.web.worker import Worker
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise ValueError("serve: needs its extra: pip install 'macow[serve]'") from None
    folder = find(options.model)
    folders = [Path(name) for name in options.runs]
    if (folder / "metrics.jsonl").exists() and folder.resolve() not in map(Path.resolve, folders):
        folders.insert(0, folder)
    runs = told_apart(folders)
    explorer = Explorer(
        folder.resolve().name,
        load(options.model, options.device),
        Reference.beside(folder),
        temperature=float(usual_temperature(folder)),
        seed=options.seed,
        batch_size=options.batch_size,
    )
    with listen(options.port) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        print(f"{explorer.name} is at {address}; Ctrl-C ends it", flush=True)
        if options.open:
            webbrowser.open(address)
        with suppress(KeyboardInterrupt):  # the way it is meant to end
            server(explorer, runs, Worker()).run([listener])
