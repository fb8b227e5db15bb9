"""All planted secrets are found: every family, planted in every way, in all texts and encodings."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping

import pytest

from tests.checkpoint.secrets.fakes import (
    EMBEDDINGS,
    FAMILIES,
    SplicingMaker,
    fake,
    rule_name,
    scan,
)
from tests.checkpoint.secrets.wrapping import ENCODINGS
from tests.support.sampling import sampled

METADATA = """Metadata-Version: 2.4
Name: a-package
Version: 1.0

# Usage

Set `API_KEY=your-api-key-here`, for example `sk-xxxxxxxxxxxxxxxxxxxx`, or `SECRET=changeme123`:

    {}

This is an example. Replace it with your own placeholder.
"""

WAYS: Mapping[str, Callable[[str], tuple[str, str]]] = {
    "as it is": lambda family: ("agents/a/workspace/notes", fake(family, "planted")),
    "with a placeholder in it": lambda family: (
        "agents/a/workspace/.env.example",
        fake(family, "spliced", SplicingMaker),
    ),
    "with another placeholder in it": lambda family: (
        "agents/a/workspace/tests/fixtures/sample.json",
        fake(family, "spliced again", SplicingMaker),
    ),
    "in the metadata of a package": lambda family: (
        "agents/a/workspace/lib/site-packages/pyjwt-2.10.1.dist-info/METADATA",
        METADATA.format(fake(family, "metadata")),
    ),
    "between placeholders": lambda family: (
        "agents/a/workspace/node_modules/twilio/README.md",
        f"xxxxxxxxxxxxxxxx your-key-here\n{fake(family, 'between')}\nEXAMPLE xxxxxxxxxxxxxxxx",
    ),
}
"""Ways in which an agent may plant a secret: path and text, by family."""

CASES = [(way, family) for way in WAYS for family in sorted(FAMILIES)]


def test_more_than_four_hundred_secrets_are_planted() -> None:
    assert len(CASES) > 400


@pytest.mark.parametrize("way", sampled(WAYS, every=2))
def test_no_planted_secret_is_missed(way: str) -> None:
    embeddings = itertools.cycle(sorted(EMBEDDINGS))
    encodings = itertools.cycle(sorted(ENCODINGS))
    for _ in range(sorted(WAYS).index(way)):  # another combination for each way
        next(embeddings), next(encodings)
    missed = []
    for family in sorted(FAMILIES):
        embedding, encoding = next(embeddings), next(encodings)
        path, secret = WAYS[way](family)
        text = "# some text before\n" + EMBEDDINGS[embedding](secret)
        found = {finding.rule for finding in scan(ENCODINGS[encoding](text.encode()), path)}
        if rule_name(family) not in found:
            missed.append((family, embedding, encoding))
    assert missed == []


def test_a_planted_secret_is_found_in_a_transcript_of_placeholders() -> None:
    for family in sorted(FAMILIES):
        record = {"type": "user", "text": METADATA.format(fake(family, "transcript"))}
        lines = [json.dumps({"type": "user", "text": METADATA.format("xxxx")})] * 3
        text = "\n".join([*lines, json.dumps(record), *lines])
        assert [finding.rule for finding in scan(text)] == [rule_name(family)]
