"""Models of ONNX, made of scikit-learn's as `enmasse model import` does, and what they predict."""

from __future__ import annotations

import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from enmasse.cli.commands.use.model_file import as_onnx, read_features
from enmasse.cli.errors import CliError, UsageError
from enmasse.pipeline.builtin.models import Model, Models, roll_back
from enmasse.pipeline.builtin.onnx_model import KEPT, OnnxModel, import_model, saved
from enmasse.pipeline.errors import ModelMissingError, PlanError

NEEDED = ("joblib", "onnxruntime", "sklearn", "skl2onnx", "skops")
"""Imported by tests alone: together they take seconds, which every worker would spend to find the tests."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    *(pytest.mark.skipif(find_spec(name) is None, reason=f"{name} is not installed") for name in NEEDED),
]

RANDOM = np.random.default_rng(7)
ROWS = pd.DataFrame(
    {"load": RANDOM.random(200), "rpm": RANDOM.random(200), "site": RANDOM.choice(["north", "south"], 200)}
)
POWER = 3 * ROWS["load"] + ROWS["rpm"] + 10 * (ROWS["site"] == "north")


def mixed() -> Any:
    """A regression over numbers that may lack, and text."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    columns = ColumnTransformer(
        [("n", numbers, ["load", "rpm"]), ("s", OneHotEncoder(handle_unknown="ignore"), ["site"])]
    )
    return make_pipeline(columns, LinearRegression()).fit(ROWS, POWER)


def doubled(values: Any) -> Any:
    """A function that a file of skops names, and does not hold."""
    return values * 2


def odd(function: Any) -> Any:
    """A pipeline of which no ONNX can be made."""
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    return make_pipeline(FunctionTransformer(function), LinearRegression())


def dump(model: Any, path: Path) -> None:
    """Write a model in the form that the file's name says."""
    import joblib
    import skops.io

    (skops.io if path.suffix == ".skops" else joblib).dump(model, path)


def levels() -> Any:
    """A classifier with names as classes."""
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(5, random_state=7).fit(
        ROWS[["load", "rpm"]].to_numpy(), np.where(POWER > 7, "high", "low")
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "models" / "pumps"


def imported(folder: Path, content: bytes, *features: str, output: str | None = None) -> OnnxModel:
    found = import_model(folder, content, features, output)
    return Models(folder).add(found, lambda version: saved(content, version), KEPT)


def test_a_scikit_learn_pipeline_predicts_as_it_did_where_it_was_fitted(tmp_path: Path, folder: Path) -> None:
    fitted = mixed()
    dump(fitted, tmp_path / "pumps.skops")
    content, names = as_onnx(tmp_path / "pumps.skops", read_features("load,rpm,site:string"), trust=True)
    model = imported(folder, content, *names)
    assert (model.features, model.returns, model.version) == (("load", "rpm", "site"), "DOUBLE", "000001")
    assert Models(folder).read("000001") == model
    some = ROWS.head(20).assign(load=lambda rows: rows["load"].where(rows.index != 3))
    columns = [pa.array(some[name], from_pandas=True) for name in model.features]
    found = model.predictions(folder / model.version, columns)
    assert found.to_pylist() == pytest.approx(fitted.predict(some).tolist(), abs=1e-4)


def test_a_classifier_gives_classes_or_probabilities(tmp_path: Path, folder: Path) -> None:
    fitted = levels()
    dump(fitted, tmp_path / "levels.joblib")
    content, names = as_onnx(tmp_path / "levels.joblib", [], trust=True)
    assert names == ["f1", "f2"]
    model = imported(folder, content, "load", "rpm")
    some = ROWS.head(10)
    columns = [pa.array(some["load"]), pa.array(some["rpm"])]
    assert model.returns == "STRING"
    given = some[["load", "rpm"]].to_numpy()
    assert model.predictions(folder / "000001", columns).to_pylist() == fitted.predict(given).tolist()
    model = imported(folder, content, output="probabilities")
    assert (model.features, model.returns) == (("f1", "f2"), "ARRAY<DOUBLE>")
    probabilities = model.predictions(folder / "000002", columns).to_pylist()
    assert np.asarray(probabilities) == pytest.approx(fitted.predict_proba(given), abs=1e-5)
    with pytest.raises(PlanError, match="there is no output 'odds'; there are label, probabilities"):
        import_model(folder, content, (), "odds")
    with pytest.raises(PlanError, match="it takes 2 features, and 1 are named"):
        import_model(folder, content, ("load",))


def test_a_version_that_was_imported_counts_until_it_is_rolled_back(tmp_path: Path, folder: Path) -> None:
    trained = Models(folder).add(Model("pumps", "kmeans", ("a",), None, (0.0,), (1.0,)), lambda _: None, KEPT)
    dump(levels(), tmp_path / "levels.pkl")
    imported(folder, as_onnx(tmp_path / "levels.pkl", [], trust=True)[0])
    assert Models(folder).current() == "000002"
    with pytest.raises(PlanError, match=r"was imported, and has no score: call it in SQL, as model_pumps\(f1, f2\)"):
        Models(folder).load("000002")
    assert roll_back(folder) == trained.version


def test_a_pickle_is_loaded_by_nobody_who_does_not_trust_it(tmp_path: Path, folder: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "sprung",)

    (tmp_path / "trap.pkl").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UsageError, match="is a pickle, which runs as code, here and as you"):
        as_onnx(tmp_path / "trap.pkl", [], trust=False)
    with pytest.raises(PlanError, match="this is a pickle, which runs as code when it is loaded"):
        import_model(folder, (tmp_path / "trap.pkl").read_bytes(), ())
    dump(odd(doubled), tmp_path / "odd.skops")
    with pytest.raises(UsageError, match=r"has types that may run code: .*doubled"):
        as_onnx(tmp_path / "odd.skops", [], trust=False)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.txt", b"", "expected a file .onnx, .skops, .pkl, .pickle or .joblib"),
        ("a.skops", b"no zip", "cannot be loaded: "),
        ("a.pkl", b"no pickle", "cannot be loaded: "),
        ("a.pickle", pickle.dumps({"a": 1}), "holds a dict: expected a fitted model of scikit-learn"),
    ],
)
def test_a_file_that_is_no_model_is_named(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CliError, match=told):
        as_onnx(tmp_path / name, [], trust=True)


def test_what_cannot_be_made_onnx_is_said(tmp_path: Path) -> None:
    pickled = odd(np.sqrt).fit(ROWS[["load"]].to_numpy(), POWER)
    dump(pickled, tmp_path / "odd.joblib")
    with pytest.raises(CliError, match="no ONNX can be made of this Pipeline with the features f1:float"):
        as_onnx(tmp_path / "odd.joblib", [], trust=True)
    with pytest.raises(UsageError, match="fitted with 1 features, and 2 are named"):
        as_onnx(tmp_path / "odd.joblib", read_features("a,b"), trust=True)
    with pytest.raises(UsageError, match="expected NAME or NAME:TYPE with float, string, int, got 'a:text'"):
        read_features("a:text")


def test_bytes_that_are_no_onnx_and_values_that_are_none_are_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(PlanError, match="model pumps: expected a file of ONNX"):
        import_model(folder, b"nothing", ())
    dump(levels(), tmp_path / "levels.pkl")
    model = imported(folder, as_onnx(tmp_path / "levels.pkl", [], trust=True)[0])
    with pytest.raises(PlanError, match=r"a feature of type tensor\(float\) has a value that is none"):
        model.predictions(folder / "000001", [pa.array(["hot"]), pa.array([1.0])])


def test_a_model_may_not_read_files_beside_its_own(tmp_path: Path, folder: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    (tmp_path / "secret").write_bytes(np.asarray([7.0], np.float32).tobytes())
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=str(tmp_path / "secret"))
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "reads",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1])],
        [tensor],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    for location in (str(tmp_path / "secret"), "../secret", "../../secret"):
        made.graph.initializer[0].external_data[0].value = location
        with pytest.raises(PlanError, match="expected a file of ONNX"):
            import_model(folder, made.SerializeToString(), ())
    assert onnx.__version__


def test_models_that_were_trained_here_predict_in_sql_too(folder: Path) -> None:
    line = Model("m", "regression", ("a",), "y", mean=(1.0,), scale=(1.0,), weights=(2.0,), intercept=5.0)
    assert line.predictions(folder, [pa.array([1, 2, None])]).to_pylist() == [5.0, 7.0, None]
    near = Model("m", "kmeans", ("a",), None, mean=(0.0,), scale=(1.0,), centres=((0.0,), (4.0,)))
    assert near.predictions(folder, [pa.array([1.0, 4.0, None])]).to_pylist() == [1.0, 0.0, None]
    with pytest.raises(ModelMissingError, match="enmasse model import"):
        Models(folder).current()
