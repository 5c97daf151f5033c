"""docs/concepts/batches.md: in any order of steps and crashes a line has one answer, and the counts are those of the lines."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from batch.tests.postgres import Server
from batch.tests.storage import OnDisk, OnServer, Storage
from llmendpoint_batch.core.creation import Wanted
from llmendpoint_batch.core.outcomes import Keep, Reply
from llmendpoint_batch.core.records import Batch, File, Pending
from llmendpoint_batch.core.status import ENDED, WRITING, Status
from llmendpoint_batch.store import batches, files, lines
from llmendpoint_batch.work.assembly import write_files

COUNT = 6


class Store(RuleBasedStateMachine):
    """One batch at a time. A crash loses the connection, and what was being written."""

    def storage(self) -> Storage:
        return OnDisk()

    def __init__(self) -> None:
        super().__init__()
        self.db = self.storage()
        self.db.write(files.add, File("file-in", "in", "batch", 0, 0, 0, 1e9))
        self.first: dict[int, bytes] = {}
        """Line -> the answer that was given first."""
        self.batch = self.make()

    def make(self) -> Batch:
        self.first = {}
        wanted = Wanted("file-in", "/v1/completions", "1h", 3600, None)
        made = self.db.write(batches.create, f"batch_{id(object())}_{self.count()}", wanted, 0, 0.0)
        self.db.write(lines.forget, made)
        return made

    def count(self) -> int:
        return int(self.db.read(lambda c: c.execute("SELECT count(*) FROM batches").fetchone()[0]))

    @property
    def now(self) -> Batch:
        return self.db.read(batches.by_seq, self.batch.seq)

    def pending(self) -> list[Pending]:
        return self.db.read(lines.pending, self.batch.seq, 0, COUNT)

    @precondition(lambda self: self.now.status is Status.VALIDATING)
    @rule(whole=st.booleans())
    def read_the_file(self, whole: bool) -> None:
        self.db.write(lines.forget, self.batch)
        rows = [Pending(n, f"id-{n}", 0, 1) for n in range(1, COUNT + 1)]
        self.db.write(lines.add, self.batch, rows if whole else rows[:3])
        if whole:
            self.db.write(lines.accept, self.batch.seq, "m", 1)

    @rule(number=st.integers(1, COUNT), good=st.booleans(), text=st.sampled_from([b"1", b"2"]))
    def answer(self, number: int, good: bool, text: bytes) -> None:
        waits = number in {line.number for line in self.pending()} and self.now.total == COUNT
        if self.now.status is Status.VALIDATING:
            return  # no line is sent
        kept = Keep(Reply(200 if good else 400, text), good)
        answered = lines.Answered(self.batch.seq, self.batch.id, Pending(number, f"id-{number}", 0, 1), kept)
        self.db.write(lines.record, [answered])
        if waits:
            self.first[number] = text

    @precondition(lambda self: self.now.status in (Status.VALIDATING, Status.IN_PROGRESS, Status.CANCELLING))
    @rule()
    def cancel(self) -> None:
        self.db.write(batches.cancel, self.batch.id, 2)

    @rule()
    def expire(self) -> None:
        self.db.write(batches.expire, 3600.0, 3)

    @rule()
    def finish(self) -> None:
        self.db.write(lines.finish, self.batch.seq, 4)

    @precondition(lambda self: self.now.status in WRITING)
    @rule(crash=st.booleans())
    def write(self, crash: bool) -> None:
        now = self.now
        made = self.db.backend.read_long(lambda c: write_files(c, self.db.blobs, now, 5, 5.0, 60.0))
        if crash:
            return self.crash()
        self.db.write(lines.written, self.now, made, 5, 65.0)
        return self.check_files()

    @rule()
    def crash(self) -> None:
        self.db.crash()
        self.db.blobs.sweep(self.db.read(files.ids))

    @precondition(lambda self: self.now.status in ENDED)
    @rule()
    def go_on(self) -> None:
        while self.db.write(lines.clear, 4):
            pass
        self.batch = self.make()

    def check_files(self) -> None:
        now, found = self.now, list[str]()
        for file_id in (now.output_file_id, now.error_file_id):
            if file_id is not None:
                found += self.db.blobs.open(file_id).read().decode().splitlines()
        assert len(found) == now.total
        for number, text in self.first.items():
            [line] = [line for line in found if f'"id-{number}"' in line]
            assert f'"body":{text.decode()}' in line

    @invariant()
    def the_counts_are_those_of_the_lines(self) -> None:
        now = self.now
        if now.status in ENDED or now.status is Status.VALIDATING:
            return
        waiting = len(self.pending())
        assert now.completed + now.failed + waiting == now.total
        assert not (now.status in WRITING and waiting)

    def teardown(self) -> None:
        self.db.close()


TestStore = Store.TestCase
TestStore.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_the_same_holds_on_postgresql(postgres: Server) -> None:
    url = postgres.new_database()

    class OnPostgres(Store):
        def storage(self) -> Storage:
            return OnServer(url)

    run_state_machine_as_test(
        OnPostgres, settings=settings(max_examples=20, stateful_step_count=25, deadline=None)
    )
