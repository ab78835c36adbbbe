"""Alerts as e-mail, by a server that speaks SMTP."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from urllib.parse import unquote, urlsplit

from stream_app.core.alerts.targets import Email, shown
from stream_app.ports.alerts import AlertTarget, NotDelivered, Refused
from stream_app.sinks.alert_targets import ANSWER_S, SENT
from stream_app.sinks.alert_texts import Transition, page_of, text_of

_PORTS = {"smtp": 587, "smtps": 465}


def message_of(told: Transition, email: Email, site: str | None) -> EmailMessage:
    """Return a transition as a message; its Message-ID is the idempotency key."""
    subject = f"{told['kind'].upper()}: {told['rule']} ({told['stream']})"
    message = EmailMessage()
    message["From"], message["To"] = email.sender, ", ".join(email.to)
    # A key may hold a line break, also an encoded one, which would begin another header.
    printable = "".join(letter for letter in subject[:200] if letter.isprintable())
    message["Subject"] = printable.replace("=?", "= ?")
    message["Date"] = format_datetime(datetime.fromtimestamp(told["now_us"] / 1e6, UTC))
    message["Message-ID"] = f"<{told['key']}@{email.sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    text = "\n".join(filter(None, (text_of(told), page_of(told, site))))
    message.set_content(text.encode(errors="replace").decode() + "\n")
    return message


class EmailTarget(AlertTarget):
    """Receivers of e-mail. If the server offers STARTTLS, all goes over TLS; no password goes without TLS."""

    name = identity = "email"
    former = ""

    def __init__(self, email: Email, site: str | None = None) -> None:
        self.shown = f"alerts.email ({shown(email.server)})"
        self._email, self._site = email, site

    async def send(self, transition: Transition) -> str:
        if transition["kind"] not in SENT:
            return ""
        return await asyncio.to_thread(self._deliver, message_of(transition, self._email, self._site))

    def _deliver(self, message: EmailMessage) -> str:
        try:
            with self._connected() as server:
                refused = server.send_message(message, self._email.sender, self._email.to)
        except smtplib.SMTPRecipientsRefused as failure:
            refused = failure.recipients
        except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as failure:
            raise _refusal(failure.smtp_code, failure.smtp_error) from None
        except smtplib.SMTPResponseException as failure:  # also a wrong password, which can be corrected
            raise NotDelivered(f"it answered {failure.smtp_code}") from None
        except (smtplib.SMTPException, OSError) as failure:
            raise NotDelivered(f"not reached: {type(failure).__name__}") from None
        for code, answer in refused.values():
            raise _refusal(code, answer)
        return f"accepted for {len(self._email.to)} receiver(s)"

    def _connected(self) -> smtplib.SMTP:
        """Return a connection by TLS, logged in if the URL names a user."""
        parts = urlsplit(self._email.server)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        trusted = ssl.create_default_context()
        if parts.scheme == "smtps":
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=ANSWER_S, context=trusted)
        else:
            server = smtplib.SMTP(host, port, timeout=ANSWER_S)
        try:
            server.ehlo()
            if parts.scheme == "smtp" and server.has_extn("starttls"):
                server.starttls(context=trusted)
            elif parts.scheme == "smtp" and parts.username:
                raise NotDelivered("it offers no STARTTLS, so it gets no password")
            if parts.username:
                server.login(unquote(parts.username), unquote(parts.password or ""))
        except BaseException:
            server.close()
            raise
        return server


def _refusal(code: int, answer: bytes | str) -> NotDelivered | Refused:
    """Return the error of an answer: codes from 500 are final, those from 400 are tried again."""
    said = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
    return Refused(code, said) if code >= 500 else NotDelivered(f"it answered {code}")
