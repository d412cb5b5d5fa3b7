"""Places in a source file where one sign, factor, index or comparison can be changed, and the draw among them.

Found in the syntax tree, changed in the text: one token on one line, so that all other positions stay. Left out are
docstrings, annotations, messages, imports, defaults of arguments and fields, and sums and products of text or sequences.
Indices move by one to the inside, since JAX takes the nearest entry for one that lies outside.
"""

import ast
import bisect
import dataclasses
import hashlib
import io
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

KINDS = ("sign", "factor", "index", "comparison")
SIGNS = {ast.Add: ("+", "-"), ast.Sub: ("-", "+")}
FACTORS = {ast.Mult: ("*", "/"), ast.Div: ("/", "*")}
COMPARISONS = {
    ast.Lt: ("<", ">="),
    ast.LtE: ("<=", ">"),
    ast.Gt: (">", "<="),
    ast.GtE: (">=", "<"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}
RANGES = {"range", "arange"}
LARGEST_FACTOR = 1e3  # numbers beyond it, or under its reciprocal, are tolerances, not factors of a formula
SEQUENCES = (ast.List, ast.Tuple, ast.JoinedStr, ast.ListComp, ast.Dict, ast.Set)


@dataclasses.dataclass(frozen=True)
class Site:
    """One change: the token `old` at a line (from 1) and column (from 0, in characters) becomes `new`."""

    file: str  # relative to the root, with slashes
    line: int
    column: int
    kind: str
    old: str
    new: str
    before: str  # the line, stripped
    after: str
    span: tuple[int, int]  # lines of the statement, or of the header of a compound one
    repeat: int = 0  # how many equal changes of equal lines stand above it in the file

    def applied(self, source: str) -> str:
        """The whole text with this change."""
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1]
        end = self.column + len(self.old)
        if line[self.column : end] != self.old:
            raise ValueError(f"{self.file}:{self.line}: no {self.old!r} in column {self.column}; the file has changed")
        lines[self.line - 1] = line[: self.column] + self.new + line[end:]
        return "".join(lines)

    @property
    def key(self) -> str:
        """Name of the change, independent of the line number and stable as long as its line is unchanged."""
        return "\0".join((self.file, self.kind, self.before, self.after, str(self.repeat)))


class _Finder:
    """Walk through one file's syntax tree."""

    def __init__(self, file: str, source: str):
        self.file, self.lines = file, source.splitlines()
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        self.operators = [(t.start, t.string) for t in tokens if t.type == tokenize.OP]
        self.starts = [start for start, _ in self.operators]
        self.statement = (1, 1)
        self.found: list[Site] = []
        self.tree = ast.parse(source)

    def sites(self) -> list[Site]:
        for statement in self.tree.body:
            self.visit(statement, ())
        return self.found

    def at(self, line: int, column: int) -> tuple[int, int]:
        """A position of the syntax tree, whose columns count bytes, in characters."""
        return line, len(self.lines[line - 1].encode()[:column].decode())

    def add(self, kind: str, position: tuple[int, int], old: str, new: str) -> None:
        line, column = position
        text = self.lines[line - 1]
        after = (text[:column] + new + text[column + len(old) :]).strip()
        place = (self.file, line, column, kind, old, new, text.strip(), after)
        self.found.append(Site(*place, self.statement))

    def operator(self, kind: str, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """An operator between two operands, with brackets and line breaks around it."""
        first = self.at(left.end_lineno, left.end_col_offset)
        last = self.at(right.lineno, right.col_offset)
        for position, text in self.operators[bisect.bisect_left(self.starts, first) :]:
            if position >= last:
                return
            if text == old:
                return self.add(kind, position, old, new)

    def constant(self, kind: str, node: ast.expr) -> None:
        """A number, with its sign where it is an index."""
        negative = isinstance(node, ast.UnaryOp)
        number = node.operand if negative else node
        start = self.at(node.lineno, node.col_offset)
        end = self.at(node.end_lineno, node.end_col_offset)
        old = self.lines[start[0] - 1][start[1] : end[1]]
        value = -number.value if negative else number.value
        if kind == "index":
            self.add(kind, start, old, str(value - 1 if value > 0 or value == -1 else value + 1))
        elif isinstance(value, int):
            self.add(kind, start, old, str(value + 1))
        elif 1 / LARGEST_FACTOR <= abs(value) <= LARGEST_FACTOR:
            self.add(kind, start, old, repr(2 * value))

    def visit(self, node: ast.AST, parents: tuple[ast.AST, ...], indexing: bool = False) -> None:
        if isinstance(node, ast.stmt):
            self.statement = (node.lineno, node.end_lineno if not hasattr(node, "body") else node.lineno)
        handler = getattr(self, f"visit_{type(node).__name__}", None)
        if handler:
            handler(node, (*parents, node), indexing)
        else:
            self.children(node, (*parents, node), indexing and isinstance(node, ast.Tuple | ast.Slice))

    def children(self, node: ast.AST, parents: tuple[ast.AST, ...], indexing: bool = False) -> None:
        compound = isinstance(node, ast.stmt) and hasattr(node, "body")
        for child in ast.iter_child_nodes(node):
            if compound and isinstance(child, ast.expr):
                self.statement = (node.lineno, max(node.lineno, child.end_lineno))
            self.visit(child, parents, indexing)

    def visit_FunctionDef(self, node, parents, _):
        for statement in node.body:
            self.visit(statement, parents)

    def visit_Lambda(self, node, parents, _):
        self.visit(node.body, parents)

    def visit_Raise(self, *_):
        pass

    visit_JoinedStr = visit_Import = visit_ImportFrom = visit_Raise

    def visit_Assert(self, node, parents, _):
        self.visit(node.test, parents)

    def visit_Assign(self, node, parents, _):
        if not any(isinstance(target, ast.Name) and target.id.startswith("__") for target in node.targets):
            self.children(node, parents)

    def visit_AnnAssign(self, node, parents, _):
        field = len(parents) > 1 and isinstance(parents[-2], ast.ClassDef)
        if node.value is not None and not field:
            self.visit(node.value, parents)

    def visit_Call(self, node, parents, indexing):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name == "warn" or name.endswith(("Error", "Warning")):
            return
        self.visit(node.func, parents)
        for argument in node.args:
            self.visit(argument, parents, name in RANGES)
        for keyword in node.keywords:
            self.visit(keyword.value, parents)

    def visit_Subscript(self, node, parents, _):
        self.visit(node.value, parents)
        self.visit(node.slice, parents, True)

    def visit_Slice(self, node, parents, _):
        for bound in (node.lower, node.upper):
            if bound is not None:
                self.visit(bound, parents, True)
        if node.step is not None and not _integer(node.step):
            self.visit(node.step, parents)

    def visit_Constant(self, node, _, indexing):
        if indexing and _integer(node):
            self.constant("index", node)

    def visit_UnaryOp(self, node, parents, indexing):
        if indexing and _integer(node):
            return self.constant("index", node)
        if isinstance(node.op, ast.USub):
            self.add("sign", self.at(node.lineno, node.col_offset), "-", "")
        self.visit(node.operand, parents, indexing)

    def visit_BinOp(self, node, parents, indexing):
        operator = type(node.op)
        if not (_is_sequence(node.left) or _is_sequence(node.right)):
            if operator in SIGNS:
                self.operator("sign", node.left, node.right, *SIGNS[operator])
            if operator in FACTORS:
                self.operator("factor", node.left, node.right, *FACTORS[operator])
                for side in (node.left, node.right):
                    number = side.operand if isinstance(side, ast.UnaryOp) else side
                    if _number(number):
                        self.constant("factor", number)
            if operator is ast.Pow and _number(node.right):
                self.constant("factor", node.right)
        for side in (node.left, node.right):
            self.visit(side, parents, indexing and operator in SIGNS)

    def visit_AugAssign(self, node, parents, _):
        kind = "sign" if type(node.op) in SIGNS else "factor"
        symbols = (SIGNS | FACTORS).get(type(node.op))
        if symbols and not _is_sequence(node.value):
            self.operator(kind, node.target, node.value, *(f"{symbol}=" for symbol in symbols))
        self.children(node, parents)

    def visit_Compare(self, node, parents, _):
        operands = [node.left, *node.comparators]
        for operator, left, right in zip(node.ops, operands, operands[1:], strict=False):
            if type(operator) in COMPARISONS:
                self.operator("comparison", left, right, *COMPARISONS[type(operator)])
        self.children(node, parents)


def _number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _integer(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_sequence(node: ast.AST) -> bool:
    """True if an operand is obviously text or a sequence, which + and * concatenate."""
    if isinstance(node, ast.BinOp):
        return _is_sequence(node.left) or _is_sequence(node.right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("str", "tuple", "list")
    return isinstance(node, SEQUENCES) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def sites_of(file: str, source: str) -> list[Site]:
    """All places of one file."""
    found, counted = [], Counter()
    for site in sorted(_Finder(file, source).sites(), key=lambda site: (site.line, site.column)):
        found.append(dataclasses.replace(site, repeat=counted[site.key]))
        counted[site.key] += 1
    return found


def all_sites(root: Path, files: Iterable[Path]) -> Iterator[Site]:
    for path in files:
        yield from sites_of(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))


def draw(sites: Iterable[Site], count: int, seed: int) -> list[Site]:
    """A sample, every place as likely as any other: those whose digests come first.

    An edit of the sources thus leaves the rest of the sample as it was, and a larger one contains the smaller.
    """

    def place(site: Site) -> bytes:
        return hashlib.sha256(f"{seed}\0{site.key}".encode()).digest()

    return sorted(sites, key=place)[:count]
