"""The generator of the list of public enums."""

from __future__ import annotations

import re
from pathlib import Path

from docs.public_enums import FILE, read_source, render_file

DECLARATIONS = """
declare namespace Enum {
    export namespace Zoom {
        /**
         * A comment with a Value: 7;
         */
        export interface None extends globalThis.EnumItem {
            Name: "None";
            Value: 0;
            EnumType: typeof globalThis.Enum.Zoom;
        }
        export const None: None;
        /**
         * @deprecated renamed to None
         */
        export const Nothing: None;
        export interface Back extends globalThis.EnumItem {
            Name: "Back";
            Value: -1;
            EnumType: typeof globalThis.Enum.Zoom;
        }
        export const Back: Back;
        export function GetEnumItems(this: globalThis.Enum): Array<globalThis.Enum.Zoom>;
    }
    export type Zoom = Zoom.None | Zoom.Back;
    export namespace Material {
        export interface Jelly extends globalThis.EnumItem {
            Name: "Jelly";
            Value: 1;
        }
        export const Jelly: Jelly;
    }
    export namespace Ado {
        export interface Much extends globalThis.EnumItem {
            Name: "Much";
            Value: 3;
        }
        export const Much: Much;
    }
}
"""


def test_public_enums_list_has_the_items_of_all_other_enums(
    tmp_path: Path,
) -> None:
    generated = tmp_path / "include" / "generated"
    generated.mkdir(parents=True)
    (generated / "enums.d.ts").write_text(DECLARATIONS)
    (tmp_path / "package.json").write_text('{"name": "dump", "version": "1.2", "license": "MIT"}')
    *head, last, end = render_file(tmp_path).splitlines()
    assert [line[0] for line in head] == ["#", "#", "#"]
    assert head[1].endswith(" from dump 1.2 (npm, MIT).")
    assert [last, end] == ["Ado Much=3", "Zoom None=0 Back=-1 Nothing=None"]


def test_public_enums_list_equals_its_generated_form() -> None:
    assert re.fullmatch(r"@rbxts/types [\d.]+ \(npm, MIT\)", read_source())
    lines = FILE.read_text().splitlines()[3:]
    assert lines == sorted(lines)
    assert all(re.fullmatch(r"\w+( \w+=(-?\d+|\w+))+", line) for line in lines)
