"""Credentials that change while we run: a token file that rotates, a plugin whose token expires, a refused token."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kvpp_operator.cluster import access as access_module
from kvpp_operator.cluster.access import Access, Identity
from kvpp_operator.cluster.client import Cluster, collection_of
from kvpp_operator.cluster.kubeconfig import Credentials, ExecPlugin, KubeconfigError, load
from kvpp_operator.cluster.transport import ClusterError, Transport, unobserved
from kvpp_operator.manifest import Key, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_NAMESPACE = Key("v1", "Namespace", "", "default")


def plugin(tmp_path: Path, body: str) -> ExecPlugin:
    script = tmp_path / "login.py"
    script.write_text(f"import json, os, pathlib\n{body}\n")
    return ExecPlugin(sys.executable, (str(script),), (("PROFILE", "dev"),), cluster_info=True)


def answer(tmp_path: Path, **status: Any) -> str:
    calls = tmp_path / "calls"
    return (
        f"calls = pathlib.Path({str(calls)!r}); n = int(calls.read_text()) + 1 if calls.exists() else 1\n"
        f"calls.write_text(str(n))\n"
        f"print(json.dumps({{'status': {{'token': f't{{n}}', **{status!r}}}}}))"
    )


async def authorization(access: Access) -> str:
    return (await access.identity()).authorization


class TestTokenFile:
    async def test_is_read_again_when_old(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(access_module, "TOKEN_FILE_SECONDS", 0.0)
        token = tmp_path / "token"
        access = Access(lambda: Credentials("https://x", token_file=token))
        token.write_text("t1\n")
        assert await authorization(access) == "Bearer t1"
        token.write_text("t2\n")
        assert await authorization(access) == "Bearer t2"

    async def test_is_not_read_for_every_request(self, tmp_path: Path) -> None:
        token = tmp_path / "token"
        access = Access(lambda: Credentials("https://x", token_file=token))
        token.write_text("t1")
        assert await authorization(access) == "Bearer t1"
        token.unlink()
        assert await authorization(access) == "Bearer t1"

    async def test_gone_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        access = Access(lambda: Credentials("https://x", token_file=tmp_path / "token", source="config"))
        with pytest.raises(KubeconfigError, match=f"config: tokenFile: cannot read {tmp_path}/token"):
            await access.identity()


class TestPlugin:
    async def test_is_told_of_the_cluster(self, tmp_path: Path) -> None:
        body = "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\nprint(json.dumps({'status': {'token': "
        body += "info['kind'] + info['spec']['cluster']['server'] + os.environ['PROFILE']}}))"
        access = Access(lambda: Credentials("https://x", exec_plugin=plugin(tmp_path, body)))
        assert await authorization(access) == "Bearer ExecCredentialhttps://xdev"

    async def test_runs_once_while_its_token_is_good(self, tmp_path: Path) -> None:
        late = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        credentials = Credentials("https://x", exec_plugin=plugin(tmp_path, answer(tmp_path, expirationTimestamp=late)))
        access = Access(lambda: credentials)
        assert [await authorization(access) for _ in range(2)] == ["Bearer t1", "Bearer t1"]

    async def test_runs_again_when_its_token_is_refused(self, tmp_path: Path) -> None:
        credentials = Credentials("https://x", exec_plugin=plugin(tmp_path, answer(tmp_path)))
        access = Access(lambda: credentials)
        first = await access.identity()
        renewed = await access.renew(first)
        assert renewed is not None
        assert renewed.authorization == "Bearer t2"
        assert await access.renew(first) == renewed  # a second request that was refused meanwhile

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            ("raise SystemExit('s3cret')", "exited with 1"),
            ("print('s3cret')", "printed no ExecCredential with a status"),
            ("print('[]')", "printed no ExecCredential with a status"),
        ],
    )
    async def test_failures_say_which_program_and_no_more(self, tmp_path: Path, body: str, words: str) -> None:
        credentials = Credentials("https://x", exec_plugin=plugin(tmp_path, body), source="config")
        with pytest.raises(KubeconfigError) as caught:
            await Access(lambda: credentials).identity()
        assert str(caught.value) == f"config: exec {sys.executable}: {words}"

    async def test_an_absent_program_gives_the_hint(self) -> None:
        absent = ExecPlugin("/absent/login", install_hint="install it")
        with pytest.raises(KubeconfigError, match="no such program; install it"):
            await Access(lambda: Credentials("https://x", exec_plugin=absent)).identity()


def test_nothing_secret_in_a_repr() -> None:
    assert "s3cret" not in repr(Identity("Bearer s3cret", b"s3cret", b"s3cret"))


class TestProxy:
    def test_of_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
        monkeypatch.setenv("NO_PROXY", "inside.example.com")
        assert Access(lambda: Credentials("https://outside.example.com")).proxy == "http://proxy:3128"
        assert Access(lambda: Credentials("https://inside.example.com:6443")).proxy is None

    def test_of_the_kubeconfig_wins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
        assert Access(lambda: Credentials("https://x", proxy_url="http://mine:1")).proxy == "http://mine:1"


@pytest.mark.cluster
class TestAgainstTheServer:
    @pytest.fixture
    def token(self, local_cluster: Any) -> str:
        """Take a token of a service account that the control plane makes in every namespace."""
        path = local_cluster.control_plane.kubeconfig_for_service_account("default", "default")
        token: str = yaml.safe_load(path.read_text())["users"][0]["user"]["token"]
        return token

    @pytest.fixture
    def with_token_file(self, local_cluster: Any, tmp_path: Path) -> Callable[[], Credentials]:
        path = tmp_path / "config"
        document = yaml.safe_load(Path(local_cluster.kubeconfig).read_text())
        document["users"][0]["user"] = {"tokenFile": str(tmp_path / "token")}
        path.write_text(json.dumps(document))
        return lambda: load(str(path))

    async def test_a_refused_token_is_read_again_and_the_write_repeated(
        self, with_token_file: Callable[[], Credentials], token: str, tmp_path: Path
    ) -> None:
        (tmp_path / "token").write_text("refused")
        access = Access(with_token_file)
        assert (await access.identity()).authorization == "Bearer refused"
        (tmp_path / "token").write_text(token)
        kind = Kind("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False)
        review = {"apiVersion": kind.api_version, "kind": kind.name}
        async with Transport(access, concurrency=1, timeout_seconds=5.0, attempts=1, observe=unobserved) as link:
            answer = await link.call("POST", kind, collection_of(kind), review)
        assert answer["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"

    async def test_refused_for_good(self, with_token_file: Callable[[], Credentials], tmp_path: Path) -> None:
        (tmp_path / "token").write_text("refused")
        async with Cluster(Access(with_token_file)) as cluster:
            with pytest.raises(ClusterError, match="Unauthorized") as caught:
                await cluster.get(DEFAULT_NAMESPACE)
        assert (caught.value.status, caught.value.transient) == (401, False)

    async def test_client_certificate_of_a_plugin(self, local_cluster: Any, tmp_path: Path) -> None:
        mine = load(str(local_cluster.kubeconfig))
        status = {"clientCertificateData": mine.certificate.decode(), "clientKeyData": mine.private_key.decode()}
        body = f"print(json.dumps({{'status': {status!r}}}))"
        credentials = Credentials(mine.server, ca_data=mine.ca_data, exec_plugin=plugin(tmp_path, body))
        async with Cluster(Access(lambda: credentials)) as cluster:
            assert await cluster.get(DEFAULT_NAMESPACE) is not None

    async def test_a_wrong_authority_is_refused(self, local_cluster: Any) -> None:
        mine = load(str(local_cluster.kubeconfig))
        async with Cluster(Access(lambda: Credentials(mine.server)), attempts=1) as cluster:
            with pytest.raises(ClusterError, match="cannot reach the API server"):
                await cluster.get(DEFAULT_NAMESPACE)

    async def test_unverified_on_demand_and_by_another_name(self, local_cluster: Any) -> None:
        mine = load(str(local_cluster.kubeconfig))
        own = {"certificate": mine.certificate, "private_key": mine.private_key}
        blind = Credentials(mine.server, verify=False, **own)  # type: ignore[arg-type]
        named = Credentials(mine.server, ca_data=mine.ca_data, tls_server_name="kubernetes.default.svc", **own)  # type: ignore[arg-type]
        for credentials in (blind, named):
            async with Cluster(Access(lambda: credentials)) as cluster:  # noqa: B023 - used within the turn
                assert await cluster.get(DEFAULT_NAMESPACE) is not None


def test_the_operator_does_not_import_the_official_client() -> None:
    """It would double the process's memory."""
    program = "import sys; import kvpp_operator.cluster.apply; print('kubernetes' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, capture_output=True, check=True
    )
    assert done.stdout == b"False\n"
