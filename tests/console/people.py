"""People with accounts and roles, for pages that are shown to others than the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.support.installation import Installation

_RBAC = "rbac.authorization.k8s.io"


class People:
    """Accounts of an installation, made and given rights over its API.

    Args:
        installation: that runs.
    """

    def __init__(self, installation: Installation) -> None:
        self.origin = installation.url("api")
        self._http = httpx.Client(base_url=self.origin, headers=installation.proof, trust_env=False, timeout=60)

    def close(self) -> None:
        self._http.close()

    def password(self, name: str) -> str:
        return f"the horse of {name}"

    def add(self, name: str, role: str = "tenant-edit", namespace: str = "default") -> None:
        form = {"username": name, "password": self.password(name)}
        answer = self._http.post("/apis/access.enmasse.io/v1beta1/accounts", json=form)
        assert answer.status_code == 201, answer.text
        self.grant(name, role, namespace)

    def add_namespace(self, name: str) -> None:
        form = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        answer = self._http.post("/api/v1/namespaces", json=form)
        assert answer.status_code == 201, answer.text

    def grant(self, name: str, role: str, namespace: str = "default") -> None:
        answer = self._http.post(
            f"/apis/{_RBAC}/v1/namespaces/{namespace}/rolebindings",
            json={
                "apiVersion": f"{_RBAC}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": f"{name}-{role}".replace(":", "-")},
                "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": f"enmasse.io:{role}"},
                "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": name}],
            },
        )
        assert answer.status_code == 201, answer.text

    def revoke(self, name: str, role: str, namespace: str = "default") -> None:
        answer = self._http.delete(f"/apis/{_RBAC}/v1/namespaces/{namespace}/rolebindings/{name}-{role}")
        assert answer.status_code == 200, answer.text

    def end_session(self, cookies: Iterable[Mapping[str, object]]) -> None:
        """End a browser's session as a time-out does: the browser keeps its cookie."""
        [secret] = [str(cookie["value"]) for cookie in cookies if cookie["name"] == "enmasse_session"]
        answer = httpx.post(
            f"{self.origin}/logout",
            cookies={"enmasse_session": secret},
            headers={"Origin": self.origin},
            trust_env=False,
        )
        assert answer.status_code == 200, answer.text
