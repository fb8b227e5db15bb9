"""The pure parts of ``play`` and ``act``: examples, paths, values, differences, typed lines."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clawblox.cli.playing.lines import PlayCommand, parse_data, parse_line
from clawblox.differences import (
    ABSENT,
    ValueDifference,
    add_id,
    add_index,
    add_key,
    find_differences,
)
from clawblox.errors import UsageError
from clawblox.printable import printable_name
from clawblox.views.observations import find_value, format_difference, format_inline, format_value
from clawblox.world.input_examples import find_examples

ROOT = Path(__file__).parents[2]

keys = st.text(max_size=4) | st.sampled_from(
    ["id", "0", "a b", "position", "]", '"', "\x7f", "\u3164"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4)
        | st.lists(
            st.fixed_dictionaries({"id": st.text(max_size=2), "x": inner}),
            unique_by=lambda item: str(item["id"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


def text_of(value: Any) -> str:
    """Return a text that is equal for equal values, such as ``1`` and ``1.0``."""

    def plain(one: Any) -> Any:
        if isinstance(one, dict):
            return {key: plain(member) for key, member in one.items()}
        if isinstance(one, list):
            return [plain(item) for item in one]
        if isinstance(one, bool) or not isinstance(one, int | float) or not math.isfinite(one):
            return one
        return str(int(one)) + "n" if one == int(one) else one

    return json.dumps(plain(value), sort_keys=True)


def is_harmless(line: str) -> bool:
    """Return whether a line neither controls a terminal nor reorders text."""
    return not {unicodedata.category(char) for char in line} & {"Cc", "Cf", "Zl", "Zp"}


# ---------------------------------------------------------------------------------- examples


@pytest.mark.parametrize(
    ("page", "examples"),
    [
        (
            "examples/marbles/API.md",
            ['Steer {"direction": [1, 0]}', 'Steer {"direction": [x, y]}', "Brake", "Wait"],
        ),
        ("examples/mujoco_carts/API.md", ['Push {"force": f}', "Wait"]),
        (
            "clawblox/cli/starter/API.md",
            ['Walk "north"', 'Walk "east"', 'Walk "south"', 'Walk "west"', "Wait"],
        ),
        (
            "examples/workshop/API.md",
            [
                'MoveTo {"position": [x, y, z]}',
                "Jump",
                "Stop",
                "Gather",
                'Craft {"item": "Plank"}',
                'Select {"block": "Brick"}',
                'Place {"position": [x, y, z], "block": "Brick"}',
                'Remove {"position": [x, y, z]}',
            ],
        ),
    ],
)
def test_the_inputs_of_the_worlds_in_the_repository_are_found(
    page: str, examples: list[str]
) -> None:
    assert [str(one) for one in find_examples((ROOT / page).read_text())] == examples


@pytest.mark.parametrize(
    ("text", "examples"),
    [
        ('```json\n{"type": "Jump"}\n```', ["Jump"]),
        ('```\ncurl -d \'{"type":"Say","data":{"text":"ä"}}\'\n```', ['Say {"text": "ä"}']),
        ('```sh\ncurl -d "{\\"type\\": \\"Go\\", \\"data\\": 3}"\n```', ["Go 3"]),
        ('~~~\n{"type": "Move",\n "data": {"to": [x,\n   <y>]}}\n', ['Move {"to": [x, <y>]}']),
        ('Send `{"type": "Hop"}` or `{"type": "Hop", "data": 1}`.', ["Hop 1"]),
        ('Send {"type": "Prose"} or {"type": "More", "data": 1}.', ["Prose", "More 1"]),
        ('```json\n{"entities": [{"type": "tree"}], "type": "x"}\n```', []),
        ('```json\n{"type": "tree", "position": [1, 2]}\n```', []),
        ('```json\n{"type": 3}\n{"type": "two words"}\n```', []),
        ("| type | data |\n|---|---|\n| `Up` | none |\n", ["Up"]),
        ("| name | data |\n|---|---|\n| `Up` | none |\n", []),
        ("| `Type` | Data |\n|---|---|\n| `Up` | `[1]`: a list; `x` is no data |\n", ["Up [1]"]),
        ("```json\n" + '{"a":' * 5000 + "}" * 5000 + "\n```", []),
        ('```json\n{{{{ {"type": "Late"}\n```', ["Late"]),
    ],
)
def test_inputs_are_found_in_documentation(text: str, examples: list[str]) -> None:
    assert [str(one) for one in find_examples(text)] == examples


PIECES = st.sampled_from(
    [
        "```",
        "~~~",
        "\n",
        "|",
        "`",
        '{"type": "A"',
        '"data":',
        "{",
        "}",
        "\\",
        '"',
        "| type | data |",
    ]
)


@given(st.text() | st.lists(PIECES | st.text(max_size=3)).map("".join))
def test_looking_for_inputs_never_fails(text: str) -> None:
    for found in find_examples(text):
        assert found.type
        assert "\n" not in str(found)


# --------------------------------------------------------------------------- paths and values


@given(st.text(max_size=4) | st.sampled_from(["\u3164", "a\u2028b", "\x7f"]))
def test_a_path_is_one_printable_line(name: str) -> None:
    for path in (add_key("a", name), add_id("a", name)):
        assert printable_name(path) == path


@given(values, st.data())
def test_every_part_of_a_value_is_found_by_its_path(value: Any, data: st.DataObject) -> None:
    path, part = "", value
    while isinstance(part, dict | list) and part and data.draw(st.booleans()):
        if isinstance(part, dict):
            key = data.draw(st.sampled_from(list(part)))
            path, part = add_key(path, key), part[key]
        else:
            index = data.draw(st.integers(0, len(part) - 1))
            path, part = add_index(path, index), part[index]
    assert find_value(value, path) is part


def test_an_object_in_a_list_is_found_by_its_id() -> None:
    world = {"entities": [{"id": "0"}, {"id": "marble-1", "x": 1}, {"id": "a b"}]}
    assert find_value(world, "world[entities]"[5:]) is world["entities"]
    assert find_value(world, "entities[marble-1].x") == 1
    assert find_value(world, add_id("entities", "0")) == {"id": "0"}
    assert find_value(world, add_id("entities", "a b")) == {"id": "a b"}
    assert find_value(world, "entities[-1]") == {"id": "a b"}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a.c", "a has no c\n  hint: it has: b"),
        ("x", "the observation has no x\n  hint: it has: a"),
        ("a.b[2]", "a.b has no [2]\n  hint: it has 2 items"),
        ("a.b[0].c", "a.b[0] has no c"),
        ("a.b[one]", "a.b has no [one]\n  hint: it has 2 items"),
        ("a..b", "'a..b' is not a path\n  hint: a path looks like world.entities[0].position"),
        ('a["b', "'a[\"b' is not a path\n  hint: a path looks like world.entities[0].position"),
    ],
)
def test_the_error_of_a_wrong_path_names_the_last_existing_part(path: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        find_value({"a": {"b": [1, 2]}}, path)
    assert str(error.value) == message


@given(st.text(max_size=12))
def test_path_parser_accepts_or_refuses_any_text(path: str) -> None:
    with contextlib.suppress(UsageError):
        find_value({"a": [1]}, path)


@given(values, st.integers(10, 100), st.booleans())
@example(value={"\x7f": {"": [None, None, None, None]}}, width=10, is_shortened=True)
def test_every_value_is_shown_without_control_characters(
    value: Any, width: int, is_shortened: bool
) -> None:
    lines = format_value(value, width=width, is_shortened=is_shortened)
    assert lines
    assert all(map(is_harmless, lines))


@pytest.mark.thorough
@given(values)
@example([{"a": 1, "": 2}, {"a": 3, "": 4}])
def test_colours_do_not_change_the_text(value: Any) -> None:
    painted = format_value(value, width=40, paint=lambda _kind, text: f"\0{text}\1")
    plain = [line.replace("\0", "").replace("\1", "") for line in painted]
    assert plain == format_value(value, width=40)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.1 + 0.2, "0.3"),
        (12.0, "12"),
        (-0.0, "0"),
        (-0.0004, "-0.0004"),
        (0.00012345, "0.000123"),
        (1234.56789, "1234.568"),
        (1e300, "1e+300"),
        (math.nan, "nan"),
        (100, "100"),
        (True, "true"),
    ],
)
def test_numbers_are_rounded_for_reading(number: float, text: str) -> None:
    assert format_inline(number) == text


MARBLES = [{"id": f"marble-{n}", "position": [n * 1.5, 9.25], "by": None} for n in range(11)]


def test_an_observation_is_shown_by_member_and_shortened() -> None:
    observation = {
        "tick": 3,
        "player": {"name": "Rocky", "position": [6.2, 7.900000001], "braking": False},
        "note": "x" * 300,
        "lidar": [n / 10 for n in range(200)],
        "world": {"entities": MARBLES, "size": [24.0, 14.0]},
        "empty": {},
    }
    assert format_value(observation, width=62) == [
        "tick: 3",
        'player: {name: "Rocky", position: [6.2, 7.9], braking: false}',
        f'note: "{"x" * 200}…" (300 characters)',
        "lidar: 200 items",
        "  0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2,",
        "  1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2, 2.1, 2.2, 2.3, 2.4,",
        "  2.5, 2.6, 2.7, 2.8, 2.9, 3, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6,",
        "  … and 163 more: show lidar",
        "world:",
        "  entities: 11 items",
        "    id        position      by",
        "    marble-0  [0, 9.25]     null",
        "    marble-1  [1.5, 9.25]   null",
        "    marble-2  [3, 9.25]     null",
        "    marble-3  [4.5, 9.25]   null",
        "    marble-4  [6, 9.25]     null",
        "    marble-5  [7.5, 9.25]   null",
        "    marble-6  [9, 9.25]     null",
        "    marble-7  [10.5, 9.25]  null",
        "    … and 3 more: show world.entities",
        "  size: [24, 14]",
        "empty: {}",
    ]


def test_show_prints_the_whole_observation() -> None:
    assert len(format_value(MARBLES, width=60, is_shortened=False)) == 12
    assert format_value("x" * 300, width=60, is_shortened=False) == [f'"{"x" * 300}"']


def test_objects_that_do_not_fit_a_table_are_broken_into_members() -> None:
    assert format_value(MARBLES, width=24)[:5] == [
        "[0]",
        '  id: "marble-0"',
        "  position: [0, 9.25]",
        "  by: null",
        "[1]",
    ]


# -------------------------------------------------------------------------------- differences


def apply(difference: ValueDifference, value: Any) -> Any:
    """Return a value with a difference applied to it."""
    if difference.path == "":
        if difference.is_order:
            value.sort(key=lambda item: difference.after.index(item["id"]))
            return value
        return difference.after
    parent, part = find_parent(value, difference.path)
    if difference.is_order:
        found = parent[part]
        found.sort(key=lambda item: difference.after.index(item["id"]))
    elif difference.after is ABSENT:
        del parent[part]
    elif isinstance(parent, list) and part == len(parent):
        parent.append(difference.after)
    else:
        parent[part] = difference.after
    return value


def find_parent(value: Any, path: str) -> tuple[Any, Any]:
    """Return the container of the place at a path, and its key or index there."""

    def search(one: Any, way: str) -> tuple[Any, Any] | None:
        places: list[tuple[Any, str]] = []
        if isinstance(one, dict):
            places = [(key, add_key(way, key)) for key in one]
            wanted = [key for key in new_keys if add_key(way, key) == path]
            places += [(key, path) for key in wanted if key not in one]
        elif isinstance(one, list):
            places = [(at, add_index(way, at)) for at in range(len(one) + 1)]
            places += [
                (at, add_id(way, item["id"]))
                for at, item in enumerate(one)
                if isinstance(item, dict) and isinstance(item.get("id"), str)
            ]
            places += [(len(one), add_id(way, name)) for name in new_ids]
        for part, place in places:
            if place == path:
                return one, part
        for part, place in places:
            inside = isinstance(one, dict) and part in one
            inside = inside or (isinstance(one, list) and part < len(one))
            if inside and path.startswith(place) and (found := search(one[part], place)):
                return found
        return None

    new_keys, new_ids = WANTED["keys"], WANTED["ids"]
    found = search(value, "")
    assert found is not None, path
    return found


WANTED: dict[str, list[str]] = {"keys": [], "ids": []}


def collect(value: Any) -> None:
    """Collect every key and id of a value, with which paths of new members may end."""
    if isinstance(value, dict):
        WANTED["keys"] += value
        WANTED["ids"] += [value["id"]] if isinstance(value.get("id"), str) else []
        for member in value.values():
            collect(member)
    elif isinstance(value, list):
        for item in value:
            collect(item)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """Draw two values that are mostly alike."""
    before = draw(values)
    if draw(st.booleans()):
        return before, draw(values)
    return before, mutate(draw, copy.deepcopy(before))


def mutate(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, list) and value and draw(st.booleans()):
        kind = draw(st.sampled_from(["inside", "remove", "append", "reverse"]))
        if kind == "inside":
            at = draw(st.integers(0, len(value) - 1))
            value[at] = mutate(draw, value[at])
        elif kind == "remove":
            del value[draw(st.integers(0, len(value) - 1))]
        elif kind == "append":
            value.append(draw(values))
        else:
            value.reverse()
        return value
    if isinstance(value, dict) and value and draw(st.booleans()):
        key = draw(st.sampled_from(list(value)))
        if draw(st.booleans()):
            value[key] = mutate(draw, value[key])
        else:
            del value[key]
        return value
    return draw(scalars)


@pytest.mark.thorough
@given(pairs())
def test_the_differences_transform_the_first_observation_into_the_second(
    pair: tuple[Any, Any],
) -> None:
    before, after = pair
    WANTED.update(keys=[], ids=[])
    collect(after)
    result = copy.deepcopy(before)
    for difference in find_differences(before, after):
        result = apply(difference, result)
    assert text_of(result) == text_of(after)


@given(pairs())
def test_differences_exist_exactly_for_unequal_values(pair: tuple[Any, Any]) -> None:
    before, after = pair
    assert find_differences(before, copy.deepcopy(before)) == []
    assert bool(find_differences(before, after)) == (text_of(before) != text_of(after))


@pytest.mark.thorough
@given(pairs())
@example(([], [{"id": "\x7f", "x": None}]))
def test_every_difference_is_a_printable_line(pair: tuple[Any, Any]) -> None:
    for difference in find_differences(*pair):
        assert is_harmless(format_difference(difference))


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (
            {"agent": {"position": [0, 0], "score": 1}},
            {"agent": {"position": [0.1, 0], "score": 1}},
            ["agent.position: [0, 0] -> [0.1, 0]"],
        ),
        ({"a": 1, "b": 2}, {"b": 2, "c": {"d": 1}}, ["a: gone", "c: new {d: 1}"]),
        ({"x": 0.1}, {"x": 0.1 + 1e-9}, ["x: 0.1 -> 0.100000001"]),
        ({"x": True}, {"x": 1}, ["x: true -> 1"]),
        (MARBLES[:3], MARBLES[1:4], ["[marble-0]: gone", "[marble-3]: new {id: …"]),
        (MARBLES[:2], MARBLES[1::-1], ['observation: order ["marble-1", "marble-0"]']),
        ([[0, 1], [2, 3]], [[0, 1], [2, 4]], ["[1]: [2, 3] -> [2, 4]"]),
        ([{"a": 1}], [{"a": 1}, {"a": 2}], ["[1]: new {a: 2}"]),
        (list(range(90)), [*range(89), 0], ["observation: 1 of 90 items changed"]),
        ("x" * 90, "x" * 89 + "y", ["observation: changed"]),
        (1, None, ["observation: 1 -> null"]),
    ],
)
def test_differences_are_short_to_read(before: Any, after: Any, lines: list[str]) -> None:
    found = [format_difference(one) for one in find_differences(before, after)]
    assert [
        line[: len(want) - 1] + "…" if want.endswith("…") else line
        for line, want in zip(found, lines, strict=True)
    ] == lines


# --------------------------------------------------------------------------------- typed lines


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", None),
        ("  # a comment", None),
        ("observe", PlayCommand("observe")),
        ("  quit ", PlayCommand("quit")),
        ('act Steer {"direction": [1, 0]}', PlayCommand("act", "Steer", {"direction": [1, 0]})),
        (
            'Steer {"direction": [1,0]}',
            PlayCommand("act", "Steer", {"direction": [1, 0]}, is_short=True),
        ),
        ("Walk north", PlayCommand("act", "Walk", "north", is_short=True)),
        ("Walk 3", PlayCommand("act", "Walk", 3, is_short=True)),
        ("Wait", PlayCommand("act", "Wait", is_short=True)),
        ("act say hello", PlayCommand("act", "say", "hello")),
        ("say  hello  there", PlayCommand("say", "hello  there")),
        ("show", PlayCommand("show")),
        ("show world.entities[0]", PlayCommand("show", "world.entities[0]")),
    ],
)
def test_typed_line_is_parsed_as_a_command(text: str, line: PlayCommand | None) -> None:
    assert parse_line(text) == line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("act", "act: must be followed by the type of an input"),
        ("say", "say: must be followed by a text"),
        ("quit now", "quit: must be typed alone, not with 'now'"),
        (
            'Steer {"direction": [1, 0}',
            """the data is not JSON: Expecting ',' delimiter after '{"direction": [1, 0'""",
        ),
        ("Walk two words", "the data is not JSON: Expecting value at its start"),
        ("Deep " + "[" * 100_000, "the data is nested too deeply"),
    ],
)
def test_the_error_of_a_wrong_line_names_the_mistake(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_line(text)
    assert error.value.message == message


@given(values)
def test_data_is_read_as_json(value: Any) -> None:
    assert text_of(parse_data(json.dumps(value))) == text_of(value)
