"""Messages between client and supervisor: lists of requests or replies, within bounds."""

from __future__ import annotations

import msgspec
import pytest

from conveyor_actors.packing import LISTED_MAX, pack, unpack
from conveyor_actors.wire import Ping, Request, decode_request, encode


def taken_apart(messages: list[bytes]) -> list[list[bytes]]:
    return [[bytes(one) for one in unpack(message)] for message in messages]


def test_what_there_is_to_say_goes_as_one_message_in_order() -> None:
    requests = [encode(Request(no, 1, Ping())) for no in range(1, 300)]
    (message,) = pack(requests)
    assert [decode_request(one).no for one in unpack(message)] == list(range(1, 300))
    assert list(pack([])) == []


def test_a_message_holds_a_bounded_number() -> None:
    said = [encode(number) for number in range(2 * LISTED_MAX + 1)]
    parts = taken_apart(list(pack(said)))
    assert [len(part) for part in parts] == [LISTED_MAX, LISTED_MAX, 1]
    assert [one for part in parts for one in part] == said


def test_a_large_one_goes_alone_and_small_ones_share_what_there_is_room_for() -> None:
    small, large = encode(b"x" * 100_000), encode(b"x" * 1_000_000)
    said = [small, small, small, large, small, large, large, small, small]
    parts = taken_apart(list(pack(said)))
    assert [len(part) for part in parts] == [2, 1, 1, 1, 1, 1, 2]
    assert [one for part in parts for one in part] == said


@pytest.mark.parametrize("message", [b"", b"\x90", b"\x01", b"\xc1", encode([1] * (LISTED_MAX + 1)), b"\x92\x01"])
def test_what_is_no_such_list_is_refused(message: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        unpack(message)
