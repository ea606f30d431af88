"""Arrays and archives: npy, npz, tar and lmdb that lie about what they hold."""

import gzip
import io
import tarfile
import zipfile
from functools import cache

import attempts
import lmdb
import numpy as np
from generators import spoilt
from PIL import Image
from sandbox import Input, assert_all_answered, run
from test_pickles import sound_batch

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (2, 3, 8, 8), dtype=np.uint8)
LATENTS = RNG.normal(size=(2, 1, 4, 4)).astype(np.float32)


def npy(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def with_header(text, data=bytes(384), version=(1, 0), length=None):
    """An npy by hand, whose header may say anything."""
    text = text if isinstance(text, bytes) else text.encode()
    size = len(text) if length is None else length
    return (
        b"\x93NUMPY"
        + bytes(version)
        + size.to_bytes(2 if version[0] == 1 else 4, "little")
        + (text + data)
    )


def header(shape="(2, 3, 8, 8)", kind="'|u1'", order="False", more=""):
    return f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, {more}}}\n"


HEADERS = {
    **{f"shape {shape}": header(shape) for shape in (
        "(2, 3, 8, 10**9)", "(10000000000, 3, 8, 8)", f"({2**62}, 3, 8, 8)", f"({2**63}, 8, 8, 8)",
        f"({2**64}, 3, 8, 8)", f"({10**30}, 3, 8, 8)", "(-1, 3, 8, 8)", "(2, 0, 8, 8)",
        "(0, 3, 8, 8)", f"({2**62}, 0, 8, 8)", "(True, 3, 8, 8)", "(2.0, 3, 8, 8)", "('2', 3)",
        "2", "None", "()",
        "(1,) * 99", f"({'1, ' * 40})", f"({'1, ' * 1000})", "[2, 3, 8, 8]", "(3, 8, 8)",
        "(2, 2, 8, 8)", "(2, 4, 8, 6)", "(1, 3, 2, 2)", "(2, 96, 2, 1)",
    )},
    **{f"dtype {kind}": header(kind=kind) for kind in (
        "'|O'", "'O'", "object", "'<f4'", "'>u2'", "'|S0'", "'<U0'", "'<U999999999'", "'|V8'",
        "'c16'", "'M8[s]'", "'|b1'", "[('a', 'O')]", "[('a', '|u1'), ('a', '|u1')]",
        "('|u1', (10**9,))",
        "('|u1', (2, 2))", "'(1000000,1000000)u1'", "''", "None", "7", "'u1,u1,O'", "{'names': []}",
        "'__import__(\"os\").system(\"touch executed\")'",
    )},
    "code": "__import__('os').system('touch executed')",
    "a call": header("__import__('os').system('touch executed')"),
    "order": header(order="'maybe'"),
    "another key": header(more="'wings': 2"),
    "deep parentheses": "(" * 5000,
    "deep minus": header("-" * 9000 + "1"),
    "deep lists": header("[" * 150 + "]" * 150),
    "deep attributes": header("a" + ".b" * 3000),
    "a long number": header("(" + "9" * 9000 + ",)"),
    "not text": b"\xff\xfe\xfd",
    "nothing": "",
    "half": header()[:20],
    "longer than allowed": header(more=" " * 20_000),
}  # fmt: skip


@cache
def arrays():
    found = [Input(name, with_header(text)) for name, text in HEADERS.items()]
    found += [Input(f"{name}, version 2", with_header(text, version=(2, 0)))
              for name, text in HEADERS.items()]  # fmt: skip
    for version in ((0, 0), (3, 0), (4, 0), (255, 255)):
        found.append(Input(f"version {version}", with_header(header(), version=version)))
    for length in (0, 1, 65535):
        found.append(Input(f"length {length}", with_header(header(), length=length)))
    found.append(Input("length 2^32", with_header(header(), version=(2, 0), length=2**32 - 1)))
    found.append(Input("objects", npy(np.array([print, None]), allow_pickle=True)))
    found.append(Input("an npz", npz(data=npy(IMAGES))))
    found.append(Input("a pickle", b"cos\nsystem\n(S'touch executed'\ntR."))
    return found + spoilt("npy", npy(IMAGES), 48)


def npz(compression=zipfile.ZIP_STORED, **members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def lying(content, places):
    """A zip whose directory says something else: (offset from the entry's start, bytes)."""
    start = content.rindex(b"PK\1\2")
    for offset, value in places:
        content = content[: start + offset] + value + content[start + offset + len(value) :]
    return content


def twice(*names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, npy(LATENTS))
    return file.getvalue()


NAMES = {
    "too few": np.array(["a"]),
    "too many": np.array(["a", "b", "c"]),
    "numbers": np.array([1, 2]),
    "bytes": np.array([b"a", b"b"]),
    "one text": np.array("ab"),
    "escaping": np.array(["../../../../tmp/escaped", "/etc/escaped"]),
    "escaping the other way": np.array(["..\\..\\escaped", "C:\\escaped"]),
    "dots": np.array(["..", "."]),
    "nothing": np.array(["", ""]),
    "long": np.array(["x" * 5000, "y" * 300]),
    "odd": np.array(["a\0b", "\x1b[2J\n"]),
    "surrogates": np.array(["\udcff", "\ud800"]),
    "the same": np.array(["a", "a"]),
}
READABLE = ("escaping", "escaping the other way", "dots", "nothing", "long", "odd", "surrogates",
            "the same")  # fmt: skip


@cache
def latents():
    sound, deflated = npy(LATENTS), zipfile.ZIP_DEFLATED
    found = {
        "names missing": npz(latents=sound),
        "compressed": npz(deflated, latents=sound),
        "no latents": npz(other=sound),
        "nothing": npz(),
        "empty file": b"",
        "an npy": sound,
        "a member that escapes": twice("../../escaped.npy", "latents.npy"),
        "an absolute member": twice("/tmp/escaped.npy", "latents.npy"),
        "bzip2": npz(zipfile.ZIP_BZIP2, latents=sound),
        "lzma": npz(zipfile.ZIP_LZMA, latents=sound),
        "bomb": npz(deflated, latents=with_header(
            header(f"({1 << 22}, 1, 4, 4)", "'<f4'"), bytes(1 << 28))),
        "encrypted": lying(npz(latents=sound), [(8, b"\1\0")]),
        "method 99": lying(npz(latents=sound), [(10, b"\x63\0")]),
        "says deflated": lying(npz(latents=sound), [(10, b"\x08\0")]),
        "size of 4 GB": lying(npz(latents=sound), [(20, b"\xff\xff\xff\x7f" * 2)]),
        "unpacked size of 4 GB": lying(npz(deflated, latents=sound), [(24, b"\xff\xff\xff\x7f")]),
        "offset beyond the end": lying(npz(latents=sound), [(42, b"\xff\xff\xff\x7f")]),
        "offset elsewhere": lying(npz(latents=sound), [(42, b"\x07\0\0\0")]),
        "wrong checksum": lying(npz(deflated, latents=sound), [(16, b"\1\2\3\4")]),
        "directory twice": npz(latents=sound) * 2,
        "garbage before": b"x" * 100 + npz(latents=sound),
        "NaN": npz(latents=npy(np.full_like(LATENTS, np.nan))),
        "infinite": npz(latents=npy(np.full_like(LATENTS, np.inf))),
        "beyond what inverts": npz(latents=npy(np.full_like(LATENTS, 3e38))),
        "beyond float32": npz(latents=npy(np.full(LATENTS.shape, 1e300))),
        "other byte order": npz(latents=npy(LATENTS.astype(">f4"))),
        "long doubles": npz(latents=npy(LATENTS.astype(np.longdouble))),
        "halves": npz(latents=npy(LATENTS.astype(np.float16))),
        "integers": npz(latents=npy(LATENTS.astype(int))),
        "complex": npz(latents=npy(LATENTS.astype(complex))),
        "Fortran order": npz(latents=npy(np.asfortranarray(LATENTS))),
        "objects": npz(latents=npy(np.array([print]), allow_pickle=True)),
        "none": npz(latents=npy(LATENTS[:0])),
        "other shape": npz(latents=npy(LATENTS[:, :, :2])),
        **{f"names {k}": npz(latents=sound, names=npy(v)) for k, v in NAMES.items()},
        **{f"names {k}": npz(latents=sound, names=with_header(text))
           for k, text in list(HEADERS.items())[::4]},
        **{f"header {k}": npz(latents=with_header(text)) for k, text in HEADERS.items()},
        **{f"packed header {k}": npz(deflated, latents=with_header(text))
           for k, text in list(HEADERS.items())[::2]},
    }  # fmt: skip
    return [Input(name, content) for name, content in found.items()] + spoilt(
        "latents.npz", npz(latents=sound, names=npy(np.array(["a", "b"]))), 48
    )


@cache
def imagenet_batches():
    rows = npy(RNG.integers(0, 256, (2, 12288), dtype=np.uint8))
    found = [Input(f"header {k}", npz(data=with_header(text))) for k, text in HEADERS.items()]
    return (
        found
        + spoilt("npz", npz(data=rows), 32)
        + spoilt("packed npz", npz(zipfile.ZIP_DEFLATED, data=rows), 32)
    )


def tar(members, **fields):
    """An archive by hand: (name, content, fields of its header)."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content, changes in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for field, value in changes.items():
                setattr(info, field, value)
            archive.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return file.getvalue()


def zeros_after(front, megabytes):
    file = io.BytesIO()
    with gzip.open(file, "wb", compresslevel=1) as packed:
        packed.write(front)
        for _ in range(megabytes):
            packed.write(bytes(1 << 20))
    return file.getvalue()


@cache
def archives():
    batch = sound_batch()
    sound = tar([("cifar-10-batches-py/test_batch", batch, {})])
    huge = tarfile.TarInfo("test_batch")
    huge.size = 1 << 32
    pax = tarfile.TarInfo("pax")
    pax.type, pax.size = tarfile.XHDTYPE, 1 << 32
    long_name = tarfile.TarInfo("name")
    long_name.type, long_name.size = tarfile.GNUTYPE_LONGNAME, 1 << 32
    sparse = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "test_batch",
              "GNU.sparse.realsize": str(1 << 40)}  # fmt: skip
    found = {
        "sound": gzip.compress(sound),
        "not compressed": sound,
        "escaping": tar([("../../../tmp/escaped", b"x", {}), ("../test_batch", batch, {})]),
        "absolute": tar([("/tmp/escaped", b"x", {}), ("/test_batch", batch, {})]),
        "link out": tar(
            [("test_batch", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"})]
        ),
        "hard link out": tar(
            [("test_batch", b"", {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"})]
        ),
        "link to itself": tar(
            [("test_batch", b"", {"type": tarfile.SYMTYPE, "linkname": "test_batch"})]
        ),
        "device": tar([("test_batch", b"", {"type": tarfile.CHRTYPE, "devmajor": 1})]),
        "fifo": tar([("test_batch", b"", {"type": tarfile.FIFOTYPE})]),
        "folder": tar([("test_batch", b"", {"type": tarfile.DIRTYPE})]),
        "sparse": tar([("x", b"1\n0\n1\n" + bytes(505), {"pax_headers": sparse})]),
        "twice": tar([("test_batch", batch, {}), ("x/test_batch", batch, {})]),
        "a bomb": zeros_after(huge.tobuf(), 300),
        "a bomb before": zeros_after(huge.tobuf().replace(b"test_batch", b"tost_batch"), 300),
        "a bomb in a header": zeros_after(pax.tobuf(tarfile.GNU_FORMAT), 300),
        "a bomb in a name": zeros_after(long_name.tobuf(tarfile.GNU_FORMAT), 300),
        "a claim of 4 GB": huge.tobuf() + b"x",
        "a claim in a header": pax.tobuf(tarfile.GNU_FORMAT) + b"x",
        "gzip of nothing": gzip.compress(b""),
        "gzip of gzip": gzip.compress(gzip.compress(sound)),
        "xz": b"\xfd7zXZ\0" + bytes(100),
        "bzip2": b"BZh9" + bytes(100),
        "empty": b"",
        "a zip": npz(latents=npy(LATENTS)),
        "binary rows": tar([("test_batch.bin", bytes(3073), {})]),
        "binary, cut": tar([("test_batch.bin", bytes(3072), {})]),
    }  # fmt: skip
    return (
        [Input(name, content) for name, content in found.items()]
        + spoilt("tar.gz", gzip.compress(sound), 48)
        + spoilt("tar", sound, 48)
    )


@cache
def databases(folder):
    encoded = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(encoded, "webp")
    values = {"image": encoded.getvalue(), "text": b"hello", "nothing": b"", "cut": b"RIFF"}
    with lmdb.open(str(folder), map_size=1 << 20) as database, database.begin(write=True) as change:
        for i, content in enumerate(values.values()):
            change.put(f"{i:040x}".encode(), content)
    sound = (folder / "data.mdb").read_bytes()
    odd = {"sound": sound, "empty": b"", "zeros": bytes(8192), "text": b"hello" * 2000}
    return [Input(name, content) for name, content in odd.items()] + spoilt("data.mdb", sound, 40)


def kinds(answers):
    assert_all_answered(answers)
    return {answer.name: answer.kind for answer in answers}


def test_arrays_are_answered(tmp_path):
    assert kinds(run(attempts.packed, arrays(), tmp_path))["objects"] == "refused"


def test_labels_are_answered(tmp_path):
    assert kinds(run(attempts.packed_labels, arrays(), tmp_path))["objects"] == "refused"


def test_arrays_of_faces_are_answered(tmp_path):
    assert kinds(run(attempts.celebahq, arrays(), tmp_path))["objects"] == "refused"


def test_latents_are_answered(tmp_path):
    answers = run(attempts.latents, latents(), tmp_path)
    found = kinds(answers)
    texts = {answer.name: answer.text for answer in answers}
    assert "Python objects" in texts["header dtype '|O'"]  # before one is made of them
    sound = ["names missing", "compressed", "a member that escapes", "other byte order", "halves",
             "long doubles", "Fortran order", *(f"names {name}" for name in READABLE)]  # fmt: skip
    assert {found[name] for name in sound} == {"result"}, found
    assert {found[n] for n in ("bomb", "NaN", "beyond what inverts", "objects")} == {"refused"}


def test_imagenet_batches_are_answered(tmp_path):
    kinds(run(attempts.imagenet64, imagenet_batches(), tmp_path))


def test_cifar10_archives_are_answered(tmp_path):
    found = kinds(run(attempts.cifar10_archive, archives(), tmp_path))
    sound = ("sound", "not compressed", "escaping", "absolute", "twice", "binary rows")
    assert {found[name] for name in sound} == {"result"}
    odd = [name for name in found if not name.startswith("tar") and name not in sound]
    assert {found[name] for name in odd} == {"refused"}, found


def test_databases_are_answered(tmp_path):
    (tmp_path / "sound").mkdir()
    found = kinds(run(attempts.lsun, databases(tmp_path / "sound"), tmp_path))
    assert found["sound"] == "result"
