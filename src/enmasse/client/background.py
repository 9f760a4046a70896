"""The loop that the blocking client runs on, and what turns the asynchronous client into the blocking one.

The loop runs in a thread of its own, one for each process. It starts with the first connection and ends with
the last. A fork leaves it behind: the child starts one of its own with its first connection.

The classes of the blocking client are derived: a method is made of the asynchronous method by ``waiting``,
``opening`` or ``submitting``, an attribute by ``Read``. So signatures, types and docstrings are written once.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from functools import wraps
from typing import Any, Concatenate, Generic, Never, ParamSpec, Self, TypeVar, overload

from enmasse.client.errors import ClosedError
from enmasse.errors import LocalError
from enmasse.net.loop import new_loop

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Opened = TypeVar("Opened")


class Background:
    """A loop and the thread that it runs in."""

    _lock = threading.Lock()
    _present: Background | None = None
    _left_behind: Background | None = None
    """The parent's; kept, because to close its loop would disturb the parent."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self.users = 0
        """Connections that run on it."""
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="enmasse-client", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls) -> Background:
        """Return the background of this process, started if need be."""
        with cls._lock:
            if cls._present is None:
                cls._present = cls()
            cls._present.users += 1
            return cls._present

    def release(self) -> None:
        """Give it up for one of its users; the last one stops it."""
        if self.is_foreign:
            return
        with self._lock:
            self.users -= 1
            if self.users:
                return
            if Background._present is self:
                Background._present = None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @classmethod
    def forget(cls) -> None:
        """Start anew in the child of a fork, which lacks the thread and may find the lock held for ever."""
        cls._lock = threading.Lock()
        cls._left_behind = cls._present
        cls._present = None

    @property
    def is_foreign(self) -> bool:
        """True if it was made before a fork, by another process."""
        return self._pid != os.getpid()

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine to its end and return its result; an interrupt cancels it."""
        try:
            self._check()
        except LocalError:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, callback: Callable[[], object]) -> None:
        """Call something on the loop soon, without waiting."""
        self._check()
        self._loop.call_soon_threadsafe(callback)

    def _check(self) -> None:
        if self.is_foreign:
            raise ClosedError("the connection was made before a fork: connect again in the new process")
        if self._loop.is_closed():
            raise ClosedError("the connection is closed")
        if threading.get_ident() == self._thread.ident:
            raise LocalError("the blocking client was called from its own loop, which would wait for ever")


class Mirror(Generic[T_co]):
    """The blocking side of an object of the asynchronous client.

    Args:
        background: the loop that the object lives on.
        inner: the object.
    """

    __slots__ = ("_background", "_inner")

    def __init__(self, background: Background, inner: T_co) -> None:
        self._background = background
        self._inner = inner

    def __str__(self) -> str:
        return str(self._inner)


class Read(Generic[T, R]):
    """An attribute of the blocking side that is read from the object.

    Args:
        kind: the object's class; an attribute of the same name there lends its docstring.
        get: reads the attribute.
    """

    def __init__(self, kind: type[T], get: Callable[[T], R]) -> None:
        self._kind = kind
        self._get = get

    def __set_name__(self, owner: type, name: str) -> None:
        self.__doc__ = getattr(self._kind, name, self).__doc__

    @overload
    def __get__(self, mirror: None, owner: type) -> Self: ...
    @overload
    def __get__(self, mirror: Mirror[T], owner: type) -> R: ...
    def __get__(self, mirror: Mirror[T] | None, owner: type) -> Self | R:
        return self if mirror is None else self._get(mirror._inner)  # noqa: SLF001  a part of it

    def __set__(self, mirror: Mirror[T], value: Never) -> None:
        raise AttributeError("the attribute can only be read")


def waiting(method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Mirror[T], P], R]:
    """Make a method that waits for the result of the asynchronous one."""

    @wraps(method)
    def call(self: Mirror[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._background.run(method(self._inner, *args, **kwargs))

    return call


def opening(
    method: Callable[Concatenate[T, P], Awaitable[Opened]], kind: Callable[[Background, Opened], R]
) -> Callable[Concatenate[Mirror[T], P], R]:
    """Make a method that waits for the object that the asynchronous one opens, and gives its blocking side."""

    @wraps(method)
    def call(self: Mirror[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def open_it() -> Opened:
            return await method(self._inner, *args, **kwargs)

        return kind(self._background, self._background.run(open_it()))

    return call


def submitting(
    method: Callable[Concatenate[T, P], asyncio.Future[R]],
) -> Callable[Concatenate[Mirror[T], P], Future[R]]:
    """Make a method that gives a future for threads instead of one for the loop.

    It is cancelled when the loop's future is.
    """

    @wraps(method)
    def call(self: Mirror[T], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        async def submit() -> Future[R]:
            future = method(self._inner, *args, **kwargs)

            async def wait() -> R:
                return await future

            return asyncio.run_coroutine_threadsafe(wait(), asyncio.get_running_loop())

        return self._background.run(submit())

    return call


os.register_at_fork(after_in_child=Background.forget)
