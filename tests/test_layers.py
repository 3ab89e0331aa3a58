"""The layers point one way: cli -> experiments -> rllib -> bonuses -> encoders, entropy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "rllib_rise"
ALLOWED = {
    "entropy": set(),
    "encoders": set(),
    "envs": set(),
    "tabular": {"envs", "entropy"},
    "bonuses": {"encoders", "entropy"},
    "rllib": {"bonuses", "encoders", "entropy", "envs"},
    "experiments": {"rllib", "bonuses", "encoders", "entropy", "envs", "tabular"},
    "bench": {"experiments", "rllib", "bonuses", "encoders", "entropy", "envs"},
}
WITHOUT_RAY = ("entropy", "encoders", "envs", "tabular", "bonuses")


def imported_modules(path: Path) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return modules


LAYERED_FILES = [
    (layer, path) for layer in ALLOWED for path in sorted((PACKAGE / layer).rglob("*.py"))
]


def test_every_folder_of_the_package_is_a_known_layer():
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders <= set(ALLOWED)


@pytest.mark.parametrize(
    ("layer", "path"), LAYERED_FILES, ids=lambda v: v if isinstance(v, str) else v.name
)
def test_imports_point_downwards(layer: str, path: Path):
    layers = {
        module.split(".")[1]
        for module in imported_modules(path)
        if module.startswith("rllib_rise.")
    }
    assert layers - {layer, "errors", "__version__"} <= ALLOWED[layer]


@pytest.mark.parametrize("layer", [name for name in WITHOUT_RAY if (PACKAGE / name).exists()])
def test_lower_layers_import_without_ray(layer: str):
    code = f"import sys, rllib_rise.{layer}; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_package_itself_loads_nothing():
    code = "import sys, rllib_rise; sys.exit(bool({'ray', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
