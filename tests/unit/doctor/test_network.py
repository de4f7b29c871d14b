"""Buffers and bytes in flight against round trips."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.doctor.finding import Severity
from heliograph.doctor.network import Link, kernel_findings, link_findings
from heliograph.model import ClusterAlias
from tests.unit.doctor.clusters import by_severity, severities

MIB = 2**20
KERNEL = {
    "net.core.rmem_max": "212992",
    "net.core.wmem_max": "212992",
    "net.ipv4.tcp_rmem": "4096\t131072\t67108864",
    "net.ipv4.tcp_wmem": "4096\t16384\t67108864",
    "net.ipv4.tcp_window_scaling": "1",
    "net.ipv4.tcp_slow_start_after_idle": "0",
}


def link(round_trip_s: float = 0.1, side: Any = "source", **fields: Any) -> Link:
    return Link(cluster=ClusterAlias("A"), side=side, round_trip_s=round_trip_s, **fields)


@pytest.mark.parametrize(
    ("change", "is_far", "expected"),
    [
        ({}, True, {}),
        ({"net.ipv4.tcp_window_scaling": "0"}, True, {Severity.PROBLEM}),
        ({"net.ipv4.tcp_window_scaling": "0"}, False, {Severity.WARN}),
        ({"net.ipv4.tcp_slow_start_after_idle": "1"}, True, {Severity.WARN}),
        ({"net.ipv4.tcp_slow_start_after_idle": "1"}, False, {Severity.NOTE}),
    ],
)
def test_a_kernel_is_judged_by_how_far_the_clusters_are(
    change: dict[str, str], is_far: bool, expected: set[Severity]
) -> None:
    found = kernel_findings("the driver", {**KERNEL, **change}, is_far=is_far)

    assert set(by_severity(found)) == set(expected)


def test_a_machine_that_hides_its_kernel_is_unknown() -> None:
    assert severities(kernel_findings("x", {}, is_far=True)) == [Severity.UNKNOWN]


@pytest.mark.parametrize(
    ("seen", "severity", "said"),
    [
        # Kafka's own default, the most common reason for a slow far link.
        (
            link(broker_buffer_bytes=102_400),
            Severity.WARN,
            "socket.send.buffer.bytes of the brokers of A is 102400: at 100 ms one connection "
            "carries at most 1.02 MB/s",
        ),
        (
            link(side="target", broker_buffer_bytes=102_400),
            Severity.WARN,
            "socket.receive.buffer.bytes of the brokers of A is 102400: at 100 ms one connection "
            "carries at most 1.02 MB/s",
        ),
        (
            link(broker_buffer_bytes=102_400, bytes_per_s=900_000),
            Severity.PROBLEM,
            "socket.send.buffer.bytes of the brokers of A is 102400: at 100 ms one connection "
            "carries at most 1.02 MB/s; measured: 900 kB/s",
        ),
        (
            link(buffer_bytes=1_000_000),
            Severity.WARN,
            "receive.buffer.bytes is 1000000, and net.core.rmem_max allows 212992: at 100 ms one "
            "connection carries at most 2.13 MB/s",
        ),
        (
            link(buffer_bytes=100_000),
            Severity.WARN,
            "receive.buffer.bytes is 100000: at 100 ms one connection carries at most 1 MB/s",
        ),
    ],
)
def test_the_buffer_that_bounds_a_far_link_is_named(
    seen: Link, severity: Severity, said: str
) -> None:
    assert by_severity(link_findings("the driver", KERNEL, seen, 256 * MIB)) == {severity: [said]}


@pytest.mark.parametrize(
    "seen",
    [
        link(0.001, broker_buffer_bytes=102_400),
        link(broker_buffer_bytes=-1),
        link(broker_buffer_bytes=None),
        link(bytes_per_s=200e6),
    ],
)
def test_a_link_that_can_be_filled_is_fine(seen: Link) -> None:
    found = link_findings("the driver", KERNEL, seen, 256 * MIB)

    assert severities(found) == [Severity.OK]


def test_the_kernels_own_bound_counts_where_the_program_sets_none() -> None:
    small = {**KERNEL, "net.ipv4.tcp_rmem": "4096 87380 2097152"}

    found = by_severity(link_findings("the driver", small, link(), 256 * MIB))

    assert found == {
        Severity.WARN: [
            "net.ipv4.tcp_rmem allows 2097152: at 100 ms one connection carries at most 10.5 MB/s"
        ]
    }


def test_a_link_may_want_more_under_way_than_a_slot_holds() -> None:
    (found,) = link_findings("the driver", KERNEL, link(bytes_per_s=200e6), 16 * MIB)

    assert found.severity is Severity.WARN
    assert "want 57 MiB under way, and slots.bytes.max is 16 MiB" in found.what
