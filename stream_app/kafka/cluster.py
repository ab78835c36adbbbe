"""How sources and sinks reach a Kafka cluster: addresses, TLS, SASL, and errors that a person can read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from ssl import CERT_NONE, SSLCertVerificationError, SSLContext, create_default_context
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, errors
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.protocol.admin import SaslAuthenticateRequest
from kafka import errors as admin_errors
from kafka.net.sasl.oauth import AbstractTokenProvider as BlockingTokenProvider

from stream_app.kafka.tokens import CLIENT_SECRET, TOKEN_FILE, Tokens
from stream_app.outage import Outage
from stream_app.ports import OperatorError
from stream_app.together import ignore_failure

# A transaction may not take longer than this at Kafka either, by its default.
LONGEST_ANSWER_S = 60.0
T = TypeVar("T")
log = logging.getLogger(__name__)
_REFUSED = (
    errors.AuthenticationFailedError,
    errors.SaslAuthenticationFailed,
    errors.UnsupportedSaslMechanismError,
    errors.TopicAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.TransactionalIdAuthorizationFailed,
    admin_errors.SaslAuthenticationFailedError,
    admin_errors.TopicAuthorizationFailedError,
    admin_errors.ClusterAuthorizationFailedError,
)


@dataclass(frozen=True)
class Cluster:
    """How to reach a cluster.

    Args:
        bootstrap_servers: host:port, separated by commas.
        security: librdkafka's names and values: ``security.protocol``, ``ssl.*``, ``sasl.*``. SECRET.
        where: the section of the configuration that it is of, for messages.
    """

    bootstrap_servers: str
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    where: str = "kafka"

    def client(self) -> dict[str, Any]:
        """Return the arguments that every aiokafka client takes.

        Raises: OperatorError for a certificate or key that cannot be read, or a missing password or secret.
            They are not looked for as the file is read: API and watcher read it too, and have no secret.
        """
        tokens = None if self.tokens is None else _Provider(self.tokens)
        return self._shared() | {"sasl_oauth_token_provider": tokens}

    def blocking_client(self) -> dict[str, Any]:
        """Return the arguments that every client of kafka-python takes. Raises: as ``client``."""
        tokens = None if self.tokens is None else _BlockingProvider(self.tokens)
        return self._shared() | {"sasl_oauth_token_provider": tokens}

    @cached_property
    def tokens(self) -> Tokens | None:
        """The tokens of this cluster's clients; None unless the mechanism is OAUTHBEARER."""
        return (
            Tokens(self.security, self.where)
            if self.security.get("sasl.mechanism") == "OAUTHBEARER"
            else None
        )

    def _shared(self) -> dict[str, Any]:
        protocol = self.security.get("security.protocol", "plaintext")
        if protocol.startswith("sasl") and (secret := self._secret()) not in self.security:
            raise OperatorError(f"{self.where}.{secret}: is missing; security.protocol {protocol} needs it")
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": protocol.upper(),
            "ssl_context": self.ssl_context(),
            "sasl_mechanism": self.security.get("sasl.mechanism", "PLAIN"),
            "sasl_plain_username": self.security.get("sasl.username"),
            "sasl_plain_password": self.security.get("sasl.password"),
        }

    def _secret(self) -> str:
        """Return the key of the secret that a client needs to log in."""
        if self.tokens is None:
            return "sasl.password"
        return TOKEN_FILE if TOKEN_FILE in self.security else CLIENT_SECRET

    def ssl_context(self) -> SSLContext | None:
        """Return the TLS settings, or None if the protocol has no TLS."""
        given = self.security
        if not given.get("security.protocol", "").lower().endswith("ssl"):
            return None
        try:
            context = create_default_context(cafile=given.get("ssl.ca.location"))
            if given.get("ssl.endpoint.identification.algorithm") == "none":
                context.check_hostname = False
            if given.get("enable.ssl.certificate.verification") == "false":
                context.check_hostname, context.verify_mode = False, CERT_NONE
            if certificate := given.get("ssl.certificate.location"):
                password = given.get("ssl.key.password")
                context.load_cert_chain(certificate, given.get("ssl.key.location"), password)
        except OSError as failure:
            said = f"{self.where}.ssl: {failure}; correct the locations of the certificates"
            raise OperatorError(said) from None
        return context


class _Provider(AbstractTokenProvider):  # type: ignore[misc]
    """Gives tokens to aiokafka, which tries again after a failure that is one of its own."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._outage = Outage(log, "kafka tokens")

    async def token(self) -> str:
        try:
            token = await asyncio.to_thread(self._tokens.current)
        except (OSError, OperatorError) as failure:
            self._outage.failed(failure)
            raise errors.KafkaConnectionError(str(failure)) from failure
        self._outage.over()
        return token

    def extensions(self) -> dict[str, str]:
        return self._tokens.extensions()


class _BlockingProvider(BlockingTokenProvider):  # type: ignore[misc]
    """Gives tokens to kafka-python."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def token(self) -> str:
        return self._tokens.current()

    def extensions(self) -> dict[str, str]:
        return self._tokens.extensions()


async def reach(cluster: Cluster) -> None:
    """Check that a server answers and accepts this user, before clients with vaguer errors are made.

    Raises: OSError if the server is unreachable (try again); OperatorError if it refuses this user.
    """
    security = {name: value for name, value in cluster.client().items() if name != "bootstrap_servers"}
    if cluster.tokens is not None:
        await asyncio.to_thread(cluster.tokens.current)
    failure: Exception | None = None
    for server in cluster.bootstrap_servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if not port.isdigit():
            raise OperatorError(f"{cluster.where}: {server.strip()} is not an address; write host:port")
        try:
            connection = await create_conn(host.strip("[]"), int(port), **security)
            if cluster.tokens is not None:
                await _check_token(connection)
        except SSLCertVerificationError as refusal:
            failure = OperatorError(
                f"{cluster.where}: {server}: {refusal.verify_message}; correct "
                f"{cluster.where}.ssl.ca.location"
            )
        except OSError as unreachable:
            words = unreachable.strerror or "no connection"
            failure = ConnectionError(f"{cluster.where}: {server}: {words}, see that it runs")
        except errors.KafkaError as refusal:
            failure = refusal
        else:
            connection.close()
            return
    if failure is not None:
        with translating_errors(cluster):
            raise failure


async def _check_token(connection: AIOKafkaConnection) -> None:
    """Raise the broker's refusal of a token, which aiokafka takes for a success.

    A broker refuses a token only after one more message of the client (RFC 7628, 3.2.3). If the token was
    accepted, this message is an error, which changes nothing.
    """
    answer = await connection.send(SaslAuthenticateRequest(b"\x01"))
    if answer.error_code == errors.SaslAuthenticationFailed.errno:
        connection.close()
        raise errors.SaslAuthenticationFailed(answer.error_message)


@contextmanager
def translating_errors(cluster: Cluster) -> Iterator[None]:
    """Raise a Kafka client's errors as OSError (try again) or OperatorError (only the operator can help).

    A client that stops during an outage may raise the cancellation of a task of its own. It would end the
    caller's loop, so it becomes an OSError, unless somebody has cancelled the caller.
    """
    try:
        yield
    except _REFUSED as failure:
        raise OperatorError(
            f"{cluster.where}: {cluster.bootstrap_servers} refuses this user ({type(failure).__name__}); "
            f"correct {cluster.where}.security, or grant it in the cluster"
        ) from None
    except (
        errors.KafkaError,
        errors.ConsumerStoppedError,
        admin_errors.KafkaError,
        asyncio.CancelledError,
    ) as failure:
        if isinstance(failure, asyncio.CancelledError) and _is_cancelled():
            raise
        raise ConnectionError(
            f"{cluster.where}: {cluster.bootstrap_servers}: {type(failure).__name__}, see that it runs"
        ) from failure


async def answered(cluster: Cluster, topic: str, asked: Awaitable[T]) -> T:
    """Return the answer of a client about a topic, but do not wait for it for ever.

    A client may never get the answer of a broker that was restarted, not even when it is cancelled.
    Raises: TimeoutError, an OSError, without an answer within ``LONGEST_ANSWER_S``; a client's errors as
        ``translating_errors`` does.
    """
    task = asyncio.ensure_future(asked)
    try:
        await asyncio.wait({task}, timeout=LONGEST_ANSWER_S)
    finally:
        if not task.done():
            task.add_done_callback(ignore_failure)
            task.cancel()
    if not task.done():
        raise TimeoutError(f"topic {topic}: no answer for {LONGEST_ANSWER_S:g} s; see that Kafka runs")
    with translating_errors(cluster):
        if task.cancelled():  # by the client: also a caller that ends must go on with what it closes
            raise errors.KafkaConnectionError
        return task.result()


async def stop_reader(cluster: Cluster, topic: str, reader: AIOKafkaConsumer) -> None:
    """Stop a consumer and close its connections; how it ends does not matter.

    While a failed fetch waits for its next attempt, aiokafka's ``stop`` raises this fetch's cancellation and
    leaves the connections open.
    """
    with suppress(OSError, OperatorError):
        await answered(cluster, topic, _stop(reader))


async def _stop(reader: AIOKafkaConsumer) -> None:
    try:
        await reader.stop()
    finally:
        await reader._client.close()


def _is_cancelled() -> bool:
    """Return whether somebody has cancelled the current task."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
