"""A folder of authorities' certificates in which OpenSSL looks for an issuer by the hash of its name.

There may be one for each of ten thousand tenants. A context that had them in memory would take seconds to make, each
time that one of them changes, while everything else waits; from a folder it reads what it needs when it needs it. A
context keeps what it has read, so what is taken out counts until the next context.
"""

from __future__ import annotations

import shutil
import ssl
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class AuthorityFolder:
    """The folder of a node, empty at its start.

    Args:
        path: the path of the folder; what is in it is removed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(mode=0o700)
        self._hashes: dict[bytes, str] = {}
        self._files: dict[str, list[bytes]] = defaultdict(list)
        """The certificates of each hash, whose files are numbered without a gap."""

    def put(self, certificates: Iterable[bytes]) -> bool:
        """Have these certificates in it and no others; return true if one was taken out.

        Args:
            certificates: in DER.
        """
        found = set(certificates)
        gone, new = self._hashes.keys() - found, found - self._hashes.keys()
        changed: dict[str, int] = {}
        for each in gone:
            name = self._hashes.pop(each)
            changed.setdefault(name, len(self._files[name]))
            self._files[name].remove(each)
        for each in new:
            name = self._hashes[each] = _hash_of(each)
            changed.setdefault(name, len(self._files[name]))
            self._files[name].append(each)
        for name, former in changed.items():
            self._write(name, former, self._files[name])
            if not self._files[name]:
                del self._files[name]
        return bool(gone)

    def _write(self, name: str, former: int, certificates: list[bytes]) -> None:
        for number in range(len(certificates), former):
            (self.path / f"{name}.{number}").unlink(missing_ok=True)
        for number, each in enumerate(certificates):
            (self.path / f"{name}.{number}").write_text(ssl.DER_cert_to_PEM_cert(each), encoding="ascii")


def _hash_of(certificate: bytes) -> str:
    from OpenSSL import crypto  # noqa: PLC0415  takes time to load, and few nodes need it

    return f"{crypto.load_certificate(crypto.FILETYPE_ASN1, certificate).subject_name_hash():08x}"
