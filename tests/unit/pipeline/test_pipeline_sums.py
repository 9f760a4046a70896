from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from enmasse.pipeline import sums
from enmasse.pipeline.sums import DamagedFileError, check_sum, keep_sum, opened, sealed, sum_of


@pytest.mark.parametrize("size", [0, 1, 100, (64 << 10) - 1, 64 << 10, 200_000])
def test_each_changed_bit_of_a_file_is_an_error_with_its_name(tmp_path: Path, size: int) -> None:
    path = tmp_path / "part.parquet"
    data = bytearray(os.urandom(size))
    path.write_bytes(data)
    check_sum(path)
    keep_sum(path)
    check_sum(path)
    for at in range(0, size, max(1, size // 50)):
        path.write_bytes(data[:at] + bytes((data[at] ^ 1 << at % 8,)) + data[at + 1 :])
        with pytest.raises(DamagedFileError, match=f"{path} is not as it was written"):
            check_sum(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(DamagedFileError):
        check_sum(path)


def test_a_changed_checksum_is_an_error_or_none_at_all(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    path.write_bytes(b"rows")
    keep_sum(path)
    kept = sum_of(path).read_bytes()
    for bit in range(len(kept) * 8):
        changed = bytearray(kept)
        changed[bit // 8] ^= 1 << bit % 8
        sum_of(path).write_bytes(changed)
        if bit < 64:  # the magic, and a part's size, of which this file has less anyway
            check_sum(path)
        else:
            with pytest.raises(DamagedFileError):
                check_sum(path)


@pytest.mark.parametrize("parts", [1, 1000, 1001, 5000])
def test_a_checksum_fits_into_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    monkeypatch.setattr(sums, "_PART_BYTES", 4)
    path = tmp_path / "part.parquet"
    path.write_bytes(os.urandom(4 * parts))
    keep_sum(path)
    check_sum(path)
    assert sum_of(path).stat().st_size <= 4096


def test_what_gone_files_had_goes(tmp_path: Path) -> None:
    for name in ("a/gone", "kept"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("rows")
        keep_sum(path)
    (tmp_path / "a" / "gone").unlink()
    sums.remove_lonely_sums(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [".kept.crc", "kept"]


def test_a_changed_bit_of_a_sealed_document_never_gives_another_one() -> None:
    document = {"generation": 1, "restarted_at": None, "fingerprints": {"q": ["reads a", "sum(v)"]}}
    text = sealed(document).encode()
    assert opened(text.decode()) == document
    assert opened(json.dumps(document)) == document  # of an older version
    found = 0
    for bit in range(len(text) * 8):
        changed = bytearray(text)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            read = opened(changed.decode())
        except ValueError:
            found += 1
        else:
            # A name that nobody knows, which who reads it refuses.
            assert read == document or read.keys() - document.keys(), changed
    assert found > len(text) * 7


def test_a_document_that_is_moved_has_a_checksum_of_its_own() -> None:
    text = sealed({"folder": "/former/place"})
    assert opened(sums.resealed(text, text.replace("former", "new"))) == {"folder": "/new/place"}
    plain = json.dumps({"folder": "/new/place"})
    assert sums.resealed(plain.replace("new", "former"), plain) == plain
    wrong = text.replace("former", "other")
    with pytest.raises(DamagedFileError):
        opened(sums.resealed(wrong, wrong.replace("other", "new")))
