"""`format("heliograph")` whose committing process is killed at a step, the first time it comes
there. The step is in a file `kill-at` beside the staging folder."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from heliograph import probe
from heliograph.pipeline.source import HeliographSource
from heliograph.pipeline.writer import StreamWriter


class KilledWriter(StreamWriter):
    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's
        order = Path(self._given["staging"]).parent / "kill-at"
        step = order.read_text() if order.exists() else None

        def on_step(name: str, _: object) -> None:
            if name == step:
                order.unlink()
                os.kill(os.getpid(), signal.SIGKILL)

        probe.install(on_step)
        super().commit(messages, batchId)


class KilledSource(HeliographSource):
    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        super().streamWriter(schema, overwrite)  # refuses what cannot be written
        return KilledWriter(self.options, schema, is_stream=True)
