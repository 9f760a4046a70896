"""Passwords: what is remembered, what waits for a check, and what is asked before one is done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from enmasse.identity.login import LoginTarget
from enmasse.identity.password_checks import PasswordCheck, ScramCheck
from enmasse.identity.passwords import Checked, Passwords, Postponed, is_password_of
from enmasse.identity.permissions import Permissions
from enmasse.identity.users import DEFAULT_ITERATIONS, User, Users, make_keys
from enmasse.pending import Pending
from tests.unit.identity.people import exactly, person

PLACE = LoginTarget("ns/shop", "jo", is_open=False)


class LateChecker:
    """Keeps checks until a test has them done."""

    def __init__(self) -> None:
        self.waiting: list[tuple[PasswordCheck, Callable[[], Checked | None], Pending[Checked]]] = []
        self.asked_for: list[tuple[str, str]] = []
        self.done = 0

    def check(
        self, check: PasswordCheck, space: str, host: str, known: Callable[[], Checked | None]
    ) -> Pending[Checked]:
        pending: Pending[Checked] = Pending()
        self.waiting.append((check, known, pending))
        self.asked_for.append((space, host))
        return pending

    def go_on(self) -> None:
        check, known, pending = self.waiting.pop(0)
        found = known()
        if found is None:
            self.done += 1
            found = check.is_right()
        pending.settle(found)


class Client:
    host = "192.0.2.1"

    def __init__(self) -> None:
        self.reason: Postponed | None = None

    def postponed(self) -> Postponed | None:
        return self.reason


class Desk:
    """Passwords with a checker that is late, and the answers so far."""

    def __init__(self, *users: User) -> None:
        self.checker = LateChecker()
        self.passwords = Passwords(b"secret", self.checker)
        self.users = Users(users, b"seed")
        self.answers: list[Checked] = []

    def ask(self, password: str, name: str = "jo", client: Client | None = None) -> None:
        place = LoginTarget("ns/shop", name, is_open=False)
        user = self.users.find("ns/shop", name)
        found = self.passwords.check(self.users, place, user, password, client or Client())
        if isinstance(found, Pending):
            found.then(self.answers.append)
        else:
            self.answers.append(found)


def test_a_remembered_password_is_forgotten_with_its_key() -> None:
    passwords = Passwords(b"secret")
    before, after = person("jo"), person("jo", password="changed")
    for _ in range(2):
        assert passwords.check(Users([before]), PLACE, before, "secret") is True
    assert passwords.check(Users([after]), PLACE, after, "secret") is False
    assert passwords.check(Users([after]), PLACE, after, "changed") is True


def test_a_remembered_password_is_not_checked_again() -> None:
    desk = Desk(person("jo"))
    desk.ask("secret")
    assert not desk.answers
    desk.checker.go_on()
    desk.ask("secret")
    assert desk.answers == [True, True]
    desk.ask("guess")
    desk.ask("guess", "nobody")
    assert len(desk.checker.waiting) == 2, "for nobody as much is done"
    desk.checker.go_on()
    desk.checker.go_on()
    assert desk.answers[2:] == [False, False]
    assert desk.checker.done == 3


def costly(name: str, mechanism: str, iterations: int, space: str = "ns/shop") -> User:
    keys = {mechanism: make_keys(mechanism, "secret", b"salt", iterations)}
    return User(name, space, Permissions((), exactly), keys)


@pytest.mark.parametrize("name", ["jo", "cheap", "strong", "certified", "nobody"])
def test_a_wrong_password_costs_what_that_of_the_costliest_user_costs(name: str) -> None:
    desk = Desk(
        costly("jo", "SCRAM-SHA-256", 5_000),
        costly("cheap", "SCRAM-SHA-1", 4_096),
        costly("strong", "SCRAM-SHA-512", 4_100),
        person("certified", password=None),
        costly("other", "SCRAM-SHA-512", 9_000, "ns/other"),
    )
    desk.ask("guess", name)
    spent = 0
    while desk.checker.waiting:
        check = desk.checker.waiting[0][0]
        assert isinstance(check, ScramCheck)
        spent += check.iterations * (2 if check.name == "sha512" else 1)
        desk.checker.go_on()
    assert desk.answers == [False]
    assert 8_200 - spent in (0, 1)
    assert set(desk.checker.asked_for) == {("ns/shop", "192.0.2.1")}


def test_in_a_space_without_users_it_costs_what_the_costliest_of_all_costs() -> None:
    users = Users([costly("jo", "SCRAM-SHA-256", 5_000), costly("jo", "SCRAM-SHA-512", 4_096, "ns/other")])
    assert users.password_cost("ns/shop") == ("SCRAM-SHA-256", 5_000)
    assert users.password_cost("ns/none") == users.password_cost("") == ("SCRAM-SHA-512", 4_096)
    assert users.decoy_keys("SCRAM-SHA-256", "ns/shop", "x").iterations == 5_000
    assert Users([]).password_cost("ns/none") == ("SCRAM-SHA-256", DEFAULT_ITERATIONS)


def test_a_fleet_that_shares_a_password_has_it_checked_once() -> None:
    desk = Desk(person("jo"))
    for _ in range(3):
        desk.ask("secret")
    for _ in range(3):
        desk.checker.go_on()
    assert desk.answers == [True, True, True]
    assert desk.checker.done == 1


def test_a_wrong_password_is_never_remembered() -> None:
    desk = Desk(person("jo"))
    for _ in range(2):
        desk.ask("guess")
        desk.checker.go_on()
    assert desk.answers == [False, False]
    assert desk.checker.done == 2


def test_a_client_that_must_wait_or_has_gone_has_no_check_done() -> None:
    desk, client = Desk(person("jo")), Client()
    desk.ask("secret", client=client)
    client.reason = Postponed.GUESSES
    desk.checker.go_on()
    assert desk.answers == [Postponed.GUESSES]
    assert desk.checker.done == 0


def test_the_checker_learns_the_space_and_the_host() -> None:
    desk = Desk(person("jo"))
    desk.ask("secret")
    assert desk.checker.asked_for == [("ns/shop", "192.0.2.1")]


def test_a_forbidden_character_is_no_matter_for_a_check() -> None:
    desk = Desk(person("jo"))
    desk.ask("\x07")
    assert desk.answers == [False]
    assert not desk.checker.waiting


def test_keys_belong_to_their_password_alone() -> None:
    keys = person("jo", password="caf\u00e9").keys
    assert is_password_of(keys, "cafe\u0301")
    assert not is_password_of(keys, "cafe")
    assert not is_password_of({}, "cafe")
