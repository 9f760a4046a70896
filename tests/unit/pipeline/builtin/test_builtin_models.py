"""Versions of models: whole or not at all, and scored by numbers alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

import pyarrow as pa

from enmasse.pipeline.builtin.features import Encoder
from enmasse.pipeline.builtin.models import Model, Models
from enmasse.pipeline.errors import ModelMissingError

KMEANS = Model(
    "pumps", "kmeans", ("a", "b"), None, mean=(1.0, 10.0), scale=(2.0, 0.0), centres=((0.0, 0.0), (4.0, 0.0))
)


def test_without_a_version_it_is_told_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(ModelMissingError, match="no model 'pumps' yet: the built-in pipeline train"):
        Models(tmp_path / "pumps").current()


def test_the_newest_version_counts_and_old_ones_go(tmp_path: Path) -> None:
    models = Models(tmp_path / "pumps")
    for number in range(1, 5):
        made = models.add(KMEANS, lambda folder: (folder / "more").mkdir(), keep=2)
        assert made.version == models.current() == f"{number:06d}"
        assert models.load(models.current()) == made
    assert models.versions() == ["000003", "000004"]
    assert (tmp_path / "pumps" / "000004" / "more").is_dir()


def test_what_an_interrupted_training_left_is_no_version(tmp_path: Path) -> None:
    models = Models(tmp_path / "pumps")
    (tmp_path / "pumps" / ".making" / "pipeline").mkdir(parents=True)
    assert models.versions() == []

    def fail(folder: Path) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        models.add(KMEANS, fail, keep=2)
    with pytest.raises(ModelMissingError):
        models.current()
    assert models.add(KMEANS, lambda _: None, keep=2).version == "000001"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"form": 2}', '{"form": 1, "what": 3}'])
def test_a_damaged_version_is_named(tmp_path: Path, text: str) -> None:
    models = Models(tmp_path / "pumps")
    made = models.add(KMEANS, lambda _: None, keep=2)
    (tmp_path / "pumps" / made.version / "model.json").write_text(text)
    with pytest.raises(ModelMissingError, match=r"000001/model.json cannot be read: .*; train or import it again"):
        models.load(made.version)


def test_kmeans_scores_by_the_distance_from_the_nearest_centre() -> None:
    scores = KMEANS.scores(np.array([[1.0, 10.0], [3.5, 99.0], [0.0, 10.0]]))
    assert scores.score.tolist() == pytest.approx([0.0, 1.0, 2.0])
    assert scores.cluster is not None
    assert scores.cluster.tolist() == [0, 1, 0]


def test_a_regression_scores_by_its_residual() -> None:
    model = Model(
        "m", "regression", ("a",), "y", mean=(1.0,), scale=(1.0,), weights=(2.0,), intercept=5.0, deviation=0.5
    )
    scores = model.scores(np.array([[1.0], [2.0]]), np.array([5.0, 8.0]))
    assert scores.prediction is not None
    assert scores.prediction.tolist() == [5.0, 7.0]
    assert scores.score.tolist() == [0.0, 2.0]


def test_features_of_text_become_numbers_and_what_lacks_is_filled_in(tmp_path: Path) -> None:
    encoder = Encoder(
        one_hot={"site": ("north", "south")}, index={"grade": ("a", "b")}, missing={"load": 5.0}, imputes=True
    )
    columns = [[1.0, np.nan, 3.0], ["south", "west", None], ["b", "c", None]]
    assert encoder.encoded(("load", "site", "grade"), columns).tolist() == [
        [1.0, 0.0, 1.0, 1.0],
        [5.0, 0.0, 0.0, 2.0],
        [3.0, 0.0, 0.0, 2.0],
    ]
    model = Model("m", "kmeans", ("load", "site"), None, (0.0,) * 3, (1.0,) * 3, ((1.0, 1.0, 0.0),), encoder=encoder)
    models = Models(tmp_path / "m")
    assert models.load(models.add(model, lambda _: None, keep=2).version) == replace(model, version="000001")
    given = [pa.array([1.0, None]), pa.array(["north", "west"])]
    assert model.predictions(tmp_path, given).to_pylist() == pytest.approx([0.0, 17.0**0.5])


def test_a_row_that_lacks_a_feature_has_no_numbers_where_nothing_is_filled_in(tmp_path: Path) -> None:
    encoder = Encoder(one_hot={"site": ("north",)})
    assert np.isnan(encoder.encoded(("site",), [[None, "north"]])).tolist() == [[True], [False]]
    model = Model("m", "kmeans", ("site",), None, (0.0,), (1.0,), ((1.0,),), encoder=encoder)
    assert model.predictions(tmp_path, [pa.array([None, "north", "west"])]).to_pylist() == [None, 0.0, 1.0]
