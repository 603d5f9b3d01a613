"""Declaring work: `@handler`, and the registry that a spawner reads after its imports.

Knows nothing of processes. Invariant: a decorated function stays the function it was.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar, get_type_hints

from conveyor_actors import data as data_codec
from conveyor_actors.errors import InvalidOption, InvalidPayload, UsageError
from conveyor_actors.model import NO_OPTIONS, RunOptions
from conveyor_actors.options import RUN_OPTIONS, check_known, check_name, run_options

_NOT_PLAIN: Final = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
_ATTRIBUTE: Final = "__conveyor_handler__"

Function = TypeVar("Function", bound=Callable[..., Any])


class Handler:
    """A function with its name, queue and options, and what calling it needs to know."""

    __slots__ = ("decode", "function", "give_up_on", "name", "options", "queue", "retry_on", "schema", "wants")

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        queue: str | None,
        options: RunOptions,
        retry_on: tuple[type[BaseException], ...],
        give_up_on: tuple[type[BaseException], ...],
    ) -> None:
        self.function = function
        self.name = name
        self.queue = queue
        self.options = options
        self.retry_on = retry_on
        self.give_up_on = give_up_on
        self.wants = _positional_count(function)
        self.schema = _schema(function)
        try:
            self.decode = data_codec.decoder(self.schema).decode
        except TypeError as error:
            field = f"the annotation of the first parameter of {function.__qualname__}"
            raise InvalidOption(field, self.schema, f"a type that data can be checked against ({error})") from None

    def is_fatal(self, error: BaseException) -> bool:
        """Whether `give_up_on` and `retry_on` say that this error is not worth another attempt."""
        if self.give_up_on and isinstance(error, self.give_up_on):
            return True
        return bool(self.retry_on) and not isinstance(error, self.retry_on)

    def check(self, payload: bytes) -> None:
        """Raises `InvalidPayload` if the data does not fit the annotation."""
        try:
            self.decode(payload)
        except Exception as error:
            raise InvalidPayload(self.misfit(error)) from error

    def misfit(self, error: BaseException) -> str:
        """What `decode` raised, in words; a schema's own `__post_init__` may raise anything."""
        reason = str(error) if isinstance(error, data_codec.UNREADABLE) else described(error)
        return f"the data does not fit the handler {self.name!r}: {reason}"


class Registry:
    """Handlers by queue and name."""

    def __init__(self) -> None:
        self._handlers: dict[tuple[str | None, str], Handler] = {}

    def add(self, handler: Handler) -> None:
        key = (handler.queue, handler.name)
        known = self._handlers.get(key)
        if known is not None and _where(known.function) != _where(handler.function):
            raise UsageError(
                f"two handlers are called {handler.name!r} on the queue {handler.queue!r}: "
                f"{_where(known.function)} and {_where(handler.function)}; give one another name or queue"
            )
        self._handlers[key] = handler

    def find(self, queue: str, name: str) -> Handler | None:
        return self._handlers.get((queue, name)) or self._handlers.get((None, name))

    def all(self) -> list[Handler]:
        return list(self._handlers.values())


registry: Final = Registry()


def handler(
    name: str,
    *,
    queue: str | None = None,
    retry_on: type[BaseException] | tuple[type[BaseException], ...] = (),
    give_up_on: type[BaseException] | tuple[type[BaseException], ...] = (),
    **options: Any,
) -> Callable[[Function], Function]:
    """Declares a function as the handler of the jobs called `name`, in `queue` or (None) in any queue.

    It gets the job's data, checked against the annotation of its first parameter, and if it has a second parameter the
    `JobContext`. Options are those of `add` that a handler may set: attempts, backoff, remove_on_complete and
    remove_on_fail.

    >>> @handler("resize", queue="images", attempts=5, backoff=exponential("1s"))
    ... def resize(data: Resize, job: JobContext) -> dict: ...
    """
    if callable(name):
        raise InvalidOption("name", name, 'a name: @handler("resize", queue="images")')
    check_name("name", name)
    if queue is not None:
        check_name("queue", queue)
    check_known(options, RUN_OPTIONS)
    chosen = run_options(options) or NO_OPTIONS
    retryable, fatal = _exceptions("retry_on", retry_on), _exceptions("give_up_on", give_up_on)

    def declare(function: Function) -> Function:
        if inspect.isclass(function) or any(is_kind(function) for is_kind in _NOT_PLAIN) or not callable(function):
            raise InvalidOption("handler", function, "a plain function that returns: def work(data, job): ...")
        declared = Handler(function, name, queue, chosen, retryable, fatal)
        registry.add(declared)
        setattr(function, _ATTRIBUTE, declared)
        return function

    return declare


def handler_of(function: object) -> Handler | None:
    """What `@handler` declared of the function, or None."""
    return getattr(function, _ATTRIBUTE, None)


def described(error: BaseException) -> str:
    """The error as the last line of its traceback has it."""
    name = type(error).__name__
    try:
        return f"{name}: {error}" if str(error) else name
    except Exception:  # an exception whose own __str__ raises
        return name


def _positional_count(function: Callable[..., Any]) -> int:
    """How many of (data, job) the function takes."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return 2
    count = sum(1 for parameter in parameters if parameter.kind in kinds)
    required = [p for p in parameters if p.default is p.empty and p.kind in (*kinds, p.KEYWORD_ONLY)]
    if len(required) > 2:
        raise InvalidOption(
            "handler", function, f"a function of (data, job): this one requires {len(required)} parameters"
        )
    by_name = [p.name for p in required if p.kind is p.KEYWORD_ONLY]
    if by_name:
        raise InvalidOption("handler", function, f"a function of (data, job) by position: {by_name[0]} is by name only")
    return min(count, 2)


def _schema(function: Callable[..., Any]) -> Any:
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_POSITIONAL]
    if not parameters or parameters[0].annotation is inspect.Parameter.empty:
        return Any
    try:
        return get_type_hints(function, include_extras=True).get(parameters[0].name, Any)
    except NameError as error:
        field = f"the annotations of {function.__qualname__}"
        raise InvalidOption(field, str(error), "names that are known where the function is") from None


def _exceptions(field: str, value: object) -> tuple[type[BaseException], ...]:
    kinds = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise InvalidOption(field, value, "an exception class or a tuple of them")
    return kinds


def _where(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
