"""The list of published holes that the packages we use are held against: ``advisories.json`` beside this.

A test reads the list and no network. ``make advisories`` refreshes it from OSV, where the advisories of PyPI and npm
stand in one form, and leaves what each is about to be written by whoever refreshed it.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import httpx
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("advisories.json")
OSV = "https://api.osv.dev"
SINCE = "2024"
"""Of what was published before, nothing concerns a version that any range of ours could admit."""


@dataclass(frozen=True, order=True)
class Advisory:
    """A published hole of a package.

    Attributes:
        ecosystem: ``PyPI`` or ``npm``.
        package: its name, as its registry spells it in URLs.
        id: the CVE's, or that of GitHub or PyPI where there is none.
        affected: ranges of versions; a version in any of them has the hole.
        about: what somebody can do, in a sentence of ours.
        accepted: why versions that have it may be used nevertheless; empty if they may not.
    """

    ecosystem: str
    package: str
    id: str
    affected: tuple[str, ...]
    about: str
    accepted: str = ""

    def affects(self, version: str) -> bool:
        """Return whether a version has the hole."""
        return any(SpecifierSet(each).contains(version, prereleases=True) for each in self.affected)

    def is_admitted_by(self, requirement: Requirement) -> bool:
        """Return whether a version that has the hole satisfies a requirement.

        Where two ranges meet, they do so at the beginning of one of them.
        """
        begins = [
            part.version
            for text in (str(requirement.specifier), *self.affected)
            for part in SpecifierSet(text)
            if part.operator in {">=", "=="}
        ]
        return any(
            self.affects(version) and requirement.specifier.contains(version, prereleases=True)
            for version in ("0", *begins)
        )


def read() -> list[Advisory]:
    """Return the whole list, with what is accepted."""
    return [Advisory(**{**entry, "affected": tuple(entry["affected"])}) for entry in json.loads(LIST.read_text())]


def holes(ecosystem: str, packages: Iterable[tuple[str, str]]) -> list[str]:
    """Return a sentence for each hole of packages, given by name and version, that is not accepted."""
    known = [advisory for advisory in read() if not advisory.accepted]
    return [
        f"{name} {version} has {advisory.id} ({', '.join(advisory.affected)}): {advisory.about}"
        for name, version in sorted(packages)
        for advisory in known
        if (advisory.ecosystem, advisory.package) == (ecosystem, name) and advisory.affects(version)
    ]


def declared() -> list[Requirement]:
    """Return what the package asks for: to be built, for itself and for each of its extras."""
    file = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = file["project"]
    lists = [file["build-system"]["requires"], project["dependencies"], *project["optional-dependencies"].values()]
    return [Requirement(text) for texts in lists for text in texts if not text.startswith("enmasse[")]


def installed() -> dict[str, str]:
    """Return name and version of each package here that we ask for, or that one of these asks for in turn."""
    found: dict[str, str] = {}
    asked = declared()
    seen: set[tuple[str, frozenset[str]]] = set()
    while asked:
        requirement = asked.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            there = distribution(name)
        except PackageNotFoundError:  # An extra that could not be built here.
            continue
        found[name] = there.version
        inner = [Requirement(text) for text in there.requires or ()]
        asked += [
            each
            for each in inner
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *extras))
        ]
    return found


def of_console() -> list[tuple[str, str]]:
    """Return name and version of each package of npm that the console is made with."""
    lock = json.loads((ROOT / "console" / "package-lock.json").read_text())
    return [
        (path.rpartition("node_modules/")[2], package["version"])
        for path, package in lock["packages"].items()
        if path
    ]


def refresh(url: str = OSV) -> list[Advisory]:
    """Write the list anew from what OSV has of the packages that are used here; return those that are new to it."""
    written = {(entry.ecosystem, entry.package, entry.id): entry for entry in read()}
    names = [*(("PyPI", name) for name in installed()), *sorted({("npm", name) for name, _ in of_console()})]
    found: dict[tuple[str, str, str], Advisory] = {}
    with httpx.Client(base_url=url, timeout=60) as client:
        for ecosystem, package in names:
            for record in sorted(_records(client, ecosystem, package), key=lambda record: str(record["id"])):
                ids = sorted([record["id"], *record.get("aliases", ())], key=lambda name: (name[:3] != "CVE", name))
                key = (ecosystem, package, ids[0])
                # GitHub's (GHSA) comes before PyPI's own (PYSEC), and its ranges are reviewed.
                if "withdrawn" in record or record["published"] < SINCE or key in found:
                    continue
                known = next((written[name] for each in ids if (name := (ecosystem, package, each)) in written), None)
                if affected := tuple(_affected(record, ecosystem, package)):
                    ours = (known.about, known.accepted) if known else ("", "")
                    found[key] = Advisory(*key, affected, *ours)
    entries = [
        {name: value for name, value in asdict(entry).items() if value or name == "about"}
        for entry in sorted(found.values())
    ]
    LIST.write_text(json.dumps(entries, indent=1) + "\n")
    return [entry for entry in found.values() if not entry.about]


def _records(client: httpx.Client, ecosystem: str, package: str) -> Iterator[dict[str, Any]]:
    question: dict[str, Any] = {"package": {"ecosystem": ecosystem, "name": package}}
    while True:
        answer = client.post("/v1/query", json=question).raise_for_status().json()
        yield from answer.get("vulns", ())
        if not (token := answer.get("next_page_token")):
            return
        question["page_token"] = token


def _affected(record: Mapping[str, Any], ecosystem: str, package: str) -> Iterator[str]:
    """The ranges of a record as specifiers of versions."""
    for affected in record["affected"]:
        of = affected.get("package", {})
        if (of.get("ecosystem"), canonicalize_name(of.get("name", ""))) != (ecosystem, canonicalize_name(package)):
            continue
        ranges = [each["events"] for each in affected.get("ranges", ()) if each["type"] != "GIT"]
        for events in ranges:
            begin = ""
            for event in events:
                if "introduced" in event:
                    begin = f">={event['introduced']}"
                else:
                    end = f"<{event['fixed']}" if "fixed" in event else f"<={event['last_affected']}"
                    yield end if begin == ">=0" else f"{begin},{end}"
                    begin = ""
            if begin:
                yield begin
        if not ranges and (versions := sorted(map(Version, affected.get("versions", ())))):
            yield f">={versions[0]},<={versions[-1]}"


if __name__ == "__main__":
    new = refresh()
    for entry in new:
        sys.stdout.write(f"{entry.id} of {entry.package} ({', '.join(entry.affected)}) is new\n")
    if new:
        sys.stdout.write(f"Say in {LIST.relative_to(ROOT)} what each is about, in a sentence of your own.\n")
