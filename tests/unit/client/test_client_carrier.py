"""One physical connection: what happens when it is given up at the worst moment."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from enmasse.client.carrier import Carrier
from enmasse.client.options import Options, parse_url


@pytest.mark.parametrize("over", ["tcp", "unix"])
async def test_dialling_can_be_given_up_at_the_moment_of_connecting(
    serving: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, over: str
) -> None:
    async with serving(tmp_path / "s" if over == "unix" else None) as server:
        url = parse_url(server.url)
        carrier = Carrier(Options((url,), "c"), url, lambda _carrier, _error: None)
        make_engine = Carrier._make_engine

        def give_up(self: Carrier, *arguments: Any) -> Any:
            dialling.cancel()
            return make_engine(self, *arguments)

        monkeypatch.setattr(Carrier, "_make_engine", give_up)
        dialling = asyncio.ensure_future(carrier.dial(5))
        async with asyncio.timeout(60):
            await asyncio.wait([dialling])
        assert dialling.cancelled()
        assert carrier._shell is not None
        assert carrier._shell.is_lost
        assert "failed" not in caplog.text
