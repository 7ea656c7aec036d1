"""Why an agent does not get into a process."""

from __future__ import annotations


class InjectError(Exception):
    """This way in did not work; the message is one line for the user."""


class Unsuitable(InjectError):
    """Not at this moment, or not on this thread: another one may do."""


class NotLoaded(InjectError):
    """The call has run, and the agent is not there: another way in would come to the same."""


class Gone(InjectError):
    """The process, or the thread, has ended or has replaced itself by another program."""
