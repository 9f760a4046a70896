"""Every way in which red may try to have certificates vouch for others than red's own devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.tenancy.ways_certificates import WAYS

if TYPE_CHECKING:
    from tests.tenancy.refusals import Way
    from tests.tenancy.tenants import Tenants

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.words)
def test_red_does_not_get_to(way: Way, tenants: Tenants) -> None:
    way.attempt(tenants)
