from __future__ import annotations

from pathlib import Path

from enmasse.pipeline.host.supervise import LONGEST_LOG_LINE, BoundedLog


def test_the_last_lines_are_told_and_the_size_is_bounded(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "log", max_bytes=1000)
    for number in range(500):
        log.append(f"line {number}")
    assert log.tail(3) == ["line 497", "line 498", "line 499"]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2100
    assert log.path.stat().st_mode & 0o077 == 0


def test_a_line_is_one_line_and_not_too_long(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "log")
    log.append("a\nb")
    log.append("x" * 100_000)
    first, second = log.tail(10)
    assert (first, len(second)) == ("a\\nb", LONGEST_LOG_LINE)


def test_what_comes_after_a_position_is_told_once_over_the_file_being_put_aside(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "log", max_bytes=200)
    log.append("before")
    position, found = log.position(), []
    for number in range(60):
        log.append(f"line {number}")
        if number % 7 == 0:
            more, position = log.since(position)
            found += more
    more, position = log.since(position)
    assert [*found, *more] == [f"line {number}" for number in range(60)]
    assert log.since(position)[0] == []


def test_a_log_that_does_not_exist_has_no_lines_and_is_followed_from_its_first(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "log")
    assert log.tail(5) == []
    position = log.position()
    log.append("first")
    assert log.since(position)[0] == ["first"]


def test_no_link_is_written_or_read_through(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of somebody else\n")
    (tmp_path / "log").symlink_to(secret)
    log = BoundedLog(tmp_path / "log")
    log.append("mine")
    assert log.tail(5) == []
    assert secret.read_text() == "of somebody else\n"
