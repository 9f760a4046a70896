from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from enmasse.bench import BenchError, Plan
from enmasse.bench.load import head_and_filler
from enmasse.bench.plan import STAMP_BYTES, Job
from enmasse.client import Message

PLAN = Plan(url="amqp://127.0.0.1", address="orders")


def test_every_link_belongs_to_one_process() -> None:
    jobs = replace(PLAN, senders=7, receivers=5, processes=3).jobs(run=1)
    for is_sending, links in ((True, 7), (False, 5)):
        groups = [job.links for job in jobs if job.is_sending is is_sending]
        assert len(groups) == 3
        assert sorted(link[0] for group in groups for link in group) == list(range(links))


def test_there_are_no_more_processes_than_links() -> None:
    assert len(replace(PLAN, senders=1, receivers=2, processes=8).jobs(run=1)) == 3


def test_pairs_have_addresses_of_their_own() -> None:
    jobs = replace(PLAN, address="pair.%d", senders=2, receivers=2, processes=1).jobs(run=1)
    assert [job.links for job in jobs] == [[[0, "pair.0"], [1, "pair.1"]]] * 2


def test_messages_may_come_out_under_another_name() -> None:
    sending, receiving = replace(PLAN, receive_address="copy").jobs(run=1)
    assert sending.links == [[0, "orders"]]
    assert receiving.links == [[0, "copy"]]


def test_a_job_survives_its_way_to_the_process() -> None:
    job = replace(PLAN, rate=1000, user="alice", password="secret").jobs(run=7)[0]
    assert Job(**json.loads(json.dumps(asdict(job)))) == job
    assert job.period_ns == 1e6


def test_a_password_is_not_shown() -> None:
    plan = replace(PLAN, user="alice", password="secret")
    assert "secret" not in repr(plan)
    assert "secret" not in repr(plan.jobs(run=1))


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (replace(PLAN, size=STAMP_BYTES - 1), "at least 24 bytes"),
        (replace(PLAN, senders=0, receivers=0), "without senders"),
        (replace(PLAN, address="pair.%d", senders=2, receivers=3), "as many receivers as senders"),
        (replace(PLAN, senders=100_000), "at most 1000"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_the_reason(plan: Plan, told: str) -> None:
    with pytest.raises(BenchError, match=told):
        plan.check()


@pytest.mark.parametrize("size", [STAMP_BYTES, 100, 255, 256, 65_536])
@pytest.mark.parametrize("durable", [True, False])
def test_a_message_has_the_size_that_was_asked_for(size: int, durable: bool) -> None:
    head, filler = head_and_filler(size, durable=durable)
    message = Message.decode(head + b"s" * STAMP_BYTES + filler)
    assert len(message.body) == size
    assert bytes(message.body).startswith(b"s" * STAMP_BYTES)
    assert message.durable is durable
