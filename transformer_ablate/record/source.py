"""The source that a run was made by, as far as it decides the result."""

from __future__ import annotations

import ast
import functools
import hashlib
from pathlib import Path

# Recipes are not among them: what they say is part of a run's fingerprint.
DECIDING = (
    "core", "data", "training", "measures", "config.py", "registry.py", "options.py", "tokens.py", "run/worker.py",
)  # fmt: skip
# What stands in these rooms and no run comes by: theorems.
BESIDE = ("measures/exact",)
PACKAGE = Path(__file__).resolve().parent.parent


@functools.cache
def source_hash(package: Path = PACKAGE) -> str:
    """12 hex digits of all source that can change a run's result; comments, docstrings and help texts cannot.

    Args:
        package: folder of the library.
    """
    files = [file for name in DECIDING for file in [package / name, *(package / name).rglob("*.py")] if file.is_file()]
    digest = hashlib.sha256()
    for file in sorted(files):
        name = file.relative_to(package)
        if not any(name.is_relative_to(other) for other in BESIDE):
            code = ast.unparse(_Silent().visit(ast.parse(file.read_bytes())))
            digest.update(f"{name.as_posix()}\0{code}\0".encode())
    return digest.hexdigest()[:12]


class _Silent(ast.NodeTransformer):
    """Takes out what only tells: strings that stand by themselves, and the help texts of ``option``."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        told = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if told else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "option":
            del node.args[1:2]
            node.keywords = [word for word in node.keywords if word.arg != "help"]
        return self.generic_visit(node)
