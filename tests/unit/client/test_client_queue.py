"""A queue: adding one or many, reading by pages, pausing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from beside import Clock
from fake_supervisor import FakeSupervisor

from conveyor_actors import Conveyor, InvalidOption, InvalidPayload, Queue, StoreFull, exponential, handler, wire
from conveyor_actors.client import queue as queue_module


class Resize(msgspec.Struct):
    path: str
    width: int = 640


@handler("client-test-resize", queue="images")
def resize(data: Resize) -> None: ...


@handler("client-test-anywhere")
def anywhere(data: int) -> None: ...


@pytest.fixture
def images(conveyor: Conveyor) -> Queue:
    return conveyor.queue("images")


def added(fake: FakeSupervisor) -> list[list[wire.NewJob]]:
    return [body.jobs for body in fake.store.carried_out if isinstance(body, wire.AddJobs)]


# -- one ----------------------------------------------------------------------------------------------------


def test_options_travel_as_they_were_checked(fake: FakeSupervisor, images: Queue) -> None:
    images.add("resize", {"a": 1}, id="x", delay="2s", priority=-5, lifo=True, attempts=3, backoff=exponential("1s"))
    ((new,),) = added(fake)
    assert (new.name, new.id, new.delay_ms, new.priority, new.lifo) == ("resize", "x", 2000, -5, True)
    assert new.options is not None and new.options.attempts == 3 and new.options.backoff == exponential("1s")


@pytest.mark.parametrize(
    ("arguments", "options", "field"),
    [
        (("resize",), {"prioritty": 1}, "prioritty"),
        (("resize",), {"delay": "soon"}, "delay"),
        (("resize",), {"id": "123"}, "id"),
        (("",), {}, "name"),
        (("a/b",), {}, "name"),
        ((7,), {}, "name"),
        ((len,), {}, "name"),
    ],
)
def test_what_is_invalid_is_refused_before_anything_is_connected(
    url: str, arguments: tuple[Any, ...], options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidOption, match=field):
        Conveyor(url).queue("images").add(*arguments, **options)


def test_a_queue_needs_a_name(conveyor: Conveyor) -> None:
    for name in ("", "a/b", "a:b", "x" * 201, None):
        with pytest.raises(InvalidOption, match="queue"):
            conveyor.queue(name)  # type: ignore[arg-type]


def test_a_handler_object_gives_its_name_and_checks_the_data(fake: FakeSupervisor, images: Queue) -> None:
    assert images.add(resize, {"path": "a.jpg"}).name == "client-test-resize"
    assert images.add(resize, Resize("b.jpg")).data == {"path": "b.jpg", "width": 640}
    assert images.add(anywhere, 5).name == "client-test-anywhere"
    with pytest.raises(InvalidPayload, match=r"client-test-resize.*width"):
        images.add(resize, {"path": "a.jpg", "width": "wide"})
    assert len(added(fake)) == 3


def test_a_handler_of_another_queue_is_refused(conveyor: Conveyor) -> None:
    with pytest.raises(InvalidOption, match="'images'"):
        conveyor.queue("videos").add(resize, {"path": "a.jpg"})


def test_conveyor_add_uses_the_handlers_queue(fake: FakeSupervisor, conveyor: Conveyor) -> None:
    assert conveyor.add(resize, {"path": "a.jpg"}, priority=2).ref == "images/1"
    for nothing in (anywhere, len, "resize"):
        with pytest.raises(InvalidOption, match=r"conveyor.queue\(...\).add"):
            conveyor.add(nothing, 1)  # type: ignore[arg-type]


def test_data_that_is_too_large_is_told_with_figures(start: Callable[..., Any], connect: Callable[..., Any]) -> None:
    fake = start(max_payload=1000)
    images = connect().queue("images")
    with pytest.raises(InvalidPayload, match=r"1003 bytes .*max_payload is 1000"):
        images.add("resize", b"x" * 1000)
    with pytest.raises(InvalidPayload, match="max_payload"):
        images.add_many([("resize", 1), ("resize", b"x" * 1000)])
    images.add("resize", b"x" * 900)
    assert len(added(fake)) == 1


def test_data_that_cannot_be_sent_names_the_path(images: Queue) -> None:
    with pytest.raises(InvalidPayload, match=r'data\["files"\]\[1\]'):
        images.add("resize", {"files": [1, object()]})


# -- many ---------------------------------------------------------------------------------------------------


def test_add_many_is_one_request_and_gives_jobs_in_order(fake: FakeSupervisor, images: Queue) -> None:
    jobs = images.add_many([("resize", 1), ["crop", 2, {"priority": 4}], (resize, {"path": "p"})])
    assert [(job.id, job.name, job.priority) for job in jobs] == [
        ("1", "resize", 0),
        ("2", "crop", 4),
        ("3", "client-test-resize", 0),
    ]
    assert [job.data for job in jobs] == [1, 2, {"path": "p"}] and all(job.created for job in jobs)
    assert [len(request) for request in added(fake)] == [3]


def test_add_many_with_ids_tells_which_were_there(images: Queue) -> None:
    images.add("resize", "old", id="b")
    jobs = images.add_many([("resize", 1, {"id": "a"}), ("resize", 2, {"id": "b"}), ("resize", 3)])
    assert [(job.id, job.created) for job in jobs] == [("a", True), ("b", False), ("3", True)]
    assert [job.data for job in jobs] == [1, "old", 3]


def test_add_many_of_nothing_is_nothing(fake: FakeSupervisor, images: Queue) -> None:
    assert images.add_many([]) == []
    assert fake.received == []


@pytest.mark.parametrize(
    "item", ["resize", ("resize",), ("resize", 1, {}, 2), ("resize", 1, "x"), ("resize", 1, {"x": 1})]
)
def test_one_bad_item_refuses_all(fake: FakeSupervisor, images: Queue, item: Any) -> None:
    with pytest.raises(InvalidOption) as error:
        images.add_many([("resize", 1), item])
    assert error.value.__notes__ == ["This is about item 1."]
    with pytest.raises(InvalidOption) as error:
        list(images.add_all([item], chunk=1))
    assert error.value.__notes__ == ["This is about item 0."]
    assert added(fake) == []


def test_add_many_has_bounds(fake: FakeSupervisor, images: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidOption, match=r"10001 jobs.*add_all"):
        images.add_many([("resize", None)] * 10_001)
    monkeypatch.setattr(queue_module, "ADD_MANY_BYTES_MAX", 1000)
    with pytest.raises(InvalidPayload, match="2 jobs has 1206 bytes"):
        images.add_many([("resize", b"x" * 600), ("resize", b"x" * 600)])
    assert added(fake) == []
    images.add_many([("resize", b"x" * 2000)])


def test_add_all_sends_chunks_and_yields_in_order(fake: FakeSupervisor, images: Queue) -> None:
    jobs = list(images.add_all((("resize", number) for number in range(2500)), chunk=1000))
    assert [job.data for job in jobs] == list(range(2500))
    assert [job.id for job in jobs] == [str(number) for number in range(1, 2501)]
    assert [len(request) for request in added(fake)] == [1000, 1000, 500]
    assert list(images.add_all([])) == []


def test_add_all_reads_ahead_only_as_far_as_is_under_way(fake: FakeSupervisor, images: Queue) -> None:
    read = 0

    def items() -> Iterator[tuple[str, int]]:
        nonlocal read
        while True:
            read += 1
            yield "resize", read

    jobs = images.add_all(items(), chunk=10)
    assert next(jobs).id == "1" and read == 40
    jobs.close()  # type: ignore[attr-defined]


def test_add_all_has_all_the_time_that_its_consumer_takes(fake: FakeSupervisor, images: Queue, clock: Clock) -> None:
    jobs = []
    for job in images.add_all((("resize", number) for number in range(100)), chunk=10):
        jobs.append(job.data)
        clock.pass_an_hour()
    assert jobs == list(range(100))
    assert [len(request) for request in added(fake)] == [10] * 10


def test_add_all_has_all_the_time_that_its_iterable_takes_also_across_a_restart(
    start: Callable[..., Any], connect: Callable[..., Any], clock: Clock
) -> None:
    first = start(unanswered={wire.AddJobs})
    images = connect().queue("images")
    started: list[FakeSupervisor] = []

    def items() -> Iterator[tuple[str, int]]:
        yield "resize", 1
        first.await_request(wire.AddJobs)
        first.kill()
        clock.pass_an_hour()
        started.append(start(store=first.store))
        yield "resize", 2

    assert [job.data for job in images.add_all(items(), chunk=1)] == [1, 2]
    assert len(added(started[0])) == 2


def test_add_all_sends_large_items_in_small_chunks(fake: FakeSupervisor, images: Queue) -> None:
    sizes = [1_500_000, 2_500_000, 500_000, 20_000_000, 1, 1, 4 * 2**20 - 10, 1]
    assert len(list(images.add_all(("resize", b"x" * size) for size in sizes))) == 8
    assert [[len(job.payload) // 1000 for job in jobs] for jobs in added(fake)] == [
        [1500, 2500],
        [500],
        [20_000],
        [0, 0],
        [4194, 0],
    ]


def test_add_all_yields_what_was_added_before_a_bad_item(fake: FakeSupervisor, images: Queue) -> None:
    jobs = []
    with pytest.raises(InvalidOption, match="item"):
        for job in images.add_all([("resize", 1), ("resize", 2), "bad", ("resize", 3)], chunk=1):
            jobs.append(job)
    assert [job.data for job in jobs] == [1, 2]


def test_add_all_yields_what_was_added_before_a_job_that_is_too_large(start: Callable[..., Any], connect: Any) -> None:
    start(max_payload=1000)
    jobs = []
    with pytest.raises(InvalidPayload, match="max_payload is 1000"):
        for job in connect().queue("images").add_all([("resize", 1), ("resize", 2), ("resize", b"x" * 1001)], chunk=2):
            jobs.append(job)
    assert [job.data for job in jobs] == [1, 2]


def test_what_the_iterable_raises_comes_after_what_was_added_before(fake: FakeSupervisor, images: Queue) -> None:
    def items() -> Iterator[tuple[str, int]]:
        yield from (("resize", number) for number in range(5))
        raise OSError("the file ended early")

    jobs = []
    with pytest.raises(OSError, match="the file ended early"):
        for job in images.add_all(items(), chunk=2):
            jobs.append(job)
    assert [job.data for job in jobs] == list(range(5))
    assert [len(request) for request in added(fake)] == [2, 2, 1]


def test_add_all_passes_on_a_refusal(start: Callable[..., Any], connect: Callable[..., Any]) -> None:
    start(refused={wire.AddJobs: wire.Refused("StoreFull", "full")})
    conveyor = connect()
    with pytest.raises(StoreFull):
        list(conveyor.queue("images").add_all(("resize", number) for number in range(100)))
    with pytest.raises(InvalidOption, match="chunk"):
        conveyor.queue("images").add_all([], chunk=0)


# -- reading ------------------------------------------------------------------------------------------------


def test_get_finds_by_id_ref_job_or_number(conveyor: Conveyor, images: Queue) -> None:
    generated, named = images.add("resize", 1), images.add("resize", 2, id="cover")
    assert [images.get(which) for which in ("1", 1, "images/1", generated)] == [generated] * 4
    assert images.get("cover") == named and images.get("nothing") is None
    assert [conveyor.get(which) for which in ("1", 1, "images/1", generated)] == [generated] * 4
    assert conveyor.get("images/cover") == named and conveyor.get("images/nothing") is None and conveyor.get(99) is None


def test_get_says_how_a_job_is_named(conveyor: Conveyor, images: Queue) -> None:
    for wrong in ("cover", "", "x" * 201 + "/1", "images/\udc80", None, 1.5, True):
        with pytest.raises(InvalidOption, match="generated id"):
            conveyor.get(wrong)
    with pytest.raises(InvalidOption, match="'images'"):
        images.get("videos/1")


def test_get_many_asks_on_where_an_answer_is_short(start: Callable[..., Any], connect: Callable[..., Any]) -> None:
    fake = start(page_jobs_max=30)
    images = connect().queue("images")
    images.add_many([("resize", number) for number in range(100)])
    found = images.get_many([*range(1, 101), "nothing"])
    assert [None if job is None else job.data for job in found] == [*range(100), None]
    assert fake.count(wire.GetJobs) == 4
    assert images.get_many([]) == []


def test_get_many_asks_for_no_more_than_the_wire_allows(fake: FakeSupervisor, images: Queue) -> None:
    fake.page_jobs_max = 100_000
    images.add("resize", 1)
    assert len(images.get_many(range(1, 25_001))) == 25_000
    assert fake.count(wire.GetJobs) == 3


def test_pages_follow_one_another(fake: FakeSupervisor, images: Queue) -> None:
    images.add_many([("resize", number) for number in range(250)])
    first = images.jobs()
    assert [job.data for job in first] == list(range(100)) and first.next is not None
    second = images.jobs(after=first.next, limit=100)
    by_job = images.jobs(after=first[-1], limit=100)
    assert [job.data for job in second] == [job.data for job in by_job] == list(range(100, 200))
    last = images.jobs(after=second.next)
    assert [job.data for job in last] == list(range(200, 250)) and last.next is None


def test_a_limit_beyond_a_page_takes_several_requests(start: Callable[..., Any], connect: Callable[..., Any]) -> None:
    fake = start(page_jobs_max=100)
    images = connect().queue("images")
    images.add_many([("resize", number) for number in range(2500)])
    page = images.jobs("waiting", limit=2100)
    assert [job.data for job in page] == list(range(2100)) and page.next is not None
    asked = [request.body.limit for request in fake.received if isinstance(request.body, wire.ListJobs)]
    assert max(asked) == 1000 and len(asked) == 21


def test_states_are_chosen_by_name(fake: FakeSupervisor, images: Queue) -> None:
    images.add_many([("resize", 1), ("resize", 2)])
    fake.end([("images", "2")], "r")
    assert [job.id for job in images.jobs("completed", "failed")] == ["2"]
    assert [job.id for job in images.jobs("waiting")] == ["1"]
    with pytest.raises(InvalidOption, match="did you mean 'waiting'"):
        images.jobs("waitin")
    for wrong in ({"limit": 0}, {"limit": True}, {"after": b""}, {"after": 3}, {"after": images.add("resize")}):
        with pytest.raises(InvalidOption):
            images.jobs(**wrong)


def test_counts_are_of_all_six_states(fake: FakeSupervisor, images: Queue) -> None:
    images.add_many([("resize", 1), ("resize", 2), ("resize", 3, {"delay": 5})])
    fake.end([("images", "1")])
    assert images.counts() == {
        "waiting": 1,
        "waiting-children": 0,
        "delayed": 1,
        "active": 0,
        "completed": 1,
        "failed": 0,
    }


def test_pause_and_resume(images: Queue) -> None:
    assert images.paused() is False
    images.pause()
    assert images.paused() is True
    images.resume()
    assert images.paused() is False
    assert repr(images).startswith("<Queue images at ipc://")
