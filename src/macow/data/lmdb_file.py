"""LMDB files, read by hand: the library follows what a file says, beyond its end as well."""

import os
import struct
import weakref
from pathlib import Path

HEADER = 16
"""Bytes of a page before its nodes: number, padding, flags, end and start of its free space."""
BRANCH, LEAF = 0x01, 0x02
BIG = 0x01
MAGIC, VERSION = 0xBEEFC0DE, 1
NO_PAGE = (1 << 64) - 1


class LmdbFile:
    """The keys of a `data.mdb` and where their values lie; what is wrong with it is a `ValueError`.

    Pages of a B+ tree are read once each, a value when it is asked for.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        self.places: dict[bytes, tuple[int, int]] = {}
        """Offset and size of the value of each key, in the keys' order."""
        self._page_size, root = self._newest()
        if root != NO_PAGE:
            self._walk(root)

    def value(self, key: bytes) -> bytes:
        """The value of a key; any thread may ask."""
        offset, size = self.places[key]
        return self._read(offset, size)

    def _newest(self) -> tuple[int, int]:
        """The size of a page, and the root of the tree that was written last."""
        found = []
        page_size = 0
        for _ in range(2):  # two pages take turns at describing the tree
            meta = self._read(page_size + HEADER, 136)
            magic, version = struct.unpack_from("<II", meta)
            if magic != MAGIC or version != VERSION:
                raise self._damaged("it is not an lmdb file")
            page_size = page_size or struct.unpack_from("<I", meta, 24)[0]
            if page_size not in (1 << n for n in range(9, 17)):
                raise self._damaged("its pages have no possible size")
            root, _, transaction = struct.unpack_from("<QQQ", meta, 112)
            found.append((transaction, root))
        return page_size, max(found)[1]

    def _walk(self, root: int) -> None:
        waiting, seen = [root], {root}
        while waiting:
            number = waiting.pop()
            page = self._read(number * self._page_size, self._page_size)
            flags, lower = struct.unpack_from("<HH", page, 10)
            if not HEADER <= lower <= self._page_size or flags & ~0x4000 not in (BRANCH, LEAF):
                raise self._damaged(f"page {number} is none of a tree")
            starts = struct.unpack_from(f"<{(lower - HEADER) // 2}H", page, HEADER)
            try:
                nodes = [struct.unpack_from("<HHHH", page, start) for start in starts]
            except struct.error:
                raise self._damaged(f"page {number} is too short for its nodes") from None
            if flags & LEAF:
                for start, node in zip(starts, nodes, strict=True):
                    self._note(number, page, start, node)
                continue
            children = [low | high << 16 | flag << 32 for low, high, flag, _ in nodes]
            if seen & set(children) or len(set(children)) < len(children):
                raise self._damaged("its pages go round in a circle")
            seen.update(children)
            waiting += reversed(children)

    def _note(self, number: int, page: bytes, start: int, node: tuple[int, ...]) -> None:
        low, high, flags, key_size = node
        end, size = start + 8 + key_size, low | high << 16
        offset = number * self._page_size + end
        if flags == BIG and end + 8 <= len(page):
            offset = struct.unpack_from("<Q", page, end)[0] * self._page_size + HEADER
        elif flags or end + size > len(page):
            raise self._damaged(f"a value of page {number} is not where it should be")
        self.places[page[start + 8 : end]] = (offset, size)

    def _read(self, offset: int, size: int) -> bytes:
        whole = os.fstat(self._file).st_size
        if offset + size > whole:
            raise self._damaged(f"it is cut off, or points beyond its end at byte {whole:,}")
        return os.pread(self._file, size, offset)

    def _damaged(self, why: str) -> ValueError:
        return ValueError(f"{self.path} is damaged: {why}")
