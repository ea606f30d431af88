"""Runs attempts on hostile inputs where nothing they do can hurt: forked, bounded, watched."""

import contextlib
import io
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple


class Limits(NamedTuple):
    """What an input may take, in bytes."""

    memory: int = 768 << 20
    """Address space beyond what the process had."""
    peak: int = 400 << 20
    """What is really touched of it."""


USUAL = Limits()
SECONDS = 20
"""Wall clock, on a machine that has other things to do."""
FORBIDDEN = re.compile(
    r"os\.(system|exec|posix_spawn|fork|spawn|startfile|kill|remove|chmod)|subprocess\."
    r"|socket\.(connect|bind)|ctypes\.dlopen|webbrowser|pty\.|code\.|shutil\.rmtree|urllib"
)
"""Audit events that no reader of data has a reason to cause."""


class Input(NamedTuple):
    """What a stranger gave: a name for the reader of a failure, and the content of the file."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Answer:
    """How an input was answered."""

    name: str
    kind: str
    """result, refused, or what must not be: crash, hang, traceback, unclear, executed, memory."""
    text: str = ""
    peak: int = 0
    """Bytes touched beyond what the process held before."""

    @property
    def is_good(self) -> bool:
        return self.kind in ("result", "refused")


Attempt = Callable[[Path, bytes], object]
"""Puts the content into a scratch folder and uses it; a refusal is an exception."""


def run(
    attempt: Attempt, inputs: list[Input], scratch: Path, limits: Limits = USUAL
) -> list[Answer]:
    """Every input in turn in a forked child; one that takes the child down is named for it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "numpy", "PIL.Image", "macow.cli", "safetensors"])
    answers: list[Answer] = []
    while len(answers) < len(inputs):
        here, there = context.Pipe()
        waiting = inputs[len(answers) :]
        arguments = (there, attempt, waiting, str(scratch), limits)
        child = context.Process(target=_serve, args=arguments)
        child.start()
        there.close()
        try:
            while len(answers) < len(inputs):
                answers.append(here.recv())
        except EOFError:
            child.join()
            code = child.exitcode or 0
            kind = "hang" if code == -signal.SIGALRM else "crash"
            answers.append(Answer(inputs[len(answers)].name, kind, f"exit code {code}"))
        here.close()
        child.join()
    return answers


def assert_all_answered(answers: list[Answer]) -> None:
    bad = [answer for answer in answers if not answer.is_good]
    lines = [f"{a.kind}: {a.name}: {a.text}" for a in bad[:20]]
    assert not bad, f"{len(bad)} of {len(answers)} inputs:\n" + "\n".join(lines)


def _serve(
    there: Connection, attempt: Attempt, inputs: list[Input], scratch: str, limits: Limits
) -> None:
    import torch

    torch.set_num_threads(1)
    os.chdir(scratch)
    warnings.simplefilter("ignore")  # as for users: a library's remark is not an answer
    watch = _Watch(Path(scratch), limits)
    sys.addaudithook(watch.hook)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit = _status("VmSize") + limits.memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for i, (name, content) in enumerate(inputs):
        folder = Path(scratch) / f"{os.getpid()}_{i}"
        folder.mkdir()
        answer = _one(attempt, name, content, folder, watch)
        shutil.rmtree(folder, ignore_errors=True)
        there.send(answer)
    there.close()


def _one(attempt: Attempt, name: str, content: bytes, folder: Path, watch: "_Watch") -> Answer:
    before = _reset_peak()
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    watch.events = []
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            found = attempt(folder, content)
        kind, text = "result", repr(found)
    except (ValueError, OSError, ArithmeticError) as error:
        kind, text = "refused", str(error)
    except BaseException as error:
        kind, text = "traceback", f"{type(error).__name__}: {error}"
    finally:
        events, watch.events = watch.events or [], None
        signal.setitimer(signal.ITIMER_REAL, 0)
    peak = _status("VmHWM") - before
    if kind == "refused" and ("\n" in text or str(folder) not in text or len(text) > 1000):
        kind = "unclear"
    if events:
        kind, text = "executed", ", ".join(events)
    elif peak > watch.limits.peak:
        kind, text = "memory", f"{peak >> 20} MiB; {text}"
    return Answer(name, kind, text[:1000], peak)


class _Watch:
    """Notes what an attempt does that a reader of data never does."""

    def __init__(self, scratch: Path, limits: Limits) -> None:
        self.limits = limits
        self.scratch = str(scratch)
        self.events: list[str] | None = None

    def hook(self, event: str, args: tuple[object, ...]) -> None:
        if self.events is None:
            return
        if FORBIDDEN.match(event):
            self.events.append(event)
        elif event == "open" and isinstance(args[0], str) and isinstance(args[1], str):
            writes = any(letter in args[1] for letter in "wax+")
            if writes and not args[0].startswith((self.scratch, os.devnull)):
                self.events.append(f"open {args[0]!r} to write")


def _status(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return 1024 * int(found[1])


def _reset_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmHWM")
