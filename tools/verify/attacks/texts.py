"""The structure of generated texts, independent of names."""

from __future__ import annotations

import ast
import builtins
import json
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser

from compiler.ir.types import DType

DTYPES = frozenset(dtype.numpy.name for dtype in DType if dtype is not DType.TOKEN)


def shape_of_python(source: str) -> str:
    """The syntax tree of a module with names numbered in order of appearance, without texts.

    Equal for two sources that differ only in names and string literals. Raises SyntaxError.
    """
    tree = ast.parse(source)
    everywhere = frozenset(_bound(tree.body)) | frozenset(dir(builtins))
    return "\n".join(ast.dump(_Numbered(everywhere).visit(node)) for node in tree.body)


def _bound(body: Iterable[ast.stmt]) -> Iterator[str]:
    """The names that the statements of a module bind."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


class _Numbered(ast.NodeTransformer):
    """Replaces every name by the number of its first appearance, and empties texts."""

    def __init__(self, everywhere: frozenset[str]) -> None:
        self.everywhere = everywhere
        self.known: dict[str, str] = {}

    def number(self, name: str) -> str:
        if name in self.everywhere:
            return name
        return self.known.setdefault(name, f"name{len(self.known)}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.number(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self.number(node.arg)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.number(node.name)
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        node.arg = None if node.arg is None else self.number(node.arg)
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and node.value not in DTYPES:
            node.value = ""
        return node


_DOT = re.compile(r'"(?:[^"\\]|\\.)*"|[A-Za-z0-9_.]+|->|[{}\[\];=,]|\s+', re.DOTALL)


def shape_of_dot(text: str) -> list[str]:
    """The tokens of a drawing with `""` for every quoted text; ValueError for any other token."""
    tokens: list[str] = []
    place = 0
    while place < len(text):
        match = _DOT.match(text, place)
        if match is None:
            raise ValueError(f"no token of DOT at {text[place : place + 30]!r}")
        place = match.end()
        token = '""' if match[0].startswith('"') else match[0]
        tokens += [token] if token.strip() else []
    return tokens


class _Elements(HTMLParser):
    """The elements of a page with their attributes, and the texts of its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[object] = []
        self.scripts: list[str] = []
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, attrs))
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.found.append(f"/{tag}")
        self._in_script = False

    def handle_comment(self, data: str) -> None:
        self.found.append(f"<!--{data}")

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data


def shape_of_html(page: str) -> list[object]:
    """The elements of a page in order; ValueError if its data is not JSON."""
    reader = _Elements()
    reader.feed(page)
    reader.close()
    for script in reader.scripts[:-1]:
        json.loads(script)
    return reader.found
