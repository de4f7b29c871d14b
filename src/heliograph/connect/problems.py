"""What Connect answers instead of doing what it was asked for. Runs anywhere."""

from __future__ import annotations

from collections.abc import Mapping

from heliograph.errors import MirrorError


class ConnectProblem(MirrorError):
    """Becomes `{"error_code": status, "message": message}`, as Connect's `ErrorMessage`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status, self.message = status, message

    def __str__(self) -> str:
        return self.message


def not_found(name: str) -> ConnectProblem:
    return ConnectProblem(404, f"Connector {name} not found")


def invalid(errors: Mapping[str, tuple[str, ...]]) -> ConnectProblem:
    """As Connect counts and lists the errors of a configuration."""
    sentences = [sentence for key in sorted(errors) for sentence in errors[key]]
    listed = "\n".join(sentences)
    return ConnectProblem(
        400,
        "Connector configuration is invalid and contains the following "
        f"{len(sentences)} error(s):\n{listed}\n"
        "You can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`",
    )
