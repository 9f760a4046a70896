"""Every kubectl that can be found, against one whole installation."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.interop.kubectl.kubectl_command import DEBIAN, Kubectl, address, newer_kubectl, space
from tests.support.foreign_tools import require
from tests.support.installation import Installation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation for all tests with kubectl; each has a namespace of its own."""
    found = Installation(tmp_path_factory.mktemp("kubectl") / "data")
    try:
        found.start()
        yield found
    finally:
        code = found.stop()
    assert code == 0
    assert "Traceback" not in found.log.read_text(), found.log.read_text()


_numbers = itertools.count(1)


@pytest.fixture(params=["distribution", "newer"])
def kubectl(
    request: pytest.FixtureRequest, installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Kubectl:
    """A kubectl in a new namespace: the distribution's, and a current one where there is one."""
    if request.param == "distribution":
        require("kubectl")
        binary: Path | None = DEBIAN
    else:
        binary = newer_kubectl()
        if binary is None:
            pytest.skip("there is no kubectl of 1.27 or later; ENMASSE_KUBECTL names one")
    assert binary is not None
    namespace = f"tenant-{next(_numbers)}"
    home = _home(tmp_path_factory, request.param)
    found = Kubectl(binary, _config(installation), namespace, home)
    found.ok("create", "namespace", namespace)
    return found


@pytest.fixture
def shop(kubectl: Kubectl) -> Kubectl:
    """The same, with a space and a queue that are ready."""
    kubectl.apply(space(), address())
    kubectl.ok("wait", "--for=condition=Ready", "--timeout=60s", "address/shop.orders", "addressspace/shop")
    return kubectl


def _config(installation: Installation) -> Path:
    path = installation.data / "kubeconfig"
    if not path.exists():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KUBECONFIG", str(path))
            installation.ok("login", "--kubeconfig")
    return path


_homes: dict[str, Path] = {}


def _home(factory: pytest.TempPathFactory, name: str) -> Path:
    """A home directory for all runs of one kubectl: what it discovered once need not be asked for again."""
    return _homes.setdefault(name, factory.mktemp(name))
