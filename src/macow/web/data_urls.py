"""Pictures as text, as pages and JSON carry them."""

import base64
from io import BytesIO

import numpy as np

from macow.pictures import picture


def png(image: np.ndarray) -> str:
    """An image uint8 `[C, H, W]`."""
    file = BytesIO()
    picture(image).save(file, "png")
    return data_url("image/png", file.getvalue())


def data_url(kind: str, content: bytes) -> str:
    """Any content."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def content_of(url: str) -> bytes:
    """What a data URL of an image holds."""
    head, comma, body = url.partition(",")
    if not comma or not head.startswith("data:image/") or not head.endswith(";base64"):
        raise ValueError("an image must be a data URL: data:image/png;base64,...")
    try:
        return base64.b64decode(body, validate=True)
    except ValueError:
        raise ValueError("an image's data URL is not base64") from None
