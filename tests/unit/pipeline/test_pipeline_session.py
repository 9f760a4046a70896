from __future__ import annotations

from pathlib import Path

import pytest

from enmasse.pipeline.errors import SparkMissingError
from enmasse.pipeline.session import LONGEST_SOCKET_FOLDER, _socket_folder, _thrifty, find_java


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(exist_ok=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java


def test_a_new_enough_java_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path, "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == java


def test_a_missing_java_gives_the_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkMissingError, match="apt-get install openjdk-17-jre-headless"):
        find_java()


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(SparkMissingError, match="nowhere"):
        find_java()


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_412", "strange"])
def test_an_old_java_is_refused(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkMissingError, match="newer"):
        find_java()


def test_sockets_lie_where_their_names_have_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = Path("/tmp/work")
    assert _socket_folder(short) == short
    deep = tmp_path / ("deep" * 20)
    deep.mkdir()
    for temporary in ("/tmp", str(deep)):
        monkeypatch.setattr("tempfile.tempdir", temporary)
        long = _socket_folder(deep)
        assert _socket_folder(deep) == long
        assert len(str(long)) <= LONGEST_SOCKET_FOLDER
        assert long.is_dir()
        long.rmdir()
        long.symlink_to(tmp_path)  # as another user might have left there
        assert _socket_folder(deep) not in (long, tmp_path)
        assert len(str(_socket_folder(deep))) <= LONGEST_SOCKET_FOLDER
        long.unlink()


@pytest.mark.parametrize(
    ("heap", "is_small"), [("640m", True), ("2g", True), ("1024", True), ("3g", False), ("4096m", False)]
)
def test_a_large_heap_is_collected_beside_the_work(heap: str, *, is_small: bool) -> None:
    assert ("-XX:+UseSerialGC" in _thrifty(heap)) is is_small
    assert ("-XX:G1" in _thrifty(heap)) is not is_small
