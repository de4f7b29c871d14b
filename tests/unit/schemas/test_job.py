"""A run that is killed inside an import leaves a subject in import mode, until the next one."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import pytest

from heliograph.config.registry import RegistryConfig, SchemasConfig
from heliograph.ledger.entries import Entry, Tombstone
from heliograph.ledger.entry_codec import encode, encode_key
from heliograph.ledger.service import LedgerService
from heliograph.ledger.view import LedgerView
from heliograph.model import ClusterAlias, FlowId
from heliograph.registry.client import Registry
from heliograph.registry.pairing import subject_names
from heliograph.schemas import job
from heliograph.schemas.copying import SchemaCopier
from heliograph.schemas.note import importing_of
from tests.kit.small_registry import small_registry

T = TypeVar("T")
FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
_RUN = f"""
import sys
from {__name__} import run
run(sys.argv[1], sys.argv[2])
"""


class Ledgers:
    """One ledger in memory; with `tells` what is noted is also on stdout, which outlives a kill."""

    def __init__(self, *, tells: bool = False) -> None:
        self.view, self._tells = LedgerView(), tells

    def ask(self, flow: FlowId, work: Callable[[LedgerView], T]) -> T:
        return work(self.view)

    def note(self, flow: FlowId, entries: Iterable[Entry | Tombstone]) -> None:
        for entry in entries:
            if isinstance(entry, Tombstone):
                key, value = encode_key(entry.key), b""
            else:
                key, value = encode(entry)
            self.view.apply_record(key, value or None)
            if self._tells:
                print(key.hex(), value.hex(), flush=True)  # noqa: T201


def run(source: str, target: str, ledgers: Ledgers | None = None) -> None:
    names = subject_names("{subject}", str)
    of_source = Registry("A", RegistryConfig(urls=(source,)))
    of_target = Registry("B", RegistryConfig(urls=(target,)))
    copier = SchemaCopier(SchemasConfig(ids="keep"), of_source, of_target, names)
    job.copy_once(copier, cast(LedgerService, ledgers or Ledgers(tells=True)), FLOW)


def test_a_kill_inside_an_import_leaves_a_note_by_which_the_next_run_puts_the_mode_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached, ledgers = threading.Event(), Ledgers()
    with small_registry(first_id=57) as source, small_registry() as target:
        source.put("a-value", '"a1"')
        source.put("a-value", '"a2"')
        target.modes["a-value"] = "READWRITE"

        def hold(method: str, path: str) -> Any:
            if (method, path) == ("POST", "/subjects/a-value/versions"):
                reached.set()
                return 503, b"{}"
            return None

        target.hold = hold
        with subprocess.Popen(
            [sys.executable, "-c", _RUN, source.url, target.url], stdout=subprocess.PIPE, text=True
        ) as killed:
            assert reached.wait(60)
            killed.kill()
            told, _ = killed.communicate(timeout=60)
        for line in told.splitlines():
            key, value = (bytes.fromhex(each) for each in line.split(" "))
            ledgers.view.apply_record(key, value or None)
        target.hold = None
        left = (target.modes["a-value"], [each.mode for each in importing_of(ledgers.view)])
        begun_ms = importing_of(ledgers.view)[0].at_ms
        monkeypatch.setattr(job, "now_ms", lambda: begun_ms + 16_000)

        run(source.url, target.url, ledgers)

        assert left == ("IMPORT", ["READWRITE"])
        assert target.modes == {"a-value": "READWRITE"}
        assert target.ids_of("a-value") == {1: 57, 2: 58}
        assert importing_of(ledgers.view) == ()
