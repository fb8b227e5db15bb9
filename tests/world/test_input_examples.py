"""Inputs are found in typical documentation, and inputs that cannot be sent are marked."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.conformance.inputs import KnownInputs, fill_placeholders, write_value
from clawblox.world.input_examples import find_examples
from tests.support.sampling import usually

ROBOT = """
# A robot arm

## Action Schemas

| Input | Data |
|-------|------|
| SetControl | `{"ctrl": [8 actuator values]}` |
| Reset | `{}` |

`POST /input`

Body: `{"type":"<ActionName>","data":{...}}`

`POST /chat` with `{"content":"..."}`

| Control | Meaning |
|---------|---------|
| `ctrl[7]` | Gripper target |
"""

SHOOTER = """
| Input | Data | Description |
|-------|------|-------------|
| `MoveTo` | `{ "position": [x, y, z] }` | Walk to the specified position |
| `Melee` | none | Melee attack |

```json
// Move to a position
{ "type": "MoveTo", "data": { "position": [10, 0, 5] } }
```

| Field | Type | Description |
|-------|------|-------------|
| `tick` | integer | Current tick |
"""

LIST = """
**Common input types:**
- `MoveTo` - Move to a position: `{ "position": [x, y, z] }`
- `Melee` - Melee attack: `{}` or no data

The observation:
- `player` - the player: `{ "id": "uuid" }`
"""


def found(text: str) -> list[str]:
    return [str(example) for example in find_examples(text)]


@pytest.mark.parametrize(
    ("text", "examples"),
    [
        (ROBOT, ['SetControl {"ctrl": [8 actuator values]}', "Reset {}"]),
        (
            SHOOTER,
            [
                'MoveTo {"position": [10, 0, 5]}',
                'MoveTo { "position": [x, y, z] }',
                "Melee",
            ],
        ),
        (LIST, ['MoveTo { "position": [x, y, z] }', "Melee {}"]),
        ("| Description | Action | Payload |\n|:--|---|---|\n| up | **Up** | [1] |", ["Up [1]"]),
        ("Action | Data\n--- | ---\nUp | `1`\nDown | \\|\n\nLeft | 1", ["Up 1", "Down |"]),
        ("| Action | Body |\n|---|---|\n| Join | POST /join |\n", []),
        ("| Action | Body |\n|---|---|\n| `/join` | `{}` |\n", []),
        ('| Input | Body |\n|--|--|\n| A | `{"type": "A", "data": 1}` |', ["A 1"]),
        ("| Input | Data |\n| A | `1` |", []),
        ("| Input | Data |\n|---|---|\n| two words | `1` |\n|---|---|", []),
        ('```json\n{"type": "object"}\n{"type": "string", "data": 1}\n```', ["string 1"]),
        ('A stray ` sign.\n\nSend `{"type": "Up"}`.', ["Up"]),
        ('A stray { sign.\n\n{"type": "Up", "data": "}"}', ['Up "}"']),
    ],
)
def test_inputs_are_found_in_tables_lists_and_prose(text: str, examples: list[str]) -> None:
    assert found(text) == examples


BODY = '{"type": "Say", "data": {"text": "it\'s } ä"}}'
SHELL_SINGLE = BODY.replace("'", "'\\''")
SHELL_DOUBLE = BODY.replace('"', '\\"')


@pytest.mark.parametrize(
    "command",
    [
        f"curl -d '{SHELL_SINGLE}' http://localhost/input",
        f"curl -sX POST localhost/input \\\n  -H 'X-Session: s' \\\n  -d \\\n  '{SHELL_SINGLE}'",
        f"curl --data-raw='{SHELL_SINGLE}' x",
        f'curl --json "{SHELL_DOUBLE}" x',
        f'curl -sd"{SHELL_DOUBLE}"',
        f"curl --data $'{BODY.replace(chr(39), '')}' x",
        f"curl --data $'{BODY.replace(chr(39), chr(92) + chr(39))}' x",
    ],
)
@pytest.mark.parametrize("form", ["```sh\n{}\n```", "{}", "Text:\n\n    {}\n", "`{}`"])
def test_inputs_are_found_in_bodies_of_curl(command: str, form: str) -> None:
    (example,) = find_examples(form.replace("{}", command))
    assert example.type == "Say"
    assert example.is_sendable
    assert example.data in ('{"text": "it\'s } ä"}', '{"text": "its } ä"}')


@pytest.mark.parametrize(
    ("data", "is_sendable"),
    [
        ("", True),
        ("[1, 2]", True),
        ("[8 actuator values]", False),
        ("[x, y]", False),
        ("{...}", False),
        ('{"name": "<name>"}', False),
        ('{"name": ["..."]}', False),
        ('{"text": "1 < 2 > 0"}', True),
        ("three numbers", False),
    ],
)
def test_data_with_placeholders_cannot_be_sent(data: str, is_sendable: bool) -> None:
    (example,) = find_examples(
        f"| Input | Data |\n|---|---|\n| A | `{data}` |" if data else '`{"type": "A"}`'
    )
    assert example.is_sendable == is_sendable


def test_world_toml_lines_reflect_the_names_and_types_of_the_data() -> None:
    inputs = KnownInputs((), find_examples(ROBOT.replace("| Reset | `{}` |\n", "")))
    assert inputs.actions == ()
    text = inputs.describe_unsent()
    assert text.startswith("what the documentation shows cannot be sent as it stands: SetControl ")
    lines = tomllib.loads(text.partition("\n")[2])
    assert lines == {
        "conformance": {"actions": [{"type": "SetControl", "data": {"ctrl": [0] * 8}}]}
    }


def test_no_lines_are_needed_for_a_type_with_a_sendable_example() -> None:
    assert KnownInputs((), find_examples(SHOOTER)).describe_unsent() == ""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[x, y, z]", [0, 0, 0]),
        ("{position: [x, y], 'n': <name>, ...}", {"position": [0, 0], "'n'": 0}),
        (
            '{"a": true, "b": "text", "c": 1.5, "d": up to you}',
            {"a": True, "b": "text", "c": 1.5, "d": 0},
        ),
        ("[1, 2, ...]", [1, 2]),
        ("[99 values]", [0] * 64),
        ("{...}", {}),
        ("[", {}),
        ("1]", {}),
        ("[" * 1000, {}),
    ],
)
def test_placeholders_get_values_of_a_matching_type(text: str, value: object) -> None:
    assert fill_placeholders(text) == value


PIECES = st.sampled_from(
    [
        *("```", "\n", "|", "`", '{"type": "A"', '"data":', "{", "}", "\\", '"', "'", "curl "),
        *("| Input | Data |\n|---|---|\n| A |", "inputs\n- `A` ", "[8 values]", "<x>", "...", ":"),
        *(",", " -d "),
    ]
)
TEXTS = st.text() | st.lists(PIECES | st.text(max_size=3)).map("".join)


@given(TEXTS)
def test_the_lines_for_any_text_are_valid_toml(text: str) -> None:
    examples = find_examples(text)
    for example in examples:
        assert example.type
        assert "\n" not in str(example)
    inputs = KnownInputs((), examples)
    assert all(action.type for action in inputs.actions)
    if lines := inputs.describe_unsent():
        assert tomllib.loads(lines[lines.index("[conformance]\n") :])["conformance"]["actions"]


@given(TEXTS)
def test_values_for_placeholders_are_valid_toml(text: str) -> None:
    tomllib.loads(f"value = {write_value(fill_placeholders(text))}")


LONG = [
    *(
        "\\",
        '"',
        '\\"',
        "'",
        "{",
        "}",
        "`",
        "|",
        "- ",
        "-d '",
        '-d "',
        "-d\\\n",
        "[ ",
        "...",
        "<",
        "*",
    ),
    *('{"type":"A","data":', '{"type":"A","data":[x]}', f'{{"type":"A"{" " * 50}'),
    *("| `a` | `[1` |\n", "- `a` `{`\n", "\n\n"),
]
BEGINS = [
    *("", "curl ", "```\n", "| type | data |\n|---|---|\n| ", "inputs\n- `a` ", "`", '"'),
    '{"type":"A","data":',
]


@pytest.mark.parametrize("piece", LONG)
@pytest.mark.parametrize("begin", usually(BEGINS, "", "`"))
def test_a_long_text_is_read_to_its_end(begin: str, piece: str) -> None:
    """The search would take hours if its time grew with the square of the length."""
    text = begin + piece * (200_000 // len(piece)) + "}"
    assert len(find_examples(text)) <= 1000
