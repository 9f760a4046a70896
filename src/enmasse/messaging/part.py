"""Parts that know the whole they belong to, and do not keep it.

Rules:
1. What ends is to be gone at once. An object and a part of it that know each other would both stay until the
   collector of cycles looks at everything that a node holds, which is late, and adds up.
2. So the whole keeps its parts, and a part knows the whole weakly. Nothing is cleared as the whole ends: who still
   has it, such as a batch on its way to the disk, finds it and its parts as they were.
3. A part is used through the whole. What is called back later (by the disk, the journal, a timer) on a part keeps the
   whole until then.
"""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import ref

WholeT = TypeVar("WholeT")


class Part(Generic[WholeT]):
    """A part of an object.

    Args:
        whole: the object.
    """

    __slots__ = ("_ref",)

    def __init__(self, whole: WholeT) -> None:
        self._ref = ref(whole)

    @property
    def whole(self) -> WholeT:
        """The object; who calls a method of the part has it.

        Raises:
            ReferenceError: it is gone, and so should this part be.
        """
        whole = self._ref()
        if whole is None:
            raise ReferenceError(f"a {type(self).__name__} is used after the object that it belongs to is gone")
        return whole
