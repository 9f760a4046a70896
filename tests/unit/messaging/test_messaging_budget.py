"""Room that many share: nobody takes all, whoever has least is served first, and all come to their end."""

from __future__ import annotations

from enmasse.messaging.budget import MAX_WAITING, Budget, Holder

WHOLE = 100


class Work(Holder):
    """A holder that lets go of all when it is asked to."""

    def __init__(self, budget: Budget, *path: str) -> None:
        self.is_given_up = False
        self.went_on = 0
        super().__init__(budget, path, self.let_go)

    def let_go(self) -> None:
        self.is_given_up = True
        self.resize(0)

    def go_on(self) -> None:
        self.went_on += 1


def test_room_is_given_in_grains_until_there_is_none_and_comes_back() -> None:
    budget = Budget(WHOLE, grain=10)
    one = Work(budget, "space", "user", "host")
    assert one.resize(11)
    assert (one.held, budget.held) == (20, 20)
    assert not one.resize(101)
    assert one.resize(5)
    assert budget.held == 10
    one.leave()
    assert (budget.held, budget.root.children) == (0, {})


def test_of_two_spaces_the_one_that_has_less_gets_what_the_other_has_most_of() -> None:
    budget = Budget(WHOLE, grain=1)
    large, small = Work(budget, "red", "r", "h"), Work(budget, "red", "r", "h")
    assert large.resize(60)
    assert small.resize(40)
    blue = Work(budget, "blue", "b", "h")
    assert blue.resize(30)
    assert (large.is_given_up, small.is_given_up) == (True, False)
    assert budget.held == 70


def test_users_and_addresses_are_compared_within_what_they_share() -> None:
    for depth in range(3):
        budget = Budget(WHOLE, grain=1)
        path = ["space", "user", "host"]
        much = Work(budget, *path)
        assert much.resize(WHOLE)
        path[depth] = "another"
        assert Work(budget, *path).resize(20)
        assert much.is_given_up


def test_those_who_have_all_in_common_do_not_take_from_each_other() -> None:
    budget = Budget(WHOLE, grain=1)
    much = Work(budget, "space", "user", "host")
    assert much.resize(WHOLE)
    assert not Work(budget, "space", "user", "host").resize(1)
    assert not much.is_given_up


def test_nobody_gives_way_to_who_would_have_as_much() -> None:
    budget = Budget(WHOLE, grain=1)
    one, other = Work(budget, "red", "u", "h"), Work(budget, "blue", "u", "h")
    assert one.resize(50)
    assert other.resize(50)
    assert not one.resize(51)
    assert [one.is_given_up, other.is_given_up] == [False, False]
    third = Work(budget, "green", "u", "h")
    assert not third.resize(50)
    assert third.resize(49)


def test_many_connections_of_one_party_count_as_one() -> None:
    budget = Budget(WHOLE, grain=1)
    crowd = [Work(budget, "red", "u", "h") for _ in range(10)]
    assert all(one.resize(10) for one in crowd)
    assert Work(budget, "blue", "u", "h").resize(40), "though each of the crowd has less"
    assert sum(one.is_given_up for one in crowd) == 4


def test_of_those_who_wait_for_each_other_one_at_a_time_comes_to_its_end() -> None:
    budget = Budget(WHOLE, grain=1)
    works = [Work(budget, "space", "user", "host") for _ in range(4)]
    assert all(one.resize(25) for one in works)
    for one in works:
        assert not one.resize(60)
        assert one.wait(60, one.go_on)
    assert [one.went_on for one in works] == [1, 0, 0, 0]
    highest = 0
    for count in range(1, 5):
        ready = [one for one in works if one.went_on and one.held]
        assert ready, "somebody can always go on"
        highest = max(highest, budget.held)
        ready[0].leave()
        assert sum(one.went_on for one in works) >= min(count + 1, 4)
    assert budget.held == 0
    assert highest <= WHOLE + 60


def test_whoever_has_least_goes_on_first() -> None:
    budget = Budget(WHOLE, grain=1)
    first, other = Work(budget, "red", "u", "h"), Work(budget, "red", "u", "h")
    assert first.resize(50)
    assert other.resize(50)
    assert first.wait(WHOLE, first.go_on)
    red, blue = Work(budget, "red", "u", "h"), Work(budget, "blue", "u", "h")
    order: list[str] = []
    assert red.wait(50, lambda: order.append("red"))
    assert blue.wait(45, lambda: order.append("blue"))
    first.leave()
    assert order == ["blue", "red"]


def test_few_may_wait() -> None:
    budget = Budget(WHOLE, grain=1)
    first = Work(budget, "red", "u", "h")
    assert first.wait(WHOLE, first.go_on)
    crowd = [Work(budget, "red", "u", "h") for _ in range(MAX_WAITING + 1)]
    assert [one.wait(1, one.go_on) for one in crowd] == [True] * MAX_WAITING + [False]
    crowd[0].leave()
    assert crowd[-1].wait(1, crowd[-1].go_on)


def test_room_that_somebody_must_give_up_is_not_taken_by_those_who_wait() -> None:
    budget = Budget(WHOLE, grain=1)
    red = [Work(budget, "red", "u", "h") for _ in range(3)]
    assert red[0].resize(WHOLE - 10)
    assert red[1].resize(10)
    assert red[1].wait(20, red[1].go_on)
    assert red[2].wait(50, red[2].go_on)
    blue = Work(budget, "blue", "u", "h")
    assert blue.resize(40)
    assert red[0].is_given_up
    assert budget.held <= WHOLE
