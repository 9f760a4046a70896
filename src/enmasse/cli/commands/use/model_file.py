"""Files of models: ONNX as it is, and what scikit-learn fitted made ONNX of, on this machine.

A pickle runs as code when it is loaded. So the platform takes ONNX alone, and only who trusts a pickle loads it here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from enmasse.cli.errors import CliError, UsageError
from enmasse.extras import remedy

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = Literal["float", "string", "int"]
KINDS: Final[tuple[Kind, ...]] = ("float", "string", "int")

_PICKLED: Final = (".pkl", ".pickle", ".joblib")
_OPERATORS: Final = {"": 18, "ai.onnx.ml": 3}
"""Of ONNX, which onnxruntime has had since 1.14, and all that scikit-learn's models need."""


def read_features(text: str) -> list[tuple[str, Kind]]:
    """Return names and types of features, of ``load,site:string``.

    Raises:
        UsageError: a type is none.
    """
    found: list[tuple[str, Kind]] = []
    for part in (one.strip() for one in text.split(",") if one.strip()):
        name, _, said = part.partition(":")
        kind = next((one for one in KINDS if one == (said or "float")), None)
        if kind is None:
            raise UsageError(f"--features: expected NAME or NAME:TYPE with {', '.join(KINDS)}, got '{part}'")
        found.append((name, kind))
    return found


def as_onnx(path: Path, features: Sequence[tuple[str, Kind]], *, trust: bool) -> tuple[bytes, list[str]]:
    """Return a model's file as ONNX, and what its features are called.

    Args:
        path: the path of a file of ONNX, skops or pickle.
        features: the features as the model takes them; empty: as it was fitted with.
        trust: whether what the file holds may run here.

    Raises:
        CliError: there is no such file, it is not trusted, or cannot be made ONNX.
    """
    names = [name for name, _ in features]
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if path.suffix == ".onnx":
        return content, names
    try:
        fitted = _loaded_skops(path, trust=trust) if path.suffix == ".skops" else _loaded(path, trust=trust)
        return _converted(fitted, features, path)
    except ModuleNotFoundError as error:
        missing = remedy(error) or f"the module {error.name!r}, which it names, is not installed here"
        raise CliError(f"{path}: {missing}") from None


def _loaded(path: Path, *, trust: bool) -> Any:
    if path.suffix not in _PICKLED:
        raise UsageError(f"{path}: expected a file .onnx, .skops, {', '.join(_PICKLED[:-1])} or {_PICKLED[-1]}")
    if not trust:
        raise UsageError(
            f"{path} is a pickle, which runs as code, here and as you, when it is loaded. If you know where it comes "
            "from, say --trust; or save the model with skops, or as ONNX"
        )
    import joblib  # noqa: PLC0415  # slow to load, and only for this

    try:
        return joblib.load(path)
    except ModuleNotFoundError:
        raise
    except Exception as error:  # noqa: BLE001  # a pickle may do anything
        raise CliError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from None


def _loaded_skops(path: Path, *, trust: bool) -> Any:
    import skops.io  # noqa: PLC0415  # slow to load, and only for this

    try:
        unknown = skops.io.get_untrusted_types(file=path)
        fitted = skops.io.load(path, trusted=unknown) if trust or not unknown else None
    except ModuleNotFoundError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever is wrong with a file
        raise CliError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from None
    if fitted is None:
        types = ", ".join(unknown[:10])
        raise UsageError(f"{path} has types that may run code: {types}. If you know them, say --trust")
    return fitted


def _converted(fitted: Any, features: Sequence[tuple[str, Kind]], path: Path) -> tuple[bytes, list[str]]:
    import skl2onnx  # noqa: PLC0415  # slow to load, and only for this
    from sklearn.base import is_classifier  # noqa: PLC0415

    if not hasattr(fitted, "n_features_in_"):
        raise CliError(f"{path} holds a {type(fitted).__name__}: expected a fitted model of scikit-learn")
    count = int(fitted.n_features_in_)
    default = [(str(name), "float") for name in getattr(fitted, "feature_names_in_", ())]
    named = list(features) or default or [(f"f{number}", "float") for number in range(1, count + 1)]
    if len(named) != count:
        raise UsageError(f"--features: the model was fitted with {count} features, and {len(named)} are named")
    options = {id(fitted): {"zipmap": False}} if is_classifier(fitted) else None
    problem: Exception | None = None
    for inputs in _inputs(named):
        try:
            made = skl2onnx.to_onnx(fitted, initial_types=inputs, options=options, target_opset=_OPERATORS)
            return made.SerializeToString(), [name for name, _ in named]
        except Exception as error:  # noqa: BLE001  # skl2onnx raises what comes to hand
            problem = problem or error
    raise CliError(
        f"{path}: no ONNX can be made of this {type(fitted).__name__} with the features "
        f"{', '.join(f'{name}:{kind}' for name, kind in named)}: {str(problem).partition(chr(10))[0][:300]}"
    )


def _inputs(features: Sequence[tuple[str, str]]) -> list[list[tuple[str, Any]]]:
    """Return the ways to give features to a model: each as a column of its own, and all in one table."""
    from skl2onnx.common import data_types  # noqa: PLC0415

    types = {
        "float": data_types.FloatTensorType,
        "string": data_types.StringTensorType,
        "int": data_types.Int64TensorType,
    }
    ways = [[(name, types[kind]([None, 1])) for name, kind in features]]
    kinds = {kind for _, kind in features}
    if len(kinds) == 1:
        # Most models take one table; those that choose columns by name take columns.
        ways.insert(0, [("features", types[kinds.pop()]([None, len(features)]))])
    return ways
