"""The texts around the runs that ``ps`` shows; ``clawblox.agents.listing`` chooses the runs."""

from __future__ import annotations

from clawblox.agents.listing import Scope
from clawblox.views.formatting import format_labels, shorten_path, suggest


def describe_scope(scope: Scope) -> str:
    """Return the title of a table; empty for a single run, whose own title is more specific."""
    if scope.is_one_run:
        return ""
    return "this machine" if scope.directory is None else shorten_path(scope.directory)


def describe_more(scope: Scope) -> str:
    """Return where to see more of an experiment; empty for none."""
    if scope.experiment is None:
        return ""
    status = suggest("experiment status", scope.experiment)
    if scope.shows_ended:
        return f"See {status}."
    return f"--all shows what has ended, and {status} the chains."


def describe_empty(scope: Scope) -> str:
    """Return the text in place of a table without instances."""
    if scope.labels:
        return f"No instance here has {format_labels(scope.labels)}."
    if scope.is_one_run:
        return ""
    if scope.directory is None:
        hint = "Nothing runs. --all shows what has ended."
        return "Nothing has run." if scope.shows_ended else hint
    verb, place = "has run" if scope.shows_ended else "runs", shorten_path(scope.directory)
    return f"Nothing {verb} in '{place}' or below. {describe_more(scope)}".rstrip()
