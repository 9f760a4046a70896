"""What can be awaited or entered: ``await x`` gives a thing, ``async with x as thing`` closes it too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Generic, Protocol, TypeVar

__all__ = ["Opening"]


class _Closable(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)


class Opening(Generic[C]):
    """A thing that is still to be opened.

    Args:
        open_it: opens it; called once.
    """

    __slots__ = ("_open", "_opened")

    def __init__(self, open_it: Callable[[], Awaitable[C]]) -> None:
        self._open = open_it
        self._opened: C | None = None

    def __await__(self) -> Generator[object, None, C]:
        return self._open().__await__()

    async def __aenter__(self) -> C:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()
