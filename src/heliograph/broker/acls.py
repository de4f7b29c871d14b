"""ACLs of topics in one cluster: described, created, deleted. Runs on the driver.

Describing needs DESCRIBE on the cluster, creating and deleting need ALTER on it. A cluster without
an authorizer answers every call with `AuthorizerOff`.

ACLs are described over a connection of our own: librdkafka 2.16 drops the error of a DescribeAcls
answer and hands over an empty list, so that a missing permission would look as if the source had
revoked everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from itertools import islice
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclBinding as ClientBinding
from confluent_kafka.admin import AclBindingFilter, ResourceType
from confluent_kafka.admin import AclOperation as ClientOperation
from confluent_kafka.admin import AclPermissionType as ClientPermission
from confluent_kafka.admin import ResourcePatternType as ClientPattern
from kio.schema.describe_acls.v2 import request as describe_request
from kio.schema.describe_acls.v2 import response as describe_response
from kio.schema.errors import ErrorCode

from heliograph.acl import AclBinding, AclOperation, AclPattern, AclPermission
from heliograph.broker.admin import TIMEOUT_S_DEFAULT, Change, Outcome
from heliograph.broker.admin_client import admin_client
from heliograph.broker.admin_errors import ErrorLog, is_one_of
from heliograph.broker.cluster import open_cluster
from heliograph.broker.codes import NONE, broker_error
from heliograph.config.schema import ClusterConfig
from heliograph.errors import AuthorizerOff, BrokerError, BrokerUnreachable

_ANSWER_GRACE_S: Final = 5.0
_ACLS_PER_REQUEST_MAX: Final = 500
_OFF: Final = (KafkaError.SECURITY_DISABLED,)
_PATTERNS: Final = {int(ClientPattern[each.name].value): each for each in AclPattern}
_OPERATIONS: Final = {int(ClientOperation[each.name].value): each for each in AclOperation}
_PERMISSIONS: Final = {int(ClientPermission[each.name].value): each for each in AclPermission}
"""By the numbers of the protocol, which are librdkafka's too."""
_EVERY_TOPIC_ACL: Final = describe_request.DescribeAclsRequest(
    resource_type_filter=int(ResourceType.TOPIC.value),  # type: ignore[arg-type]
    resource_name_filter=None,
    pattern_type_filter=int(ClientPattern.ANY.value),  # type: ignore[arg-type]
    principal_filter=None,
    host_filter=None,
    operation=int(ClientOperation.ANY.value),  # type: ignore[arg-type]
    permission_type=int(ClientPermission.ANY.value),  # type: ignore[arg-type]
)


class AclAdmin:
    """Questions and orders about ACLs of topics; safe to share between threads."""

    def __init__(self, cluster: ClusterConfig, *, timeout_s: float = TIMEOUT_S_DEFAULT) -> None:
        self.alias: Final = cluster.alias
        self._config = cluster
        self._timeout_s = timeout_s
        self._errors = ErrorLog(alias=cluster.alias)
        self._client = admin_client(cluster, self._errors)

    def topic_acls(self) -> frozenset[AclBinding]:
        """Every ACL of topics, literal and prefixed; blocks, and needs a thread without a loop."""
        return asyncio.run(self._topic_acls())

    async def _topic_acls(self) -> frozenset[AclBinding]:
        cluster = open_cluster(self._config, "admin")
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await cluster.ask_any(
                    _EVERY_TOPIC_ACL, describe_response.DescribeAclsResponse
                )
        except TimeoutError as exc:
            raise self._no_answer() from exc
        finally:
            cluster.close()
        if answer.error_code == ErrorCode.security_disabled:
            raise self._authorizer_off()
        if answer.error_code != NONE:
            raise broker_error(
                f"cluster {self.alias}",
                int(answer.error_code),
                answer.error_message,
                permission="DESCRIBE on the cluster",
            )
        return frozenset(_bindings(answer.resources))

    def create(self, bindings: Iterable[AclBinding]) -> Mapping[AclBinding, Outcome]:
        """Create each; one that is refused keeps no other from it, one that is there is `DONE`."""
        return self._order(bindings, ClientBinding, self._client.create_acls)

    def delete(self, bindings: Iterable[AclBinding]) -> Mapping[AclBinding, Outcome]:
        """Delete exactly these; one that is not there is `DONE`."""
        return self._order(bindings, AclBindingFilter, self._client.delete_acls)

    def _order(
        self,
        bindings: Iterable[AclBinding],
        kind: Callable[..., Any],
        call: Callable[..., Mapping[Any, Future[Any]]],
    ) -> Mapping[AclBinding, Outcome]:
        outcomes: dict[AclBinding, Outcome] = {}
        for some in _in_chunks(bindings, _ACLS_PER_REQUEST_MAX):
            by_order = {_order_of(binding, kind): binding for binding in some}
            for order, answer in self._ask(call, list(by_order)).items():
                outcomes[by_order[order]] = self._outcome(answer)
        return outcomes

    def _outcome(self, answer: Future[Any]) -> Outcome:
        try:
            self._answer(answer, "ALTER on the cluster")
        except (BrokerUnreachable, AuthorizerOff):
            # The same for every one of them.
            raise
        except BrokerError as error:
            return error
        return Change.DONE

    def _ask(self, call: Callable[..., Any], what: object) -> Any:
        # Callbacks wait in a queue until somebody polls; a client nobody polls keeps them all.
        self._client.poll(0)
        try:
            return call(what, request_timeout=self._timeout_s)
        except KafkaException as exc:
            raise self._errors.translated(exc, "for the request") from exc

    def _answer(self, answer: Future[Any], permission: str) -> Any:
        try:
            found = answer.result(self._timeout_s + _ANSWER_GRACE_S)
        except KafkaException as exc:
            self._client.poll(0)
            if is_one_of(exc, _OFF):
                raise self._authorizer_off() from exc
            raise self._errors.translated(exc, permission) from exc
        except TimeoutError as exc:
            raise self._no_answer() from exc
        self._errors.forget()
        return found

    def _no_answer(self) -> BrokerUnreachable:
        return BrokerUnreachable(f"cluster {self.alias}: no answer within {self._timeout_s:g} s")

    def _authorizer_off(self) -> AuthorizerOff:
        return AuthorizerOff(f"cluster {self.alias}: no authorizer is configured")


def _bindings(resources: Iterable[Any]) -> Iterator[AclBinding]:
    """Without operations and patterns newer than this client, which no topic has."""
    for resource in resources:
        pattern = _PATTERNS.get(int(resource.pattern_type))
        for found in resource.acls:
            operation = _OPERATIONS.get(int(found.operation))
            permission = _PERMISSIONS.get(int(found.permission_type))
            if pattern is not None and operation is not None and permission is not None:
                yield AclBinding(
                    name=resource.resource_name,
                    pattern=pattern,
                    principal=found.principal,
                    host=found.host,
                    operation=operation,
                    permission=permission,
                )


def _order_of(binding: AclBinding, kind: Callable[..., Any]) -> Any:
    return kind(
        ResourceType.TOPIC,
        binding.name,
        ClientPattern[binding.pattern.name],
        binding.principal,
        binding.host,
        ClientOperation[binding.operation.name],
        ClientPermission[binding.permission.name],
    )


def _in_chunks(bindings: Iterable[AclBinding], size: int) -> Iterator[list[AclBinding]]:
    iterator = iter(bindings)
    while chunk := list(islice(iterator, size)):
        yield chunk
