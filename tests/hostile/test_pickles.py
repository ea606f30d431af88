"""Pickles that are programs: read as CIFAR-10 batches and as the authors' checkpoints."""

import io
import os
import pickle
import struct
import zipfile
from functools import cache

import attempts
import numpy as np
import pytest
import torch
from generators import spoilt
from sandbox import Input, assert_all_answered, run

from macow.data import pickles
from macow.data.pickles import ArraysOnly

MARK = "touch executed"
GADGETS = {
    "os.system": (b"os", b"system", MARK),
    "posix.system": (b"posix", b"system", MARK),
    "nt.system": (b"nt", b"system", MARK),
    "os.popen": (b"os", b"popen", MARK),
    "os.remove": (b"os", b"remove", "executed"),
    "os.execlp": (b"os", b"execlp", "true"),
    "os._exit": (b"os", b"_exit", "0"),
    "sys.exit": (b"sys", b"exit", "0"),
    "subprocess.Popen": (b"subprocess", b"Popen", "true"),
    "subprocess.check_output": (b"subprocess", b"check_output", "true"),
    "builtins.eval": (b"builtins", b"eval", "open('executed', 'w').close()"),
    "builtins.exec": (b"builtins", b"exec", "open('executed', 'w').close()"),
    "__builtin__.eval": (b"__builtin__", b"eval", "open('executed', 'w').close()"),
    "__builtin__.execfile": (b"__builtin__", b"execfile", "/etc/passwd"),
    "builtins.open": (b"builtins", b"open", "/etc/passwd"),
    "builtins.__import__": (b"builtins", b"__import__", "antigravity"),
    "builtins.getattr": (b"builtins", b"getattr", "x"),
    "builtins.bytearray": (b"builtins", b"bytearray", 500 << 20),
    "builtins.bytes": (b"builtins", b"bytes", 500 << 20),
    "builtins.range": (b"builtins", b"range", 1 << 33),
    "builtins.list": (b"builtins", b"list", "abc"),
    "copyreg._reconstructor": (b"copyreg", b"_reconstructor", "x"),
    "copyreg.__newobj__": (b"copyreg", b"__newobj__", "x"),
    "copy_reg._reconstructor": (b"copy_reg", b"_reconstructor", "x"),
    "importlib.import_module": (b"importlib", b"import_module", "antigravity"),
    "runpy.run_path": (b"runpy", b"run_path", "/etc/passwd"),
    "webbrowser.open": (b"webbrowser", b"open", "http://localhost"),
    "socket.create_connection": (b"socket", b"create_connection", "localhost"),
    "pty.spawn": (b"pty", b"spawn", "true"),
    "timeit.timeit": (b"timeit", b"timeit", "open('executed', 'w').close()"),
    "code.interact": (b"code", b"interact", "x"),
    "pdb.run": (b"pdb", b"run", "open('executed', 'w').close()"),
    "shutil.rmtree": (b"shutil", b"rmtree", "executed"),
    "pathlib.Path.unlink": (b"pathlib", b"Path.unlink", "executed"),
    "operator.attrgetter": (b"operator", b"attrgetter", "system"),
    "functools.partial": (b"functools", b"partial", "x"),
    "types.CodeType": (b"types", b"CodeType", "x"),
    "ctypes.CDLL": (b"ctypes", b"CDLL", "libc.so.6"),
    "pickle.loads": (b"pickle", b"loads", "cos\nsystem\n."),
    "marshal.loads": (b"marshal", b"loads", "x"),
    "numpy.load": (b"numpy", b"load", "/etc/passwd"),
    "numpy.memmap": (b"numpy", b"memmap", "executed"),
    "numpy.testing runstring": (b"numpy.testing._private.utils", b"runstring", "x"),
    "numpy.f2py": (b"numpy.f2py.crackfortran", b"myeval", "open('executed', 'w').close()"),
    "numpy.distutils": (b"numpy.distutils.exec_command", b"exec_command", MARK),
    "numpy.frombuffer": (b"numpy", b"frombuffer", "abc"),
    "numpy.zeros": (b"numpy", b"zeros", 1 << 33),
    "numpy.ones": (b"numpy", b"ones", 500 << 20),
    "numpy.ndarray": (b"numpy", b"ndarray", 1 << 40),
    "numpy.dtype": (b"numpy", b"dtype", "O"),
    "torch.load": (b"torch", b"load", "/etc/passwd"),
    "torch.hub.load": (b"torch.hub", b"load", "x"),
    "torch.storage": (b"torch.storage", b"_load_from_bytes", "x"),
    "torch.ones": (b"torch", b"ones", 500 << 20),
    "torch.Tensor": (b"torch", b"Tensor", 1 << 33),
    "torch.compile": (b"torch.jit", b"load", "/etc/passwd"),
    "torch rebuild": (b"torch._utils", b"_rebuild_tensor_v2", "x"),
    "torch rebuild, sparse": (b"torch._utils", b"_rebuild_sparse_tensor", "x"),
    "_codecs.encode": (b"_codecs", b"encode", "x"),
    "_codecs.decode": (b"_codecs", b"decode", "x"),
    "collections.Counter": (b"collections", b"Counter", "x"),
    "collections.OrderedDict": (b"collections", b"OrderedDict", "x"),
    "asyncio": (b"asyncio.unix_events", b"_UnixSubprocessTransport._start", "x"),
    "logging.config": (b"logging.config", b"listen", 9030),
    "lib2to3 driver": (b"lib2to3.pgen2.grammar", b"Grammar.loads", "x"),
    "idlelib": (b"idlelib.pyshell", b"ModifiedInterpreter.runcode", "x"),
    "pip": (b"pip", b"main", "install"),
    "macow itself": (b"macow.cli", b"main", "x"),
    "nothing such": (b"no.such.module", b"wings", "x"),
    "dunder": (b"builtins", b"object.__subclasses__", "x"),
}


def text(value):
    if isinstance(value, int):
        return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def called(module, name, argument):
    """The calls as each way of calling writes them."""
    yield "REDUCE", b"c" + module + b"\n" + name + b"\n" + text(argument) + b"\x85R"
    yield "NEWOBJ", b"c" + module + b"\n" + name + b"\n" + text(argument) + b"\x85\x81"
    yield (
        "STACK_GLOBAL",
        (text(module.decode()) + text(name.decode()) + b"\x93" + text(argument) + b"\x85R"),
    )
    yield "INST", b"(" + text(argument) + b"i" + module + b"\n" + name + b"\n"
    yield "OBJ", b"(c" + module + b"\n" + name + b"\n" + text(argument) + b"o"
    yield "BUILD", b"c" + module + b"\n" + name + b"\n}" + text("x") + text(argument) + b"sb"


def entry(key, value):
    return b"}" + key + value + b"s"


BOMBS = {
    "memo of 4 billion": b"\x80\x02]r\xff\xff\xff\xff.",
    "memo of 200 million": b"\x80\x02]r\xff\xff\xff\x0b.",
    "memo of 29 million": b"\x80\x02]r\x00\x00\xc0\x01.",
    "text memo": b"\x80\x02]p99999999999999999999\n.",
    "bytes of 2^62": b"\x80\x05\x8e" + struct.pack("<Q", 1 << 62) + b"x.",
    "bytes of 2^64": b"\x80\x05\x8e" + struct.pack("<Q", (1 << 64) - 1) + b"x.",
    "bytes of 4 billion": b"\x80\x03B\xff\xff\xff\xffx.",
    "text of 2^62": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"x.",
    "text of 4 billion": b"\x80\x02X\xff\xff\xff\xffx.",
    "bytearray of 2^40": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"x.",
    "frame of 2^62": b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"].",
    "long of 2 billion bytes": b"\x80\x02\x8b\xff\xff\xff\x7fx.",
    "long of minus 1 byte": b"\x80\x02\x8b\xff\xff\xff\xffx.",
    "a long decimal": b"I" + b"9" * 100_000 + b"\n.",
    "a long long": b"L" + b"9" * 100_000 + b"L\n.",
    "deep lists": b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
    "deep tuples": b"\x80\x02)" + b"\x85" * 100_000 + b".",
    "doubling tuples": b"\x80\x02)" + b"2\x86" * 2000 + b".",
    "marks": b"(" * 100_000 + b".",
    "nothing on the stack": b"\x80\x02R.",
    "pops": b"0" * 100 + b".",
    "persistent id": b"Pos.system\n.",
    "binary persistent id": b"\x80\x02" + text("os.system") + b"Q.",
    "extension 1": b"\x80\x02\x82\x01.",
    "extension 4": b"\x80\x02\x84\xff\xff\xff\x7f.",
    "next buffer": b"\x80\x05\x97.",
    "protocol 99": b"\x80\x63].",
    "loop": b"\x80\x02]q\x00h\x00a.",
    "unhashable key": b"\x80\x02}]]s.",
    "empty": b"",
    "no stop": b"\x80\x02]",
}


def torch_file(pickled, **records):
    """What torch.save writes around a pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
        for name, content in records.items():
            archive.writestr(f"archive/data/{name[1:]}", content)
    return file.getvalue()


def legacy_file(pickled):
    front = [torch.serialization.MAGIC_NUMBER, torch.serialization.PROTOCOL_VERSION, {}]
    return b"".join(pickle.dumps(part, protocol=2) for part in front) + pickled + b"\x80\x02]."


def sound_batch(protocol=2):
    rows = np.random.default_rng(0).integers(0, 256, (2, 3072), dtype=np.uint8)
    return pickle.dumps({b"data": rows, b"labels": [3, 4]}, protocol=protocol)


def batch_with(data=None, labels=None):
    rows = np.zeros((2, 3072), np.uint8) if data is None else data
    batch = {b"data": rows, b"labels": [3, 4] if labels is None else labels}
    return pickle.dumps(batch, protocol=2)


ODD_BATCHES = {
    "objects": batch_with(np.array([[None] * 3072] * 2)),
    "floats": batch_with(np.zeros((2, 3072))),
    "a structure": batch_with(np.zeros((2, 3072), [("a", "u1")])),
    "other rows": batch_with(np.zeros((2, 3071), np.uint8)),
    "more labels": batch_with(labels=[1, 2, 3]),
    "labels of text": batch_with(labels=["a", "b"]),
    "labels too large": batch_with(labels=[1000, -1]),
    "labels nested": batch_with(labels=[[1], [2, 3]]),
    "labels of nothing": batch_with(labels=None) and batch_with(labels=[None, None]),
    "labels are a dict": batch_with(labels={1: 2}),
    "data is a list": batch_with([1, 2]),
    "data is text": batch_with("data"),
    "no dict": pickle.dumps([1, 2], protocol=2),
    "shape of 2^60": sound_batch().replace(b"K\x02M\x00\x0c\x86", b"\x8a\x08" + b"\0" * 7 + b"\x10"
                                           b"M\x00\x0c\x86"),
    "slow codec": b"\x80\x02" + entry(
        b"C\x04data", b"c_codecs\nencode\n" + text("a." * 50_000) + text("idna") + b"\x86R")
    + b".",
}  # fmt: skip


@cache
def cifar10_batches():
    found = [Input(name, content) for name, content in {**BOMBS, **ODD_BATCHES}.items()]
    for name, gadget in GADGETS.items():
        for way, code in called(*gadget):
            found.append(Input(f"{name} by {way}", b"\x80\x02" + code + b"."))
        code = next(called(*gadget))[1]
        nested = entry(b"C\x04data", code)
        found.append(Input(f"{name}, nested", b"\x80\x02" + nested + b"."))
        reconstructed = b"cnumpy.core.multiarray\n_reconstruct\n(" + code + b"tR"
        found.append(Input(f"{name} by _reconstruct", b"\x80\x02" + reconstructed + b"."))
    return found + spoilt("test_batch", sound_batch(), 100)


@cache
def original_checkpoints():
    sound = (attempts.FIXTURE / "model.pt").read_bytes()
    found = []
    for name, content in BOMBS.items():
        found.append(Input(f"{name}, zip", torch_file(content)))
        found.append(Input(f"{name}, legacy", legacy_file(content)))
        found.append(Input(f"{name}, bare", content))
    for name, gadget in GADGETS.items():
        for way, code in called(*gadget):
            found.append(Input(f"{name} by {way}", torch_file(b"\x80\x02" + code + b".")))
        code = b"\x80\x02" + next(called(*gadget))[1] + b"."
        found.append(Input(f"{name}, legacy", legacy_file(code)))
    found += [Input(name, content) for name, content in storages().items()]
    return found + spoilt("model.pt", sound, 40)


def storages():
    """State dicts whose storages are not what they say."""

    def rebuilt(numel, size, stride, offset=0, kind="FloatStorage"):
        storage = b"(" + text("storage") + b"ctorch\n" + kind.encode() + b"\n" + text("0")
        storage += text("cpu") + text(numel) + b"tQ"
        view = storage + text(offset) + text(size) + b"\x85" + text(stride) + b"\x85\x89"
        ordered = b"ccollections\nOrderedDict\n)R"
        tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + view + ordered + b"tR"
        return b"\x80\x02}" + text("flow.x") + tensor + b"s."

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("archive/data.pkl", rebuilt(1 << 26, 1 << 26, 1))
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/data/0", bytes(1 << 28))
    escaping = io.BytesIO(torch_file(rebuilt(1, 1, 1), _0=bytes(4)))
    with zipfile.ZipFile(escaping, "a") as archive:
        archive.writestr("../../escaped", "x")
        archive.writestr("/tmp/escaped", "x")
    return {
        "a storage of 2^60": torch_file(rebuilt(1 << 60, 1 << 60, 1), _0=bytes(4)),
        "a storage too short": torch_file(rebuilt(100, 100, 1), _0=bytes(4)),
        "a storage missing": torch_file(rebuilt(1, 1, 1)),
        "a view beyond its storage": torch_file(rebuilt(1, 1000, 1), _0=bytes(4)),
        "a view of 2^40 equal values": torch_file(rebuilt(1, 1 << 40, 0), _0=bytes(4)),
        "an offset beyond its storage": torch_file(rebuilt(1, 1, 1, 1 << 40), _0=bytes(4)),
        "negative strides": torch_file(rebuilt(4, 4, -1), _0=bytes(16)),
        "a kind that is none": torch_file(rebuilt(1, 1, 1, kind="WingStorage"), _0=bytes(4)),
        "compressed hundreds to one": packed.getvalue(),
        "members that escape": escaping.getvalue(),
    }


def test_cifar10_batches_run_nothing(tmp_path):
    answers = run(attempts.cifar10_batch, cifar10_batches(), tmp_path)
    assert_all_answered(answers)
    assert not [a.name for a in answers if a.kind == "result" and not a.name.startswith("test_b")]


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_sound_batches_are_read(protocol, tmp_path):
    assert attempts.cifar10_batch(tmp_path, sound_batch(protocol)) == 2


@pytest.mark.parametrize("asked", [b"_codecs\nencode", b"numpy\ndtype", b"numpy\nndarray",
                                   b"numpy._core.multiarray\n_reconstruct"])  # fmt: skip
def test_what_stands_for_arrays_cannot_be_changed(asked):
    """A pickle can set attributes of what it is given, also of classes."""
    for state in (b"N}" + text("x") + text("y") + b"s\x86", b"}" + text("x") + text("y") + b"s"):
        unpickler = ArraysOnly(io.BytesIO(b"\x80\x02c" + asked + b"\n" + state + b"b."))
        with pytest.raises((TypeError, pickle.UnpicklingError)):
            unpickler.load()
    for stand_in in (pickles._Array, pickles._Nothing, pickles._Latin1):
        assert not hasattr(stand_in, "x")


def test_original_checkpoints_run_nothing(tmp_path):
    answers = run(attempts.original_weights, original_checkpoints(), tmp_path)
    assert_all_answered(answers)
    assert not [a.name for a in answers if a.kind == "result" and not a.name.startswith("model.pt")]


def test_the_gadgets_are_live(tmp_path, monkeypatch):
    """What is refused above does harm where pickles are trusted."""
    monkeypatch.chdir(tmp_path)
    for way, code in called(*GADGETS["builtins.exec"]):
        if way not in ("BUILD", "NEWOBJ"):  # those need a class
            (tmp_path / "executed").unlink(missing_ok=True)
            pickle.loads(b"\x80\x04" + code + b".")
            assert os.path.exists("executed"), way
