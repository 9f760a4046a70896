"""The seal of a commit that merges frames: what else it changed must all be there."""

from __future__ import annotations

from enmasse.messaging.log.frame import encode_frame
from enmasse.messaging.log.layout import log_key
from enmasse.messaging.log.merge import merge_operation
from enmasse.messaging.storage import Operation, Table
from enmasse.storage.batch import TABLE_PREFIX, encode_batch, split_batches
from enmasse.storage.seal import LAST_KEY, encode_seal, explain_broken_seal


def test_frames_beside_those_that_are_merged_are_missed() -> None:
    stays, goes, merged = log_key(1, 0, 5), log_key(1, 0, 1), log_key(9, 0, 3)
    frame = encode_frame(5, [1], [b"k"], [b"h"], [b"body"])
    group = encode_batch(
        1,
        3,
        2,
        [
            Operation(Table.FRAME, stays, frame),
            Operation(Table.FRAME, goes, None),
            Operation(Table.FRAME, merged, frame),
            merge_operation(log_key(9, 0, 0), 10),
        ],
    )
    batches, _, _ = split_batches(memoryview(group))
    seal = encode_seal(7, {LAST_KEY: b"last"}, batches)
    prefix = TABLE_PREFIX[Table.FRAME]

    there: dict[bytes, bytes] = {LAST_KEY: b"last", prefix + stays: frame}
    assert explain_broken_seal(seal, 7, there.get) is None
    again = explain_broken_seal(seal, 7, (there | {prefix + goes: frame}).get)
    assert again == f"record {(prefix + goes).hex()} is not as the last commit left it"
    del there[prefix + stays]
    assert explain_broken_seal(seal, 7, there.get) is not None
