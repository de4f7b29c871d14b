"""Every route meets requests made up from its own description."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from heliograph.api.access import Caller, Grant, Role, Tokens
from tests.kit.soaking import in_soak
from tests.unit.api.serving import ASKING, LOOK, app_of, bearer


class OneToken(Tokens):
    """Without a file: what is fuzzed is made once for all tests."""

    def __init__(self) -> None: ...

    def caller(self, token: str) -> Caller | None:
        return Caller("fuzz", (Grant(Role.LOOK),)) if token == LOOK else None


def _phases() -> SchemathesisConfig:
    """Requests by chance; in a soak also the bounds of every description, some seventy a route."""
    config = SchemathesisConfig()
    config.projects.default.phases.update(phases=in_soak(["coverage", "fuzzing"], ci=["fuzzing"]))
    return config


_SPEC = schemathesis.openapi.from_asgi(
    "/v1/openapi.json", app_of(tokens=OneToken()), config=_phases()
)


# `/ready` takes a token and needs none; some ask clusters; health is about when this module was
# imported.
@_SPEC.exclude(path=[*ASKING, "/ready", "/health"]).parametrize()
@settings(max_examples=in_soak(200, ci=8), deadline=None, suppress_health_check=list(HealthCheck))
def test_answers_to_random_requests_are_as_described(case: Any) -> None:
    # Verbs are refused by their role, after path, query and body were read. What wrong tokens get
    # is bounded in rate (`test_app_access`). A page token or a tag that is made up is refused.
    unfit = [ignored_auth, positive_data_acceptance]
    case.call_and_validate(headers=bearer(LOOK), excluded_checks=unfit)
