"""Runs a pipeline's Python functions: read by the driver, loaded in the workers, called with pandas frames.

Rules:
1. The driver reads a user's code to say what is missing before a query starts. It runs it for functions of whole
   frames alone, which only a pipeline with a session, and so a process, of its own has.
2. The source travels with the query. An update is another source, so no worker uses an old one.
3. Modules of one pipeline import each other by name; two pipelines may have modules of the same name.
4. What the code raises, and that it takes too long, is reported with module, function and line.
"""

from __future__ import annotations

import ast
import builtins
import faulthandler
import hashlib
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from enmasse.pipeline.errors import FunctionError, PlanError
from enmasse.pipeline.workers.settling import settle

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

GRACE_S: Final = 5.0
"""Code that cannot be interrupted (it is in a C library) has its process ended so much later."""

_LOADED: dict[str, dict[str, ModuleType]] = {}
"""By digest of all of a pipeline's code: a worker serves many batches, and modules may be slow to load."""

MAX_LOADED: Final = 8
"""Versions of code that one worker keeps."""


class _TookTooLongError(BaseException):
    """Not an Exception, so that code which catches those cannot go on."""


def check_function(place: str, name: str, modules: Mapping[str, str]) -> tuple[str, str]:
    """Split ``module:function`` and make sure that it is there.

    Args:
        place: the field, for the error.
        name: the value of the field.
        modules: the pipeline's code, source by module name.

    Returns:
        Module and function.

    Raises:
        PlanError: there is no such module or function, or the module is no Python.
    """
    module, colon, function = name.partition(":")
    if not colon or not module.isidentifier() or not function.isidentifier():
        raise PlanError(f"{place}: expected module:function, as in scoring:score, got {name!r}")
    if module not in modules:
        there = f"it has {', '.join(sorted(modules))}" if modules else "there is none"
        raise PlanError(f"{place}: the pipeline's code has no module {module!r} ({there}); add {module}.py to it")
    try:
        tree = ast.parse(modules[module], f"{module}.py")
    except SyntaxError as error:
        raise PlanError(f"{place}: {module}.py, line {error.lineno}: {error.msg}") from None
    if function not in _defined(tree):
        raise PlanError(f"{place}: {module}.py defines no function {function!r}")
    return module, function


def _defined(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names.update(alias.asname or alias.name for alias in node.names)
    return names


@dataclass(frozen=True)
class FunctionCall:
    """A function with all that a worker needs to call it."""

    module: str
    function: str
    modules: Mapping[str, str]
    """Source by module name."""
    columns: tuple[str, ...]
    """The columns that it was declared to give."""
    timeout_s: float
    """Seconds that one task of a micro-batch may take in it."""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """Its name for people."""
        return f"{self.module}:{self.function}"

    def over(self, batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Call it with each batch; for ``mapInPandas``.

        Raises:
            FunctionError: it raised, took too long, or gave other columns; the message says where.
        """
        settle()
        function = self.load()
        for batch in batches:
            yield self.checked(self.run(partial(function, batch, **self.parameters)))

    def load(self) -> Callable[..., Any]:
        """Return the function itself.

        Raises:
            FunctionError: its module cannot be loaded.
        """
        found: Callable[..., Any] = self.run(lambda: getattr(_load(self.modules)[self.module], self.function))
        return found

    def run(self, act: Callable[[], Any]) -> Any:
        """Do what runs the user's code, and return what it gives.

        Raises:
            FunctionError: it raised or took too long; the message says where.
        """
        try:
            with self._watched():
                return act()
        except _TookTooLongError as error:
            line = _line_of(error, self.modules)
            raise FunctionError(
                f"function {self.where}{line}: took longer than {self.timeout_s:g} s for a batch; "
                "raise its timeout or have it do less"
            ) from None
        except (Exception, SystemExit) as error:  # noqa: BLE001  # it is anybody's code
            raise _told(error, self.where, self.modules) from None

    def attempt(self, act: Callable[[], Any]) -> tuple[Any, str | None]:
        """Do what runs the user's code, within ``run``; return what it gives, or what it raised."""
        try:
            return act(), None
        except (Exception, SystemExit) as error:  # noqa: BLE001  # it is anybody's code
            return None, str(_told(error, self.where, self.modules))

    def checked(self, result: Any) -> pd.DataFrame:
        """Return the declared columns of what it gave.

        Raises:
            FunctionError: it is no frame, or has not all of them.
        """
        import pandas as pd  # noqa: PLC0415  # slow to load, and only workers need it

        if not isinstance(result, pd.DataFrame):
            raise FunctionError(f"function {self.where}: expected a pandas DataFrame, got {type(result).__name__}")
        missing = [name for name in self.columns if name not in result.columns]
        if missing:
            raise FunctionError(
                f"function {self.where}: its result has no column {', '.join(missing)}, which the step's schema "
                f"declares; it has {', '.join(map(str, result.columns)) or 'none'}"
            )
        return result[list(self.columns)]

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Interrupt what takes too long; what cannot be interrupted takes the process with it."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = signal.signal(signal.SIGALRM, _too_long)
        faulthandler.dump_traceback_later(self.timeout_s + GRACE_S, exit=True, file=sys.__stderr__ or sys.stderr)
        signal.setitimer(signal.ITIMER_REAL, self.timeout_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            faulthandler.cancel_dump_traceback_later()
            signal.signal(signal.SIGALRM, former)


def _told(error: BaseException, where: str, modules: Mapping[str, str]) -> FunctionError:
    """Return what a user's code raised, with the place in it."""
    line = _line_of(error, modules)
    if isinstance(error, ModuleNotFoundError):
        return FunctionError(
            f"function {where}{line}: the module {error.name!r} is not installed where Spark runs, "
            "and is not among the pipeline's code"
        )
    return FunctionError(f"function {where}{line}: {type(error).__name__}: {str(error).partition(chr(10))[0][:300]}")


def call_with_frames(
    module: str, function: str, modules: Mapping[str, str], frames: Sequence[DataFrame], parameters: Mapping[str, Any]
) -> DataFrame:
    """Call a function of whole frames, in this process.

    Raises:
        FunctionError: it raised, or gave no frame; the message says where.
    """
    from pyspark.sql import DataFrame as Frame  # noqa: PLC0415  # workers need it not

    where = f"{module}:{function}"
    try:
        result = getattr(_load(modules)[module], function)(*frames, **parameters)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # it is anybody's code
        raise _told(error, where, modules) from None
    if not isinstance(result, Frame):
        raise FunctionError(f"function {where}: expected a DataFrame of Spark, got {type(result).__name__}")
    return result


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise _TookTooLongError


def _line_of(error: BaseException, modules: Mapping[str, str]) -> str:
    """Return where in the user's code it happened."""
    files = {f"{name}.py" for name in modules}
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    if isinstance(error, SyntaxError) and error.filename in files:
        return f" ({error.filename}, line {error.lineno})"
    return f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines else ""


def _load(modules: Mapping[str, str]) -> _Loader:
    digest = hashlib.sha256(repr(sorted(modules.items())).encode()).hexdigest()
    while len(_LOADED) >= MAX_LOADED and digest not in _LOADED:
        _LOADED.pop(next(iter(_LOADED)))
    return _Loader(modules, _LOADED.setdefault(digest, {}))


class _Loader:
    """Modules by name, each executed once, which import each other and everything that is installed."""

    def __init__(self, sources: Mapping[str, str], loaded: dict[str, ModuleType]) -> None:
        self._sources = sources
        self._loaded = loaded

    def __getitem__(self, name: str) -> ModuleType:
        if name in self._loaded:
            return self._loaded[name]
        module = ModuleType(name)
        module.__file__ = f"{name}.py"
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": self._import}
        self._loaded[name] = module
        try:
            exec(compile(self._sources[name], f"{name}.py", "exec"), vars(module))  # noqa: S102  # what it is for
        except BaseException:
            del self._loaded[name]
            raise
        return module

    def _import(
        self,
        name: str,
        names: Mapping[str, object] | None = None,
        local: Mapping[str, object] | None = None,
        wanted: tuple[str, ...] = (),
        level: int = 0,
    ) -> ModuleType:
        if level == 0 and name in self._sources:
            return self[name]
        return builtins.__import__(name, names, local, wanted, level)


def read_code(folder: Path) -> Mapping[str, str]:
    """Read the modules of a pipeline.

    Args:
        folder: with files ``*.py``; nothing if there is none.

    Returns:
        Source by module name.

    Raises:
        PlanError: a file is no text in UTF-8.
    """
    found = {}
    for path in sorted(folder.glob("*.py")):
        try:
            found[path.stem] = path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise PlanError(f"code of the pipeline: {path.name} is no UTF-8 at byte {error.start}") from None
    return found
