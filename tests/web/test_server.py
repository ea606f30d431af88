"""The server under strain: strangers, crowds, clients that leave, work that fails."""

import json
import socket
import threading
from contextlib import suppress

import pytest
import torch

import macow
from children import wait_for
from explorers import Gate, png, served
from macow.web import guard
from macow.web.worker import OPEN_AT_ONCE

SAMPLES = json.dumps({"count": 64})


@pytest.fixture
def digits():
    with served() as running:
        yield running


@pytest.fixture
def gate(digits):
    """Nothing is drawn until the gate lets it through."""
    gate = Gate(digits.explorer.sampler)
    yield gate
    gate.let(1000)


def begin(digits, path="/api/samples", content=SAMPLES):
    """A request whose answer nobody has read yet."""
    connection = digits.connect()
    connection.request("POST", path, content)
    return connection


@pytest.mark.parametrize(
    ("headers", "welcome"),
    [
        ({}, True),
        ({"Host": "localhost:8000"}, True),
        ({"Host": "[::1]:8000"}, True),
        ({"Host": "evil.example"}, False),
        ({"Host": "127.0.0.1.evil.example"}, False),
        ({"Host": "localhost@evil.example"}, False),
        ({"Host": "evil.example:8000"}, False),
        ({"Host": ""}, False),
        ({"Host": "[::1"}, False),
        ({"Origin": "http://127.0.0.1:{port}"}, True),
        ({"Origin": "http://127.0.0.1:1"}, False),
        ({"Origin": "http://localhost:{port}"}, False),
        ({"Origin": "https://127.0.0.1:{port}"}, False),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, False),
    ],
)
def test_only_its_own_page_is_answered(shared, headers, welcome):
    headers = {name: value.format(port=shared.port) for name, value in headers.items()}
    status, _, body = shared.ask("GET", "/api/model", headers=headers)
    assert status == (200 if welcome else 403)
    assert welcome or "this server answers" in json.loads(body)["error"]


@pytest.fixture(scope="module")
def shared():
    with served() as running:
        yield running


def test_a_link_from_elsewhere_leads_to_the_page(shared):
    clicked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert shared.ask("GET", "/", headers=clicked)[0] == 200


def test_it_listens_on_this_machine_alone(shared):
    address = _other_address()
    with socket.socket() as other:
        other.settimeout(5)
        with pytest.raises(OSError, match="refused"):
            other.connect((address, shared.port))


def _other_address():
    """Another address of this machine than the server's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with suppress(OSError):  # no network
            probe.connect(("192.0.2.1", 9))  # sends nothing
        found = probe.getsockname()[0]
    return "127.0.0.2" if found.startswith(("127.0.0.1", "0.")) else found


def test_the_browser_is_told_to_ask_nobody_else(shared):
    for path in ("/", "/main.js", "/api/model", "/nowhere"):
        headers = shared.ask("GET", path)[1]
        assert headers["content-security-policy"].startswith("default-src 'self'; img-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers


def test_one_too_many_is_told_to_come_back(digits, gate):
    crowd = [begin(digits) for _ in range(OPEN_AT_ONCE)]
    wait_for(lambda: digits.worker.open_jobs == OPEN_AT_ONCE)
    status, headers, body = digits.ask("POST", "/api/samples", SAMPLES)
    assert status == 503
    assert headers["retry-after"] == "1"
    assert json.loads(body)["error"].startswith("busy: 8 requests are open already")
    assert digits.ask("GET", "/api/model")[0] == 200  # what needs no computing goes on
    gate.let(1000)
    for connection in crowd:
        answer = connection.getresponse()
        assert answer.status == 200
        assert b'"grid"' in answer.read().splitlines()[-1]
        connection.close()
    wait_for(lambda: digits.worker.open_jobs == 0)
    assert digits.ask("POST", "/api/samples", SAMPLES)[0] == 200


def test_who_leaves_is_not_drawn_for(digits, gate):
    connection = begin(digits)
    gate.let(1)
    answer = connection.getresponse()
    assert json.loads(answer.readline())["first"] == 0
    wait_for(lambda: gate.batches == 2)  # the second batch is under way
    answer.close()
    connection.close()
    wait_for(lambda: digits.worker.open_jobs == 0)
    gate.let(1)
    status, *_ = digits.ask("GET", "/api/model")
    assert status == 200
    follower = begin(digits)  # its first batch is the third of all: nothing else was drawn
    wait_for(lambda: gate.batches == 3)
    gate.let(1000)
    assert follower.getresponse().status == 200
    follower.close()


def test_who_leaves_the_line_is_forgotten(digits, gate):
    first = begin(digits)
    wait_for(lambda: gate.batches == 1)  # it is being drawn, and holds up the next
    waiting = begin(digits)
    wait_for(lambda: len(digits.worker._line) == 1)
    waiting.close()
    wait_for(lambda: digits.worker.open_jobs == 1)
    assert not digits.worker._line
    gate.let(1000)
    assert first.getresponse().status == 200
    first.close()


def test_who_sends_too_slowly_is_dropped(digits, monkeypatch):
    monkeypatch.setattr(guard, "PATIENCE", 0.2)
    with socket.create_connection(("127.0.0.1", digits.port), timeout=30) as slow:
        head = "POST /api/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nhalf"
        slow.sendall(head.encode())
        assert b"408" in slow.recv(1000)
    wait_for(lambda: digits.worker.open_jobs == 0)


def test_who_does_not_read_is_dropped(digits, monkeypatch):
    monkeypatch.setattr(guard, "PATIENCE", 0.5)
    line = {"images": ["x" * (1 << 22)]}
    monkeypatch.setattr(digits.explorer, "image", lambda content: iter([line] * 16))
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", digits.port))
        deaf.sendall(b"POST /api/image HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n\r\nx")
        wait_for(lambda: digits.worker.open_jobs == 1)
        wait_for(lambda: digits.worker.open_jobs == 0)


def test_work_that_fails_costs_one_answer(digits, monkeypatch, caplog):
    undo = digits.explorer.sampler._undo

    def broken(error):
        def fail(z, cond=None):
            raise error

        digits.explorer.sampler._undo = fail
        status, _, body = digits.ask("POST", "/api/samples", SAMPLES)
        return status, json.loads(body)["error"]

    assert broken(FloatingPointError("decoding is not finite")) == (500, "decoding is not finite")
    assert broken(RuntimeError("CUDA out of memory")) == (500, "out of memory: try fewer pictures")
    assert caplog.text == ""
    status, text = broken(KeyError("a bug"))
    assert status == 500
    assert "a bug" not in text
    assert "a bug" in caplog.text
    digits.explorer.sampler._undo = undo
    assert digits.ask("POST", "/api/samples", SAMPLES)[0] == 200


def test_a_failure_on_the_way_is_the_last_line(digits):
    undo, calls = digits.explorer.sampler._undo, []

    def fails_later(z, cond=None):
        calls.append(len(z))
        if len(calls) == 2:
            raise FloatingPointError("decoding is not finite")
        return undo(z, cond)

    digits.explorer.sampler._undo = fails_later
    first, last = digits.lines("/api/samples", {"count": 64})
    assert len(first["images"]) == 4
    assert last == {"error": "decoding is not finite"}


def test_a_model_that_is_damaged_is_named():
    model = macow.load("digits")
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with served(model) as running:
        status, text = running.mistake("/api/score", png(torch.zeros(8, 8).byte().numpy()))
    assert status == 500
    assert "finite" in text


def test_fifty_at_once_get_answers_or_busy(digits):
    found = []

    def client():
        for _ in range(4):
            status, _, body = digits.ask("POST", "/api/samples", SAMPLES)
            found.append((status, len(body.splitlines())))

    threads = [threading.Thread(target=client) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 200
    assert {status for status, _ in found} <= {200, 503}
    whole = {count for status, count in found if status == 200}
    assert whole
    assert min(whole) > 2
    wait_for(lambda: digits.worker.open_jobs == 0)


def test_it_ends_in_the_midst_of_work(caplog):
    with served() as running:
        gate = Gate(running.explorer.sampler)
        first = begin(running)
        gate.let(1)
        wait_for(lambda: gate.batches == 2)
        waiting = begin(running)
        wait_for(lambda: running.worker.open_jobs == 2)
    gate.let(1)  # what was computed is too late
    answers = [connection.getresponse() for connection in (first, waiting)]
    drawn, last = answers[0].read().splitlines()
    assert "images" in json.loads(drawn)
    assert json.loads(last) == {"error": "the server ends"}
    assert json.loads(answers[1].read()) == {"error": "the server ends"}
    assert [answer.status for answer in answers] == [200, 503]
    assert gate.batches == 2
    assert caplog.text == ""
    for connection in (first, waiting):
        connection.close()
