"""Keycloak's administration over HTTP: a realm, a client and users for each space.

Rules:
1. Realms and users that EnMasse makes are marked by attributes. Nothing else is changed or removed.
2. Passwords are never known here: Keycloak gets hashes that it can check.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from enmasse.control.ports import RealmConflictError, RealmUnavailableError, RealmUser
from enmasse.errors import ConfigError
from enmasse.identity.federation import CLIENT
from enmasse.identity.oidc_settings import check_provider_url, is_loopback

OWNER, SPACE = "enmasse.owner", "enmasse.space"
"""Attributes of a realm: its owner, and the uid of its space."""

UID, CREDENTIALS = "enmasse.uid", "enmasse.credentials"
"""Attributes of a user: the uid of its MessagingUser, and which password it has."""

TOKEN_S = 300
"""The lifetime of a token: a connection ends with it. Keycloak's own default is one minute longer than useful."""


def realm_form(name: str, owner: str, space_uid: str) -> dict[str, Any]:
    """Return the representation of a realm."""
    return {
        "realm": name,
        "enabled": True,
        "accessTokenLifespan": TOKEN_S,
        # Whoever guesses is slowed down, wherever the guesses come from.
        "bruteForceProtected": True,
        "registrationAllowed": False,
        "attributes": {OWNER: owner, SPACE: space_uid},
    }


def client_form() -> dict[str, Any]:
    """Return the client that tokens are issued for: their audience, and the groups of the user."""
    return {
        "clientId": CLIENT,
        "name": "Messaging",
        "enabled": True,
        "publicClient": True,
        "directAccessGrantsEnabled": True,
        "standardFlowEnabled": False,
        "fullScopeAllowed": False,
        "protocolMappers": [
            _mapper("audience", "oidc-audience-mapper", {"included.client.audience": CLIENT}),
            _mapper("groups", "oidc-group-membership-mapper", {"claim.name": "groups", "full.path": "false"}),
            _mapper(
                "name",
                "oidc-usermodel-attribute-mapper",
                {"user.attribute": "username", "claim.name": "preferred_username", "jsonType.label": "String"},
            ),
        ],
    }


def _mapper(name: str, kind: str, config: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "protocol": "openid-connect",
        "protocolMapper": kind,
        "config": {**config, "access.token.claim": "true"},
    }


def profile_form() -> dict[str, Any]:
    """The required attributes of a user: a device has neither a first name nor a mail address."""
    permissions = {"view": ["admin", "user"], "edit": ["admin"]}
    return {
        "attributes": [
            {"name": "username", "validations": {"length": {"min": 1, "max": 255}}, "permissions": permissions},
            {"name": "email", "validations": {"email": {}}, "permissions": permissions},
        ],
        "unmanagedAttributePolicy": "ADMIN_EDIT",
    }


def differs(wanted: Any, found: Any) -> bool:
    """Return whether a form lacks anything of what is wanted; what it has beside that is ignored."""
    if isinstance(wanted, Mapping):
        return not isinstance(found, Mapping) or any(differs(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        if not isinstance(found, list):
            return True
        return any(all(differs(item, other) for other in found) for item in wanted)
    return bool(wanted != found)


TIMEOUT_S = 20.0
"""A Keycloak that has just started takes seconds to make a realm."""

PAGE = 100
AT_ONCE = 4

_log = logging.getLogger(__name__)

logging.getLogger("httpx").setLevel(logging.WARNING)


class KeycloakAdmin:
    """One Keycloak; a ``RealmAdmin``.

    Args:
        url: the URL of the service.
        user: an administrator's name, in the realm ``master``.
        password: the administrator's password.
        ca_cert: PEM of the authorities to trust; empty: the system's.
    """

    def __init__(self, url: str, user: str, password: str, ca_cert: str = "") -> None:
        self._url = url.rstrip("/")
        self._user = user
        self._password = password
        self._ca_cert = ca_cert
        self._http: httpx.AsyncClient | None = None
        self._token = ""
        self._token_until = 0.0
        self._login = asyncio.Lock()
        self._groups: dict[str, dict[str, str]] = {}
        """Realm to the groups that it is known to have, name to id."""
        self._some = asyncio.Semaphore(AT_ONCE)

    async def close(self) -> None:
        """Give up what is under way."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    # Realms

    async def realms(self, owner: str) -> dict[str, str]:
        """Return the realms of an owner: name to the uid of the space."""
        found = await self._get("")
        return {
            realm["realm"]: (realm.get("attributes") or {}).get(SPACE, "")
            for realm in found
            if (realm.get("attributes") or {}).get(OWNER) == owner
        }

    async def ensure_realm(self, name: str, owner: str, space_uid: str) -> None:
        """Ensure that the realm is as it should be; see ``RealmAdmin``."""
        wanted = realm_form(name, owner, space_uid)
        found = await self._find(_path(name))
        if found is not None:
            attributes = found.get("attributes") or {}
            if attributes.get(OWNER) != owner:
                raise RealmConflictError(f"realm {name!r} exists and was not made for this installation; rename it")
            if attributes.get(SPACE) != space_uid:
                # A space of the same name was there before: its users are not this one's.
                await self.delete_realm(name)
                found = None
        if found is None:
            self._groups.pop(name, None)
            await self._write("POST", "", wanted)
        elif differs(wanted, found):
            merged = {**wanted, "attributes": {**(found.get("attributes") or {}), **wanted["attributes"]}}
            await self._write("PUT", _path(name), merged)
        profile = profile_form()
        if differs(profile, await self._get(_path(name, "users", "profile"))):
            await self._write("PUT", _path(name, "users", "profile"), profile)
        await self._ensure_client(name)

    async def _ensure_client(self, realm: str) -> None:
        wanted = client_form()
        found = await self._get(_path(realm, "clients"), clientId=CLIENT)
        if not found:
            await self._write("POST", _path(realm, "clients"), wanted)
        elif differs(wanted, found[0]):
            # Mappers have a path of their own, so a client that is not as it should be is made anew.
            await self._write("DELETE", _path(realm, "clients", found[0]["id"]))
            await self._write("POST", _path(realm, "clients"), wanted)

    async def delete_realm(self, name: str) -> None:
        """Remove a realm with all users."""
        self._groups.pop(name, None)
        await self._write("DELETE", _path(name), accepts=(404,))

    # Users

    async def users(self, realm: str) -> dict[str, RealmUser]:
        """Return all messaging users of a realm by name."""
        groups: dict[str, set[str]] = {}
        self._groups[realm] = {}
        async for group in self._pages(_path(realm, "groups")):
            self._groups[realm][group["name"]] = group["id"]
            async for member in self._pages(_path(realm, "groups", group["id"], "members")):
                groups.setdefault(member["id"], set()).add(group["name"])
        found = {}
        async for user in self._pages(_path(realm, "users"), briefRepresentation="false"):
            if _marked(user, UID):
                found[user["username"]] = _read_user(user, groups.get(user["id"], ()))
        return found

    async def find_user(self, realm: str, username: str) -> RealmUser | None:
        """Return one messaging user of a realm."""
        found = await self._get(_path(realm, "users"), username=username, exact="true", briefRepresentation="false")
        ours = [user for user in found if _marked(user, UID)]
        if not ours:
            return None
        groups = await self._get(_path(realm, "users", ours[0]["id"], "groups"), max="1000")
        return _read_user(ours[0], (group["name"] for group in groups))

    async def put_user(
        self, realm: str, user: RealmUser, present: RealmUser | None, password: Mapping[str, Any] | None
    ) -> None:
        """Create or update a user; see ``RealmAdmin``."""
        if present is not None and (present.uid, present.revision) != (user.uid, user.revision):
            # Its sessions end with it, and its former password is no longer accepted.
            await self.delete_user(realm, present)
            present = None
        ids = {name: await self._group(realm, name) for name in sorted(user.groups)}
        if present is None:
            form: dict[str, Any] = {
                "username": user.username,
                "enabled": True,
                "attributes": {UID: [user.uid], CREDENTIALS: [user.revision]},
                "credentials": [] if password is None else [_credential(password)],
            }
            status = await self._write("POST", _path(realm, "users"), form, accepts=(409,))
            if status == 409:
                raise RealmConflictError(f"realm {realm!r} has another user {user.username!r}")
            found = await self._get(_path(realm, "users"), username=user.username, exact="true")
            if not found:
                raise RealmUnavailableError(f"user {user.username!r} was deleted again")
            present = RealmUser(user.username, user.uid, user.revision, frozenset(), found[0]["id"])
        place = (realm, "users", present.id, "groups")
        for name in sorted(user.groups - present.groups):
            await self._write("PUT", _path(*place, ids[name]))
        for name in sorted(present.groups - user.groups):
            await self._write("DELETE", _path(*place, await self._group(realm, name)), accepts=(404,))

    async def delete_user(self, realm: str, user: RealmUser) -> None:
        """Remove a user."""
        await self._write("DELETE", _path(realm, "users", user.id), accepts=(404,))

    async def _group(self, realm: str, name: str) -> str:
        """Return the id of a group, which is created if it is missing."""
        known = self._groups.setdefault(realm, {})
        if name not in known:
            await self._write("POST", _path(realm, "groups"), {"name": name}, accepts=(409,))
            found = await self._get(_path(realm, "groups"), search=name, exact="true")
            same = [group["id"] for group in found if group["name"] == name]
            if not same:
                raise RealmUnavailableError(f"group {name!r} of realm {realm!r} was deleted again")
            known[name] = same[0]
        return known[name]

    # HTTP

    async def _pages(self, path: str, **query: str) -> AsyncIterator[Any]:
        first = 0
        while True:
            page = await self._get(path, first=str(first), max=str(PAGE), **query)
            for item in page:
                yield item
            if len(page) < PAGE:
                return
            first += PAGE

    async def _get(self, path: str, **query: str) -> Any:
        answer = await self._request("GET", path, params=query)
        return answer.json()

    async def _find(self, path: str) -> Any:
        answer = await self._request("GET", path, accepts=(404,))
        return None if answer.status_code == 404 else answer.json()

    async def _write(self, method: str, path: str, form: Any = None, *, accepts: Iterable[int] = ()) -> int:
        answer = await self._request(method, path, json=form, accepts=accepts)
        return answer.status_code

    async def _request(
        self, method: str, path: str, *, accepts: Iterable[int] = (), **options: Any
    ) -> httpx.Response:
        answer = await self._send(method, path, **options)
        if answer.status_code == 401:
            # The token has ended earlier than it said: Keycloak was started anew.
            self._token = ""
            answer = await self._send(method, path, **options)
        if not (answer.is_success or answer.status_code in accepts):
            if answer.status_code == 404 and len(path.split("/")) > 2:
                # Something that was there is not any more; what is known of the realm may be wrong.
                self._groups.pop(path.split("/")[1], None)
            raise RealmUnavailableError(f"{method} of {path or '/'} is answered with status {answer.status_code}")
        return answer

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {await self._bearer()}"}
        async with self._some:
            return await self._exchange(method, f"{self._url}/admin/realms{path}", headers=headers, **options)

    async def _bearer(self) -> str:
        async with self._login:
            if self._token and time.monotonic() < self._token_until:
                return self._token
            form = {
                "grant_type": "password", "client_id": "admin-cli",
                "username": self._user, "password": self._password,
            }  # fmt: skip
            answer = await self._exchange(
                "POST", f"{self._url}/realms/master/protocol/openid-connect/token", data=form
            )
            if not answer.is_success:
                raise RealmUnavailableError(
                    f"the administrator cannot log in (status {answer.status_code}); see credentialsSecret"
                )
            granted = answer.json()
            self._token = granted["access_token"]
            self._token_until = time.monotonic() + granted.get("expires_in", 60) * 0.7
            return self._token

    async def _exchange(self, method: str, url: str, **options: Any) -> httpx.Response:
        try:
            return await self._client().request(method, url, **options)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ConfigError, ValueError) as error:
            what = str(error) or type(error).__name__
            raise RealmUnavailableError(f"Keycloak at {self._url} does not answer: {what}") from None

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            check_provider_url("url", self._url)
            self._http = httpx.AsyncClient(
                verify=ssl.create_default_context(cadata=self._ca_cert or None),
                timeout=TIMEOUT_S,
                trust_env=not is_loopback(urlsplit(self._url).hostname or ""),
            )
        return self._http


def _path(*words: str) -> str:
    return "".join(f"/{quote(word, safe='')}" for word in words)


def _marked(user: Mapping[str, Any], name: str) -> str:
    """Return the first value of one of a user's attributes."""
    values = (user.get("attributes") or {}).get(name) or [""]
    return str(values[0])


def _read_user(user: Mapping[str, Any], groups: Iterable[str]) -> RealmUser:
    # One that an administrator has switched off is not as it should be.
    revision = _marked(user, CREDENTIALS) if user.get("enabled") else ""
    return RealmUser(user["username"], _marked(user, UID), revision, frozenset(groups), user["id"])


def _credential(password: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "password",
        "secretData": json.dumps(password["secretData"]),
        "credentialData": json.dumps(password["credentialData"]),
    }
