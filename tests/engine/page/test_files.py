"""The static files of the page are complete: all imports exist, and three.js is unchanged."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from urllib.parse import urljoin

import pytest

from clawblox.engine.page import PAGE_DIR
from docs.pictures import player

THREE = PAGE_DIR / "three"
MODULES = sorted(PAGE_DIR.rglob("*.js"))
OURS = [path for path in MODULES if THREE not in path.parents]
IMPORT = re.compile(
    r"""^(?:import|export|\}).*\bfrom ["']([^"']+)["']|\bimport\(["']([^"']+)["']\)""", re.MULTILINE
)
PUBLISHED = {
    # npm pack three@0.160.0, sha512 of the tarball 0cb53c95…
    "three.module.min.js": "3e690ac7d180b0aadf0891bea39eec643e29e2d3e75c99b18689518665f69ba6",
    "LICENSE": "852e0e8699169bf9f6fdc6bda3e682d078dcbc738b5d33e74df594721bff271d",
}


def import_map() -> dict[str, str]:
    html = (PAGE_DIR / "index.html").read_text()
    (text,) = re.findall(r'<script type="importmap">(.*?)</script>', html, re.DOTALL)
    imports: dict[str, str] = json.loads(text)["imports"]
    return imports


def resolve(specifier: str, importer: Path) -> Path:
    """Return the file that a browser would load."""
    if specifier.startswith("."):
        return (importer.parent / specifier).resolve()
    imports = import_map()
    best = max((key for key in imports if matches(specifier, key)), key=len)
    address = urljoin("/", imports[best] + specifier[len(best) :])
    return PAGE_DIR / address.removeprefix("/ui/")


def matches(specifier: str, key: str) -> bool:
    return specifier == key or (key.endswith("/") and specifier.startswith(key))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PAGE_DIR)))
def test_modules_of_the_page_import_only_existing_files(path: Path) -> None:
    for static, dynamic in IMPORT.findall(path.read_text()):
        assert resolve(static or dynamic, path).is_file()


@pytest.mark.parametrize(
    "address",
    [
        "three",
        "three/addons/loaders/GLTFLoader.js",
        "https://esm.sh/three@0.160.0",
        "https://esm.sh/three@0.160.0/examples/jsm/postprocessing/EffectComposer.js",
        "https://esm.sh/three@0.160.0/examples/jsm/postprocessing/RenderPass.js",
        "https://esm.sh/three@0.160.0/examples/jsm/postprocessing/UnrealBloomPass.js",
        "https://unpkg.com/three@0.160.0/build/three.module.js",
        "https://unpkg.com/three@0.160.0/examples/jsm/controls/OrbitControls.js",
    ],
)
def test_the_addresses_that_renderers_import_are_local_files(address: str) -> None:
    assert resolve(address, PAGE_DIR / "index.html").is_file()


def test_three_js_is_unchanged_and_has_its_licence() -> None:
    lines = (THREE / "SHA256SUMS").read_text().splitlines()
    digests = {name: digest for digest, name in (line.split("  ") for line in lines)}
    found = {str(path.relative_to(THREE)) for path in THREE.rglob("*") if path.is_file()}
    assert digests.keys() == found - {"SHA256SUMS"}
    for name, digest in digests.items():
        assert hashlib.sha256((THREE / name).read_bytes()).hexdigest() == digest, name
    assert PUBLISHED.items() <= digests.items()
    assert "MIT License" in (THREE / "LICENSE").read_text()


def test_page_contains_every_element_that_its_scripts_use() -> None:
    html = (PAGE_DIR / "index.html").read_text()
    ids = set(re.findall(r'\bid="([^"]+)"', html))
    code = "".join(path.read_text() for path in PAGE_DIR.glob("*.js"))
    looked_up = set(re.findall(r'\$\("([^"]+)"\)|setText\("([^"]+)"', code))
    assert {first or second for first, second in looked_up} <= ids
    assert len(ids) == len(re.findall(r'\bid="', html))


def test_page_files_do_not_load_from_other_hosts() -> None:
    texts = {path: path.read_text() for path in [*OURS, *PAGE_DIR.glob("*.css")]}
    for path, text in texts.items():
        assert not re.search(r"https?://(?!www\.w3\.org)[a-z]", text), path


def test_player_figure_equals_the_output_of_its_script() -> None:
    assert player.MODEL.read_bytes() == player.draw(), "python -m docs.pictures.player"
