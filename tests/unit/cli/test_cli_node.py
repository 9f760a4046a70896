"""``enmasse node``: arguments that mean nothing, and those that ``enmasse up`` writes down for what it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from enmasse.cli.commands.run.control import AuditChoice, control
from enmasse.cli.commands.run.node import _parser, run_node
from enmasse.cli.commands.run.up import up
from enmasse.cli.node_options import ALLOW_INSECURE_PLAIN, PROXY_FROM, USERS, WEB_ORIGIN, written
from enmasse.cli.options import arguments_of
from enmasse.errors import ConfigError


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_time_that_is_none_is_refused_with_an_example(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run_node(["--transaction-timeout", text])
    assert caught.value.code == 2
    assert "seconds are expected, such as 60 or 0.5" in capsys.readouterr().err


def test_a_node_reads_what_up_writes_down_for_it() -> None:
    arguments = [*written(USERS.flag, Path("/u")), *written(WEB_ORIGIN.flag, ["a", "b"])]
    arguments += written(PROXY_FROM.flag, ["127.0.0.2", "10.2.0.0/28"])
    options = _parser().parse_args([*arguments, *written(ALLOW_INSECURE_PLAIN.flag, True)])
    assert (options.proxy_from, options.proxy_certificate_names) == (["127.0.0.2", "10.2.0.0/28"], False)
    assert (options.users, options.web_origin, options.allow_insecure_plain) == (Path("/u"), ["a", "b"], True)
    silent = _parser().parse_args([*written(USERS.flag, None), *written(WEB_ORIGIN.flag, None)])
    assert (silent.users, silent.web_origin) == (None, None)


def test_control_is_given_the_options_of_up_under_the_names_that_it_declares() -> None:
    given = arguments_of(
        control, api_name=["a", "b"], audit_level=AuditChoice.ALL, api_key=Path("k"), api_oidc_ca=None
    )
    key = str(Path("k").absolute())
    assert given == ("--api-name", "a", "--api-name", "b", "--audit-level", "all", "--api-key", key)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("127.0.0.0/8", "comes from 127.0.0.1, too"),
        ("127.0.0.1", "source 127.0.0.2"),
        ("0.0.0.0/0", "comes from 127.0.0.1, too"),
        ("10.2.0.1/28", "expected a network"),
        ("balancer.example.org", "expected a network"),
    ],
)
def test_load_balancers_come_from_elsewhere_than_what_up_starts(network: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        up(data=tmp_path / "data", proxy_from=["10.2.0.0/28", network])
    assert not (tmp_path / "data").exists()
    assert run_node(["--data", str(tmp_path), "--proxy-from", "10.2.0.1/28"]) == 1
