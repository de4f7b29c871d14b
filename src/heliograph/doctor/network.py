"""Round trip and bandwidth against buffers and bytes in flight. No I/O; runs anywhere.

A connection carries at most one window a round trip. Its window is bounded by the smaller of the
sender's and the receiver's socket buffers; the kernel lets them grow up to `tcp_rmem` and
`tcp_wmem`, unless a program set a size, which then stays and is bounded by `rmem_max` and
`wmem_max`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from heliograph.broker.round_trip import FAR_S
from heliograph.doctor.finding import Finding, Severity, ms_words
from heliograph.model import ClusterAlias
from heliograph.words import rate_words

CHECK: Final = "network"
_UNSCALED_BYTES: Final = 65_535
_ENOUGH_BYTES_PER_S: Final = 100_000_000
"""A link that one connection can fill to this is not worth a word."""
_NEAR_LIMIT: Final = 0.7
_ROOM_TRIPS: Final = 3
"""Round trips' worth of bytes that a slot keeps under way (`copy.pace`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Between one machine and one cluster, in one direction."""

    cluster: ClusterAlias
    side: Literal["source", "target"]
    """Records come from a source, and go to a target."""
    round_trip_s: float
    bytes_per_s: float | None = None
    """As measured; None where it was not."""
    buffer_bytes: int | None = None
    """`receive.buffer.bytes` of the reader, or `send.buffer.bytes` of the writer; None where the
    kernel chooses."""
    broker_buffer_bytes: int | None = None
    """`socket.send.buffer.bytes` of a source's brokers, `socket.receive.buffer.bytes` of a
    target's; -1 where the kernel chooses, None where it is not told."""

    @property
    def is_far(self) -> bool:
        return self.round_trip_s >= FAR_S


def kernel_findings(place: str, kernel: Mapping[str, str], *, is_far: bool) -> list[Finding]:
    """The machine's own settings; `is_far` where a cluster is far from it."""
    if not kernel:
        return [_finding(place, Severity.UNKNOWN, "its kernel does not show /proc/sys/net")]
    found: list[Finding] = []
    if kernel.get("net.ipv4.tcp_window_scaling") == "0":
        found.append(
            _finding(
                place,
                Severity.PROBLEM if is_far else Severity.WARN,
                "net.ipv4.tcp_window_scaling is 0",
                "no connection has more than 64 KB under way, whatever its buffers: "
                f"{rate_words(_UNSCALED_BYTES / 0.1)} at 100 ms",
                "sysctl -w net.ipv4.tcp_window_scaling=1",
            )
        )
    if kernel.get("net.ipv4.tcp_slow_start_after_idle") == "1":
        found.append(
            _finding(
                place,
                Severity.WARN if is_far else Severity.NOTE,
                "net.ipv4.tcp_slow_start_after_idle is 1",
                "after every pause a connection begins with a small window again, and takes many "
                "round trips to fill a far link",
                "sysctl -w net.ipv4.tcp_slow_start_after_idle=0",
            )
        )
    if not any(each.severity in (Severity.PROBLEM, Severity.WARN) for each in found):
        sizes = ", ".join(
            f"{name.removeprefix('net.')} {' '.join(value.split())}"
            for name, value in kernel.items()
            if "mem" in name
        )
        found.append(_finding(place, Severity.OK, f"window scaling is on; {sizes}"))
    return found


def link_findings(
    place: str, kernel: Mapping[str, str], link: Link, bytes_in_flight_max: int
) -> list[Finding]:
    """One cluster as seen from one machine; near ones are only told."""
    found: list[Finding] = []
    for what, bound, fix in _bounds(kernel, link):
        rate = bound / link.round_trip_s
        if not link.is_far or rate >= _ENOUGH_BYTES_PER_S:
            continue
        is_met = link.bytes_per_s is not None and link.bytes_per_s >= _NEAR_LIMIT * rate
        measured = "" if link.bytes_per_s is None else f"; measured: {rate_words(link.bytes_per_s)}"
        found.append(
            _finding(
                f"{place}, cluster {link.cluster}",
                Severity.PROBLEM if is_met else Severity.WARN,
                f"{what}: at {ms_words(link.round_trip_s)} one connection carries at most "
                f"{rate_words(rate)}{measured}",
                "this buffer is what bounds the link"
                if is_met
                else "a lane has one connection at a time, so this bounds its catching up",
                fix,
            )
        )
    measured_rate = link.bytes_per_s
    wanted = None if measured_rate is None else _ROOM_TRIPS * measured_rate * link.round_trip_s
    if wanted is not None and wanted > bytes_in_flight_max:
        found.append(
            _finding(
                f"{place}, cluster {link.cluster}",
                Severity.WARN,
                f"{rate_words(measured_rate or 0)} over {ms_words(link.round_trip_s)} want "
                f"{wanted / 2**20:,.0f} MiB under way, and slots.bytes.max is "
                f"{bytes_in_flight_max / 2**20:,.0f} MiB",
                "a slot stops fetching when it holds that much, so the link idles",
                f"slots.bytes.max = {int(wanted * 1.25)}, if the executors have the memory",
            )
        )
    if not found:
        said = f"round trip {ms_words(link.round_trip_s)}"
        if measured_rate is not None:
            done = "read" if link.side == "source" else "written"
            said += f", {done} at {rate_words(measured_rate)}"
        found.append(_finding(f"{place}, cluster {link.cluster}", Severity.OK, said))
    return found


def _bounds(kernel: Mapping[str, str], link: Link) -> Iterator[tuple[str, float, str]]:
    """Every buffer on the way: in words, the window it allows, how to raise it."""
    reads = link.side == "source"
    name, grown = ("rmem", "tcp_rmem") if reads else ("wmem", "tcp_wmem")
    key = "receive.buffer.bytes" if reads else "send.buffer.bytes"
    limit = _last(kernel.get(f"net.core.{name}_max"))
    most = _last(kernel.get(f"net.ipv4.{grown}"))
    if link.buffer_bytes is not None:
        allowed = link.buffer_bytes if limit is None else min(link.buffer_bytes, limit)
        said = f"{key} is {link.buffer_bytes}"
        fix = f"leave {key} out (or -1), so that the kernel lets it grow"
        if limit is not None and link.buffer_bytes > limit:
            said += f", and net.core.{name}_max allows {limit}"
            fix = f"leave {key} out, or raise net.core.{name}_max"
        yield said, allowed, fix
    elif most is not None:
        # Half of it is the kernel's own, for what each packet costs.
        fix = f"sysctl -w net.ipv4.{grown}='4096 131072 67108864'"
        yield f"net.ipv4.{grown} allows {most}", most / 2, fix
    theirs = link.broker_buffer_bytes
    if theirs is not None and theirs > 0:
        broker_key = "socket.send.buffer.bytes" if reads else "socket.receive.buffer.bytes"
        yield (
            f"{broker_key} of the brokers of {link.cluster} is {theirs}",
            theirs,
            f"{broker_key} = -1 on these brokers, so that their kernel lets it grow",
        )


def _last(text: str | None) -> int | None:
    """The largest of `4096 131072 6291456`, which is the last."""
    words = (text or "").split()
    return int(words[-1]) if words and words[-1].isdecimal() else None


def _finding(about: str, severity: Severity, what: str, why: str = "", fix: str = "") -> Finding:
    return Finding(check=CHECK, about=about, severity=severity, what=what, why=why, fix=fix)
