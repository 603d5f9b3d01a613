"""Ending a lease, and returning its job to the queue.

Invariant: the record of a leased job on disk still says what it was before; whoever ends the lease writes the job
anew or puts it back into `waiting`.
"""

from __future__ import annotations

from conveyor_actors.engine.memory import Lease
from conveyor_actors.engine.ordering import enqueue
from conveyor_actors.engine.tick import Tick
from conveyor_actors.engine.transitions import move
from conveyor_actors.model import ACTIVE


def release(tick: Tick, lease: Lease) -> None:
    """Ends a lease, whatever comes of its job."""
    memory = tick.memory
    del memory.leases[lease.token], memory.active[lease.number]
    del memory.batches[lease.batch].members[lease.token]
    tick.dirty_batches.add(lease.batch)
    worker = lease.worker
    if worker is not None:
        del worker.leases[lease.token]
        worker.load_us -= lease.estimate_us
        worker.held_bytes -= lease.held_bytes


def put_back(tick: Tick, lease: Lease, trigger: str) -> None:
    """The job returns to its old place in the queue."""
    record = lease.record
    move(record, trigger)
    record.worker = ""
    enqueue(tick, lease.queue, lease.number, record, before=ACTIVE)
