"""safetensors whose headers lie."""

import json
import math
import struct
from functools import cache

import attempts
import numpy as np
import torch
from generators import changed, examples, spoilt
from safetensors.torch import save
from sandbox import Input, assert_all_answered, run

torch.manual_seed(0)
SOUND = save(attempts.SMALL.build().state_dict())
LENGTH = struct.unpack("<Q", SOUND[:8])[0]
HEADER = json.loads(SOUND[8 : 8 + LENGTH])
DATA = SOUND[8 + LENGTH :]
FIRST, SECOND, *_ = HEADER
DEEP = next(name for name, entry in HEADER.items() if len({*entry.get("shape", [])}) > 2)
DTYPES = ("BOOL", "U8", "I8", "I16", "U16", "F16", "BF16", "I32", "U32", "F64", "I64", "U64", "F4",
          "F6_E2M3", "F8_E4M3", "F8_E5M2", "F8_E8M0", "C64", "O", "", "f32", None, 7)  # fmt: skip


def with_header(header, data=DATA, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def of(name, **changes):
    return {**HEADER, name: {**HEADER[name], **changes}}


def renamed(before, after):
    return {after if name == before else name: entry for name, entry in HEADER.items()}


def retyped(dtype):
    """A file that is sound but for the type of every weight."""
    header, data = {}, b""
    for name, entry in HEADER.items():
        begin, end = entry["data_offsets"]
        content, kind = DATA[begin:end], entry["dtype"]
        if kind == "F32":
            numpy_type = {"F64": "f8", "F16": "f2", "I32": "i4", "U8": "u1"}[dtype]
            content, kind = np.frombuffer(content, "f4").astype(numpy_type).tobytes(), dtype
        place = [len(data), len(data) + len(content)]
        header[name] = {**entry, "dtype": kind, "data_offsets": place}
        data += content
    return with_header(header, data)


@cache
def inputs():
    begin, end = HEADER[FIRST]["data_offsets"]
    shape = HEADER[FIRST]["shape"]
    headers = {
        "empty": {},
        "a list": [],
        "not JSON": b"{",
        "NUL bytes": bytes(100),
        "deep": b"[" * 100_000,
        "a key twice": json.dumps(HEADER).encode()[:-1] + b"," + json.dumps(HEADER).encode()[1:],
        "metadata of numbers": {**HEADER, "__metadata__": {"a": 1}},
        "metadata is a list": {**HEADER, "__metadata__": []},
        "one missing": {name: entry for name, entry in HEADER.items() if name != FIRST},
        "one more": {**HEADER, "wings": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}},
        "none is known": {f"x{i}": entry for i, entry in enumerate(HEADER.values())},
        "overlapping": of(FIRST, data_offsets=HEADER[SECOND]["data_offsets"]),
        "all at one place": {name: {**e, "data_offsets": [0, 4]} for name, e in HEADER.items()},
        "backwards": of(FIRST, data_offsets=[end, begin]),
        "beyond the end": of(FIRST, data_offsets=[begin, 1 << 60]),
        "negative": of(FIRST, data_offsets=[-4, end]),
        "fractions": of(FIRST, data_offsets=[0.5, 1.5]),
        "three offsets": of(FIRST, data_offsets=[begin, end, end]),
        "no offsets": {**HEADER, FIRST: {"dtype": "F32", "shape": shape}},
        "an unknown field": of(FIRST, wings=2),
        "another order": of(DEEP, shape=HEADER[DEEP]["shape"][::-1]),
        "flat": of(DEEP, shape=[math.prod(HEADER[DEEP]["shape"])]),
        "path as a name": renamed(FIRST, "../../escape"),
        "control characters as a name": renamed(FIRST, "\x1b[2J\n\x07"),
        "a long name": renamed(FIRST, "x" * 100_000),
    }
    for size in (2**31, 2**32, 2**62, 2**63, 2**64 - 1, 2**64, 10**30, -1, 1.5, "4", None):
        headers[f"a shape of {size}"] = of(FIRST, shape=[size])
        headers[f"a shape of {size} twice"] = of(FIRST, shape=[size, size])
        headers[f"a shape of {size} and 0"] = of(FIRST, shape=[size, 0], data_offsets=[0, 0])
    for dtype in DTYPES:
        headers[f"dtype {dtype}"] = of(FIRST, dtype=dtype)
    found = [Input(name, with_header(header)) for name, header in headers.items()]
    for length in (0, 1, LENGTH - 1, LENGTH + 1, len(SOUND), 2**31, 2**32, 2**63, 2**64 - 1):
        text = json.dumps(HEADER).encode()
        found.append(Input(f"length says {length}", with_header(text, length=length)))
    found += [Input(f"retyped {dtype}", retyped(dtype)) for dtype in ("F64", "F16", "I32", "U8")]
    small = {name: HEADER[name] for name in [FIRST, SECOND]}
    for i, header in enumerate(examples(changed(small), 140)):
        found.append(Input(f"header {i}: {str(header)[:200]}", with_header(header)))
        if isinstance(header, dict):
            whole = {**HEADER, **header}
            found.append(Input(f"whole {i}: {str(header)[:200]}", with_header(whole)))
    return found + spoilt("model.safetensors", SOUND, 80)


def test_weights_are_answered(tmp_path):
    answers = run(attempts.model_weights, inputs(), tmp_path)
    assert_all_answered(answers)
    kinds = {answer.name: answer.kind for answer in answers}
    assert kinds["retyped F64"] == "result"
    assert kinds["overlapping"] == kinds["retyped U8"] == kinds["one missing"] == "refused"
