"""docs/concepts/identity.md: what counts as a key, which LLMKey it is of, and that a wrong one tells nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tests.keys import NOW, digest, judged, key_text, keys, llm_key
from llmendpoint_gateway.core.identity.authentication import Authentication, identify
from llmendpoint_gateway.core.identity.credentials import HEADERS, LONGEST, Malformed, find_key, proof_of
from llmendpoint_gateway.core.identity.grants import ANONYMOUS, Identity
from llmendpoint_gateway.core.identity.key_objects import Key, parse_key
from llmendpoint_gateway.core.identity.keys import Denied, Keys, Reason
from llmendpoint_gateway.core.identity.priority import Priority
from llmendpoint_gateway.errors import MalformedObject

TEXT = key_text()
OTHER = key_text(TEXT[4:20])  # of the same id
PAST, FUTURE = "2026-01-01T00:00:00Z", "2028-01-01T00:00:00Z"


def test_a_key_is_known_by_its_hash_and_another_of_its_id_is_not() -> None:
    table = keys(llm_key(TEXT))
    assert judged(table, TEXT) == "team/ci"
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
    assert judged(keys(llm_key(TEXT, **spec)), TEXT) is reason


def test_the_log_learns_which_llmkey_was_over() -> None:
    assert keys(llm_key(TEXT, disabled=True)).judge(proof_of(TEXT.encode()), NOW) == Denied(
        Reason.DISABLED, "team/ci"
    )


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
    assert judged(keys(llm_key(TEXT, "b"), llm_key(TEXT, "a")), TEXT) == "team/a"


def test_of_several_llmkeys_of_a_namespace_with_one_hash_the_oldest_decides() -> None:
    younger = llm_key(TEXT, "again", created="2026-05-01T00:00:00Z")
    table = keys(younger, llm_key(TEXT, disabled=True))
    assert judged(table, TEXT) is Reason.DISABLED
    table.drop("team/ci")
    assert judged(table, TEXT) == "team/again"


def test_an_llmkey_that_is_made_anew_under_another_name_may_have_the_same_id() -> None:
    table = keys(llm_key(TEXT, "old"), llm_key(OTHER, "new", created="2026-05-01T00:00:00Z"))
    assert (judged(table, TEXT), judged(table, OTHER)) == ("team/old", "team/new")


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
