"""Trained models on disk, in versions.

    models/pumps/current             the name of the version that counts
    models/pumps/000002/model.json   what scoring needs
    models/pumps/000002/pipeline/    the same as a model of pyspark.ml
    models/pumps/000003/model.onnx   what was imported, beside its model.json

Rules:
1. A version is there whole or not at all, and never changes.
2. ``current`` changes by one rename, after the version that it names is on disk.
3. Scoring needs no Spark: it is numbers on numbers, in whatever process the rows are.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from enmasse.pipeline.builtin.features import Encoder
from enmasse.pipeline.builtin.onnx_model import OnnxModel, feature_values
from enmasse.pipeline.errors import ModelMissingError, PlanError
from enmasse.pipeline.sums import check_sum, keep_sum, sum_of

FORM: Final = 1
_ASIDE: Final = ".making"

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """The scores that a model gives some rows."""

    score: Numbers
    """The degree to which each is unusual, from 0 up."""
    prediction: Numbers | None = None
    """The expected values, of a regression."""
    cluster: npt.NDArray[np.intp] | None = None
    """The nearest centres, of kmeans."""


@dataclass(frozen=True)
class Model:
    """A version of a model: numbers that scoring needs, and where they come from."""

    name: str
    kind: Literal["kmeans", "regression"]
    features: tuple[str, ...]
    target: str | None
    mean: tuple[float, ...]
    """The number that is subtracted from each one that features are made."""
    scale: tuple[float, ...]
    """The factor of each of them; 0 for one that never changed."""
    centres: tuple[tuple[float, ...], ...] = ()
    """The centres of kmeans, in scaled features."""
    weights: tuple[float, ...] = ()
    """The weights of a regression, for scaled features."""
    intercept: float = 0.0
    deviation: float = 1.0
    """The root mean square of a regression's residuals, the unit of its scores."""
    threshold: float = 0.0
    """A score above is an anomaly."""
    encoder: Encoder = field(default_factory=Encoder)
    """Makes numbers of features."""
    rows: int = 0
    """Trained with so many."""
    quality: Mapping[str, float] = field(default_factory=dict)
    """By name, measured with rows that it was not trained with: ``rows``; of a regression ``rmse`` and ``r2``; of
    kmeans ``score``, the mean distance; ``anomalies``, the share above the threshold."""
    trained_at: str = ""
    version: str = ""

    def scores(self, features: Numbers, target: Numbers | None = None) -> Scores:
        """Score rows.

        Args:
            features: a row of numbers for each, as ``encoded`` gives them.
            target: the target of a regression: what it really was.
        """
        scaled = (features - np.asarray(self.mean)) * np.asarray(self.scale)
        if self.kind == "regression":
            assert target is not None
            prediction = self._predicted(scaled)
            return Scores(np.abs(target - prediction) / self.deviation, prediction=prediction)
        centres = np.asarray(self.centres)
        # |a - b|^2 by products: rows times centres numbers, where differences would be that times features.
        squares = (scaled**2).sum(axis=1)[:, None] - 2 * scaled @ centres.T + (centres**2).sum(axis=1)
        nearest = squares.argmin(axis=1)
        return Scores(np.sqrt(np.maximum(squares.min(axis=1), 0.0)), cluster=nearest)

    def encoded(self, columns: Sequence[Any]) -> Numbers:
        """Return a row of numbers for each row, from a column for each of ``features``."""
        return self.encoder.encoded(self.features, columns)

    def _predicted(self, scaled: Numbers) -> Numbers:
        found: Numbers = scaled @ np.asarray(self.weights) + self.intercept
        return found

    def predictions(self, _folder: Path, columns: Sequence[pa.Array]) -> pa.Array:
        """Return what a regression expects, or the score of kmeans; NULL where a feature is.

        Args:
            columns: one for each of ``features``.
        """
        kinds = ["tensor(string)" if self.encoder.is_text(name) else "tensor(double)" for name in self.features]
        values = [feature_values(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        for column, kind, texts in zip(columns, kinds, values, strict=True):
            if kind == "tensor(string)":
                texts[column.is_null().to_numpy(zero_copy_only=False)] = None
        features = self.encoded(values)
        if self.kind == "kmeans":
            found = self.scores(features).score
        else:
            found = self._predicted((features - np.asarray(self.mean)) * np.asarray(self.scale))
        return pa.array(found, pa.float64(), from_pandas=True)

    @property
    def returns(self) -> str:
        """The type of what it predicts, as Spark writes it."""
        return "DOUBLE"

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that a message must have to be scored."""
        return self.features if self.target is None else (*self.features, self.target)


AnyModel = Model | OnnxModel
Made = TypeVar("Made", Model, OnnxModel)


class Models:
    """The versions of one model.

    Args:
        folder: ``models/<name>``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def current(self) -> str:
        """Return the version that counts.

        Raises:
            ModelMissingError: there is none yet.
        """
        try:
            version, _, kept = (self._folder / "current").read_bytes().strip().partition(b" ")
        except FileNotFoundError:
            name = self._folder.name
            raise ModelMissingError(
                f"there is no model {name!r} yet: the built-in pipeline train makes one with model {name!r} once "
                "its table has enough rows, and `enmasse model import` takes one"
            ) from None
        if kept and kept != _sum_of(version):
            raise ModelMissingError(
                f"{self._folder / 'current'} is not as it was written: bring it back, or say which version counts "
                f"with `enmasse model rollback {self._folder.name} --version N`"
            )
        return version.decode(errors="replace")

    def load(self, version: str) -> Model:
        """Return a version that was trained here.

        Raises:
            ModelMissingError: it is gone or cannot be read.
            PlanError: it was imported.
        """
        found = self.read(version)
        if not isinstance(found, Model):
            raise PlanError(
                f"model {found.name}: version {version} was imported, and has no score: call it in SQL, as "
                f"model_{found.name}({', '.join(found.features)})"
            )
        return found

    def read(self, version: str) -> AnyModel:
        """Return a version.

        Raises:
            ModelMissingError: it is gone or cannot be read.
        """
        path = self._folder / version / "model.json"
        try:
            check_sum(path)
            found = json.loads(path.read_text())
            if found.pop("form") != FORM:
                raise ValueError(f"expected form {FORM}")  # noqa: TRY301  # one way out for all that can be wrong
            arrays = {key: _frozen(value) for key, value in found.items()}
            if "encoder" in arrays:
                arrays["encoder"] = Encoder(**arrays["encoder"])
            return OnnxModel(**arrays) if arrays.get("kind") == "onnx" else Model(**arrays)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelMissingError(
                f"the model in {path} cannot be read: {error}; train or import it again"
            ) from error

    def versions(self) -> list[str]:
        """Return all that are there, the newest last."""
        if not self._folder.is_dir():
            return []
        return sorted(path.name for path in self._folder.iterdir() if path.is_dir() and path.name.isdecimal())

    def add(self, model: Made, save: Callable[[Path], None], keep: int) -> Made:
        """Make a version and have it count.

        Args:
            model: its numbers.
            save: writes whatever else belongs to it into a folder.
            keep: versions to keep, this one included.

        Returns:
            The model with its version.
        """
        versions = self.versions()
        version = f"{int(versions[-1]) + 1 if versions else 1:06d}"
        aside: Path = self._folder / _ASIDE
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        made = replace(model, version=version)
        save(aside)
        (aside / "model.json").write_text(json.dumps({"form": FORM, **asdict(made)}, indent=1))
        for path in [*aside.rglob("*"), aside]:
            _sync(path)
            if path.is_file() and path.suffix != ".crc" and not sum_of(path).exists():
                keep_sum(path)
        aside.rename(self._folder / version)
        self.point_to(version)
        for old in self.versions()[:-keep]:
            shutil.rmtree(self._folder / old, ignore_errors=True)
        return made

    def point_to(self, version: str) -> None:
        """Have a version count that is there."""
        pointer = self._folder / ".current"
        pointer.write_bytes(b"%b %b\n" % (version.encode(), _sum_of(version.encode())))
        _sync(pointer)
        pointer.rename(self._folder / "current")
        _sync(self._folder)


def roll_back(folder: Path, version: str | None = None) -> str:
    """Have another version of a model count, by default the one before; return which one.

    Args:
        folder: ``models/<name>``.
        version: the version.

    Raises:
        ModelMissingError: there is none such.
    """
    models = Models(folder)
    there = models.versions()
    if version is None:
        current = models.current()
        before = [one for one in there if one < current]
        if not before:
            raise ModelMissingError(f"model {folder.name}: there is no version before {current}, which counts")
        version = before[-1]
    wanted = f"{int(version):06d}" if version.isdecimal() else version
    if wanted not in there:
        raise ModelMissingError(f"model {folder.name}: there is no version {version}; there are {', '.join(there)}")
    models.read(wanted)
    models.point_to(wanted)
    return wanted


def _sum_of(version: bytes) -> bytes:
    return b"%08x" % crc32(version)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
