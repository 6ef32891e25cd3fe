"""Giving blocks: what is chosen, what is kept, what is refused and in which words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpp_operator import ports
from kvpp_operator.ledger.allocate import Allocation, Request, allocate
from kvpp_operator.ledger.claim import HOST, KV, Claim, Holder, Ledger, Owner
from kvpp_operator.ledger.refusal import Refusal
from kvpp_operator.ledger.window import Window, host_windows, kv_window
from kvpp_operator.ports import PortRange, reserved_ranges

DEMO, OTHER = Owner("default", "demo", "u1"), Owner("team", "other", "u2")
RESERVED = reserved_ranges(8)


def holder(role: str = "prefill", engine: int = 0, revision: str = "r1", owner: Owner = DEMO) -> Holder:
    return Holder(owner, role, engine, revision)


def ask(length: int, *, who: Holder | None = None, pin: int | None = None, window: Window | None = None) -> Request:
    return Request(who or holder(), KV, length, (window or kv_window(8),), pin)


def claim(block: str, who: Holder | None = None, purpose: str = KV) -> Claim:
    return Claim(PortRange.parse(block), who or holder(owner=OTHER), purpose)


def given_blocks(answer: Allocation | Refusal) -> list[str]:
    assert isinstance(answer, Allocation), answer.message
    return [str(each.block) for each in answer.claims]


def refused(answer: Allocation | Refusal) -> str:
    assert isinstance(answer, Refusal)
    return answer.message


def test_an_empty_window_is_filled_from_the_bottom() -> None:
    answer = allocate(Ledger(), [ask(9), ask(9, who=holder(engine=1)), ask(16, who=holder("decode"))])
    expected = ["22016-22024", "22025-22033", "22000-22015"]  # the longest was placed first
    assert expected == given_blocks(answer)


def test_the_smallest_run_that_fits_is_taken() -> None:
    ledger = Ledger((claim("22000-22099"), claim("22120-22199"), claim("22210-22299")))
    expected = [["22200-22208"], ["22100-22110"], ["22300-22320"]]
    assert expected == [given_blocks(allocate(ledger, [ask(length)])) for length in (9, 11, 21)]


def test_the_top_of_a_downward_window_is_taken_first() -> None:
    down = Window(22000, 22099, downward=True)
    answer = allocate(Ledger(), [ask(19, window=down), ask(19, who=holder(engine=1), window=down)])
    expected = ["22081-22099", "22062-22080"]
    assert expected == given_blocks(answer)


def test_host_blocks_try_their_windows_in_order() -> None:
    windows = host_windows(8)
    requests = [Request(holder(engine=index), HOST, 19, windows) for index in range(157 + 63 + 238 + 1)]
    blocks = given_blocks(allocate(Ledger(), requests))
    expected = ["17001-17019", "20801-20819", "61000-61018", "29981-29999"]
    assert expected == [blocks[index] for index in (0, 157, 157 + 63, 157 + 63 + 238)]


def test_reserved_ports_are_skipped() -> None:
    """Acceptance S28a: single busy ports and ranges in a small window."""
    busy = [PortRange.parse(text) for text in (28004, 28020, "28040-28043")]
    window = kv_window(8, PortRange(28000, 28099), busy)
    requests = [ask(length, who=holder(role, engine), window=window) for role, engine, length in
                (("prefill", 0, 9), ("prefill", 1, 9), ("decode", 0, 16))]  # fmt: skip
    answer = allocate(Ledger(), requests)
    assert isinstance(answer, Allocation)
    for block in (each.block for each in answer.claims):
        assert block.first >= 28000
        assert block.last <= 28099
        assert not any(block.overlaps(other) for other in busy)


def test_a_claim_is_returned_as_it_is() -> None:
    """A restart, a second reconcile, a window that was moved: an engine that has ports keeps them."""
    ledger = Ledger((claim("22400-22408", holder()), claim("23000-23008")))
    moved = kv_window(8, PortRange(40000, 40999))
    answer = allocate(ledger, [ask(9, window=moved), ask(9, who=holder(engine=1), window=moved)])
    expected = ["22400-22408", "40000-40008"]
    assert expected == given_blocks(answer)
    assert allocate(ledger, [ask(9)]) == Allocation(ledger, (ledger.claims[0],))


def test_a_new_revision_gets_blocks_of_its_own() -> None:
    ledger = Ledger((claim("22000-22008", holder()),))
    expected = ["22009-22017"]
    assert expected == given_blocks(allocate(ledger, [ask(9, who=holder(revision="r2"))]))


def test_a_claim_of_a_wrong_length_is_given_anew_unless_its_engine_runs() -> None:
    shrunk = Ledger((claim("22400-22403", holder()),))
    assert given_blocks(allocate(shrunk, [ask(9)])) == ["22000-22008"]
    assert given_blocks(allocate(shrunk, [ask(9)], running={holder()})) == ["22400-22403"]


@pytest.mark.parametrize(
    ("prefill", "decode", "blocks"),
    [
        # (data, pipeline, prefill context, tensor) of each role, with the seed's pins 37000 and 37010 on one host
        ((1, 1, 1, 8), (1, 1, 1, 8), ["37000-37008", "37010-37018"]),
        ((1, 1, 1, 8), (8, 1, 1, 1), ["37000-37008", "37010-37025"]),
        ((1, 1, 1, 16), (1, 1, 1, 8), None),
        ((1, 2, 1, 8), (1, 1, 1, 8), None),
    ],
)
def test_the_seeds_pair_of_pins(
    prefill: tuple[int, int, int, int], decode: tuple[int, int, int, int], blocks: list[str] | None
) -> None:
    """The guide's own example fits TP8 by one port, and neither TP16 nor TP8 with PP2."""
    requests = [
        ask(ports.kv_block_length(*prefill), pin=37000),
        ask(ports.kv_block_length(*decode), who=holder("decode"), pin=37010),
    ]
    answer = allocate(Ledger(), requests, reserved=RESERVED)
    if blocks:
        assert blocks == given_blocks(answer)
        assert isinstance(answer, Allocation)
        assert {warning.reserved.name for warning in answer.warnings} == {"ephemeral ports"}
        assert all("net.ipv4.ip_local_reserved_ports" in warning.message for warning in answer.warnings)
    else:
        assert refused(answer) == (
            "decode engine 0 needs 37010-37018 (9 ports, pin 37010), "
            "but prefill engine 0 of default/demo holds 37000-37016"
        )


def test_pinned_replicas_take_consecutive_blocks() -> None:
    requests = [ask(9, who=holder(engine=index), pin=24000) for index in range(3)]
    expected = ["24000-24008", "24009-24017", "24018-24026"]
    assert expected == given_blocks(allocate(Ledger(), requests, reserved=RESERVED))


def test_pins_go_before_choices() -> None:
    """A block that we choose evades one that the user pinned, whatever the order of the requests."""
    answer = allocate(Ledger(), [ask(9), ask(9, who=holder("decode"), pin=22000)], reserved=RESERVED)
    expected = ["22009-22017", "22000-22008"]
    assert expected == given_blocks(answer)


def test_a_pin_on_another_claim_names_its_owner() -> None:
    ledger = Ledger((claim("24010-24025", holder("decode", 1, owner=OTHER)),))
    requests = [ask(9, who=holder(engine=index), pin=24000) for index in range(2)]
    assert refused(allocate(ledger, requests, reserved=RESERVED)) == (
        "prefill engine 1 needs 24009-24017 (9 ports, pin 24000), but decode engine 1 of team/other holds 24010-24025"
    )


def test_a_pinned_role_cannot_surge() -> None:
    ledger = Ledger((claim("24000-24008", holder()),))
    answer = allocate(ledger, [ask(9, who=holder(revision="r2"), pin=24000)], reserved=RESERVED)
    assert "holds 24000-24008 for revision r1 until its pods are gone: a pinned role can't surge" in refused(answer)


def test_a_pin_set_on_a_running_engine_waits() -> None:
    ledger = Ledger((claim("22000-22008", holder()),))
    answer = allocate(ledger, [ask(9, pin=24000)], reserved=RESERVED)
    assert isinstance(answer, Allocation)
    assert (ledger, ledger.claims) == (answer.ledger, answer.unmoved)


@pytest.mark.parametrize(
    ("pin", "words"),
    [
        (20100, "prefill engine 0: 20100-20108 meets 20000-20800 (Ascend transport): the transport of 8 NPUs picks"),
        (20800, "20800-20808 meets 20000-20800"),
        (19995, "19995-20003 meets 20000-20800"),
        (16000, "15000-17000 (Mooncake RPC)"),
        (60010, "60000-60031 (HCCL default)"),
        (65530, "prefill engine 0: 9 ports from 65530 would pass 65535; a lower pin is needed"),
    ],
)
def test_pins_that_would_clash_on_a_host_are_refused(pin: int, words: str) -> None:
    assert words in refused(allocate(Ledger(), [ask(9, pin=pin)], reserved=RESERVED))


@pytest.mark.parametrize(
    ("pin", "names"), [(20801, []), (30100, ["NodePorts"]), (32760, ["NodePorts", "ephemeral ports"])]
)
def test_pins_that_may_clash_are_given_with_a_warning(pin: int, names: list[str]) -> None:
    answer = allocate(Ledger(), [ask(9, pin=pin)], reserved=RESERVED)
    assert isinstance(answer, Allocation)
    assert names == [warning.reserved.name for warning in answer.warnings]


def test_every_reason_comes_at_once() -> None:
    small = Window(28000, 28019)
    answer = allocate(Ledger(), [ask(9, pin=20500), ask(32, who=holder("decode"), window=small)], reserved=RESERVED)
    assert isinstance(answer, Refusal)
    roles = [role for problem in answer.problems for role in problem.roles]
    assert tuple(roles) == ("prefill", "decode")


def test_a_window_too_small_for_one_deployment() -> None:
    """Acceptance S28b: 9 + 9 + 16 of 20."""
    small = kv_window(8, PortRange(28000, 28019))
    requests = [ask(length, who=holder(role, engine), window=small) for role, engine, length in
                (("prefill", 0, 9), ("prefill", 1, 9), ("decode", 0, 16))]  # fmt: skip
    assert refused(allocate(Ledger(), requests, reserved=RESERVED)) == (
        "kv ports of prefill and decode: 34 needed (3 blocks, the longest 16), but 28000-28019 has 20 free, "
        "the longest run 20; nobody holds a port of it"
    )


def test_an_exhausted_window_names_who_holds_most() -> None:
    ledger = Ledger((
        claim("28000-28006", holder(owner=OTHER)), claim("28008-28012", holder(owner=OTHER, engine=1)),
        claim("28016-28018", holder(owner=Owner("a", "b", "u3"))), claim("29000-29500", holder(owner=Owner("c", "d", "u4"))),
    ))  # fmt: skip
    window = Window(28000, 28019)
    assert refused(allocate(ledger, [ask(9, window=window)])) == (
        "kv ports of prefill: 9 needed (1 block), but 28000-28019 has 5 free, the longest run 3; "
        "team/other holds most of it: 12 ports"
    )
    freed = Ledger(ledger.claims[2:])
    expected = ["28000-28008"]
    assert expected == given_blocks(allocate(freed, [ask(9, window=window)]))  # it heals when ports return


def test_a_refusal_gives_nothing_at_all() -> None:
    small = Window(28000, 28019)
    answer = allocate(Ledger(), [ask(9, window=small), ask(12, who=holder("decode"), window=small)])
    assert isinstance(answer, Refusal)


LAYOUT = st.lists(st.tuples(st.integers(0, 190), st.integers(1, 12)), max_size=25)


@given(
    layout=LAYOUT, lengths=st.lists(st.integers(1, 20), min_size=1, max_size=8), order=st.randoms(use_true_random=False)
)
@settings(deadline=None, derandomize=True, database=None)
def test_any_layout(layout: list[tuple[int, int]], lengths: list[int], order: object) -> None:
    """Whatever stands there: new blocks are free, inside the window, and the answer depends on nothing but the ledger."""
    window = Window(22000, 22199, (PortRange(22050, 22060),))
    claims = [
        Claim(PortRange.of(22000 + first, length), holder(owner=Owner("x", f"o{index}", "")), KV)
        for index, (first, length) in enumerate(layout)
    ]
    requests = [ask(length, who=holder(engine=index), window=window) for index, length in enumerate(lengths)]
    answer = allocate(Ledger(tuple(claims)), requests)
    order.shuffle(claims)  # type: ignore[attr-defined]
    assert answer == allocate(Ledger(tuple(claims)), requests)
    if isinstance(answer, Refusal):
        return
    new = [each.block for each in answer.claims]
    assert lengths == [block.length for block in new]
    for index, block in enumerate(new):
        assert window.first <= block.first
        assert block.last <= window.last
        others = [*(each.block for each in claims), *window.reserved, *new[:index], *new[index + 1 :]]
        assert not any(block.overlaps(other) for other in others)
    assert allocate(answer.ledger, requests) == Allocation(answer.ledger, answer.claims)
