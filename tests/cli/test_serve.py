"""`macow serve` as people type it."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import webbrowser
from types import SimpleNamespace

import pytest

from macow.cli import main
from macow.train import fit
from small_runs import SMALL


@pytest.fixture
def begun():
    """A server in a process of its own, once it says where it is."""
    command = [sys.executable, "-m", "macow", "serve", "digits", "--port", "0", "--seed", "9"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    line = process.stdout.readline()
    yield process, line
    process.kill()
    process.wait()
    process.stdout.close()


def test_it_says_where_it_is_answers_and_ends_with_ctrl_c(begun):
    process, line = begun
    found = re.fullmatch(r"digits is at http://127\.0\.0\.1:(\d+); Ctrl-C ends it\n", line)
    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=30)
    connection.request("GET", "/api/model")
    assert b'"seed":9' in connection.getresponse().read()
    connection.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0


def test_a_run_folder_is_shown_as_a_run_and_every_option_counts(tmp_path, monkeypatch, capsys):
    fit(SMALL, "digits", tmp_path / "mine", quiet=True)
    (tmp_path / "other").mkdir()
    opened, began = [], []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(
        "macow.web.server.server", lambda *made: began.append(made) or SimpleNamespace(run=len)
    )
    argv = ["serve", str(tmp_path / "mine"), str(tmp_path / "other"), "--port", "0", "--open"]
    assert main([*argv, "--seed", "7", "--batch_size", "3", "--device", "cpu"]) == 0
    ((explorer, runs, _),) = began
    assert [run.name for run in runs] == ["mine", "other"]
    assert (explorer.name, explorer.defaults.seed, explorer.batch_size) == ("mine", 7, 3)
    assert explorer.reference is not None
    assert f"mine is at {opened[0]}; Ctrl-C ends it" in capsys.readouterr().out
    assert main([*argv, "--seed", "-1"]) == 2
    assert "--seed: must be a whole number from 0" in capsys.readouterr().err


def test_without_its_extra_it_says_what_to_install(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith("macow.web")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", "digits"]) == 2
    assert capsys.readouterr().err == (
        "macow: serve: needs its extra: pip install 'macow[serve]'\n"
    )


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["serve", "nothing"], "nothing: no such folder; shipped models are cifar10, "),
        (["serve", "digits", "nowhere"], "nowhere: no such folder"),
        (["serve", "digits", "--port", "-1"], "must be a whole number from 0"),
        (["serve", "digits", "--port", "70000"], "port 70000 cannot be used"),
    ],
)
def test_a_mistake_is_one_line(argv, words, capsys):
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err
    assert printed.err.count("\n") == 1


def test_a_port_that_is_taken_is_named(capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["serve", "digits", "--port", str(port)]) == 2
    assert f"port {port} cannot be used" in capsys.readouterr().err
