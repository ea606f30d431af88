"""Image files from strangers: nothing they say of themselves is believed."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from PIL import Image, UnidentifiedImageError

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
"""What is read. Pillow knows more, but hands some of them (PostScript) to other programs."""
MOST_PIXELS = 1 << 26
"""8192 x 8192: what claims to be larger is refused before memory is taken for it."""


@contextmanager
def image_file(source: Path | bytes, most_pixels: int = MOST_PIXELS) -> Iterator[Image.Image]:
    """An image to decode within the context; whatever goes wrong there is a `ValueError`."""
    try:
        if isinstance(source, Path) and source.exists() and not source.is_file():
            raise ValueError("not a regular file")  # a pipe would be waited for
        file = source if isinstance(source, Path) else BytesIO(source)
        with Image.open(file, formats=FORMATS) as image:
            if image.width * image.height > most_pixels:
                raise ValueError(
                    f"{image.width}x{image.height} is more than {most_pixels:,} pixels"
                )
            yield image
    except FileNotFoundError:
        raise ValueError("no such file") from None
    except UnidentifiedImageError:
        raise ValueError("not an image") from None
    except MemoryError:
        raise ValueError("more than fits into memory") from None
    except Exception as error:  # a decoder of broken files raises anything
        said = (isinstance(error, OSError) and error.strerror) or str(error)
        raise ValueError(" ".join(said.split()) or type(error).__name__) from None


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Width and height as it is meant to be looked at."""
    turned = image.getexif().get(0x0112)
    lies = isinstance(turned, int) and 5 <= turned <= 8
    return (image.height, image.width) if lies else image.size
