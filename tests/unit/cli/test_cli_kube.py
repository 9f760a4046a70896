"""`enmasse kube`: definitions for a cluster, and manifests that are too much for anybody."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from enmasse.model.crd import crds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    Cli = Callable[..., Any]


def test_the_definitions_are_written_to_the_output(cli: Cli) -> None:
    result = cli("kube", "crds")
    assert (result.code, list(yaml.safe_load_all(result.out))) == (0, crds())


def test_the_definitions_are_written_to_files(cli: Cli, tmp_path: Path) -> None:
    assert cli("kube", "crds", "--to", str(tmp_path / "crds")).code == 0
    assert sorted(path.name for path in (tmp_path / "crds").iterdir()) == sorted(
        f"{item['metadata']['name']}.yaml" for item in crds()
    )
    (tmp_path / "file").touch()
    assert cli("kube", "crds", "--to", str(tmp_path / "file")).code == 3


ADDRESS = (
    "apiVersion: enmasse.io/v1beta1\nkind: Address\nmetadata: {name: shop.a}\nspec: {address: a, type: queue}\n---\n"
)
BOMB = "".join(
    f"a{level}: &a{level} [{', '.join(['*a' + str(level - 1)] * 9 if level else ['x'] * 9)}]\n" for level in range(12)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(ADDRESS * (10_000_000 // len(ADDRESS)), "at most 8 MiB; split the file", id="10-megabytes"),
        pytest.param(ADDRESS + "[" * 100_000, "nested more than 32 deep", id="deep"),
        pytest.param(ADDRESS + BOMB, "values (aliases written out)", id="alias-bomb"),
    ],
)
def test_nothing_of_a_file_beyond_the_bounds_is_applied(
    cli: Cli, api: str, tmp_path: Path, text: str, message: str
) -> None:
    del api
    path = tmp_path / "big.yaml"
    path.write_text(text)
    result = cli("apply", "-f", str(path))
    assert result.code == 1
    assert str(path) in result.err
    assert message in result.err
    assert json.loads(cli("get", "addresses", "-o", "json").out)["items"] == []
