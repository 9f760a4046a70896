"""Every way in which one tenant may try to reach another's, and that none leads there.

    python -m tests.tenancy.tenancy_page

writes the list as a page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.tenancy.tenancy_page import PAGE, WAYS, page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.tenancy.refusals import Way
    from tests.tenancy.tenants import Tenants

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def state_of_blue(tenants: Tenants) -> Iterator[Callable[[], Any]]:
    """All that blue has, by connections that stay: a login for each attempt would take longer than the attempt."""
    with tenants.watch_blue() as state:
        yield state


@pytest.fixture(scope="module")
def blue_as_it_was(state_of_blue: Callable[[], Any]) -> Any:
    return state_of_blue()


@pytest.fixture
def blue_stays_as_it_is(state_of_blue: Callable[[], Any], blue_as_it_was: Any) -> Iterator[None]:
    yield
    assert state_of_blue() == blue_as_it_was


@pytest.mark.usefixtures("blue_stays_as_it_is")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.words)
def test_red_does_not_get_to(way: Way, tenants: Tenants) -> None:
    way.attempt(tenants)


def test_there_are_many_ways_each_once() -> None:
    assert len(WAYS) >= 100
    words = [way.words for way in WAYS]
    assert len(words) == len(set(words))


def test_what_red_may_is_possible(tenants: Tenants) -> None:
    with tenants.connect() as red:
        red.sender("vault")
        red.receiver("vault")
    with tenants.http("red") as http:
        assert http.get("/apis/enmasse.io/v1beta1/namespaces/team-a/addresses").status_code == 200


def test_no_secret_is_in_logs_and_nobody_else_reads_the_files(tenants: Tenants) -> None:
    for path in (*tenants.data.rglob("*.log"), tenants.place.log):
        text = path.read_text(errors="replace")
        for secret in ("the formula of blue", "red as a beet", "blue as the sea", *tenants.tokens.values()):
            assert secret not in text, path
    for path in (tenants.data, tenants.data / "control"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == page(), "write it anew: python -m tests.tenancy.tenancy_page"
