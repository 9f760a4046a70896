"""The checkpoints of a pipeline: where they are, what they fit, and whether they are whole.

Layout: ``checkpoints/<pipeline>/standing.json`` and ``checkpoints/<pipeline>/<generation>/<query>/``.

Rules:
1. A restart from another point is another generation: new folders, never a changed checkpoint. It is
   done once for each ``restart.at``, and remembered before its first query starts.
2. A query goes on from its checkpoint only if what the checkpoint depends on is as it was; each query's
   fingerprint, in lines that people can read, lies in ``standing.json``.
3. Spark's files are read here to find damage and never changed.
4. Which queries of a generation have done a batch is kept apart, in ``_begun/<pipeline>.json``: one whose checkpoint
   is gone would write all of it again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from enmasse.model.kinds.pipelines.pipeline import Restart
from enmasse.pipeline.errors import CheckpointDamagedError, CheckpointMisfitError
from enmasse.pipeline.lake.file_writing import put_whole
from enmasse.pipeline.sums import check_sum, opened, sealed


@dataclass
class _Standing:
    generation: int = 1
    restarted_at: str | None = None
    start_from: str | None = None
    fingerprints: dict[str, list[str]] = field(default_factory=dict)


class Checkpoints:
    """The checkpoints of one pipeline.

    Args:
        folder: ``checkpoints/<pipeline>``.
        uid: the uid of the pipeline: another one of its name begins anew.

    Raises:
        CheckpointDamagedError: ``standing.json`` cannot be read.
    """

    def __init__(self, folder: Path, uid: str = "") -> None:
        self._folder = folder
        self._uid = uid
        self._begun_file = folder.parent / "_begun" / f"{folder.name}.json"
        self._file = folder / "standing.json"
        self._standing = self._read()

    @property
    def is_new(self) -> bool:
        """True if no query of the pipeline was ever started."""
        return not self._standing.fingerprints

    @property
    def restarted_at(self) -> str | None:
        """The last ``restart.at`` that was done."""
        return self._standing.restarted_at

    @property
    def start_from(self) -> str | None:
        """The bound where this generation's queries begin; None: where their sources name."""
        return self._standing.start_from

    @property
    def generation(self) -> int:
        """The number of fresh starts of the pipeline, plus one."""
        return self._standing.generation

    def path_of(self, query: str) -> Path:
        """Return the checkpoint folder of a query."""
        return self._folder / str(self.generation) / query

    def restart(self, wanted: Restart | None) -> bool:
        """Begin another generation if that is asked for and was not done; whether it was.

        Args:
            wanted: ``spec.restart``.
        """
        if wanted is None or wanted.at == self._standing.restarted_at:
            return False
        if wanted.start_from is None:
            self._standing.restarted_at = wanted.at
        else:
            self._standing = _Standing(self.generation + 1, wanted.at, wanted.start_from)
        self._write()
        return True

    def fit(self, query: str, fingerprint: Sequence[str]) -> None:
        """Make sure that a query fits its checkpoint, and remember what it is.

        Args:
            query: its name.
            fingerprint: the facts that must stay the same, line by line.

        Raises:
            CheckpointMisfitError: it does not; the message holds the first line that differs.
            CheckpointDamagedError: the checkpoint is not whole.
        """
        wanted = list(fingerprint)
        path = self.path_of(query)
        has_begun = self._mark_of(query) in self._begun()
        if has_begun and not (path / "offsets").is_dir():
            raise CheckpointDamagedError(
                f"the checkpoint {path} is gone, although the query has done batches: everything would be written "
                f"again; {CheckpointDamagedError.REMEDY}"
            )
        if (path / "offsets").is_dir() and (has_begun or not _is_unfinished(path)):
            check_whole(path)
            _drop_beginnings(path / "offsets")
            known = self._standing.fingerprints.get(query)
            if known is not None and known != wanted:
                raise CheckpointMisfitError(
                    f"query {query} cannot go on from its checkpoint, as {_difference(known, wanted)}; take the "
                    "change back, or begin anew with restart: {at: ..., from: earliest|latest|MOMENT}"
                )
        if self._standing.fingerprints.get(query) != wanted:
            self._standing.fingerprints[query] = wanted
            self._write()

    def note_begun(self, query: str) -> None:
        """Remember that a query has done a batch."""
        begun = self._begun()
        if (mark := self._mark_of(query)) not in begun:
            self._begun_file.parent.mkdir(parents=True, exist_ok=True)
            # Those of former generations are of no use any more.
            kept = [each for each in begun if each.startswith(self._mark_of(""))]
            put_whole(self._begun_file, sealed({"begun": [*kept, mark]}))

    def _mark_of(self, query: str) -> str:
        return f"{self._uid}/{self.generation}/{query}"

    def _begun(self) -> list[str]:
        try:
            text = self._begun_file.read_text()
            # An older version wrote the list alone.
            return [str(mark) for mark in (json.loads(text) if text.startswith("[") else opened(text)["begun"])]
        except OSError:
            return []
        except (ValueError, KeyError) as error:
            raise CheckpointDamagedError(
                f"{self._begun_file} cannot be read ({error}); bring it back, or remove it if the checkpoints of all "
                f"queries are in {self._folder / str(self.generation)}"
            ) from None

    def purge(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._begun_file.unlink(missing_ok=True)
        self._standing = _Standing()

    def _read(self) -> _Standing:
        try:
            return _Standing(**opened(self._file.read_text()))
        except FileNotFoundError:
            return _Standing()
        except (ValueError, TypeError) as error:
            raise CheckpointDamagedError(
                f"{self._file} cannot be read ({error}); bring it back, or remove it together with its folder "
                "to have the pipeline begin anew"
            ) from None

    def _write(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        new = self._file.with_suffix(".new")
        with new.open("w") as file:
            file.write(sealed(vars(self._standing)))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file)


def _difference(known: Sequence[str], wanted: Sequence[str]) -> str:
    gone = [line for line in known if line not in wanted]
    new = [line for line in wanted if line not in known]
    if gone and new:
        return f"it was made for {gone[0]!r} and is now to be {new[0]!r}"
    if gone:
        return f"it was made for {gone[0]!r}, which is gone"
    if new:
        return f"{new[0]!r} is new"
    for line in dict.fromkeys(wanted):
        if (now := wanted.count(line)) != (before := known.count(line)):
            return f"{line!r} is read {now} times, and was {before} times"
    return "its parts come in another order"


def check_whole(path: Path) -> None:
    """Make sure that Spark can go on from a checkpoint.

    Args:
        path: the checkpoint's folder, of a query that ran.

    Raises:
        CheckpointDamagedError: a file is missing or unreadable; the message names it.
    """
    _parsed(path / "metadata", json.loads)
    offsets, commits = _numbers(path / "offsets"), _numbers(path / "commits")
    for number in offsets[-2:]:
        _parsed(path / "offsets" / str(number), _log_entry)
    for number in commits[-1:]:
        _parsed(path / "commits" / str(number), _log_entry)
    if commits and (not offsets or commits[-1] > offsets[-1]):
        missing = path / "offsets" / str(commits[-1])
        raise CheckpointDamagedError(f"the checkpoint lacks {missing}; {CheckpointDamagedError.REMEDY}")
    if offsets and offsets[-1] - (commits[-1] if commits else -1) > 1:
        missing = path / "commits" / str(offsets[-1] - 1)
        raise CheckpointDamagedError(f"the checkpoint lacks {missing}; {CheckpointDamagedError.REMEDY}")


def _is_unfinished(path: Path) -> bool:
    """Return true if Spark has ended while it made a checkpoint: folders are there, and nothing is in them yet."""
    return not ((path / "metadata").exists() or _numbers(path / "offsets") or _numbers(path / "commits"))


def _numbers(folder: Path) -> list[int]:
    return sorted(int(entry.name) for entry in folder.glob("[0-9]*") if entry.name.isdigit())


def _parsed(path: Path, parse: Any) -> Mapping[str, Any]:
    try:
        data = path.read_bytes()
        check_sum(path)
        found = parse(data.decode())
    except FileNotFoundError:
        raise CheckpointDamagedError(f"the checkpoint lacks {path}; {CheckpointDamagedError.REMEDY}") from None
    except (ValueError, IndexError) as error:
        raise CheckpointDamagedError(
            f"the checkpoint's {path} cannot be read ({error}); {CheckpointDamagedError.REMEDY}"
        ) from None
    result: Mapping[str, Any] = found
    return result


def _log_entry(text: str) -> Any:
    """Check an entry of Spark's logs: a line with the version, and lines of JSON or ``-``."""
    lines = text.splitlines()
    if not lines or not lines[0].startswith("v") or len(lines) < 2:  # version and content
        raise ValueError("expected Spark's version and content")
    for line in lines[1:]:
        if line not in ("", "-"):
            json.loads(line)
    return {}


def _drop_beginnings(offsets: Path) -> None:
    """Remove what a killed runner has begun to write before the first batch: Spark would never begin beside it."""
    found = list(offsets.iterdir())
    if not any(path.name.isdecimal() for path in found):
        for path in found:
            path.unlink(missing_ok=True)
