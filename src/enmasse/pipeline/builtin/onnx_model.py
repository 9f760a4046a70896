"""Models of ONNX: what they take and give, and what they predict, by onnxruntime.

    models/pumps/000002/model.json   what it takes and gives
    models/pumps/000002/model.onnx   the model as it was imported

Rules:
1. A model of ONNX computes and does nothing else: its file is no code, and may name no other file.
2. What it takes are columns of numbers, text and truth, each a feature: inputs of its own, or together one tensor.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from enmasse.extras import install_command
from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.sums import check_sum

if TYPE_CHECKING:
    import numpy.typing as npt

FILE: Final = "model.onnx"
MAX_BYTES: Final = 8 * 1024 * 1024
"""Of an imported file: it passes through the API at once."""
KEPT: Final = 5
"""Versions that an import leaves."""

_NUMPY: Final[dict[str, Any]] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.object_,
}
_SPARK: Final = {
    "tensor(float)": "DOUBLE",
    "tensor(double)": "DOUBLE",
    "tensor(int32)": "BIGINT",
    "tensor(int64)": "BIGINT",
    "tensor(bool)": "BOOLEAN",
    "tensor(string)": "STRING",
}


@dataclass(frozen=True)
class OnnxModel:
    """A version of a model of ONNX."""

    name: str
    features: tuple[str, ...]
    inputs: tuple[tuple[str, str, int], ...]
    """Name, type and number of columns of each input."""
    output: str
    returns: str
    """The type of what it predicts, as Spark writes it."""
    kind: Literal["onnx"] = "onnx"
    rows: int = 0
    quality: Mapping[str, float] = field(default_factory=dict)
    trained_at: str = ""
    """The time at which it was imported."""
    version: str = ""

    def predictions(self, folder: Path, columns: Sequence[pa.Array]) -> pa.Array:
        """Return what it predicts.

        Args:
            folder: the folder of its version.
            columns: one for each of ``features``. NULL is not a number, and of text the empty text.

        Raises:
            PlanError: the columns are not of the types of its inputs, or it does not take their values.
        """
        given: dict[str, Any] = {}
        rest = list(columns)
        for name, kind, width in self.inputs:
            parts = [feature_values(column, kind) for column in rest[:width]]
            given[name] = np.column_stack(parts)
            del rest[:width]
        try:
            (found,) = _session(folder / FILE).run([self.output], given)
        except Exception as error:  # noqa: BLE001  # onnxruntime's own have no common base
            raise PlanError(f"model {self.name}, version {self.version}: {_first_line(error)}") from None
        if found.ndim > 1 and not self.returns.startswith("ARRAY"):
            found = found[:, 0]
        return pa.array(found.tolist())


def import_model(folder: Path, content: bytes, features: Sequence[str], output: str | None = None) -> OnnxModel:
    """Read a file of ONNX, and return what it takes and gives; saves nothing.

    Args:
        folder: ``models/<name>``, for the name.
        content: the content of the file.
        features: the names of its columns; empty: as its inputs are.
        output: the output that is the prediction; None: the first.

    Raises:
        PlanError: it is no such model, or takes or gives something else than columns.
    """
    name = folder.name
    if content.startswith(b"\x80"):
        raise PlanError(
            f"model {name}: this is a pickle, which runs as code when it is loaded; `enmasse model import` makes "
            "ONNX of it on your machine"
        )
    with tempfile.TemporaryDirectory(prefix="enmasse-model-") as place:
        path = Path(place, FILE)
        path.write_bytes(content)
        try:
            session = _opened(path)
        except PlanError:
            raise
        except Exception as error:  # noqa: BLE001  # onnxruntime's own have no common base
            raise PlanError(f"model {name}: expected a file of ONNX: {_first_line(error)}") from None
        inputs = tuple(_input(name, one) for one in session.get_inputs())
        outputs = {one.name: one for one in session.get_outputs()}
        chosen = outputs.get(output or next(iter(outputs)))
        if chosen is None:
            raise PlanError(f"model {name}: there is no output {output!r}; there are {', '.join(outputs)}")
        if chosen.type not in _SPARK:
            raise PlanError(
                f"model {name}: output {chosen.name} is {chosen.type}, and not a tensor: name another one of "
                f"{', '.join(outputs)}, or convert scikit-learn models with the option zipmap=False"
            )
        width = sum(one[2] for one in inputs)
        named = tuple(features) or _features(inputs, width)
        if len(named) != width or len(set(named)) != width:
            raise PlanError(f"model {name}: it takes {width} features, and {len(set(named))} are named")
        is_scalar = len(chosen.shape) < 2 or chosen.shape[1] == 1
        returns = _SPARK[chosen.type] if is_scalar else f"ARRAY<{_SPARK[chosen.type]}>"
        return OnnxModel(name, named, inputs, chosen.name, returns, trained_at=datetime.now(UTC).isoformat())


def _input(model: str, one: Any) -> tuple[str, str, int]:
    shape = list(one.shape)
    width = shape[1] if len(shape) == 2 else 1
    if one.type not in _NUMPY or len(shape) != 2 or not isinstance(width, int):
        raise PlanError(
            f"model {model}: input {one.name} is {one.type} of shape {shape}: expected rows of a fixed number of "
            f"columns, of {', '.join(_NUMPY)}"
        )
    return str(one.name), str(one.type), width


def _features(inputs: Sequence[tuple[str, str, int]], width: int) -> tuple[str, ...]:
    if all(one[2] == 1 for one in inputs):
        return tuple(one[0] for one in inputs)
    return tuple(f"f{number}" for number in range(1, width + 1))


def feature_values(column: pa.Array, kind: str) -> npt.NDArray[Any]:
    """Return a column of SQL as a model takes it.

    Args:
        column: the column of numbers, text or truth.
        kind: the kind as ONNX writes it, ``tensor(float)``.

    Raises:
        PlanError: a value is none of that type.
    """
    if kind == "tensor(string)":
        texts = pc.fill_null(pc.cast(column, pa.string()), "")
        return np.asarray(texts.to_pylist(), dtype=np.object_)
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    try:
        numbers = pc.cast(column, pa.float64() if kind in ("tensor(float)", "tensor(double)") else pa.int64())
    except pa.ArrowInvalid as error:
        raise PlanError(f"a feature of type {kind} has a value that is none: {_first_line(error)}") from None
    if kind in ("tensor(float)", "tensor(double)"):
        numbers = pc.fill_null(numbers, float("nan"))
    elif numbers.null_count:
        raise PlanError(f"a feature of type {kind} is NULL, for which there is no such number: use coalesce")
    found: npt.NDArray[Any] = numbers.to_numpy(zero_copy_only=False).astype(_NUMPY[kind])
    return found


def _opened(path: Path) -> Any:
    try:
        import onnxruntime  # noqa: PLC0415  # slow to load, and only for models of ONNX
    except ModuleNotFoundError:
        raise PlanError(f"onnxruntime is not installed where Spark runs: {install_command('models')}") from None
    options = onnxruntime.SessionOptions()
    # Spark's tasks are the threads.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # By its path: what it names beside itself is looked for there, and nowhere else.
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@lru_cache(maxsize=16)
def _session(path: Path) -> Any:
    """Return a session; a version never changes."""
    check_sum(path)
    return _opened(path)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300]


def saved(content: bytes, folder: Path) -> None:
    """Write the model's file into the folder of its version."""
    (folder / FILE).write_bytes(content)
