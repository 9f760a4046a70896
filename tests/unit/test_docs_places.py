"""What the documents say about the tree is there: links, folders, files, and targets of make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "enmasse"
EXTENDING = ROOT / "docs" / "explanation" / "extending.md"
ROW = re.compile(r"^\| (`[^|]+) \|[^|]*\|([^|]*)\|$", re.MULTILINE)
PLACE = re.compile(r"`([\w*.-]+(?:/[\w*.-]+)*/?)`")


def rooms() -> dict[str, str]:
    """The rooms of ARCHITECTURE.md, each with what the table says of its folders."""
    table = ROW.findall((ROOT / "ARCHITECTURE.md").read_text())
    return {room: folders for names, folders in table for room in PLACE.findall(names)}


def folders_in(place: Path) -> set[str]:
    return {path.name for path in place.iterdir() if (path / "__init__.py").exists()}


def test_the_table_of_rooms_has_each_room_that_there_is_and_no_other() -> None:
    assert set(rooms()) == folders_in(SOURCE)


@pytest.mark.parametrize("room", rooms())
def test_the_table_of_rooms_has_each_folder_of_a_room_and_no_other(room: str) -> None:
    found = folders_in(SOURCE / room)
    for folder in sorted(found):
        found |= folders_in(SOURCE / room / folder)
    assert set(PLACE.findall(rooms()[room])) == found


@pytest.mark.parametrize("page", [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", EXTENDING])
def test_every_file_and_folder_that_is_named_is_there(page: Path) -> None:
    """A name with a slash is a path, from the root of the tree, from the package or from the tests."""
    named = [name for name in PLACE.findall(page.read_text()) if "/" in name and not re.search(r"\bX\b", name)]
    assert named
    for name in named:
        assert any(list(place.glob(name)) for place in (ROOT, SOURCE, ROOT / "tests")), f"{page.name}: {name}"


def test_every_test_that_a_recipe_promises_is_there() -> None:
    promised = set(re.findall(r"`(test_\w+)`", EXTENDING.read_text()))
    written = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert {name for name in promised if f"def {name}(" not in written} == set()


def links() -> dict[Path, set[Path]]:
    """Every document, and the files and folders that its links lead to."""
    return {
        document: {
            (document.parent / target).resolve()
            for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text())
            if "://" not in target
        }
        for document in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    }


def test_every_link_of_the_documents_leads_somewhere() -> None:
    for document, targets in links().items():
        assert {target for target in targets if not target.exists()} == set(), document


def test_every_page_can_be_reached_from_the_readme() -> None:
    """Decisions are a folder, which it names."""
    others, reached, ahead = links(), set[Path](), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached:
            reached.add(page)
            ahead += others.get(page, ())
    assert ROOT / "docs" / "adr" in reached
    pages = {page for page in others if "docs" in page.parts and page.parent.name != "adr"}
    assert pages - reached == set()
