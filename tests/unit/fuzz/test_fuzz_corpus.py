"""What fuzzing has found worth keeping, run again without a fuzzer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from enmasse.wire.amqp.framing import AMQP_HEADER, amqp_frame
from enmasse.wire.amqp.performatives import Attach, Begin, Composite, Detach, Disposition, Open, Source
from enmasse.wire.amqp.performatives import Target as LinkTarget
from fuzz.__main__ import main
from fuzz.minimise import choose, reached
from fuzz.registry import CORPUS, TARGETS, corpus_of, target_of
from fuzz.target import BrokenBoundError, Target, metered

MAX_CORPUS_BYTES = 500_000


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_withstood_at_a_cost_in_proportion(name: str) -> None:
    inputs = corpus_of(name)
    assert len(inputs) > 10, "a corpus that reaches nothing"
    for data in inputs:
        metered(target_of(name), data)


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_made_from_the_corpus_are_withstood(name: str) -> None:
    target = target_of(name)
    assert target.mutate is not None
    inputs = corpus_of(name)
    chance = Random(name)
    for _ in range(100):
        data = target.mutate(chance.choice(inputs), target.max_bytes, chance)
        assert len(data) <= target.max_bytes
        target.run(data)


def test_the_corpus_is_small_and_each_archive_has_its_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} == {f"{name}.zip" for name in TARGETS}
    assert sum(path.stat().st_size for path in CORPUS.iterdir()) < MAX_CORPUS_BYTES


def stream(*frames: bytes) -> bytes:
    """A conversation for the targets ``server`` and ``node``, in one piece, from the protocol header on."""
    return b"\0" + AMQP_HEADER + amqp_frame(0, Open("m")) + b"".join(frames)


def begun(*performatives: Composite) -> bytes:
    begin = Begin(incoming_window=9, outgoing_window=9)
    return stream(*(amqp_frame(0, item) for item in (begin, *performatives)))


def attach(handle: int, address: str) -> Attach:
    return Attach(f"r{handle}", handle, True, source=Source(address), target=LinkTarget())


FLOODS: dict[str, Callable[[int], bytes]] = {
    "dispositions": lambda count: begun(*[Disposition(True, 0, 0x70000000, True)] * count),
    "links": lambda count: begun(*(attach(handle, "any") for handle in range(count))),
    "links that go": lambda count: begun(*[attach(0, "any"), Detach(0, True)] * count),
    "sessions": lambda count: stream(
        *(amqp_frame(channel, Begin(incoming_window=1, outgoing_window=1)) for channel in range(count))
    ),
    "a long name": lambda count: begun(attach(0, "any" * 100 * count)),
}


@pytest.mark.parametrize("name", ["server", "node"])
@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_twice_the_input_costs_at_most_twice_as_much_and_a_little(name: str, flood: Callable[[int], bytes]) -> None:
    once, twice = (metered(target_of(name), flood(count)) for count in (120, 240))
    assert twice < 2.5 * once


def test_an_input_that_costs_too_much_is_found() -> None:
    def squander(data: bytes) -> None:
        for _ in data:
            for _ in data:
                len(data)

    with pytest.raises(BrokenBoundError):
        metered(Target("squander", squander, list), bytes(1000))


def test_one_input_is_run_again_by_its_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(corpus_of("server")[0])
    assert main(["--replay", str(tmp_path / "input"), "server"]) == 0
    assert "server:" in capsys.readouterr().out


def test_a_target_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--seconds", "1", "nonsense"])
    assert "no target is named nonsense" in capsys.readouterr().err


def test_minimising_keeps_what_reaches_more_and_nothing_twice() -> None:
    target = target_of("types")
    inputs = [b"\x40", b"\x40", b"\x43", b"\x41", b"\xa1\x01a", b"\xa1\x01b"]
    chosen = choose(target, inputs)
    assert b"\x40" in chosen
    assert b"\xa1\x01a" in chosen
    assert b"\xa1\x01b" not in chosen


def test_a_library_below_a_directory_of_the_products_name_is_not_the_product() -> None:
    library: dict[str, Any] = {}
    exec(compile("def run(data):\n    len(data)\n", "/home/me/enmasse/.venv/lib/library.py", "exec"), library)
    assert reached(Target("library", library["run"], list), b"") == set()
    assert reached(target_of("types"), b"\x40")
