"""A Delta table's log before a query goes on: what a power cut left is removed, what is damaged is reported.

delta-rs names a new entry before it is on disk, so a power cut may leave the name without the content. Such an entry
was not waited for by anybody (see ``delta``): no checkpoint calls its batch done, so the entry goes and the batch
comes again.

Rules:
1. Only the newest entries are removed, and only if every batch that the query's checkpoint calls done is in the rest
   of the log, or is known to need no entry.
2. Anything else that is unreadable or missing is damage: nothing is changed, and the query fails with the reason.
3. A batch without rows makes no entry. That is written down before the checkpoint calls it done, so that its absence
   is no damage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from enmasse.pipeline.errors import TableDamagedError
from enmasse.pipeline.lake.batches import checkpoint_query
from enmasse.pipeline.lake.delta_reading import LOG, open_delta
from enmasse.pipeline.lake.file_writing import put_whole, sync
from enmasse.pipeline.lake.objects import LakePath
from enmasse.pipeline.sums import opened, remove_lonely_sums, sealed

if TYPE_CHECKING:
    from deltalake import DeltaTable

QUERY: Final = "enmasse.query"
"""The table's property that names the query which wrote it last."""
_ACCOUNT: Final = "_batches.json"
_VERSION: Final = re.compile(r"(\d{20})\.(json|checkpoint\..*parquet)")
_NONE: Final = -1


def application(query: str) -> str:
    """Return the name under which a query's batches are in the log."""
    return f"enmasse:{query}"


def account_for(path: LakePath, query: str, batch: int) -> None:
    """Write down, on disk, that the log need not have a query's batches up to this one.

    Args:
        path: the table's folder.
        query: its id.
        batch: the number of a batch; -1: the log has every batch.
    """
    put_whole(path / _ACCOUNT, sealed({"query": query, "batch": batch}))


def mend(path: LakePath, checkpoint: Path) -> int:
    """Remove the newest entries of a table's log that are no entries; how many.

    Args:
        path: the table's folder; need not be there. It must not be written meanwhile.
        checkpoint: the checkpoint of the query that is to go on writing it; need not be there.

    Raises:
        TableDamagedError: the log lacks, or may lack, what a checkpoint calls done; nothing was changed.
    """
    log = path / LOG
    newest, versions = _entries(log)
    torn: list[LakePath] = []
    while versions and not _is_whole(log / _name(versions[-1])):
        torn.append(log / _name(versions.pop()))
    last = versions[-1] if versions else newest
    for version in range(newest + 1, last + 1):
        entry = log / _name(version)
        if version not in versions or not _is_whole(entry):
            problem = "cannot be read" if version in versions else "is missing"
            raise TableDamagedError(
                f"the table {path.name} is damaged: {entry} {problem}, and later entries are there; bring the file "
                "back from a backup, or move the table away and restart the pipeline from a point you name"
            )
    _check_batches(path, checkpoint, last, torn)
    for entry in torn:
        entry.unlink()
    if isinstance(log, Path):
        remove_lonely_sums(log)  # another entry comes in the place of one that was removed
    if torn:
        sync(log)
    return len(torn)


def _entries(log: LakePath) -> tuple[int, list[int]]:
    """Return the version of the log's newest checkpoint, and in order those of the entries after it."""
    found = [match for file in log.glob("[0-9]*") if (match := _VERSION.fullmatch(file.name))]
    newest = max((int(match[1]) for match in found if match[2] != "json"), default=_NONE)
    return newest, sorted(int(match[1]) for match in found if match[2] == "json" and int(match[1]) > newest)


def _name(version: int) -> str:
    return f"{version:020d}.json"


def _check_batches(path: LakePath, checkpoint: Path, version: int, torn: Sequence[LakePath]) -> None:
    """Make sure that the log up to a version has every batch that is done."""
    query, done = checkpoint_query(checkpoint), _newest_done(checkpoint)
    table = open_delta(path, version) if version > _NONE else None
    writer = table.metadata().configuration.get(QUERY) if table is not None else None
    if torn and writer not in (None, query):
        raise TableDamagedError(
            f"the table {path.name} is damaged: {torn[-1]} cannot be read, and may be of a batch that another "
            "checkpoint calls done; bring the file back from a backup, or remove it to go on without its rows"
        )
    if query is None:
        return
    accounted = _accounted(path, query)
    there = table.transaction_version(application(query)) if table is not None else None
    held = max(number for number in (there, accounted, _NONE) if number is not None)
    if held < done and (torn or accounted is not None):
        lost = torn[-1] if torn else path / LOG / _name(version + 1)
        problem, remedy = ("cannot be read", "remove it and restart") if torn else ("is missing", "restart")
        raise TableDamagedError(
            f"the table {path.name} is damaged: {lost} {problem}, and the query's checkpoint calls batches up "
            f"to {done} done while the log {'has none' if held == _NONE else f'ends with batch {held}'}; bring the "
            f"file back from a backup, or {remedy} the pipeline from a point you name"
        )
    if accounted is None and writer == query:
        # Written when batches without rows were not accounted for.
        account_for(path, query, done if held < done else _NONE)


def _newest_done(checkpoint: Path) -> int:
    return max((int(file.name) for file in checkpoint.glob("commits/[0-9]*") if file.name.isdigit()), default=_NONE)


def last_done(table: DeltaTable, path: LakePath, checkpoint: Path) -> int:
    """Return the number of the last batch that a query has done with a table, with rows or without; -1: none.

    Args:
        table: the table as it is now, while nobody writes it.
        path: its folder.
        checkpoint: the checkpoint of the query.
    """
    query = checkpoint_query(checkpoint)
    if query is None:
        return _NONE
    there, accounted = table.transaction_version(application(query)), _accounted(path, query)
    return max(number for number in (there, accounted, _newest_done(checkpoint), _NONE) if number is not None)


def _accounted(path: LakePath, query: str) -> int | None:
    """Return up to which batch the log need have none; None: nothing is known of the query.

    Raises:
        TableDamagedError: the account is not as it was written.
    """
    file = path / _ACCOUNT
    try:
        account = opened(file.read_text())
        return int(account["batch"]) if account["query"] == query else None
    except OSError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise TableDamagedError(
            f"the table {path.name} is damaged: {file} cannot be read ({error}); {TableDamagedError.REMEDY}"
        ) from None


def _is_whole(entry: LakePath) -> bool:
    try:
        actions = [json.loads(line) for line in entry.read_bytes().splitlines()]
    except ValueError:
        return False
    return bool(actions) and all(isinstance(action, dict) for action in actions)
