"""What is made when the package is built: its page on an index, and the bill of materials of its wheel."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_LICENCES = Path("src", "enmasse", "console", "static", "licences.txt")
_PACKAGE = re.compile(r"^(?P<name>\S+) (?P<version>\d\S*) \((?P<licence>[^)]+)\)$", re.MULTILINE)
_PICTURE_OR_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<target>[^)]*)\)")


class ReadmeHook(MetadataHookInterface):
    """Declares the README with links that lead into the source of this version, below the project's URL ``Source``.

    On an index nothing lies beside it that a relative link could lead to. As long as no such URL is declared, a link
    is left as its text, and a picture as its description.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the field ``readme``."""
        text = (Path(self.root) / "README.md").read_text()
        page = page_of(text, metadata.get("urls", {}).get("Source"), f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": page}


def page_of(readme: str, source: str | None, tag: str) -> str:
    """Return a README whose relative links and pictures lead to files of a tag; without a URL they are words."""

    def replaced(found: re.Match[str]) -> str:
        picture, text = found["picture"], found["text"]
        if source is None:
            return f"*{text}*" if picture else text
        return f"{picture}[{text}]({source.rstrip('/')}/{'raw' if picture else 'blob'}/{tag}/{found['target']})"

    return _PICTURE_OR_LINK.sub(replaced, readme)


class BillOfMaterialsHook(BuildHookInterface[Any]):
    """Writes a bill of materials (SBOM) in CycloneDX's form beside the wheel and into it, as PEP 770 has it.

    It names what the wheel contains of others, which are the console's packages of npm, and what it asks for.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write it, unless the package is installed to be worked on."""
        if version == "editable":
            return
        metadata = self.metadata
        licences = (Path(self.root) / _LICENCES).read_text()
        core = metadata.core
        lists = {"required": core.dependencies, **core.optional_dependencies}
        requirements = [(Requirement(text), name == "required") for name, texts in lists.items() for text in texts]
        bill = bill_of_materials(metadata.name, metadata.version, core.license_expression, licences, requirements)
        file = Path(self.directory) / f"{metadata.name}-{metadata.version}.cdx.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(bill, indent=1) + "\n")
        build_data["sbom_files"].append(str(file))


def bundled_packages(licences: str) -> list[tuple[str, str, str]]:
    """Return name, version and licence of each package of npm that is in the console, by the file of its licences."""
    return [(found["name"], found["version"], found["licence"]) for found in _PACKAGE.finditer(licences)]


def bill_of_materials(
    name: str, version: str, licence: str, licences: str, requirements: list[tuple[Requirement, bool]]
) -> dict[str, Any]:
    """Return the bill of a wheel; of each requirement it is told whether the package is of no use without it."""
    itself = f"pkg:pypi/{name}@{version}"
    contained = [
        {
            "type": "library",
            "bom-ref": (purl := f"pkg:npm/{package.replace('@', '%40')}@{its_version}"),
            "name": package,
            "version": its_version,
            "purl": purl,
            "licenses": [{"license": {"id": its_licence}}],
        }
        for package, its_version, its_licence in bundled_packages(licences)
    ]
    # One that several extras ask for is named once, as are those of the core that an extra asks for, too.
    asked: dict[str, dict[str, Any]] = {}
    for requirement, is_required in requirements:
        package = canonicalize_name(requirement.name)
        if package != name:
            asked.setdefault(
                package,
                {
                    "type": "library",
                    "bom-ref": f"pkg:pypi/{package}",
                    "name": package,
                    **({"versionRange": _vers(requirement)} if requirement.specifier else {}),
                    "isExternal": True,
                    "scope": "required" if is_required else "optional",
                    "purl": f"pkg:pypi/{package}",
                },
            )
    components = [*contained, *(asked[package] for package in sorted(asked))]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.7",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": itself,
                "name": name,
                "version": version,
                "purl": itself,
                "licenses": [{"expression": licence}],
            }
        },
        "components": components,
        "dependencies": [{"ref": itself, "dependsOn": [component["bom-ref"] for component in components]}],
    }


def _vers(requirement: Requirement) -> str:
    """A requirement's range of versions as a URL of vers, whose parts are in the order of their versions."""
    parts = sorted(requirement.specifier, key=lambda part: part.operator.startswith("<"))
    return "vers:pypi/" + "|".join(f"{part.operator}{part.version}" for part in parts)
