"""Configurations and other JSON and YAML, fuzzed."""

import json
from dataclasses import asdict
from functools import cache

import attempts
import yaml
from generators import JSON, changed, examples, spoilt
from hypothesis import strategies as st
from sandbox import Input, assert_all_answered, run

from macow.pretrained import SHIPPED

CONFIG = json.dumps({"format": 1, "macow": "0.1", "model": asdict(attempts.SMALL)}).encode()
REFERENCE = (SHIPPED / "digits" / "reference.json").read_bytes()
ORIGINAL = (attempts.FIXTURE / "config.json").read_bytes()
RUN = {"train": {"lr": 0.001, "betas": [0.9, 0.999], "steps": 5, "schedule": "cosine"},
       "model": {"n_bits": 4, "flow": {"steps": [[2, 2], [2]], "hidden": [16, 16]}},
       "temperature": 0.7, "seed": 3, "data": "digits"}  # fmt: skip
ODD_JSON = {
    "nothing": b"",
    "null": b"null",
    "a number": b"7",
    "a list": b"[]",
    "a text": b'"config"',
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "closed deep lists": b"[" * 100_000 + b"]" * 100_000,
    "a long number": b'{"format": ' + b"9" * 100_000 + b"}",
    "a long text": b'{"' + b"x" * 900_000 + b'": 1}',
    "many keys": json.dumps({f"key{i}": i for i in range(50_000)}).encode(),
    "too long": b'{"format": 1' + b" " * (2 << 20) + b"}",
    "infinity": b'{"format": Infinity}',
    "not a number": b'{"format": NaN}',
    "beyond floats": b'{"format": 1e999}',
    "a key twice": b'{"format": 1, "format": 1}',
    "surrogates": b'{"\\ud800": 1}',
    "control characters": b'{"\\u001b[2J\\u0007": 1}',
    "UTF-16": '{"format": 1}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "not UTF-8": b'{"\xff": 1}',
    "two documents": b"{}{}",
    "a pickle": b"cos\nsystem\n(S'touch executed'\ntR.",
}
LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
ROW = ", ".join(["1"] * 8000)
FITTING = f"model: {{flow: {{hidden: &a [{ROW}], steps: [{', '.join(['*a'] * 8000)}]}}}}"
ODD_YAML = {
    "laughs that fit": FITTING.encode(),
    "python object": b"!!python/object/apply:os.system ['touch executed']",
    "python module": b"!!python/module:antigravity",
    "python name": b"train: !!python/name:os.system",
    "python new": b"a: !!python/object/new:subprocess.Popen [['touch', 'executed']]",
    "python tuple": b"model: !!python/tuple [1, 2]",
    "unknown tag": b"!wings {}",
    "a billion laughs": LAUGHS.encode(),
    "laughs among steps": LAUGHS.encode() + b"model: {flow: {steps: *a11}}",
    "a loop": b"train: &t\n  lr: *t",
    "merged": b"x: &x {lr: 1}\ntrain:\n  <<: *x",
    "deep lists": b"[" * 10_000,
    "deep objects": b"{a: " * 10_000,
    "a deep tree": "".join(" " * i + f"k{i}:\n" for i in range(300)).encode(),
    "a date": b"train: 2001-01-01",
    "no such date": b"train: 2001-13-45",
    "binary": b"train: !!binary aGVsbG8=",
    "a set": b"train: !!set {a, b}",
    "a list as key": b"? [1, 2]\n: 3",
    "numbers as keys": b"1: 2\ntrue: 3\nnull: 4",
    "numbers as keys inside": b"train: {1: 2, a: 3}",
    "a long number": b"seed: " + b"9" * 5000,
    "not a number": b"train: {lr: .nan}",
    "infinity": b"temperature: .inf",
    "text infinity": b"train: {lr: 'inf'}",
    "negative temperature": b"temperature: -1",
    "too long": b"#" * (1 << 20),
    "two documents": b"a: 1\n---\nb: 2\n",
    "tabs": b"a:\n\t- b",
    "zero bytes": b"a: \0",
    "UTF-16": "seed: 1".encode("utf-16"),
    "not UTF-8": b"a: \xff\xfe\xfa",
    "control characters": b'"\\e[2J\\a": 1',
    "data is a list": b"data: [1]",
    "seed is text": b"seed: one",
    "huge sizes": b"model: {size: [1000000000000, 1000000000000]}",
    "huge channels": b"model: {channels: 1000000000000000000000}",
    "no model": b"model: null",
    "a list": b"- 1",
    "nothing": b"",
}


def documents(name, sound, count):
    """Odd ones, changed ones, and spoilt text."""
    odd = [Input(f"{name}: {what}", content) for what, content in ODD_JSON.items()]
    found = examples(changed(json.loads(sound)), count)
    odd += [Input(f"{name}: {str(d)[:300]}", json.dumps(d).encode()) for d in found]
    return odd + spoilt(name, sound, 60)


LARGE = {
    "wide": {"hidden": [9000]},
    "wider": {"hidden": [65536]},
    "long": {"steps": [[60000]]},
    "longer": {"steps": [[10**9]]},
    "many units": {"units": 60000},
    "a large kernel": {"kernel": [3000, 3001]},
    "a larger kernel": {"kernel": [65535, 65535]},
    "many levels": {"steps": [[1]] * 17, "hidden": [4] * 17, "factors": [2] * 16},
}


@cache
def model_configs():
    found = documents("config.json", CONFIG, 160)
    for name, changes in LARGE.items():
        document = json.loads(CONFIG)
        document["model"]["flow"].update(changes)
        found.append(Input(name, json.dumps(document).encode()))
    return found


@cache
def references():
    falling = json.loads(REFERENCE)
    falling["bits_per_dim"] = falling["bits_per_dim"][::-1]
    falling = Input("falling", json.dumps(falling).encode())
    return [falling, *documents("reference.json", REFERENCE, 80)]


@cache
def original_configs():
    return documents("original config.json", ORIGINAL, 100)


@cache
def run_configs():
    odd = [Input(what, content) for what, content in ODD_YAML.items()]
    found = examples(changed(RUN, JSON | st.dates() | st.binary(max_size=8)), 120)
    odd += [Input(str(d)[:300], yaml.safe_dump(d, allow_unicode=True).encode("utf-8", "replace"))
            for d in found]  # fmt: skip
    return odd + spoilt("config.yaml", yaml.safe_dump(RUN).encode(), 60)


@cache
def temperatures():
    values = [*ODD_YAML.values()]
    values += [f"temperature: {v}".encode() for v in ("hot", "[1]", "-1", "1e400", "true", "{}")]
    return [Input(value[:80].decode("latin1"), value) for value in values]


def refused(answers, names):
    kinds = {answer.name: answer.kind for answer in answers}
    assert {kinds[name] for name in names} == {"refused"}, [
        n for n in names if kinds[n] != "refused"
    ]


def test_model_configurations_are_answered(tmp_path):
    answers = run(attempts.model_config, model_configs(), tmp_path)
    assert_all_answered(answers)
    refused(answers, [*LARGE, *(f"config.json: {name}" for name in ODD_JSON)])


def test_references_are_answered(tmp_path):
    answers = run(attempts.reference, references(), tmp_path)
    assert_all_answered(answers)
    refused(answers, ["falling", *(f"reference.json: {name}" for name in ODD_JSON)])


def test_original_configurations_are_answered(tmp_path):
    answers = run(attempts.original_config, original_configs(), tmp_path)
    assert_all_answered(answers)
    refused(answers, [f"original config.json: {name}" for name in ODD_JSON])


def test_run_configurations_are_answered(tmp_path):
    """A sound one is refused as well, but for its images: they are nowhere."""
    answers = run(attempts.run_config, run_configs(), tmp_path)
    assert_all_answered(answers)
    assert not [a for a in answers if a.name in ODD_YAML and "nowhere" in a.text]


def test_configured_temperatures_are_answered(tmp_path):
    assert_all_answered(run(attempts.run_temperature, temperatures(), tmp_path))
