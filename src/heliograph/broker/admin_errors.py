"""What librdkafka says went wrong, in our words, with the cluster's alias. Runs on the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from heliograph.errors import BrokerError, BrokerUnreachable, LeaderMoved, NotAuthorised
from heliograph.model import ClusterAlias

_CREDENTIALS_REFUSED: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    }
)
_PERMISSION_MISSING: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_NO_ANSWER: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._SSL,
        KafkaError._WAIT_COORD,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.BROKER_NOT_AVAILABLE,
    }
)
_LEADER_MOVED: Final = frozenset(
    {
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
    }
)


class ErrorLog:
    """The last thing a client's background threads complained about.

    A call that finds no broker ends as a bare time-out; why there was none (refused, not resolved,
    wrong password) is only told through `error_cb`, so it is kept here until a call succeeds.
    """

    def __init__(self, *, alias: ClusterAlias) -> None:
        self._alias = alias
        self._lock = threading.Lock()
        self._refused: str | None = None
        self._broken: str | None = None
        self._all_down = False

    @property
    def says_nothing_is_there(self) -> bool:
        """Whether every server was tried, and there is none: no such port, or no such name."""
        with self._lock:
            broken = (self._broken or "").lower()
            return self._all_down and any(word in broken for word in ("refused", "resolve"))

    def opened(self, make: Callable[[Mapping[str, Any]], Any], settings: Mapping[str, Any]) -> Any:
        """A client with these settings; raises `BrokerError` where there can be none.

        A token is asked for first: librdkafka waits for one for ten seconds, and then keeps to
        itself why there was none.
        """
        try:
            if "oauth_cb" in settings:
                settings["oauth_cb"]("")
            return make(settings)
        except KafkaException as exc:
            raise self.translated(exc, "client settings") from exc
        except BrokerError as exc:
            raise type(exc)(f"cluster {self._alias}: {exc}") from exc

    def note(self, error: KafkaError) -> None:
        """For librdkafka's `error_cb`."""
        with self._lock:
            if error.code() in _CREDENTIALS_REFUSED:
                self._refused = error.str()
            elif error.code() == KafkaError._ALL_BROKERS_DOWN:
                self._all_down = True
            else:
                self._broken = error.str().replace("ssl.ca.location", "ssl.truststore.location")

    def forget(self) -> None:
        with self._lock:
            self._refused = self._broken = None
            self._all_down = False

    def translated(self, exc: KafkaException, permission: str) -> BrokerError:
        """`permission` is what the broker asks for before it does what was tried."""
        error: KafkaError = exc.args[0]
        code, text = error.code(), error.str()
        with self._lock:
            refused, broken = self._refused, self._broken
        if code in _CREDENTIALS_REFUSED:
            return NotAuthorised(f"cluster {self._alias}: credentials refused: {text}")
        if code in _PERMISSION_MISSING:
            return NotAuthorised(f"cluster {self._alias}: missing permission {permission}")
        if code in _NO_ANSWER:
            if refused is not None:
                return NotAuthorised(f"cluster {self._alias}: credentials refused: {refused}")
            return BrokerUnreachable(f"cluster {self._alias}: unreachable: {broken or text}")
        if code in _LEADER_MOVED:
            return LeaderMoved(f"cluster {self._alias}: {text}")
        return BrokerError(f"cluster {self._alias}: {text}")


def is_one_of(exc: BaseException | None, codes: tuple[int, ...]) -> bool:
    """Whether librdkafka raised `exc` with one of these codes."""
    if not isinstance(exc, KafkaException):
        return False
    error: KafkaError = exc.args[0]
    return error.code() in codes
