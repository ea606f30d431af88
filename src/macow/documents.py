"""JSON and YAML from strangers: small, plain and without surprises, or a `ValueError`."""

import json
import math
import reprlib
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

Config = TypeVar("Config")

MOST_JSON = 1 << 20
MOST_YAML = 1 << 16  # its parser is slow


def read_json(path: Path) -> Any:
    """A JSON document: numbers are finite, no key stands twice."""
    return loads(_text(path, MOST_JSON), str(path))


def loads(text: str, where: str) -> Any:
    """The same of a text."""
    try:
        return json.loads(
            text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_once
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {brief(error)}") from None


def read_yaml(path: Path) -> Any:
    """A YAML document of plain values: no tags of programs, no aliases."""
    text = _text(path, MOST_YAML)
    try:
        return yaml.load(text, _Plain)
    except Exception as error:  # the parser's own errors are not the only ones it raises
        raise ValueError(f"{path} is not YAML: {brief(error)}") from None


class _Plain(yaml.SafeLoader):
    """Does not follow aliases: a few lines of them unfold to billions of values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise ValueError("aliases are not read")
        return super().compose_node(parent, index)


def _text(path: Path, most: int) -> str:
    if path.is_fifo() and not path.is_relative_to("/dev"):  # nobody may ever write to it
        raise ValueError(f"{path}: not a regular file")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{path} is too long for a configuration: more than {most:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text: {error}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def brief(value: object) -> str:
    """A value a stranger chose, short enough for one line of an error."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ", ".join(value[:20])
    text = str(value) if isinstance(value, str | Exception) else reprlib.repr(value)
    return " ".join(text.split())[:200]


def from_dict(kind: type[Config], values: object, where: str = "config") -> Config:
    """Reads a config from JSON's types, strictly: a key or a type that does not fit is named."""
    return _read(kind, values, where)


def _read(kind: Any, value: Any, where: str) -> Any:
    if is_dataclass(kind):
        if not isinstance(value, dict):
            raise ValueError(f"{where} must be an object, got {reprlib.repr(value)}")
        hints = get_type_hints(kind)
        known = {f.name for f in fields(kind)}
        if unknown := sorted(map(str, value.keys() - known)):
            raise ValueError(f"{where} has unknown keys: {brief(unknown)}")
        given = {name: _read(hints[name], item, f"{where}.{name}") for name, item in value.items()}
        try:
            return kind(**given)  # type: ignore[operator]
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: {brief(error)}") from None
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        inner = next(arg for arg in get_args(kind) if arg is not type(None))
        return None if value is None else _read(inner, value, where)
    if origin is Literal:
        if value not in get_args(kind):
            raise ValueError(
                f"{where} must be one of {', '.join(get_args(kind))}, got {reprlib.repr(value)}"
            )
        return value
    if origin is tuple:
        inner, *others = get_args(kind)
        fixed = others != [Ellipsis]
        if not isinstance(value, list | tuple) or (fixed and len(value) != 1 + len(others)):
            size = f"{1 + len(others)} values" if fixed else "values"
            raise ValueError(f"{where} must be a list of {size}, got {reprlib.repr(value)}")
        return tuple(_read(inner, item, f"{where}[{i}]") for i, item in enumerate(value))
    if kind is float and isinstance(value, int | str) and not isinstance(value, bool):
        try:
            value = float(value)  # YAML takes 5e-4 for text
        except (ValueError, OverflowError):
            raise ValueError(f"{where} must be float, got {reprlib.repr(value)}") from None
    if type(value) is not kind or (kind is float and not math.isfinite(value)):
        raise ValueError(f"{where} must be {kind.__name__}, got {reprlib.repr(value)}")
    return value
