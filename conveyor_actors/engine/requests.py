"""Clients' requests: each is answered once, and a change that is sent again is answered from the record.

Invariant: the reply to a change is stored in the transaction that makes the change.
"""

from __future__ import annotations

from typing import Any

from conveyor_actors.engine import reading
from conveyor_actors.engine.adding import add_jobs, check_name
from conveyor_actors.engine.dispatching import recall_queue
from conveyor_actors.engine.inputs import ClientSays
from conveyor_actors.engine.memory import Client
from conveyor_actors.engine.tick import Tick
from conveyor_actors.errors import BY_NAME, ConveyorError, CorruptRecord, InternalError, ProtocolError
from conveyor_actors.store import tables as t
from conveyor_actors.store.tables import FORGET_CLIENT, number_key
from conveyor_actors.wire import (
    MUTATIONS,
    UNANSWERED_REQUESTS_MAX,
    AddJobs,
    Done,
    GetCounts,
    GetHistory,
    GetJobs,
    GetQueues,
    ListJobs,
    ReadEvents,
    Refused,
    ReplyBody,
    SetPaused,
    WaitJobs,
    encode,
    encode_reply,
)

CLIENT_KEPT_MS = 24 * 3600 * 1000
#: Beyond that, clients are read from their table when they come again.
_CLIENTS_IN_MEMORY_MAX = 10_000


def answer(tick: Tick, said: ClientSays) -> None:
    """Carries out a request, or repeats the answer it got before."""
    if not isinstance(said.body, MUTATIONS):
        _reply(tick, said, encode(_carry_out(tick, said)))
        return
    client = _client(tick, said.client)
    known = client.replies.get(said.no)
    if known is None and said.no < client.low:  # a late copy, from a connection that was given up
        known = encode(Refused(ProtocolError.__name__, f"request {said.no} was answered before"))
    if known is None:
        low = max(client.low, min(said.low, said.no))
        replies = {no: reply for no, reply in client.replies.items() if no >= low}
        if len(replies) >= UNANSWERED_REQUESTS_MAX:
            told = f"{len(replies)} replies are kept for this client already: say with `low` which of them arrived"
            _reply(tick, said, encode(Refused(ProtocolError.__name__, told)))
            return
        known = encode(_carry_out(tick, said))
        client.low, client.replies = low, replies
        client.replies[said.no] = known
        client.seen_ms = tick.now_ms
        tick.dirty_clients.add(said.client)
        if not client.stored:
            client.stored = True
            tick.tables.timers.put(t.timer_key(tick.now_ms + CLIENT_KEPT_MS, FORGET_CLIENT, said.client), b"")
    _reply(tick, said, known)


def refuse(tick: Tick, said: ClientSays, message: str) -> None:
    """The answer to a request that could not be carried out because of a defect of ours."""
    _reply(tick, said, encode(Refused(InternalError.__name__, message)))


def _reply(tick: Tick, said: ClientSays, body: bytes) -> None:
    tick.effects.replies.append((said.route, encode_reply(said.no, body)))


def _carry_out(tick: Tick, said: ClientSays) -> ReplyBody:
    try:
        reply: ReplyBody = _ANSWERS[type(said.body)](tick, said)
        return reply
    except ConveyorError as error:
        # A change that meets damage in the middle must not be kept by halves: the whole tick is done again without it.
        half_done = isinstance(error, CorruptRecord) and isinstance(said.body, MUTATIONS)
        if type(error).__name__ not in BY_NAME or isinstance(error, InternalError) or half_done:
            raise
        return Refused(type(error).__name__, str(error))


def _client(tick: Tick, id: int) -> Client:
    clients = tick.memory.clients
    client = clients.get(id)
    if client is None:
        sealed = tick.tables.requests.get(number_key(id))
        if sealed is None:
            client = Client(tick.now_ms, {}, 0, False)
        else:
            record = t.read_requests(sealed)
            client = Client(record.seen_ms, record.replies, record.low, True)
        if len(clients) >= _CLIENTS_IN_MEMORY_MAX:
            for other in clients.keys() - tick.dirty_clients:
                del clients[other]
        clients[id] = client
    return client


def forget_client(tick: Tick, id: int) -> None:
    """Drops the replies of a client that has been silent for a day."""
    client = _client(tick, id)
    if client.seen_ms + CLIENT_KEPT_MS > tick.now_ms:
        tick.tables.timers.put(t.timer_key(client.seen_ms + CLIENT_KEPT_MS, FORGET_CLIENT, id), b"")
        return
    tick.tables.requests.delete(number_key(id))
    tick.dirty_clients.discard(id)
    del tick.memory.clients[id]


def _set_paused(tick: Tick, request: SetPaused) -> Done:
    check_name("queue", request.queue)
    queue = tick.queue(request.queue)
    if queue.paused != request.paused:
        queue.paused = request.paused
        tick.save_queue(queue)
        tick.emit_other("paused" if request.paused else "resumed", queue.name)
        if request.paused:
            recall_queue(tick, queue)
    return Done()


#: What each request is answered with. Those about the host (info, workers, ping, stop) are answered by the shell.
_ANSWERS: dict[type, Any] = {
    AddJobs: lambda tick, said: add_jobs(tick, said.body),
    SetPaused: lambda tick, said: _set_paused(tick, said.body),
    GetJobs: lambda tick, said: reading.get_jobs(tick, said.body),
    WaitJobs: lambda tick, said: reading.wait_jobs(tick, said.route, said.body),
    ListJobs: lambda tick, said: reading.list_jobs(tick, said.body),
    GetHistory: lambda tick, said: reading.history(tick, said.body),
    GetCounts: lambda tick, said: reading.counts(tick, said.body),
    GetQueues: lambda tick, said: reading.queues(tick),
    ReadEvents: lambda tick, said: reading.read_events(tick, said.body),
}
