"""Tar archives, decoded member by member.

The bytes of members are searched as part of the archive. Each member is also a content of its own,
because only then are containers inside it recognised.
"""

from __future__ import annotations

from typing import Final

from clawblox.checkpoint.secrets.containers.decoder import EntryDecoder, OuterContent

BLOCK: Final = 512
_CHECKSUM: Final = slice(148, 156)
_FILES: Final = b"\0" + b"07S"


def is_tar_header(block: bytes) -> bool:
    """Return whether a block is the header of a member, by its checksum."""
    if len(block) < BLOCK or not block[0]:
        return False
    digits = block[_CHECKSUM].strip(b" \0")
    if not digits or digits.translate(None, b"01234567"):
        return False
    unsigned = sum(block[:148]) + sum(block[156:BLOCK]) + 8 * ord(" ")
    return int(digits, 8) == unsigned


class TarDecoder(EntryDecoder):
    """Decodes the members of a tar archive.

    Args:
        outer: The content that the archive is in.
        where: Suffix for the names of members.
    """

    def __init__(self, outer: OuterContent, where: str = "") -> None:
        super().__init__(outer, where)
        self._block = b""
        self._is_ending = False  # two blocks of NULs end an archive
        self._left = 0  # bytes of the member
        self._padding = 0  # bytes after it

    def feed(self, data: bytes) -> bytes | None:
        """Take the next bytes; return those after the last block, None while it continues.

        Raises:
            Refusal: Too many containers are inside one another.
        """
        while data:
            if self._left or self._padding:
                data = self._read(data)
                continue
            missing = BLOCK - len(self._block)
            self._block += data[:missing]
            data = data[missing:]
            if len(self._block) < BLOCK:
                return None
            block, self._block = self._block, b""
            if is_tar_header(block):
                self._open(block)
            elif self._is_ending or any(block):
                return data if self._is_ending else block + data
            self._is_ending = not any(block)
        return None

    def _read(self, data: bytes) -> bytes:
        piece, data = data[: self._left], data[self._left :]
        self._left -= len(piece)
        if self._entry:
            self._entry.feed(piece)
            if not self._left:
                self.close()
        skipped = min(self._padding, len(data)) if not self._left else 0
        self._padding -= skipped
        return data[skipped:]

    def _open(self, block: bytes) -> None:
        self._left = _number(block[124:136])
        self._padding = -self._left % BLOCK
        if self._left and block[156] in _FILES:
            self._entry = self._outer.spawn(_name(block) + self._where)


def _number(field: bytes) -> int:
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    return 0 if digits.translate(None, b"01234567") or not digits else int(digits, 8)


def _name(block: bytes) -> str:
    parts = [block[:100]]
    if block[257:262] == b"ustar" and block[345]:
        parts.insert(0, block[345:500])
    return "/".join(part.split(b"\0")[0].decode(errors="replace") for part in parts)
