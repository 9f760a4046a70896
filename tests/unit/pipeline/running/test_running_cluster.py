from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from enmasse.errors import UnavailableError
from enmasse.pipeline.running.command import require_executor, require_master


def test_one_master_that_answers_is_enough_and_none_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        living = server.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as other:
            dead = other.getsockname()[1]
        require_master(f"spark://127.0.0.1:{dead},127.0.0.1:{living}")
    with pytest.raises(UnavailableError, match=rf"spark://127\.0\.0\.1:{dead} cannot be reached: Connection refused"):
        require_master(f"spark://127.0.0.1:{dead}")
    with pytest.raises(UnavailableError, match="cannot be reached"):
        require_master("spark://no-port")


@pytest.mark.parametrize("members", [1, 2])
def test_a_cluster_that_gives_no_executor_is_told_of(members: int) -> None:
    context = SimpleNamespace(getExecutorMemoryStatus=lambda: SimpleNamespace(size=lambda: members))
    java = SimpleNamespace(sc=lambda: context)
    settings = SimpleNamespace(get=lambda _name, default: default)
    spark = cast("Any", SimpleNamespace(sparkContext=SimpleNamespace(_jsc=java), conf=settings))
    if members > 1:
        require_executor(spark, "spark://a:1", 0)
    else:
        with pytest.raises(UnavailableError, match=r"no executor in 0 s: it needs a living worker .* 1g of free"):
            require_executor(spark, "spark://a:1", 0)
