"""What a refused login of a device costs: the same, whatever it is refused for."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import bcrypt
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from enmasse.identity.password_checks import DigestCheck, PasswordCheck
from enmasse.identity.passwords import Checked, Passwords, Postponed
from enmasse.node.devices.directory import DEFAULT_COST, Directory
from enmasse.node.devices.login import MAX_COST, DeviceLogin
from enmasse.node.devices.tenants import Tenant
from enmasse.pending import Pending
from enmasse.wire.sasl.mechanisms import SaslCode, Verdict

FARM = "ns/farm"


def bcrypted(password: str, cost: int = 5) -> dict[str, Any]:
    digest = bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost, prefix=b"2a")).decode()
    return {"hash-function": "bcrypt", "pwd-hash": digest}


QUICK = {"hash-function": "sha-256", "pwd-hash": b64encode(bytes(32)).decode(), "salt": ""}
DEVICES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "usual": ({}, {"secrets": [bcrypted("right")]}),
    "cheap": ({}, {"secrets": [bcrypted("right", 4)]}),
    "quick": ({}, {"secrets": [QUICK]}),
    "two": ({}, {"secrets": [bcrypted("right", 4), bcrypted("former", 4)]}),
    "three": ({}, {"secrets": [QUICK, bcrypted("right", 4), QUICK]}),
    "ended": ({}, {"secrets": [bcrypted("right") | {"not-after": "2000-01-01T00:00:00Z"}]}),
    "disabled": ({"enabled": False}, {"secrets": [bcrypted("right")]}),
    "without proof": ({}, {"secrets": [bcrypted("right")], "enabled": False}),
}
BARN = Tenant("ns.barn", FARM, {}, 1 << 5)


class Checker:
    """Does checks at once, and notes what they were."""

    def __init__(self) -> None:
        self.costs: list[int] = []
        self.spaces: set[str] = set()

    def check(self, check: PasswordCheck, space: str, host: str, known: Callable[[], Checked | None]) -> Checked:
        assert isinstance(check, DigestCheck)
        self.costs.append(1 << int(check.stored[4:6]) if check.function == "bcrypt" else 0)
        self.spaces.add(space)
        found = known()
        return check.is_right() if found is None else found


class Client:
    """Who logs in."""

    host = "192.0.2.7"

    def __init__(self) -> None:
        self.after = 1_000
        """Checks after which no other is to be done."""

    def postponed(self) -> Postponed | None:
        self.after -= 1
        return Postponed.BUSY if self.after < 0 else None


class Barn:
    """The devices of a tenant, and others."""

    def __init__(self, *tenants: Tenant) -> None:
        self.directory = Directory(lambda: 0.0, self.ask, lambda _tenant: None, lambda _tenant, _device: None)
        for tenant in tenants or (BARN,):
            self.directory.put_tenant(tenant)
        self.checker = Checker()
        self.client = Client()
        self.keys: list[dict[str, Any]] = []

    def ask(self, question: dict[str, Any], answered: Callable[[dict[str, Any] | None], None]) -> bool:
        name, found = question["auth-id"], None
        if name in DEVICES and question["type"] == "hashed-password":
            device, credentials = DEVICES[name]
            found = {"device-id": name, "device": device, "credentials": credentials}
        if name == "usual" and question["type"] == "rpk":
            found = {"device-id": name, "device": {}, "credentials": {"secrets": self.keys}}
        answered({"found": found, "password-cost": BARN.password_cost})
        return True

    def login(self, realm: str = BARN.id) -> DeviceLogin:
        passwords = Passwords(b"secret", self.checker)
        tenant = self.directory.tenant(realm)
        return DeviceLogin(
            self.directory, passwords, tenant, realm, client=self.client, wall=lambda: 1e9, ask=self.ask
        )


def outcome(verdict: Verdict) -> Verdict:
    assert not isinstance(verdict, Pending) or verdict.answer is not None
    return verdict.answer[0] if isinstance(verdict, Pending) and verdict.answer is not None else verdict


@pytest.mark.parametrize("password", ["wrong", "", "\0", "x" * 73, "\N{SNOWMAN}" * 40])
@pytest.mark.parametrize("name", [*DEVICES, "nobody", "wrong type"])
def test_a_wrong_password_costs_the_same_whatever_is_wrong(name: str, password: str) -> None:
    barn = Barn()
    assert outcome(barn.login().password(name, password)) is False
    assert sum(barn.checker.costs) == BARN.password_cost
    assert barn.checker.spaces == {FARM}


def test_a_right_password_costs_no_more_than_its_own_check() -> None:
    barn = Barn()
    assert outcome(barn.login().password("cheap", "right")) is True
    assert barn.checker.costs == [1 << 4]


@pytest.mark.parametrize("name", ["usual", "nobody"])
def test_so_it_is_in_a_tenant_that_is_disabled(name: str) -> None:
    barn = Barn(Tenant(BARN.id, FARM, {"enabled": False}, 1 << 6))
    login = barn.login()
    assert outcome(login.password(name, "right")) is False
    assert (barn.checker.costs, login.reason) == ([1 << 6], "the tenant is disabled")


def test_a_tenant_that_there_is_not_costs_what_one_that_there_is_costs() -> None:
    tenants = [Tenant(f"ns.t{number}", FARM, {}, cost) for number, cost in enumerate((1 << 4, 1 << 6, 0))]
    barn = Barn(*tenants)
    found = set()
    for number in range(40):
        costs = []
        for _ in range(2):
            barn.checker.costs.clear()
            assert outcome(barn.login(f"nosuch{number}").password("lamp", "x")) is False
            costs.append(sum(barn.checker.costs))
            assert barn.checker.costs, "it waits for its turn at least"
        assert costs[0] == costs[1]
        found.add(costs[0])
    assert found == {1 << 4, 1 << 6, 0}
    assert Directory(lambda: 0.0, barn.ask, lambda _: None, lambda _t, _d: None).made_up_cost("x") == DEFAULT_COST


def test_what_a_tenant_without_passwords_costs_is_a_turn_in_the_queue() -> None:
    barn = Barn(Tenant("ns.shed", FARM, {"enabled": False}))
    assert outcome(barn.login("ns.shed").password("nobody", "x")) is False
    assert barn.checker.costs == [0]


def test_what_is_spent_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DigestCheck, "is_right", lambda _check: False)
    barn = Barn(Tenant("ns.shed", FARM, {"enabled": False}, 20 << 12))
    assert outcome(barn.login("ns.shed").password("nobody", "x")) is False
    assert 0 <= MAX_COST - sum(barn.checker.costs) < 16


@pytest.mark.parametrize(
    ("name", "checks", "verdict"),
    [
        ("usual", 0, SaslCode.SYS_TEMP),
        ("nobody", 0, SaslCode.SYS_TEMP),
        ("quick", 0, SaslCode.SYS_TEMP),
        ("quick", 1, False),
        ("nobody", 1, False),
    ],
)
def test_who_is_put_off_before_anything_was_checked_is_told_so_and_none_later(
    name: str, checks: int, verdict: Verdict
) -> None:
    barn = Barn()
    barn.client.after = checks
    assert outcome(barn.login().password(name, "wrong")) == verdict


# Tokens

PRIVATE: dict[str, Any] = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "ES512": ec.generate_private_key(ec.SECP521R1()),
    "RS256": rsa.generate_private_key(65_537, 2_048),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
PRIVATE["PS512"] = PRIVATE["RS256"]
KINDS = {"E": "EC", "R": "RSA", "P": "RSA"}


def public(algorithm: str) -> dict[str, Any]:
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    kind = "EdDSA" if algorithm == "EdDSA" else KINDS[algorithm[0]]
    return {"key": b64encode(PRIVATE[algorithm].public_key().public_bytes(*form)).decode(), "algorithm": kind}


@pytest.mark.parametrize("registered", ["ES256", "RS256"])
@pytest.mark.parametrize("algorithm", PRIVATE)
@pytest.mark.parametrize("name", ["usual", "nobody", "disabled"])
def test_a_token_of_nobody_is_held_against_a_key_as_that_of_a_device_is(
    monkeypatch: pytest.MonkeyPatch, name: str, algorithm: str, registered: str
) -> None:
    verified: list[str] = []
    decode = jwt.decode

    def noted(token: str, key: Any = None, **options: Any) -> Any:
        try:
            return decode(token, key, **options)
        except jwt.InvalidSignatureError:
            verified.append(algorithm)
            raise

    monkeypatch.setattr(jwt, "decode", noted)
    barn = Barn()
    other: dict[str, Any] = {
        "ES256": ec.generate_private_key(ec.SECP256R1()),
        "RS256": rsa.generate_private_key(65_537, 2_048),
    }
    other["PS512"] = other["RS256"]
    barn.keys = [public(registered)]
    token = jwt.encode({"iat": 1e9, "exp": 1e9 + 60}, other.get(algorithm, PRIVATE[algorithm]), algorithm=algorithm)
    assert outcome(barn.login().token(name, token)) is False
    assert verified == [algorithm]


def test_nonsense_and_unknown_algorithms_are_refused_as_ever() -> None:
    barn = Barn()
    for token in ("eyJ.x.y", "", "a.b.c", jwt.encode({}, "a key of thirty-two bytes, or more", algorithm="HS256")):
        for name in ("usual", "nobody"):
            assert outcome(barn.login().token(name, token)) is False
