from __future__ import annotations

import ipaddress
import json
import tarfile
from pathlib import Path

from kvpp_devcluster import components, hostfiles, pause
from kvpp_devcluster.hostfiles import HostPlan

HOSTS = [HostPlan(number, Path(f"/run/host-{number}")) for number in (1, 2, 3)]


def test_hosts_pods_and_services_share_no_address() -> None:
    networks = [
        ipaddress.ip_network(f"{hostfiles.HOST_NETWORK}.0/{hostfiles.PREFIX_LENGTH}"),
        ipaddress.ip_network(components.SERVICE_RANGE),
        *(ipaddress.ip_network(host.pods) for host in HOSTS),
    ]
    assert [(one, two) for one in networks for two in networks if one is not two and one.overlaps(two)] == []
    assert len({host.address for host in HOSTS} | {hostfiles.GATEWAY}) == len(HOSTS) + 1
    assert all(
        ipaddress.IPv4Network(host.pods).subnet_of(ipaddress.IPv4Network(hostfiles.POD_NETWORK)) for host in HOSTS
    )


def test_what_a_kubelet_makes_lies_in_its_host_folder() -> None:
    host = HOSTS[0]
    kubelet = hostfiles.kubelet(host, Path("/run/resolv.conf"))
    assert kubelet["podLogsDir"] == "/run/host-1/pod-logs"
    flags = hostfiles.kubelet_flags(host, configuration=Path("/c"), kubeconfig=Path("/k"))
    assert "--root-dir=/run/host-1/kubelet" in flags


def test_the_pause_image_is_what_docker_save_writes(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    archive = pause.write_image(program, tmp_path / "image.tar", name="localhost/pause:1")
    with tarfile.open(archive) as tar:
        files = {member.name: file.read() for member in tar if (file := tar.extractfile(member))}
    (manifest,) = json.loads(files["manifest.json"])
    assert manifest == {"Config": "config.json", "RepoTags": ["localhost/pause:1"], "Layers": ["layer.tar"]}
    (tmp_path / "layer.tar").write_bytes(files["layer.tar"])
    with tarfile.open(tmp_path / "layer.tar") as layer:
        assert [(member.name, member.mode, member.size) for member in layer] == [("pause", 0o755, 4)]
