"""Declaring work: a decorated function stays the function it was, and what is declared wrongly is refused at once."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from conveyor_actors import data, handlers
from conveyor_actors.errors import InvalidOption, InvalidPayload, UsageError
from conveyor_actors.handlers import Handler, Registry, handler, handler_of
from conveyor_actors.model import NO_OPTIONS, Backoff, KeepRule, RunOptions, exponential


class Resize(msgspec.Struct):
    path: str
    width: int = 640


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Each test declares into a registry of its own."""
    fresh = Registry()
    monkeypatch.setattr(handlers, "registry", fresh)
    return fresh


def declared(function: object) -> Handler:
    found = handler_of(function)
    assert found is not None
    return found


def test_a_handler_stays_an_ordinary_function(registry: Registry) -> None:
    @handler("double")
    def double(number: int) -> int:
        """Twice."""
        return 2 * number

    assert double(4) == 8
    assert (double.__name__, double.__doc__) == ("double", "Twice.")
    assert registry.find("any", "double") is handler_of(double)


def test_what_is_no_handler_is_none() -> None:
    assert handler_of(len) is None
    assert handler_of("text") is None


def test_handlers_are_found_by_queue_and_name_and_the_queues_own_goes_first(registry: Registry) -> None:
    @handler("work")
    def anywhere() -> None: ...

    @handler("work", queue="images")
    def images() -> None: ...

    assert registry.find("images", "work") is handler_of(images)
    assert registry.find("else", "work") is handler_of(anywhere)
    assert registry.find("images", "other") is None
    assert registry.all() == [handler_of(anywhere), handler_of(images)]


def test_options_of_a_handler() -> None:
    @handler("work", attempts=5, backoff=exponential("1s"), remove_on_complete=True, remove_on_fail=3)
    def work() -> None: ...

    @handler("plain")
    def plain() -> None: ...

    assert declared(work).options == RunOptions(5, Backoff("exponential", 1_000), KeepRule(0), KeepRule(3))
    assert declared(plain).options == NO_OPTIONS


@pytest.mark.parametrize("option", ["priority", "delay", "id", "lifo", "metadata", "atempts"])
def test_options_that_belong_to_add_or_to_nobody_are_refused(option: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        handler("work", **{option: 1})
    assert caught.value.field == option


@pytest.mark.parametrize("options", [{"attempts": 0}, {"backoff": "often"}, {"remove_on_fail": -1}])
def test_wrong_options_are_refused_where_they_are_written(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        handler("work", **options)


@pytest.mark.parametrize("name", ["", "a/b", "a:b", "x" * 201, 5])
def test_wrong_names_are_refused(name: Any) -> None:
    with pytest.raises(InvalidOption):
        handler(name)
    with pytest.raises(InvalidOption):
        handler("work", queue=name)


def test_a_forgotten_name_is_told_how_to_write_it() -> None:
    with pytest.raises(InvalidOption, match='@handler\\("resize", queue="images"\\)'):

        @handler  # type: ignore[arg-type]
        def work() -> None: ...


def test_classes_and_coroutines_are_refused() -> None:
    with pytest.raises(InvalidOption, match="a plain function"):

        @handler("class")
        class Work:
            def __call__(self) -> None: ...

    with pytest.raises(InvalidOption, match="a plain function"):

        @handler("coroutine")
        async def work() -> None: ...


def test_two_functions_cannot_have_one_name() -> None:
    def first() -> None: ...

    def second() -> None: ...

    handler("work")(first)
    with pytest.raises(UsageError, match="two handlers are called 'work' on the queue None") as caught:
        handler("work")(second)
    assert "first" in str(caught.value)
    assert "second" in str(caught.value)


def test_a_module_may_be_imported_again(registry: Registry) -> None:
    def make() -> Any:
        @handler("work")
        def work() -> None: ...

        return work

    make()
    again = make()
    assert registry.find("q", "work") is handler_of(again)


# -- what it wants to be given ------------------------------------------------------------------------------------


def nothing() -> None: ...
def only_data(data: Any) -> None: ...
def both(data: Any, job: Any) -> None: ...
def defaults(data: Any = None, job: Any = None, more: Any = None) -> None: ...
def positional(data: Any, /, job: Any) -> None: ...
def anything(*args: Any) -> None: ...
def with_keywords(data: Any, *, flag: bool = False) -> None: ...


@pytest.mark.parametrize(
    ("function", "wants"),
    [(nothing, 0), (only_data, 1), (both, 2), (defaults, 2), (positional, 2), (anything, 2), (with_keywords, 1)],
)
def test_a_handler_is_given_as_much_as_it_takes(function: Any, wants: int) -> None:
    assert declared(handler(f"wants-{function.__name__}")(function)).wants == wants


def test_a_handler_that_wants_its_job_by_name_is_refused() -> None:
    def picky(data: Any, *, job: Any) -> None: ...

    with pytest.raises(InvalidOption, match=r"picky.*use a function of .data, job. by position: job is by name only"):
        handler("picky")(picky)


def test_a_handler_that_wants_more_is_refused() -> None:
    def greedy(data: Any, job: Any, third: Any) -> None: ...

    with pytest.raises(InvalidOption, match=r"greedy.*use a function of .data, job.: this one requires 3 parameters"):
        handler("greedy")(greedy)


def test_a_wrapped_function_is_looked_through() -> None:
    def wrap(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any) -> Any:
            return function(*args)

        return wrapper

    @handler("wrapped")
    @wrap
    def work(data: Resize) -> None: ...

    assert (declared(work).wants, declared(work).schema) == (1, Resize)


# -- the schema -----------------------------------------------------------------------------------------------------


def test_the_first_annotation_is_the_schema() -> None:
    @handler("resize")
    def resize(data: Resize, job: Any) -> None: ...

    assert declared(resize).decode(data.encode({"path": "a"})) == Resize("a", 640)
    declared(resize).check(data.encode(Resize("a", 5)))
    with pytest.raises(InvalidPayload, match=r"the data does not fit the handler 'resize': .*`\$.width`"):
        declared(resize).check(data.encode({"path": "a", "width": "wide"}))


def test_without_an_annotation_anything_goes() -> None:
    @handler("any")
    def work(data): ...  # type: ignore[no-untyped-def]

    assert declared(work).schema is Any
    declared(work).check(data.encode([1, {"a": None}]))


def test_bounds_of_an_annotation_are_checked() -> None:
    @handler("bounded")
    def work(width: Annotated[int, msgspec.Meta(ge=1)]) -> None: ...

    with pytest.raises(InvalidPayload):
        declared(work).check(data.encode(0))


def test_bytes_that_are_no_data_do_not_fit() -> None:
    @handler("work")
    def work(data: int) -> None: ...

    for raw in (b"", b"\xc1", b"\xa1\xff", b"\x91" * 100_000):
        with pytest.raises(InvalidPayload):
            declared(work).check(raw)


class Strict(msgspec.Struct):
    error: str

    def __post_init__(self) -> None:
        raise {"value": ValueError("no"), "assertion": AssertionError(), "key": KeyError("width")}[self.error]


@pytest.mark.parametrize(
    ("error", "says"), [("value", "no"), ("assertion", "AssertionError"), ("key", "KeyError: 'width'")]
)
def test_whatever_a_schema_raises_means_that_the_data_does_not_fit(error: str, says: str) -> None:
    @handler("strict")
    def work(data: Strict) -> None: ...

    with pytest.raises(InvalidPayload, match=f"the data does not fit the handler 'strict': {says}$"):
        declared(work).check(data.encode({"error": error}))


def test_an_annotation_that_cannot_be_a_schema_is_refused() -> None:
    def work(data: dict[list[int], int] | list[Resize] | tuple[int]) -> None: ...

    with pytest.raises(InvalidOption, match=r"annotation of the first parameter of .*work.* use a type that data"):
        handler("work")(work)


def test_an_annotation_that_cannot_be_resolved_is_refused() -> None:
    def work(data: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(InvalidOption, match=r"annotations of .*work = .*'Missing.*names that are known"):
        handler("work")(work)


# -- which errors are worth another attempt -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retry_on", "give_up_on", "fatal", "recoverable"),
    [
        ((), (), [], [ValueError(), KeyError(), OSError()]),
        ((), KeyError, [KeyError()], [ValueError(), LookupError()]),
        (OSError, (), [ValueError()], [OSError(), FileNotFoundError()]),
        ((OSError, KeyError), FileNotFoundError, [FileNotFoundError(), ValueError()], [OSError(), KeyError()]),
    ],
)
def test_errors_are_sorted_as_the_handler_says(retry_on: Any, give_up_on: Any, fatal: Any, recoverable: Any) -> None:
    @handler("work", retry_on=retry_on, give_up_on=give_up_on)
    def work() -> None: ...

    assert [declared(work).is_fatal(error) for error in fatal] == [True] * len(fatal)
    assert [declared(work).is_fatal(error) for error in recoverable] == [False] * len(recoverable)


@pytest.mark.parametrize("option", ["retry_on", "give_up_on"])
@pytest.mark.parametrize("value", ["ValueError", ValueError(), (ValueError, 5), int, [ValueError]])
def test_what_is_no_exception_class_is_refused(option: str, value: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        handler("work", **{option: value})
    assert caught.value.field == option


def test_a_function_that_does_not_return_its_result_is_refused() -> None:
    def generates(data: Any) -> Any:
        yield data

    async def later(data: Any) -> None: ...

    for function in (generates, later):
        with pytest.raises(InvalidOption, match="use a plain function that returns"):
            handler("not-plain")(function)


class Photo(msgspec.Struct):
    path: Path


def test_a_path_in_a_schema_is_text_on_its_way_and_a_path_again() -> None:
    @handler("paths")
    def work(photo: Photo) -> None: ...

    declared = handler_of(work)
    assert declared is not None
    declared.check(data.encode(Photo(Path("/a"))))
    assert declared.decode(data.encode({"path": "/a"})).path == Path("/a")
    with pytest.raises(InvalidPayload, match=r"Expected `(Posix)?Path`, got `int` - at `\$.path`"):
        declared.check(data.encode({"path": 1}))
