"""Image files that are broken, odd or meant to harm."""

import io
import struct
import zlib
from functools import cache

import attempts
import numpy as np
from generators import spoilt
from PIL import Image
from sandbox import Input, Limits, assert_all_answered, run

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 10, 3), dtype=np.uint8)
RGB = Image.fromarray(PIXELS)
SIXTEEN = Image.fromarray(PIXELS[:, :, 0].astype(np.uint16) * 257)


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def chunk(name, content):
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)


def png(width, height, rows=b"", depth=1, colour=0, more=b""):
    """A PNG by hand, whose header may say anything."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    frame = chunk(b"IHDR", header) + more + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + frame


def zeros(count):
    """That many zero bytes, compressed hundreds to one."""
    packer = zlib.compressobj(1)
    block = bytes(1 << 20)
    parts = [packer.compress(block[: min(1 << 20, count - i)]) for i in range(0, count, 1 << 20)]
    return b"".join([*parts, packer.flush()])


FRAMES = [Image.fromarray(np.roll(PIXELS, i, 0)) for i in range(1, 4)]
SOUND = {
    "png": encoded(RGB, "png"),
    "png grey": encoded(RGB.convert("L"), "png"),
    "png palette": encoded(RGB.quantize(16), "png"),
    "png palette, transparent": encoded(RGB.quantize(16), "png", transparency=b"\x00\x80\xff"),
    "png 1 bit": encoded(RGB.convert("1"), "png"),
    "png alpha": encoded(RGB.convert("RGBA"), "png"),
    "png grey alpha": encoded(RGB.convert("LA"), "png"),
    "png 16 bits": encoded(SIXTEEN, "png"),
    "png animated": encoded(RGB, "png", save_all=True, append_images=FRAMES),
    "jpeg": encoded(RGB, "jpeg"),
    "jpeg CMYK": encoded(RGB.convert("CMYK"), "jpeg"),
    "jpeg grey, progressive": encoded(RGB.convert("L"), "jpeg", progressive=True),
    "gif": encoded(RGB.quantize(16), "gif"),
    "gif animated": encoded(RGB, "gif", save_all=True, append_images=FRAMES),
    "webp": encoded(RGB, "webp"),
    "webp lossless": encoded(RGB, "webp", lossless=True),
    "webp animated": encoded(RGB, "webp", save_all=True, append_images=FRAMES),
    "bmp": encoded(RGB, "bmp"),
    "tiff": encoded(RGB, "tiff"),
    "tiff lzw": encoded(RGB, "tiff", compression="tiff_lzw"),
    "tiff CMYK": encoded(RGB.convert("CMYK"), "tiff"),
    "tiff 16 bits": encoded(SIXTEEN, "tiff"),
    "tiff pages": encoded(RGB, "tiff", save_all=True, append_images=FRAMES),
    "ppm": encoded(RGB, "ppm"),
}
EXIF = [b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12" + tail for tail in (
    b"\x00\x03\x00\x00\x00\x01\x00\x09\x00\x00", b"\x00\x02\x00\x00\x00\x04abc\x00",
    b"\x00\x05\x00\x00\x00\x01\x00\x00\x00\x00", b"\x00\x03\xff\xff\xff\xff\x00\x06\x00\x00", b"",
)]  # fmt: skip
WEBP = b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0"
REFUSED = {
    "bomb, 1 bit": png(40000, 40000, zeros(40000 * 5001)),
    "bomb, grey": png(10000, 10000, zeros(10000 * 10001), 8, 0),
    "bomb, colour": png(9500, 9500, zeros(9500 * (3 * 9500 + 1)), 8, 2),
    "bomb, 16 bits": png(9600, 9600, zeros(9600 * (2 * 9600 + 1)), 16, 0),
    "bomb within the text": png(8, 8, zeros(16), more=chunk(b"zTXt", b"a\0\0" + zeros(200 << 20))),
    "bomb within the profile": png(
        8, 8, zeros(16), more=chunk(b"iCCP", b"a\0\0" + zeros(200 << 20))
    ),
    **{
        f"enormous, {w}x{h}": png(w, h, zeros(1000))
        for w in (1, 65535, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
        for h in (0, 65535, 1 << 20, (1 << 31) - 1, (1 << 32) - 1)
    },
    **{f"no pixels, {w}x{h}": png(w, h, zeros(8)) for w, h in ((0, 0), (0, 8), (8, 0))},
    "gif of 65535x65535": b"GIF89a\xff\xff\xff\xff\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\xff\xff\xff"
    b"\xff\0\2\2D\1\0;",
    "bmp of 2 billion rows": SOUND["bmp"][:22] + b"\xff\xff\xff\x7f" + SOUND["bmp"][26:],
    "bmp of minus 2 billion rows": SOUND["bmp"][:22] + b"\1\0\0\x80" + SOUND["bmp"][26:],
    "ppm of 10^18 pixels": b"P6 1000000000 1000000000 255\n" + bytes(100),
    "ppm with a long number": b"P6 " + b"9" * 5000 + b" 8 255\n" + bytes(300),
    "webp of 16383x16383": WEBP + b"\x2f" + (16382 | 16382 << 14).to_bytes(4, "little") + bytes(8),
    "float tiff": encoded(Image.fromarray(PIXELS[:, :, 0].astype(np.float32)), "tiff"),
    "32-bit tiff": encoded(Image.fromarray(PIXELS[:, :, 0].astype(np.int32)), "tiff"),
    "8 bits in 16": encoded(Image.fromarray(PIXELS[:, :, 0].astype(np.uint16)), "png"),
    "too small": encoded(RGB.resize((7, 8)), "png"),
    "empty": b"",
    "zeros": bytes(4096),
    "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n"
    b"(%pipe%touch executed) (w) file closefile showpage\n%%EOF\n",
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
    "pdf": b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF",
    "html": b"<html><body>404 Not Found</body></html>",
    "a program": b"\x7fELF\2\1\1" + bytes(200),
    "a pickle": b"cos\nsystem\n(S'touch executed'\ntR.",
    "a zip": b"PK\3\4" + bytes(100),
    "fits": b"SIMPLE  =                    T" + b" " * 3000,
    "photoshop": b"8BPS\0\1" + bytes(6) + b"\0\3" + b"\x7f\xff\xff\xff" * 2 + b"\0\x08\0\3",
}


@cache
def inputs():
    found = [Input(name, content) for name, content in {**SOUND, **REFUSED}.items()]
    for i, exif in enumerate(EXIF):
        found += [Input(f"{k} with bad EXIF {i}", encoded(RGB, k, exif=exif))
                  for k in ("jpeg", "png", "webp")]  # fmt: skip
    for name, content in SOUND.items():
        found += spoilt(name, content, 28)
    return found


def test_every_image_is_answered(tmp_path):
    answers = run(attempts.image, inputs(), tmp_path)
    assert_all_answered(answers)
    kinds = {answer.name: answer.kind for answer in answers}
    assert {kinds[name] for name in SOUND} == {"result"}
    assert {kinds[name] for name in REFUSED} == {"refused"}, [
        name for name in REFUSED if kinds[name] != "refused"
    ]


LARGEST = {
    "grey": png(8192, 8192, zeros(8192 * 8193), 8, 0),
    "colour": png(8192, 8192, zeros(8192 * (3 * 8192 + 1)), 8, 2),
    "transparent": png(8192, 8192, zeros(8192 * (4 * 8192 + 1)), 8, 6),
    "16 bits": png(8192, 8192, zeros(8192 * (2 * 8192 + 1)), 16, 0),
}


def test_the_largest_images_take_a_bounded_part_of_memory(tmp_path):
    """Kilobytes that unpack to the most that is decoded at all."""
    inputs = [Input(name, content) for name, content in LARGEST.items()]
    answers = run(attempts.image, inputs, tmp_path, Limits(memory=3 << 29, peak=9 << 27))
    assert_all_answered(answers)
    assert {answer.kind for answer in answers} == {"result"}
