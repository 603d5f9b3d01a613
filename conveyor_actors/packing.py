"""Things that were encoded one by one as one list, and such a list taken apart, without decoding any of them.

Between client and supervisor a message is a list of requests, or of replies: whatever there was to say at that moment.
A worker's outcomes are one too. Knows nothing of what is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Final

import msgspec

#: What one message holds: so many requests or replies, and no more bytes than this unless one of them alone has more.
LISTED_MAX: Final = 1_024
_LISTED_BYTES_MAX: Final = 256 * 1024
#: The first byte of a list made by `join` tells it from every other message of a worker.
LIST_MARK: Final = 0xDD


def join(count: int, encoded: bytes) -> bytes:
    """Things that were encoded one by one and stand one behind the other, as a list."""
    return bytes((LIST_MARK,)) + count.to_bytes(4, "big") + encoded


def pack(encoded: Sequence[bytes]) -> Iterable[bytes]:
    """Requests or replies that were encoded one by one, as messages: as few as their bounds allow."""
    return (join(1, encoded[0]),) if len(encoded) == 1 else _packed(encoded)


def _packed(encoded: Sequence[bytes]) -> Iterator[bytes]:
    begin = size = 0
    for index, one in enumerate(encoded):
        if size and (size + len(one) > _LISTED_BYTES_MAX or index - begin == LISTED_MAX):
            yield join(index - begin, b"".join(encoded[begin:index]))
            begin, size = index, 0
        size += len(one)
    if size:
        yield join(len(encoded) - begin, b"".join(encoded[begin:]))


#: Takes a message apart: what is in it, still encoded.
unpack: Final[Callable[[bytes], list[msgspec.Raw]]] = msgspec.msgpack.Decoder(
    Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, max_length=LISTED_MAX)]
).decode
