"""docs/concepts/responses.md: in any order of steps and crashes a response has one end, and the sums are those of the rows."""

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from batch.tests.postgres import Server
from batch.tests.storage import OnDisk, OnServer, Storage
from llmendpoint_batch.core.bounds import EVENTS_BYTES, EVENTS_SECONDS
from llmendpoint_batch.core.response_object import OPEN, Final, State, Stored, final_of
from llmendpoint_batch.errors import Refused
from llmendpoint_batch.store import response_events, response_replay, response_usage, responses
from llmendpoint_batch.store.response_events import Group

ROOM = 4_000
EVENTS = b"event: a\ndata: {}\n\n" * 2


def answer(text: str) -> bytes:
    item = {"type": "message", "role": "assistant", "content": text}
    return msgspec.json.encode({"id": "resp_engine", "status": "completed", "output": [item]})


class Store(RuleBasedStateMachine):
    """`ends`: response -> the answer that came first."""

    made = Bundle("made")

    def storage(self) -> Storage:
        return OnDisk()

    def __init__(self) -> None:
        super().__init__()
        self.db = self.storage()
        self.count, self.age = 0, 0.0
        self.ends: dict[str, bytes] = {}
        self.gone: set[str] = set()
        self.previous: dict[str, str | None] = {}
        self.events: dict[str, int] = {}
        self.begun: set[str] = set()

    @rule(target=made, background=st.booleans(), previous=st.none() | made, streamed=st.booleans())
    def create(self, background: bool, previous: str | None, streamed: bool) -> str:
        self.count += 1
        state = State.QUEUED if background else State.IN_PROGRESS
        item = msgspec.json.encode([{"role": "user", "content": f"item {self.count}"}])
        new = Stored(f"resp_{self.count}", state, "m", 0, background, "", previous, b"{}", item)
        deadline = self.age + (5 if background else 100)
        try:
            events = EVENTS if streamed and background else b""
            self.db.write(responses.create, new, 1, self.age + 100, deadline, ROOM, events)
        except Refused as refused:
            self.gone.add(new.id)
            full = refused.code == "storage_quota_exceeded"
            if not full and (
                not str(refused.code).startswith("previous_response_not_") or self.may_continue(previous)
            ):
                raise
            return new.id
        assert previous is None or self.may_continue(previous)
        self.previous[new.id] = previous
        if streamed and background:
            self.events[new.id] = 2
        return new.id

    def may_continue(self, previous: str | None) -> bool:
        if previous in self.gone or previous is None:
            return False
        if msgspec.json.decode(self.ends.get(previous, b'{"status": ""}'))["status"] != "completed":
            return False
        before = self.previous[previous]
        return before is None or self.may_continue(before)

    @rule(name=made)
    def begin(self, name: str) -> None:
        found = self.db.write(responses.begin, name)
        if found is not None:
            self.begun.add(name)
        assert found is None or (found.background and name not in self.ends and name not in self.gone)

    @rule(name=made, text=st.sampled_from(["a", "bb"]))
    def finish(self, name: str, text: str) -> None:
        if name in self.gone:
            return
        final = final_of(self.db.read(responses.get, name), answer(text))
        assert final is not None
        self.end(name, final)

    def end(self, name: str, final: Final) -> None:
        done = self.db.write(responses.finish, name, final, self.age + 100)
        assert done == (name not in self.ends)
        if done:
            self.ends[name] = final.answer

    @rule(name=made, count=st.integers(1, 3))
    def say(self, name: str, count: int) -> None:
        """Its endpoint says so many events."""
        first = self.events.get(name, 0)
        group = Group(name, first, first + count - 1, EVENTS[: len(EVENTS) // 2] * count)
        refused = self.db.write(response_events.add, [group], ROOM)
        there = name in self.events and name not in self.gone
        if not refused:
            assert there
            assert name not in self.ends
            self.events[name] += count
        else:
            assert not there or name in self.ends or "no room" in refused[name]

    @invariant()
    def events_are_read_from_any_number_on_and_the_end_is_the_last(self) -> None:
        for name, count in self.events.items():
            if name in self.gone:
                continue
            for after in range(-1, count):
                piece = self.read_on(name, after)
                if piece is None:
                    assert name in self.ends
                    continue
                if after < count - 1:
                    assert piece.data.count(b"\n\n") == piece.last - after
                    assert not piece.ended
                else:
                    assert piece.ended == (name in self.ends) == bool(piece.data)

    def read_on(self, name: str, after: int) -> response_replay.Piece | None:
        """None: its events are past their time."""
        try:
            return self.db.read(response_replay.piece_after, name, after)
        except Refused as refused:
            if refused.code != "no_events":
                raise
            return None

    @rule(name=made)
    def cancel(self, name: str) -> None:
        try:
            found = self.db.write(responses.cancel, name, self.age + 100)
        except Refused as refused:
            if refused.code != "response_not_cancellable" and name not in self.gone:
                raise
            return
        assert found.answer is not None
        self.ends.setdefault(name, found.answer)

    @rule(name=made)
    def delete(self, name: str) -> None:
        try:
            self.db.write(responses.remove, name)
        except Refused:
            assert name in self.gone
        self.gone.add(name)

    @rule(seconds=st.sampled_from([1.0, 6.0, 101.0]))
    def time_passes(self, seconds: float) -> None:
        self.age += seconds
        self.db.write(
            responses.fail_lost,
            {name for name in self.previous if int(name[5:]) % 2},
            self.age,
            self.age + 100,
        )
        self.db.write(responses.remove_old, self.age, 100)
        self.db.write(response_events.remove_old, self.age * 30, 100)
        self.look_again()

    @rule()
    def crash(self) -> None:
        self.db.crash()
        self.db.write(responses.requeue, self.age + 100)
        self.db.write(responses.fail_lost, (), self.age, self.age + 100)
        self.look_again()
        for name in self.previous.keys() - self.gone:
            stored = self.db.read(responses.get, name)
            assert stored.state not in OPEN or (stored.background and stored.state is State.QUEUED)
            assert self.events.get(name, 0) <= 2 or name in self.ends or name not in self.begun
        self.begun.clear()

    def look_again(self) -> None:
        """What the service ended or deleted by itself."""
        for name in self.previous.keys() - self.gone:
            try:
                stored = self.db.read(responses.get, name)
            except Refused:
                assert name in self.ends, "only what has ended goes by itself"
                self.gone.add(name)
                continue
            if stored.answer is not None:
                self.ends.setdefault(name, stored.answer)

    @invariant()
    def an_end_stays_and_the_sums_are_right(self) -> None:
        there = self.previous.keys() - self.gone
        for name in there:
            assert self.db.read(responses.get, name).answer == self.ends.get(name)
        count, size = self.db.read(response_usage.usage)
        sql = "SELECT count(*), coalesce(sum(length(fields) + length(items) + coalesce(length(answer), 0)), 0) FROM responses"
        rows, summed = self.db.read(lambda c: c.execute(sql).fetchone())
        sql = "SELECT coalesce(sum(length(data)), 0) FROM response_events"
        [kept] = self.db.read(lambda c: c.execute(sql).fetchone())
        assert (count, size) == (rows, int(summed) + int(kept)) == (len(there), size)

    @invariant()
    def conversations_hold_every_turn(self) -> None:
        for name in self.ends.keys() - self.gone:
            if self.may_continue(name):
                turns, at = 1, self.previous[name]
                while at is not None:
                    turns, at = turns + 1, self.previous[at]
                assert len(self.db.read(responses.conversation, name)) == 2 * turns

    def teardown(self) -> None:
        self.db.close()


TestStore = Store.TestCase
TestStore.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_the_same_holds_on_postgresql(postgres: Server) -> None:
    url = postgres.new_database()

    class OnPostgres(Store):
        def storage(self) -> Storage:
            return OnServer(url)

    run_state_machine_as_test(
        OnPostgres, settings=settings(max_examples=15, stateful_step_count=30, deadline=None)
    )


def test_events_of_one_response_have_a_bound_and_are_kept_for_an_hour_after_its_end() -> None:
    db = OnDisk()
    new = Stored("resp_1", State.QUEUED, "m", 0, True, "", None, b"{}", b"[]")
    db.write(responses.create, new, 0, 100, 100, 1 << 30, EVENTS)
    large = bytes(EVENTS_BYTES // 2)
    assert db.write(response_events.add, [Group("resp_1", 2, 2, large)], 1 << 30) == {}
    refused = db.write(response_events.add, [Group("resp_1", 3, 3, large)], 1 << 30)
    assert "more than" in refused["resp_1"]
    db.write(responses.cancel, "resp_1", 10_000.0)
    assert db.write(response_events.remove_old, 50.0, 100) == 0
    assert db.write(response_events.remove_old, 50.0 + EVENTS_SECONDS, 100) == 1
    with pytest.raises(Refused, match="kept for an hour"):
        db.read(response_replay.check, "resp_1", -1)
    assert db.read(responses.get, "resp_1").state is State.CANCELLED
    assert db.read(response_usage.usage)[1] < 10_000
    db.close()


def test_what_a_response_continues_is_kept_as_long_as_that_response() -> None:
    db = OnDisk()
    previous = None
    for name, age in (("resp_1", 0), ("resp_2", 90), ("resp_3", 180)):
        new = Stored(name, State.IN_PROGRESS, "m", 0, False, "", previous, b"{}", b"[]")
        db.write(responses.create, new, 0, age + 100, age + 100, ROOM)
        final = final_of(new, answer(name))
        assert final is not None
        db.write(responses.finish, name, final, age + 100)
        assert db.write(responses.remove_old, age + 99, 100) == 0
        previous = name
    assert len(db.read(responses.conversation, previous)) == 3
    assert db.write(responses.remove_old, 281, 100) == 3
    db.close()


def test_a_background_response_that_waited_too_long_fails_and_one_that_did_not_waits_on() -> None:
    db = OnDisk()
    for name, deadline in (("resp_1", 5.0), ("resp_2", 500.0)):
        new = Stored(name, State.QUEUED, "m", 0, True, "", None, b"{}", b"[]")
        db.write(responses.create, new, 0, 100, deadline, ROOM)
    assert db.write(responses.fail_lost, (), 4.0, 100) == 0
    assert db.write(responses.fail_lost, ("resp_1",), 6.0, 100) == 0, "it is being sent"
    assert db.write(responses.fail_lost, (), 6.0, 100) == 1
    late, early = (db.read(responses.get, name) for name in ("resp_1", "resp_2"))
    assert (late.state, early.state) == (State.FAILED, State.QUEUED)
    assert b"did not answer within a day" in (late.answer or b"")
    db.close()
