"""``enmasse node``: what it says of arguments that mean nothing."""

from __future__ import annotations

import pytest

from enmasse.cli.node import run_node


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_time_that_is_none_is_refused_with_an_example(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run_node(["--transaction-timeout", text])
    assert caught.value.code == 2
    assert "seconds are expected, such as 60 or 0.5" in capsys.readouterr().err
