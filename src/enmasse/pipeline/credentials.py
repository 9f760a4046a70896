"""The users as whom the source and the sink come to a node, and the authorities that they trust.

A secret stands in files or in the environment of the driver and the executors, and nowhere else: Spark shows
options in its plans, event logs and pages, so an option only names a file. Files are read anew for each connection,
so what is renewed while a query runs counts from the next one on.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NotRequired, TypedDict
from urllib.parse import urlsplit

from enmasse.client import TlsOptions
from enmasse.pipeline.errors import AccessError, OptionError

FOLDER_VARIABLE = "ENMASSE_CREDENTIALS"
"""Names the folder in which ``NAME.json`` holds the credentials called NAME."""

AUTHORITY: Final = "_ca.crt"
"""In that folder, where no credentials are called so: the authority of the node, for tokens and certificates."""

LOGIN_OPTIONS: Final = ("credentials", "tokenFile", "tlsCertificate", "tlsKey", "caFile")
"""The options that a ``Login`` is made of."""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
"""A name as Kubernetes gives to a Secret, or freer; it cannot lead out of the folder."""

_TOKEN = re.compile(r"[!-~]+")
"""The characters of a token [RFC 6750 2.1] and more, but nothing that would end it in SASL."""

LARGEST_FILE = 64 << 10
"""No user, password and token are longer; a Secret of Kubernetes has at most 1 MiB in all."""

_ENTRIES = (
    '{"user": "...", "password": "..."}, {"token": "..."}, or {"tlsCertificate": "...", "tlsKey": "..."} with paths'
)

_OPEN_SCHEMES = ("amqp", "amqpws")
"""Everybody on the way can read what comes by them."""


class Arguments(TypedDict):
    """Arguments of ``enmasse.client.connect``."""

    user: str | None
    password: str | None
    token: NotRequired[str]
    tls: NotRequired[TlsOptions]
    sasl: NotRequired[tuple[str, ...]]


@dataclass(frozen=True)
class Login:
    """The part of options that says who comes to a node, without any secret: it may lie in plans."""

    credentials: str = ""
    """Name of the file ``NAME.json`` in the folder of ``ENMASSE_CREDENTIALS``; empty: the environment's user."""
    token_file: str = ""
    """File of a bearer token, in the place of credentials."""
    certificate: str = ""
    """PEM file of a certificate and its chain, in the place of credentials."""
    key: str = ""
    """PEM file of its private key; empty: it is in the same file."""
    ca_file: str = ""
    """PEM file of the authorities to trust; empty: the system's."""

    @classmethod
    def parse(cls, values: Mapping[str, str], url: str) -> Login:
        """Return what options say.

        Args:
            values: options by their proper names.
            url: the URL at which it is to come in.

        Raises:
            OptionError: one of them is malformed, or they do not go together.
        """
        login = cls(
            check_name(values.get("credentials", "")),
            values.get("tokenFile", ""),
            values.get("tlsCertificate", ""),
            values.get("tlsKey", ""),
            values.get("caFile", ""),
        )
        given = [name for name in ("credentials", "tokenFile", "tlsCertificate") if values.get(name)]
        if len(given) > 1:
            raise OptionError(f"options {' and '.join(given)} each say who comes in; leave all but one out")
        if login.key and not login.certificate:
            raise OptionError("option tlsKey needs the certificate of the key: give tlsCertificate too")
        scheme = urlsplit(url).scheme
        if login.certificate and scheme not in ("amqps", "amqpwss"):
            raise OptionError(
                f"option tlsCertificate: a certificate is shown within TLS; expected a url amqps://..., not {scheme}://"
            )
        if login.token_file and scheme in _OPEN_SCHEMES:
            raise OptionError(
                f"option tokenFile: the network would see the token; expected a url amqps://..., not {scheme}://"
            )
        return login

    def arguments(self) -> Arguments:
        """Return the arguments of ``connect`` that follow, with secrets: for one connection, and never kept.

        Raises:
            OptionError: the name of the credentials is none.
            AccessError: a file is not there, or is not what it should be.
        """
        if self.certificate:
            tls = TlsOptions(ca_file=self.ca_file or None, certificate=self.certificate, key=self.key or None)
            # Nothing else: who shows a certificate does not mean to come in as nobody where it is not known.
            return {"user": None, "password": None, "tls": tls, "sasl": ("EXTERNAL",)}
        found: Arguments
        if self.token_file:
            text = _text_of(Path(self.token_file), f"option tokenFile: cannot read {self.token_file}")
            found = {"user": None, "password": None, "token": _token(text, f"the token in {self.token_file}")}
        elif self.credentials:
            found = self._named()
        else:
            found = {"user": os.environ.get("ENMASSE_USER"), "password": os.environ.get("ENMASSE_PASSWORD")}
        if self.ca_file:
            found.setdefault("tls", TlsOptions(ca_file=self.ca_file))
        return found

    def _named(self) -> Arguments:
        name = check_name(self.credentials)
        path = _folder(name) / f"{name}.json"
        wrong = AccessError(f"the credentials {name!r} cannot be read: {path} should hold {_ENTRIES}")
        text = _text_of(path, f"there are no credentials {name!r}: {path} should hold {_ENTRIES}")
        try:
            given = json.loads(text)
        except ValueError:
            # Without its cause: that would quote the file.
            raise wrong from None
        if not isinstance(given, dict) or not all(isinstance(value, str | None) for value in given.values()):
            raise wrong
        certificate, key = given.get("tlsCertificate"), given.get("tlsKey")
        ways = [way for way in (given.get("user"), given.get("token"), certificate) if way]
        if len(ways) != 1:
            raise wrong
        if certificate:
            place = path.parent
            files = replace(self, credentials="", certificate=str(place / certificate))
            return replace(files, key=str(place / key) if key else "").arguments()
        if token := given.get("token"):
            return {"user": None, "password": None, "token": _token(token, f"the token of the credentials {name!r}")}
        return {"user": given["user"], "password": given.get("password")}

    def describe(self, user: str | None) -> str:
        """Return who it is, for the message of an error.

        Args:
            user: the user whom ``arguments`` named.
        """
        if self.certificate:
            return f"the certificate {self.certificate}"
        if self.token_file:
            return f"the user of the token in {self.token_file}"
        named = f"credentials {self.credentials!r}" if self.credentials else "ENMASSE_USER"
        if user is None:
            return f"the user of {named}" if self.credentials else "who names no credentials"
        return f"user {user!r} (of {named})"


ENVIRONMENT_LOGIN: Final = Login()
"""The user that the environment names, or nobody."""


def check_name(name: str) -> str:
    """Return the name, if credentials may be called so; empty is none.

    Raises:
        OptionError: it is no name.
    """
    if name and not _NAME.fullmatch(name):
        raise OptionError(
            "option credentials: expected the name of credentials, letters, digits, dots, dashes and underscores; "
            "user and password themselves stand in a file or in the environment"
        )
    return name


def needs_tls(name: str) -> bool:
    """Return true if named credentials are a token or a certificate, which are for TLS alone.

    Raises:
        AccessError: there are no such credentials here.
    """
    found = Login(name).arguments()
    return "token" in found or "tls" in found


def _folder(name: str) -> Path:
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        raise AccessError(
            f"option credentials names {name!r}, but {FOLDER_VARIABLE} is not set in this process: set it to the "
            f"folder that holds {name}.json, for the driver and every executor"
        )
    return Path(folder)


def authorities_file(name: str) -> Path:
    """Return the file of the authorities that belong to credentials: ``ca.crt`` of the Secret."""
    return Path(os.environ.get(FOLDER_VARIABLE, ""), f"{check_name(name)}.crt")


def _text_of(path: Path, problem: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise AccessError(f"{problem} ({error.strerror})") from None
    # Too much is no text of ours, and is not quoted.
    return content.decode(errors="replace") if len(content) <= LARGEST_FILE else ""


def _token(text: str, what: str) -> str:
    token = text.strip()
    if not _TOKEN.fullmatch(token):
        raise AccessError(f"{what} is none: expected one line of letters, digits and signs, as a provider gives it")
    return token
