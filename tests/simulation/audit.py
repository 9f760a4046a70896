"""Comparing an account with what its address says, and with what a node finds that starts."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.accounts import EARLY_S, LATE_S, Account
from tests.simulation.copies import GONE, LEAVING, OUT, READY, Copy

__all__ = ["adopt", "check_depth", "check_found", "check_found_order", "depth", "must_survive"]

Written = Callable[[float], bool]
"""Whether what was asked for when a batch was the last is on the disk for certain."""


def depth(account: Account, now: float) -> tuple[int, int]:
    """How many messages the address must at least and may at most say it holds."""
    low = high = 0
    for copy in account.copies.values():
        if copy.state == GONE:
            continue
        high += 1
        is_expiring = copy.state == READY and copy.life and copy.expires <= now + EARLY_S
        is_sure = copy.state == OUT or not (copy.is_doubtful or is_expiring)
        if copy.state != LEAVING and is_sure:
            low += 1
    return low, high


def check_depth(account: Account, stored: int, size: int, now: float) -> None:
    """Compare with what the address says of itself."""
    low, high = depth(account, now)
    if not low <= stored <= high:
        there = [copy for copy in account.copies.values() if copy.state != GONE]
        sure = [copy.message.number for copy in there if not copy.is_doubtful]
        unsure = [copy.message.number for copy in there if copy.is_doubtful]
        account.problem(f"it says it holds {stored} messages; there are {low} to {high}: {sure}, perhaps {unsure}")
    if (stored == 0) != (size == 0):
        account.problem(f"it says it holds {stored} messages of {size} bytes")


def must_survive(account: Account, copy: Copy, now: float) -> bool:
    """Whether a node that starts now must find it here."""
    if not account.keeps(copy) or copy.state in {GONE, LEAVING} or copy.is_doubtful or account.can_drop:
        return False
    if copy.pending is not None:
        return False
    if copy.origin is not None:
        # It may still be where it came from.
        return False
    if copy.is_replaced or (copy.life and _restarted_end(account, copy, now) <= now + EARLY_S):
        return False
    return copy.message.accepted or copy.is_stored


def _restarted_end(account: Account, copy: Copy, now: float) -> float:
    """When a message expires at the earliest in a node that starts now."""
    return copy.expires + min(0.0, account.shift_of(copy, now)[0])


def check_found(account: Account, found: dict[str, dict[int, int]], now: float, is_written: Written) -> None:
    """Compare with what a node that starts now finds.

    Args:
        account: of the address.
        found: by address: the messages, with the number of their failed deliveries.
        now: the clock.
        is_written: what the journal says.
    """
    here = found[account.name]
    for number, attempts in here.items():
        copy = account.copies.get(number)
        if copy is None:
            if any(_may_expire(source, number, now, is_written) for source in account.sources):
                continue
            if any(may_be_spent(source, source.copies.get(number), is_written) for source in account.sources):
                continue
            account.problem(f"after a restart it holds message {number}, which was never sent here, was refused, "
                            "or was long gone")  # fmt: skip
        elif not account.keeps(copy):
            account.problem(f"after a restart it holds message {number}, which is not to survive one")
        elif copy.state in {GONE, LEAVING} and is_written(copy.stamp):
            account.problem(f"after a restart it holds message {number}, which was settled, and that is on the disk")
        elif copy.state != LEAVING and not (account.is_target or copy.is_unseen):
            sure, most = attempts_on_disk(account, copy, is_written)
            if not sure <= attempts <= most:
                account.problem(f"after a restart message {number} says {attempts} failed deliveries; "
                                f"there were at most {most}, {sure} of them on the disk")  # fmt: skip
            if 0 < account.max_attempts <= attempts:
                account.problem(f"after a restart message {number} is delivered again after {attempts} attempts")
    for target in (account.dead_letter, account.expiry):
        both = sorted(set(here) & set(found[target.name])) if target is not None else []
        if both:
            account.problem(f"after a restart messages {both} are here and in {target and target.name}")
    for number, copy in account.copies.items():
        if number in here:
            continue
        target = account.dead_letter
        is_dead = target is None or number in found[target.name] or not _stays(account, target, copy)
        if is_dead and may_be_spent(account, copy, is_written):
            continue
        if must_survive(account, copy, now):
            account.problem(f"after a restart message {number} is missing, which was accepted")
        is_moving = copy.state == LEAVING and target is not None and copy.heir is target.copies.get(number)
        if is_moving and target is not None and copy.message.accepted and _stays(account, target, copy):
            assert copy.heir is not None
            is_taken = copy.heir.state == GONE
            if number not in found[target.name] and not is_taken:
                account.problem(f"after a restart message {number} is neither here nor in {target.name}")


def _may_expire(source: Account, number: int, now: float, is_written: Written) -> bool:
    """Whether a message is in its queue again after a restart, and expires there."""
    copy = source.copies.get(number)
    if copy is None or not copy.life or _restarted_end(source, copy, now) > now + EARLY_S:
        return False
    return copy.state != GONE or not is_written(copy.stamp)


def attempts_on_disk(account: Account, copy: Copy, is_written: Written) -> tuple[int, int]:
    """How many failed deliveries a node that starts now must at least and may at most find of a message."""
    sure = copy.attempts - sum(not is_written(stamp) for stamp in copy.failures)
    was_out = copy.state in {OUT, GONE}
    if was_out and is_written(copy.out_stamp):
        sure += 1
    may_be_out = was_out or copy.may_be_marked or (copy.is_inherited and account.is_read)
    return sure, copy.attempts + may_be_out


def may_be_spent(account: Account, copy: Copy | None, is_written: Written) -> bool:
    """Whether a node that starts now may find that a message had its last attempt."""
    if copy is None or not account.max_attempts or not account.keeps(copy):
        return False
    if copy.state in {GONE, LEAVING} and is_written(copy.stamp):
        return False
    return copy.state == LEAVING or attempts_on_disk(account, copy, is_written)[1] >= account.max_attempts


def _stays(account: Account, target: Account, copy: Copy) -> bool:
    return account.keeps(copy) and target.keeps(copy) and not copy.is_unsure and not copy.life


def check_found_order(account: Account, numbers: list[int]) -> None:
    """Compare the order in which a node that starts now hands out what it found."""
    if account.is_target or account.has_small_window:
        return
    places = {number: place for place, number in enumerate(account.copies)}
    known = [account.copies[number] for number in numbers if number in places]
    ranks = [
        (-copy.message.priority, places[copy.message.number])
        for copy in known
        if not copy.message.delay and not copy.is_unordered
    ]
    if ranks != sorted(ranks):
        account.problem(f"after a restart it hands out messages in the order {numbers}")


def adopt(accounts: dict[str, Account], found: dict[str, dict[int, int]], now: float, is_written: Written) -> None:
    """A node has started: what it found is the truth from now on."""
    for name, account in accounts.items():
        target = account.dead_letter
        _adopt(account, found[name], found[target.name] if target is not None else None, now, is_written)
    for account in accounts.values():
        target = account.expiry
        if target is None:
            continue
        for copy in account.copies.values():
            if copy.life:
                # Where it is over already, the look may have found it there while it is still here.
                heir = target.copies.get(copy.message.number)
                if heir is not None and copy.expires <= now + EARLY_S:
                    heir.origin = None
                    del target.copies[copy.message.number]
                target.expect(copy)
    for account in accounts.values():
        if account.dead_letter is not None:
            for copy in account.copies.values():
                if copy.is_spent:
                    account.dead_letter.copies.pop(copy.message.number, None)
                    account.dead_letter.expect(copy)


def _adopt(
    account: Account, here: dict[int, int], dead: dict[int, int] | None, now: float, is_written: Written
) -> None:
    account.is_paged = True
    account.has_heritage = True
    account.lose_all_receivers()
    for number, copy in list(account.copies.items()):
        _adopt_times(account, copy, now)
        is_over = copy.is_replaced or (copy.life and copy.expires <= now + EARLY_S)
        # The look may have seen the end of what is still there.
        is_there = account.keeps(copy) and (copy.state != GONE or not is_written(copy.stamp))
        may_be_there = dead is None or number in dead
        copy.is_spent = number not in here and may_be_there and may_be_spent(account, copy, is_written)
        if number not in here and not (is_there and (is_over or copy.is_spent)):
            del account.copies[number]
            continue
        copy.state = READY
        copy.holder = copy.origin = copy.heir = None
        copy.attempts = account.max_attempts if copy.is_spent else here.get(number, copy.attempts)
        copy.is_unseen = number not in here
        copy.failures = []
        copy.out_stamp = float("inf")
        copy.is_inherited = copy.is_untouched = True
        copy.may_be_marked = False
        copy.avoided = []
        copy.is_stored = True
        copy.pending = None
        copy.is_doubtful = account.can_drop or copy.is_replaced or number not in here
        copy.message.refused = False
    account.is_read = account.has_failed = False


def _adopt_times(account: Account, copy: Copy, now: float) -> None:
    """A node that starts knows nothing of the time that passed but what the wall clock says."""
    message = copy.message
    written = message.accepted_at if message.accepted and message.durable else now
    early, late = account.shift_of(copy, written)
    copy.shifts = (account.clock.shift, account.clock.shift)
    if copy.life:
        copy.expires_by = max(copy.expires_by, written + copy.life + LATE_S) + late
        copy.expires += early
    if message.date:
        copy.ready_by = max(copy.ready_by, message.date - account.clock.shift + LATE_S, now + LATE_S)
    elif message.delay:
        copy.ready_by = max(copy.ready_by, written + message.delay + LATE_S) + late
        copy.ready_at += early
    if copy.attempts or not message.delay:
        # Nobody remembers a wait after a failed delivery.
        copy.ready_at = min(copy.ready_at, now)
    if not message.delay:
        copy.ready_by = copy.ready_at
