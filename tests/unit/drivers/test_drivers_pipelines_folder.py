"""Whose a folder of pipelines is, and what is refused lest pipelines begin anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from enmasse.drivers.data_directory import Layout
from enmasse.drivers.pipelines_folder import pipelines_folder
from enmasse.errors import ConfigError


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    (tmp_path / "data").mkdir()
    return Layout(tmp_path / "data")


@pytest.fixture
def shared(layout: Layout, tmp_path: Path) -> Path:
    """The folder of an installation that has had pipelines."""
    with pipelines_folder(layout, tmp_path / "shared"):
        (tmp_path / "shared" / "spaces.json").write_text("{}")
    return tmp_path / "shared"


def refused(layout: Layout, folder: Path, match: str) -> None:
    with pytest.raises(ConfigError, match=match), pipelines_folder(layout, folder):
        pytest.fail("it was let in")


def test_one_at_a_time_has_the_folder(layout: Layout, shared: Path) -> None:
    with pipelines_folder(layout, shared):
        refused(layout, shared, f"{shared} is in use by another `enmasse up`")
    with pipelines_folder(layout, shared):
        assert shared.stat().st_mode & 0o077 == 0


def test_another_installation_is_refused_wherever_the_folder_is(layout: Layout, shared: Path, tmp_path: Path) -> None:
    other = Layout(tmp_path / "other")
    other.data.mkdir()
    refused(other, shared, "has the pipelines of another installation")
    with pipelines_folder(other, other.pipelines):
        pass
    refused(layout, other.pipelines, "has the pipelines of another installation")
    refused(other, shared, "has the pipelines of another installation")


def test_an_installation_keeps_to_its_folder_unless_that_was_moved(
    layout: Layout, shared: Path, tmp_path: Path
) -> None:
    refused(layout, layout.pipelines, f"are in {shared}, .*: start with --pipelines-folder {shared}, or first move")
    refused(layout, tmp_path / "new", f"are in {shared}, ")
    shared.rename(tmp_path / "disk")
    refused(layout, shared, f"{shared} has nothing of the pipelines .*: see to it that its disk is there")
    for moved in (layout.data / "below", layout.pipelines):
        moved.parent.mkdir(exist_ok=True)
        if moved.exists():
            for item in moved.iterdir():
                item.unlink()
            moved.rmdir()
        (tmp_path / "disk").rename(moved)
        with pipelines_folder(layout, moved):
            pass
        moved.rename(tmp_path / "disk")
    # As whoever wants no more of it.
    with pipelines_folder(layout, layout.pipelines):
        assert list(layout.pipelines.iterdir())


def test_a_folder_outside_does_not_take_the_place_of_one_that_was_used(layout: Layout, tmp_path: Path) -> None:
    with pipelines_folder(layout, layout.pipelines):
        pass
    with pipelines_folder(layout, tmp_path / "first"):
        pass
    layout.pipelines_owner.unlink()
    (layout.pipelines / "spaces.json").write_text("{}")
    refused(layout, tmp_path / "second", f"are in {layout.pipelines}, .*move {layout.pipelines} away")


def test_what_is_no_folder_of_ours_is_said_with_the_option(layout: Layout, tmp_path: Path) -> None:
    refused(layout, layout.data, "is the data directory itself")
    (tmp_path / "file").touch()
    refused(layout, tmp_path / "file", r"file cannot be written \(File exists\): .* with --pipelines-folder")
    wide = tmp_path / "wide"
    wide.mkdir()
    (wide / "somebody's").touch()
    wide.chmod(0o1777)
    refused(layout, wide, "is for everybody's files: name a directory of your own with --pipelines-folder")
    layout.pipelines_owner.write_text("{")
    refused(layout, tmp_path / "new", "pipelines.json cannot be read")
