"""One installation for all attempts."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.installation import Installation
from tests.tenancy.tenants import NAMESPACES, PASSWORDS, Tenants, declare, fill

PLANS = "/apis/admin.enmasse.io/v1beta2/namespaces/enmasse-infra/addressspaceplans"


@pytest.fixture(scope="session")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    place = Installation(tmp_path_factory.mktemp("tenancy") / "data")
    place.ok("account", "add", "root-of-all", "--admin", stdin="nobody guesses this\n")
    try:
        place.start("--api-auth", "required")
        # Their spaces may have plans without bounds.
        token = place.ok("token", "create", "--account", "root-of-all", "--note", "plans").strip()
        for plan in ("standard-small", "standard-medium", "standard-unlimited", "brokered-single-broker"):
            httpx.patch(
                f"{place.url('api')}{PLANS}/{plan}",
                json={"spec": {"namespaces": list(NAMESPACES.values())}},
                headers={"authorization": f"Bearer {token}", "content-type": "application/merge-patch+json"},
                trust_env=False,
            ).raise_for_status()
        both = Tenants(place, place.url("amqp"), place.url("amqps"), place.url("api"))
        for who, namespace in NAMESPACES.items():
            place.ok("create", "namespace", namespace)
            place.ok("account", "add", who, stdin=f"{PASSWORDS[who]}\n")
            place.ok("account", "grant", who, "tenant-edit", "--namespace", namespace)
            both.tokens[who] = place.ok("token", "create", "--account", who, "--note", "tests").strip()
            declare(both, who, namespace)
        fill(both)
        yield both
    finally:
        code = place.stop()
    assert code == 0
