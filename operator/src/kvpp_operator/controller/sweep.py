"""Compare the cache with lists of the API server: find what a watch could not tell, or did not.

A watch that had to start over lists what exists and says nothing of what was deleted meanwhile.  Lists carry metadata
only, so a sweep of ten thousand objects costs the server and us little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvpp_operator.cluster.cache import is_older
from kvpp_operator.manifest import Key, key_of

if TYPE_CHECKING:
    from kvpp_operator.cluster.cache import Cache, Entry
    from kvpp_operator.cluster.client import Cluster
    from kvpp_operator.controller.streams import Stream


@dataclass(frozen=True, slots=True)
class Difference:
    """Where cache and server disagree."""

    gone: tuple[tuple[Key, Entry], ...]  # in the cache only, since before the list: deleted
    behind: tuple[Key, ...]  # on the server, and absent from the cache or newer than there


async def compare(cluster: Cluster, cache: Cache, stream: Stream) -> Difference:
    """List a stream's objects.  Raises `ClusterError`."""
    before = {key: entry for key in cache if _is_of(key, stream) and (entry := cache.entry(key)) is not None}
    listed: dict[Key, str] = {}
    objects = cluster.list(stream.kind, namespace=stream.namespace, labels=stream.labels, metadata_only=True)
    async for item in objects:
        listed[key_of(item)] = item["metadata"]["resourceVersion"]
    return Difference(
        gone=tuple((key, entry) for key, entry in before.items() if key not in listed and cache.entry(key) is entry),
        behind=tuple(key for key, version in listed.items() if _is_behind(cache.entry(key), version)),
    )


def _is_of(key: Key, stream: Stream) -> bool:
    same_kind = (key.api_version, key.kind) == (stream.kind.api_version, stream.kind.name)
    return same_kind and stream.namespace in ("", key.namespace)


def _is_behind(entry: Entry | None, version: str) -> bool:
    return entry is None or is_older(entry.resource_version, version)
