"""What ships: one catalogue a release, with what vLLM Ascend adds."""

from __future__ import annotations

import pytest

from kvpp_operator.engine_flags import LATEST, NEWEST, VERSIONS, catalogue, parse


@pytest.mark.parametrize("version", [*VERSIONS, LATEST])
def test_every_version_has_the_flags_that_we_render(version: str) -> None:
    known = catalogue(version)
    rendered = {
        "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size", "--prefill-context-parallel-size",
        "--decode-context-parallel-size", "--enable-expert-parallel", "--enforce-eager", "--compilation-config", "--additional-config",
        "--kv-transfer-config", "--speculative-config", "--served-model-name", "--nnodes", "--node-rank", "--headless",
        "--api-server-count", "--master-addr", "--data-parallel-rpc-port", "--max-model-len", "--shutdown-timeout",
    }  # fmt: skip

    assert rendered - known.flags.keys() == set()
    assert "enable_kvpp" in known.additional_keys
    assert known.version == version


def test_latest_is_the_newest_catalogue_and_says_so() -> None:
    latest, newest = catalogue(LATEST), catalogue(NEWEST)

    assert latest.flags == newest.flags
    assert latest.source == f"vllm 0.30.0 and vllm-ascend {NEWEST}, the newest there is"


def test_an_unknown_version_has_none() -> None:
    with pytest.raises(KeyError):
        catalogue("0.27.0")


@pytest.mark.parametrize(("version", "accepted"), [("0.28.0rc1", False), ("0.29.0rc1", True), ("0.30.0rc2", True)])
def test_int8_caches_are_ascends_addition(version: str, accepted: bool) -> None:  # noqa: FBT001
    words = ["--kv-cache-dtype", "int8", "--attention-config.indexer_kv_dtype", "int8"]

    assert (parse(words, catalogue(version)).problems == ()) == accepted


NAMES = {
    "--tensor-parallel-size": "--tensor-parallel-size",
    "--tensor_parallel_size=4": "--tensor-parallel-size",
    "-tp": "--tensor-parallel-size",
    "--tensor-par": "--tensor-parallel-size",
    "--no-enable-prefix-caching": "--enable-prefix-caching",
    "--compilation_config.cudagraph_mode": "--compilation-config",
    "-cc.mode=3": "--compilation-config",
    "--data-parallel": None,
    "--enable-kvpp": None,
    "tensor-parallel-size": None,
    "": None,
}


@pytest.mark.parametrize(("written", "name"), NAMES.items())
def test_a_name_is_resolved(written: str, name: str | None) -> None:
    assert catalogue(NEWEST).resolve(written) == name


def test_a_flag_knows_its_names_and_its_values() -> None:
    flag = catalogue(NEWEST).flags["--enable-expert-parallel"]

    assert (flag.names, flag.kind, flag.values, flag.takes_json) == (
        ("--enable-expert-parallel", "--no-enable-expert-parallel", "-ep"), "flag", 0, False,
    )  # fmt: skip
