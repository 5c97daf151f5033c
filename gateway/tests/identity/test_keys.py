"""docs/concepts/identity.md: what counts as a key, which LLMKey it is of, and that a wrong one tells nothing."""

import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tests.keys import CREATED, digest, key_text, llm_key
from llmendpoint_gateway.core.identity.authentication import Authentication, identify
from llmendpoint_gateway.core.identity.credentials import HEADERS, LONGEST, Malformed, find_key, proof_of
from llmendpoint_gateway.core.identity.grants import ANONYMOUS, Identity
from llmendpoint_gateway.core.identity.key_objects import MOST_HASHES, Key, parse_key
from llmendpoint_gateway.core.identity.keys import MOST_NAMESPACES, Denied, Keys, Reason
from llmendpoint_gateway.core.identity.priority import Priority
from llmendpoint_gateway.errors import MalformedObject

TEXT = key_text()
OTHER = key_text(TEXT[4:20])  # of the same id
NOW = 1_800_000_000.0  # in January 2027
PAST, FUTURE = "2026-01-01T00:00:00Z", "2028-01-01T00:00:00Z"


def keys(*bodies: Mapping[str, object]) -> Keys:
    table = Keys()
    for body in bodies:
        table.put(parse_key(body))
    return table


def judged(table: Keys, text: str = TEXT, now: float = NOW) -> str | Reason:
    """The LLMKey, or the reason."""
    found = table.judge(proof_of(text.encode()), now)
    return found.key if isinstance(found, Identity) else found.reason


def test_a_key_is_known_by_its_hash_and_another_of_its_id_is_not() -> None:
    table = keys(llm_key(TEXT))
    assert judged(table) == "team/ci"
    assert judged(table, OTHER) is Reason.UNKNOWN
    assert judged(table, key_text()) is Reason.UNKNOWN


def test_a_rotated_key_has_two_texts_until_the_old_one_expires() -> None:
    old_until = {"sha256": digest(TEXT), "expires": FUTURE}
    table = keys(
        llm_key(OTHER) | {"spec": {"id": OTHER[4:20], "hashes": [{"sha256": digest(OTHER)}, old_until]}}
    )
    assert judged(table, OTHER) == judged(table, TEXT) == "team/ci"
    assert judged(table, TEXT, NOW + 366 * 86_400) is Reason.EXPIRED
    assert judged(table, OTHER, NOW + 366 * 86_400) == "team/ci"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"disabled": True}, Reason.DISABLED),
        ({"expires": PAST}, Reason.EXPIRED),
        ({"hashes": []}, Reason.UNKNOWN),
    ],
)
def test_a_key_that_is_over_lets_nobody_in(spec: dict[str, object], reason: Reason) -> None:
    assert judged(keys(llm_key(TEXT, **spec))) is reason


def test_the_log_learns_which_llmkey_was_over() -> None:
    assert keys(llm_key(TEXT, disabled=True)).judge(proof_of(TEXT.encode()), NOW) == Denied(
        Reason.DISABLED, "team/ci"
    )


def copy(
    body: Mapping[str, Any], name: str, namespace: str = "evil", created: str = CREATED
) -> dict[str, Any]:
    """What somebody makes who may read an LLMKey, and does not know the key."""
    return {**body, "metadata": {"namespace": namespace, "name": name, "creationTimestamp": created}}


def test_a_hash_is_bound_to_the_namespace_of_its_llmkey_and_the_cli_makes_the_same() -> None:
    """cli/tests/cli_unit/test_keys.py has the same three literals: the two parts share no code."""
    text = "llm_4k2m9x0a7b3c5d8e_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    known = "7b8eee6988f35bb739e8fe30d409e56548d8e905faa9f6970fcfc46d880ace3c"
    assert proof_of(text.encode()).in_namespace("team-a").hex() == known
    spec = {"id": "4k2m9x0a7b3c5d8e", "hashes": [{"sha256": known}]}
    for namespace, judgement in (("team-a", "team-a/ci"), ("team-b", Reason.UNKNOWN)):
        assert judged(keys({**llm_key(text, namespace=namespace), "spec": spec}), text) == judgement


@pytest.mark.parametrize("created", [CREATED, "2000-01-01T00:00:00Z", FUTURE])
def test_a_copy_of_an_llmkey_in_another_namespace_lets_nobody_in_however_old_it_is(created: str) -> None:
    own = llm_key(TEXT)
    copies = [copy(own, f"copy{n}", created=created) for n in range(100)]
    assert judged(keys(*copies)) is Reason.UNKNOWN
    assert judged(keys(own, *copies)) == judged(keys(*copies, own)) == "team/ci"
    assert judged(keys(*copies, llm_key(TEXT, disabled=True))) is Reason.DISABLED
    table = keys(own, *copies)
    table.drop("team/ci")
    assert judged(table) is Reason.UNKNOWN


def test_so_many_namespaces_with_older_copies_do_not_keep_an_llmkey_from_being_found() -> None:
    own = llm_key(TEXT, created=FUTURE)
    copies = [copy(own, "copy", f"evil{n}", PAST) for n in range(MOST_NAMESPACES)]
    assert judged(keys(own, *copies[1:])) == "team/ci"
    assert judged(keys(own, *copies)) is Reason.UNKNOWN, "documented: it lets nobody in"


def test_a_request_with_an_id_that_has_many_copies_costs_little() -> None:
    """Whoever sends it may have no key at all."""
    four = {"hashes": [{"sha256": f"{n}" * 64} for n in range(MOST_HASHES)]}
    table = keys(
        *(llm_key(TEXT, f"copy{n}", f"evil{m}", **four) for m in range(3 * MOST_NAMESPACES) for n in range(8))
    )
    proof, start = proof_of(TEXT.encode()), time.process_time()
    for _ in range(20):
        table.judge(proof, NOW)
    assert (time.process_time() - start) / 20 < 2e-3


@settings(max_examples=200)
@given(st.lists(st.tuples(st.booleans(), *[st.integers(0, 2)] * 4), max_size=30))
def test_in_whatever_order_llmkeys_come_and_go_the_oldest_with_the_key_decides(
    changes: list[tuple[bool, int, int, int, int]],
) -> None:
    table, known, texts = Keys(), dict[str, tuple[str, str, int]](), [TEXT, OTHER, key_text()]
    for put, namespace, name, age, text in changes:
        key = f"{namespace}/{name}"
        if put:
            known[key] = (f"202{age}-01-01T00:00:00Z", key, text)
            table.put(parse_key(llm_key(texts[text], str(name), str(namespace), known[key][0])))
        elif known.pop(key, None):
            table.drop(key)
    assert sorted(table.names) == sorted(known)
    for number, text in enumerate(texts):
        oldest = min((one[:2] for one in known.values() if one[2] == number), default=("", Reason.UNKNOWN))
        assert judged(table, text) == oldest[1]


def test_of_two_made_in_the_same_second_the_first_by_name_is_the_one() -> None:
    assert judged(keys(llm_key(TEXT, "b"), llm_key(TEXT, "a"))) == "team/a"


def test_of_several_llmkeys_of_a_namespace_with_one_hash_the_oldest_decides() -> None:
    younger = llm_key(TEXT, "again", created="2026-05-01T00:00:00Z")
    table = keys(younger, llm_key(TEXT, disabled=True))
    assert judged(table) is Reason.DISABLED
    table.drop("team/ci")
    assert judged(table) == "team/again"


def test_an_llmkey_that_is_made_anew_under_another_name_may_have_the_same_id() -> None:
    table = keys(llm_key(TEXT, "old"), llm_key(OTHER, "new", created="2026-05-01T00:00:00Z"))
    assert (judged(table), judged(table, OTHER)) == ("team/old", "team/new")


def test_many_copies_of_an_llmkey_make_no_change_slow() -> None:
    """Reading them is a matter of milliseconds on the loop that decides on requests."""
    table = keys(*(llm_key(TEXT, f"copy{n:04}", "evil") for n in range(2000)))
    changes = [parse_key(llm_key(TEXT, f"copy{n:04}", "evil", disabled=True)) for n in range(50)]
    start = time.process_time()
    for change in changes:
        table.put(change)
    assert (time.process_time() - start) / len(changes) < 200e-6


def test_there_is_room_for_so_many_keys_and_the_place_of_a_dropped_one_is_free_again() -> None:
    table = Keys(most=2)
    rest = [parse_key(llm_key(key_text(), "k", f"n{n}")) for n in range(3)]
    assert [table.put(one) for one in rest] == [True, True, False]
    assert (len(table), table.left_out) == (2, 1)
    table.drop("n0/k")
    assert table.put(rest[2])
    assert (len(table), table.left_out) == (2, 0)


def test_a_namespace_takes_half_of_the_room_at_most() -> None:
    table = Keys(most=10)
    greedy = [table.put(parse_key(llm_key(key_text(), f"k{n}", "evil"))) for n in range(20)]
    assert greedy == [True] * 5 + [False] * 15
    assert all(table.put(parse_key(llm_key(key_text(), f"k{n}"))) for n in range(5))
    table.drop("evil/k0")
    assert table.put(parse_key(llm_key(key_text(), "k9", "evil")))


def test_large_llmkeys_take_the_room_of_several() -> None:
    """The largest that the CRD allows has half a megabyte: 2,000 of these would fill the picker's memory."""
    grant = {"matchLabels": {f"{n}{'x' * 300}": "y" * 63 for n in range(16)}}
    table = Keys(most=1000)
    taken = [table.put(parse_key(llm_key(key_text(), f"k{n}", grants=[grant] * 64))) for n in range(10)]
    assert taken == [True] + [False] * 9
    table.drop("team/k0")
    usual = [{}, {"namespace": "other", "name": "chat"}, {"matchLabels": {"tier": "gold"}}]
    assert all(table.put(parse_key(llm_key(key_text(), f"u{n}", grants=usual))) for n in range(500))


def test_an_unchanged_llmkey_stays_the_same_identity_and_a_changed_one_does_not() -> None:
    table = keys(llm_key(TEXT))
    before = table.judge(proof_of(TEXT.encode()), NOW)
    table.put(parse_key(llm_key(TEXT)))
    assert table.judge(proof_of(TEXT.encode()), NOW) is before
    table.put(parse_key(llm_key(TEXT, priority="Low")))
    after = table.judge(proof_of(TEXT.encode()), NOW)
    assert isinstance(before, Identity)
    assert isinstance(after, Identity)
    assert (before.priority, after.priority) == (Priority.NORMAL, Priority.LOW)
    assert before.caller == after.caller != 0


@pytest.mark.parametrize(
    ("field", "spec"),
    [
        ("id", {"id": "ABC"}),
        ("id", {"id": None}),
        ("hashes", {"hashes": {}}),
        ("hashes", {"hashes": [{"sha256": "0" * 64}] * 5}),
        ("sha256", {"hashes": [{"sha256": "Z" * 64}]}),
        ("sha256", {"hashes": ["x"]}),
        ("expires", {"expires": "tomorrow"}),
        ("expires", {"expires": 5}),
        ("expires", {"hashes": [{"sha256": "0" * 64, "expires": "x"}]}),
        ("grants", {"grants": [{}] * 65}),
        ("grants", {"grants": [{"matchExpressions": []}]}),
        ("grants", {"grants": [{"name": 5}]}),
        ("grants", {"grants": [{"matchLabels": {"a": 1}}]}),
        ("priority", {"priority": "Highest"}),
        ("priority", {"priority": []}),
        ("disabled", {"disabled": "yes"}),
    ],
)
def test_an_llmkey_that_is_half_understood_is_none_and_the_error_names_the_field(
    field: str, spec: dict[str, object]
) -> None:
    with pytest.raises(MalformedObject, match=field):
        parse_key(llm_key(TEXT, **spec))


def test_what_an_llmkey_says_is_read() -> None:
    body = llm_key(
        TEXT,
        grants=[{}, {"namespace": "b", "name": "chat"}, {"matchLabels": {"tier": "gold"}}],
        priority="High",
    )
    key = parse_key(body)
    assert isinstance(key, Key)
    assert [tuple(grant) for grant in key.grants] == [
        ("team", "", frozenset()),
        ("b", "chat", frozenset()),
        ("team", "", frozenset({("tier", "gold")})),
    ]
    assert key.priority is Priority.HIGH


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, None),
        ({"authorization": b"Bearer sk-123"}, None),
        ({"authorization": b"Basic bGxtXw=="}, None),
        ({"authorization": TEXT.encode()}, None),  # without its scheme
        ({"authorization": b"Bearer " + TEXT.encode()}, TEXT.encode()),
        ({"authorization": b"bEARER \t " + TEXT.encode() + b"  "}, TEXT.encode()),
        ({"x-api-key": TEXT.encode()}, TEXT.encode()),
        ({"api-key": TEXT.encode()}, TEXT.encode()),
        ({"authorization": b"Bearer unused", "x-api-key": TEXT.encode()}, TEXT.encode()),
        ({"authorization": b"Bearer " + OTHER.encode(), "x-api-key": TEXT.encode()}, OTHER.encode()),
        ({"authorization": b"x" * 100_000}, None),
    ],
)
def test_the_first_text_that_begins_like_a_key_is_the_one(
    headers: dict[str, bytes], found: bytes | None
) -> None:
    assert find_key(headers) == found


WRONG = [
    b"llm_",
    TEXT[:-1].encode(),
    TEXT.encode() + b"A",
    TEXT.encode() + b",Bearer x",
    TEXT.upper().replace("LLM_", "llm_").encode(),
    TEXT[:20].encode() + b"-" + TEXT[21:].encode(),
    TEXT.encode() + b"\n",
    TEXT.encode() + b" " * LONGEST,
    TEXT[:-1].encode() + "ä".encode(),
    TEXT[:-1].encode() + b"\xff",
    b"llm_" + b"x" * 100_000,
]


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.parametrize("mode", [Authentication.OPTIONAL, Authentication.REQUIRED])
@pytest.mark.parametrize("header", HEADERS)
def test_what_begins_like_a_key_and_is_none_lets_nobody_in_in_either_mode(
    header: str, mode: Authentication, text: bytes
) -> None:
    value = b"Bearer " + text if header == "authorization" else text
    with pytest.raises(Malformed):
        find_key({header: value})
    assert identify(mode, {header: value}, False, keys(), NOW)[0] == Denied(Reason.MALFORMED)


def test_a_header_that_came_twice_lets_nobody_in() -> None:
    headers = {"authorization": b"Bearer " + TEXT.encode()}
    for mode in (Authentication.OPTIONAL, Authentication.REQUIRED):
        assert identify(mode, headers, True, keys(llm_key(TEXT)), NOW)[0] == Denied(Reason.MALFORMED)


def test_who_sends_no_key_is_anonymous_where_one_is_optional() -> None:
    table = keys(llm_key(TEXT))
    for headers in ({}, {"authorization": b"Bearer unused"}):
        assert identify(Authentication.OPTIONAL, headers, False, table, NOW)[0] is ANONYMOUS
        assert identify(Authentication.REQUIRED, headers, False, table, NOW)[0] == Denied(Reason.MISSING)


PARTS = st.one_of(
    st.binary(max_size=80),
    st.sampled_from(
        [b"llm_", b"Bearer ", b" ", b",", b"_", TEXT.encode(), OTHER.encode(), b"\x00", b"\xff" * 600]
    ),
)


@settings(max_examples=400)
@given(
    st.dictionaries(
        st.sampled_from([*HEADERS, "x-other"]), st.lists(PARTS, max_size=5).map(b"".join), max_size=4
    ),
    st.booleans(),
    st.sampled_from([Authentication.OPTIONAL, Authentication.REQUIRED]),
)
def test_no_headers_let_anybody_in_but_those_with_the_very_key(
    headers: dict[str, bytes], doubled: bool, mode: Authentication
) -> None:
    found, _ = identify(mode, headers, doubled, keys(llm_key(TEXT)), NOW)
    if isinstance(found, Identity) and found.key:
        assert not doubled
        assert any(TEXT.encode() in value for value in headers.values())
    else:
        assert found is ANONYMOUS or isinstance(found, Denied)
