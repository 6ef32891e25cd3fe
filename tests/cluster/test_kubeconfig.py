"""Kubeconfig as kubectl reads it, and errors that say where to look without saying what is secret."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kvpp_operator.cluster.kubeconfig import (
    Credentials,
    ExecPlugin,
    KubeconfigError,
    from_files,
    from_service_account,
    load,
)

if TYPE_CHECKING:
    from pathlib import Path

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
ENCODED = base64.b64encode(PEM.encode()).decode()


def write(path: Path, **document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


def config(
    *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, name: str = "one", **context: Any
) -> dict[str, Any]:
    return {
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **context}}],
    }


class TestFields:
    def test_token_and_inline_authority(self, tmp_path: Path) -> None:
        path = write(
            tmp_path / "config",
            **config(cluster={"certificate-authority-data": ENCODED}, user={"token": "t0"}, namespace="team-a"),
        )
        assert from_files([path]) == Credentials(
            "https://10.0.0.1:6443", "team-a", PEM, token="t0", source=f"{path} contexts[one]"
        )

    def test_relative_paths_start_at_their_file(self, tmp_path: Path) -> None:
        for name in ("ca.crt", "me.crt", "me.key"):
            (tmp_path / name).write_text(PEM + name)
        user = {"client-certificate": "me.crt", "client-key": "me.key"}
        path = write(tmp_path / "config", **config(cluster={"certificate-authority": "ca.crt"}, user=user))
        found = from_files([path])
        assert found.ca_data == PEM + "ca.crt"
        assert (found.certificate, found.private_key) == ((PEM + "me.crt").encode(), (PEM + "me.key").encode())

    def test_inline_data_wins_over_the_file(self, tmp_path: Path) -> None:
        cluster = {"certificate-authority": "absent", "certificate-authority-data": ENCODED}
        assert from_files([write(tmp_path / "config", **config(cluster=cluster))]).ca_data == PEM

    def test_a_token_file_wins_over_a_token(self, tmp_path: Path) -> None:
        path = write(tmp_path / "config", **config(user={"token": "t0", "tokenFile": "token"}))
        found = from_files([path])
        assert (found.token, found.token_file) == ("", tmp_path / "token")

    def test_a_proxy_of_kubectl_speaks_http(self, tmp_path: Path) -> None:
        path = write(tmp_path / "config", **config(cluster={"server": "http://127.0.0.1:8001/"}))
        assert from_files([path]).server == "http://127.0.0.1:8001"

    def test_switches(self, tmp_path: Path) -> None:
        cluster = {
            "insecure-skip-tls-verify": True,
            "tls-server-name": "api.example.com",
            "proxy-url": "http://proxy.example.com:3128",
        }
        user = {"username": "u", "password": "p", "as": "system:admin", "as-groups": ["g1", "g2"]}
        found = from_files([write(tmp_path / "config", **config(cluster=cluster, user=user))])
        assert (found.verify, found.tls_server_name) == (False, "api.example.com")
        assert found.proxy_url == "http://proxy.example.com:3128"
        assert (found.username, found.password) == ("u", "p")
        assert found.impersonate == (
            ("Impersonate-User", "system:admin"),
            ("Impersonate-Group", "g1"),
            ("Impersonate-Group", "g2"),
        )

    def test_exec_plugin(self, tmp_path: Path) -> None:
        plugin = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "./bin/login",
            "args": ["--cluster", "x"],
            "env": [{"name": "PROFILE", "value": "dev"}],
            "provideClusterInfo": True,
            "installHint": "install it",
        }
        assert from_files([write(tmp_path / "config", **config(user={"exec": plugin}))]).exec_plugin == ExecPlugin(
            f"{tmp_path}/bin/login",
            ("--cluster", "x"),
            (("PROFILE", "dev"),),
            cluster_info=True,
            install_hint="install it",
        )


class TestMerging:
    def test_the_first_file_wins_and_entries_add_up(self, tmp_path: Path) -> None:
        first = write(tmp_path / "first", **config(user={"token": "first"}))
        second = config(user={"token": "second"}) | {"current-context": "two"}
        second["clusters"].append({"name": "two", "cluster": {"server": "https://two"}})
        second["contexts"].append({"name": "two", "context": {"cluster": "two", "user": "one"}})
        paths = [first, write(tmp_path / "second", **second)]
        assert from_files(paths).token == "first"
        assert from_files(paths).server == "https://10.0.0.1:6443"
        chosen = from_files(paths, context="two")
        assert (chosen.server, chosen.token) == ("https://two", "first")

    def test_a_missing_file_is_skipped(self, tmp_path: Path) -> None:
        there = write(tmp_path / "there", **config(user={"token": "t0"}))
        assert from_files([tmp_path / "absent", there]).token == "t0"

    def test_paths_of_the_environment(self, tmp_path: Path) -> None:
        first = write(tmp_path / "first", **config(user={"token": "first"}))
        second = write(tmp_path / "second", **config(user={"token": "second"}, name="two"))
        env = {"KUBECONFIG": f":{first}:{second}"}
        assert load(env=env).token == "first"
        assert load(env=env, context="two").token == "second"

    def test_a_file_given_wins_over_the_environment(self, tmp_path: Path) -> None:
        given = write(tmp_path / "given", **config(user={"token": "given"}))
        listed = write(tmp_path / "listed", **config(user={"token": "listed"}))
        assert load(str(given), env={"KUBECONFIG": str(listed)}).token == "given"

    def test_the_home_comes_last(self, tmp_path: Path) -> None:
        write(tmp_path / ".kube" / "config", **config(user={"token": "home"}))
        assert load(env={}, home=tmp_path).token == "home"


class TestServiceAccount:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        (tmp_path / "token").write_text("t0")
        (tmp_path / "ca.crt").write_text(PEM)
        (tmp_path / "namespace").write_text("kvpp-system\n")
        return tmp_path

    @pytest.mark.parametrize(
        ("host", "server"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
    )
    def test_of_a_pod(self, directory: Path, host: str, server: str) -> None:
        env = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
        assert from_service_account(directory, env=env) == Credentials(
            server, "kvpp-system", PEM, token_file=directory / "token", source=str(directory)
        )


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no server": (config(cluster={"server": None}), "clusters[one].server: must be a URL that starts with"),
    "a server without scheme": (config(cluster={"server": "10.0.0.1"}), "clusters[one].server: must be a URL"),
    "no context": ({**config(), "current-context": ""}, "current-context: is not set, and no context is chosen"),
    "an unknown context": (
        {**config(), "current-context": "two"},
        "current-context: names 'two', which is not in contexts; there are: one",
    ),
    "an unknown user": (config(user={}) | {"users": []}, "contexts[one].user: names 'one', which is not in users"),
    "no base64": (
        config(cluster={"certificate-authority-data": "s3cret!"}),
        "clusters[one].certificate-authority-data: is not base64",
    ),
    "no certificate": (
        config(cluster={"certificate-authority-data": base64.b64encode(b"s3cret").decode()}),
        "clusters[one].certificate-authority: holds no PEM certificate",
    ),
    "an absent file": (
        config(cluster={"certificate-authority": "/absent/ca.crt"}),
        "clusters[one].certificate-authority: cannot read /absent/ca.crt: No such file or directory",
    ),
    "a key without certificate": (
        config(user={"client-key-data": ENCODED}),
        "users[one].client-certificate: is missing beside its counterpart",
    ),
    "a token that is a number": (config(user={"token": 12345}), "users[one].token: must be a string"),
    "a flag that is a text": (
        config(cluster={"insecure-skip-tls-verify": "yes"}),
        "clusters[one].insecure-skip-tls-verify: must be true or false",
    ),
    "an auth provider": (
        config(user={"auth-provider": {"name": "gcp"}}),
        "users[one].auth-provider: is gone from Kubernetes since 1.26; use exec",
    ),
    "a plugin without command": (config(user={"exec": {}}), "users[one].exec.command: is missing"),
    "a list of texts": ({"clusters": ["one"]}, "clusters: every item needs a name and a cluster"),
}


class TestErrors:
    @pytest.mark.parametrize("case", BAD)
    def test_names_file_and_key(self, tmp_path: Path, case: str) -> None:
        document, words = BAD[case]
        path = write(tmp_path / "config", **document)
        with pytest.raises(KubeconfigError) as caught:
            from_files([path])
        assert str(caught.value).startswith(f"{path}: {words}")
        assert "s3cret" not in str(caught.value)
        assert "12345" not in str(caught.value)

    def test_no_yaml(self, tmp_path: Path) -> None:
        (tmp_path / "config").write_text("a: [s3cret\n")
        with pytest.raises(KubeconfigError) as caught:
            from_files([tmp_path / "config"])
        assert str(caught.value) == f"{tmp_path}/config: is not YAML (line 2)"

    def test_nothing_to_be_had(self, tmp_path: Path) -> None:
        with pytest.raises(KubeconfigError, match="KUBECONFIG is not set"):
            load(env={}, home=tmp_path)
        with pytest.raises(KubeconfigError, match="no such file"):
            load(str(tmp_path / "absent"))


def test_nothing_secret_in_a_repr() -> None:
    credentials = Credentials(
        "https://x",
        token="s3cret",
        certificate=b"s3cret",
        private_key=b"s3cret",
        username="s3cret",
        password="s3cret",
        proxy_url="http://u:s3cret@proxy",
        exec_plugin=ExecPlugin("login", ("--password", "s3cret"), (("PASSWORD", "s3cret"),)),
    )
    assert "s3cret" not in repr(credentials)
