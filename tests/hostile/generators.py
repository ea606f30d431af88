"""Ways to spoil things, seeded: the same inputs on every machine."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandbox import Input

Value = TypeVar("Value")
EDGES = (0, 1, 0x7F, 0x80, 0xFF)


def examples(strategy: st.SearchStrategy[Value], count: int) -> list[Value]:
    """What hypothesis thinks of, the same every time."""
    found: list[Value] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: Value) -> None:
        found.append(value)

    collect()
    return found


def truncated(content: bytes, count: int) -> Iterator[tuple[str, bytes]]:
    """Cut off: at nothing, within the header, evenly, one byte short."""
    places = {0, 1, 4, 16, len(content) - 1, *range(0, len(content), len(content) // count + 1)}
    for place in sorted(places)[: count + 5]:
        yield f"cut at {place}", content[:place]


def flipped(content: bytes, count: int, seed: str, first: int | None = None) -> Iterator[Any]:
    """Single bytes replaced, anywhere or among the first ones."""
    rng = random.Random(seed)
    for _ in range(count):
        place = rng.randrange(min(len(content), first or len(content)))
        value = rng.choice([*EDGES, content[place] ^ (1 << rng.randrange(8))])
        yield f"byte {place} is {value}", content[:place] + bytes([value]) + content[place + 1 :]


def shuffled(content: bytes, count: int, seed: str) -> Iterator[tuple[str, bytes]]:
    """Stretches of bytes removed, doubled, zeroed or made random."""
    rng = random.Random(seed)
    for _ in range(count):
        start = rng.randrange(len(content))
        stop = min(len(content), start + rng.choice([1, 4, 16, 256]))
        part = content[start:stop]
        changes: dict[str, bytes] = {
            "removed": b"",
            "doubled": part + part,
            "zeroed": bytes(len(part)),
            "random": rng.randbytes(len(part)),
        }
        how = rng.choice([*changes])
        yield f"{start}:{stop} {how}", content[:start] + changes[how] + content[stop:]


def spoilt(name: str, content: bytes, count: int) -> list[Input]:
    """One sound file, spoilt in every way, about `count` times."""
    each = max(1, count // 4)
    ways = [
        *truncated(content, each),
        *flipped(content, each, f"anywhere {name}"),
        *flipped(content, each, f"header {name}", 64),
        *shuffled(content, each, f"stretch {name}"),
    ]
    return [Input(f"{name}, {how}", changed) for how, changed in ways]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, -1, 2**31, 2**63, 2**64, 10**30, 1.5, -0.0, 1e308])
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["macow", "glow", "NaN", "1e999", "../x", "\x00", "\x1b[2J"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)


def changed(document: Any, changes: st.SearchStrategy[Any] = JSON) -> st.SearchStrategy[Any]:
    """A document with one place replaced, removed or added to."""
    places = [*_places(document)]

    @st.composite
    def spoil(draw: Callable[..., Any]) -> Any:
        result = json.loads(json.dumps(document))
        place = draw(st.sampled_from(places))
        value = draw(changes)
        if not place:
            return value
        inside = result
        for key in place[:-1]:
            inside = inside[key]
        how = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add"]))
        if how == "replace":
            inside[place[-1]] = value
        elif how == "remove":
            del inside[place[-1]]
        elif isinstance(inside, list):
            inside.insert(place[-1], value)
        else:
            inside[draw(st.text(max_size=6))] = value
        return result

    return spoil()


def _places(document: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield before
    items = document.items() if isinstance(document, dict) else ()
    items = enumerate(document) if isinstance(document, list) else items
    for key, value in items:
        yield from _places(value, (*before, key))
