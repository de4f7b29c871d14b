"""What a machine says of itself."""

from __future__ import annotations

from pathlib import Path

from heliograph.doctor.place import read_kernel


def test_settings_of_the_kernel_are_read_and_missing_ones_left_out(tmp_path: Path) -> None:
    (tmp_path / "ipv4").mkdir()
    (tmp_path / "ipv4" / "tcp_rmem").write_text("4096\t131072\t6291456\n")

    assert read_kernel(tmp_path) == {"net.ipv4.tcp_rmem": "4096\t131072\t6291456"}
