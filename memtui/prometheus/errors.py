"""What can be wrong with a Prometheus server, in one line each."""

from __future__ import annotations


class PrometheusError(Exception):
    """The server gave no figures; the message is one line for the user, parts of it the server's own words."""


class Unreachable(PrometheusError):
    """It does not answer, or not in time: another try may go better."""


class Refused(PrometheusError):
    """It answered, and will not answer otherwise: credentials, a selector, or it is no Prometheus."""


class Interrupted(PrometheusError):
    """Nobody waits for the answer any more."""
