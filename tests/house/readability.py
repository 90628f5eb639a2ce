"""Figures of how the code reads.

`python tests/house/readability.py [FILE OR FOLDER ...]` prints those that are too high.
"""

import ast
import io
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("orchestrator", "checkpoints", "approvals")

MOST_COMPLEX = 10
MOST_TOKENS_A_LINE = 9.0
VAGUE_NAMES = {
    "asked",
    "found",
    "given",
    "gone",
    "kept",
    "known",
    "left",
    "made",
    "more",
    "one",
    "said",
    "told",
    "wanted",
}

WRITTEN_BY_A_PROGRAM = {
    ROOT / "orchestrator" / "client" / "calls.py",
    ROOT / "orchestrator" / "client" / "types.py",
}
PRESCRIBED_NAMES = {"Command", "Config", "Meta"}

BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.match_case,
)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COUNTED_TOKENS = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)


@dataclass
class Figures:
    """Counts of one module, or of several added up."""

    code_lines: int = 0
    comment_lines: int = 0
    tokens: int = 0
    comprehensions: int = 0
    conditional_expressions: int = 0
    tuple_assignments: list[int] = field(default_factory=list)
    """Line numbers of `a, b = x, y`."""
    vague_names: list[tuple[int, str]] = field(default_factory=list)
    """(line number, name) of local names and private functions that say nothing."""
    complex_functions: list[tuple[int, str, int]] = field(default_factory=list)
    """(line number, name, complexity) of functions that are too complex."""

    @property
    def tokens_a_line(self) -> float:
        return self.tokens / max(1, self.code_lines)

    def per_thousand_lines(self, count: int) -> float:
        return 1000 * count / max(1, self.code_lines)


def source_files(*roots: Path) -> Iterator[Path]:
    """Yield the Python files below `roots` that people write."""
    for root in roots:
        if root.is_file():
            yield root
        for path in sorted(root.rglob("*.py")):
            if "migrations" not in path.parts and path not in WRITTEN_BY_A_PROGRAM:
                yield path


def figures_of(source: str) -> Figures:
    """Return the figures of one module's source text."""
    tree = ast.parse(source)
    figures = Figures()
    docstrings = _docstring_lines(tree)
    _count_lines(figures, source, docstrings)
    _count_tokens(figures, source, docstrings)
    _count_nodes(figures, tree)
    figures.vague_names = vague_names(tree)
    return figures


def total(parts: list[Figures]) -> Figures:
    """Return the sums of what can be added up."""
    whole = Figures()
    for part in parts:
        whole.code_lines += part.code_lines
        whole.comment_lines += part.comment_lines
        whole.tokens += part.tokens
        whole.comprehensions += part.comprehensions
        whole.conditional_expressions += part.conditional_expressions
        whole.tuple_assignments += part.tuple_assignments
        whole.vague_names += part.vague_names
        whole.complex_functions += part.complex_functions
    return whole


def complexity(function: ast.AST) -> int:
    """Return the number of ways through a function.

    That is 1, and 1 for each branch, loop, handler, comprehension, condition of a
    comprehension, `and` and `or`.
    """
    count = 1
    pending = list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        # A function inside has a complexity of its own; a lambda belongs to the function around it.
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, BRANCHES):
            count += 1
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        if isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        pending += ast.iter_child_nodes(node)
    return count


def _docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            match statement:
                case ast.Expr(value=ast.Constant(value=str())):
                    lines.update(
                        range(statement.lineno, (statement.end_lineno or 0) + 1)
                    )
    return lines


def _count_lines(figures: Figures, source: str, docstrings: set[int]) -> None:
    for number, line in enumerate(source.splitlines(), 1):
        if line.strip().startswith("#"):
            figures.comment_lines += 1
        elif line.strip() and number not in docstrings:
            figures.code_lines += 1


def _count_tokens(figures: Figures, source: str, docstrings: set[int]) -> None:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in COUNTED_TOKENS and token.start[0] not in docstrings:
            figures.tokens += 1


def _count_nodes(figures: Figures, tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, COMPREHENSIONS):
            figures.comprehensions += 1
        elif isinstance(node, ast.IfExp):
            figures.conditional_expressions += 1
        elif isinstance(node, FUNCTIONS):
            branches = complexity(node)
            if branches > MOST_COMPLEX:
                figures.complex_functions.append((node.lineno, node.name, branches))
        match node:
            case ast.Assign(targets=[ast.Tuple()], value=ast.Tuple()):
                figures.tuple_assignments.append(node.lineno)


def vague_names(tree: ast.Module) -> list[tuple[int, str]]:
    """Return where vague names are bound: (line number, name), in order.

    The variables of a comprehension that fits in one line may be called anything.
    """
    short_lived: set[ast.AST] = set()
    places = []
    for node in ast.walk(tree):
        if isinstance(node, COMPREHENSIONS) and node.lineno == node.end_lineno:
            for generator in node.generators:
                short_lived.update(ast.walk(generator.target))
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if node not in short_lived:
                bound = name
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                bound = name
            case ast.arg(arg=name):
                bound = name
            case _:
                continue
        if bound.strip("_") in VAGUE_NAMES:
            places.append((node.lineno, bound))
    return sorted(places)


def homonyms(sources: Iterable[str]) -> set[str]:
    """Return the class names that stand for several classes in `sources`.

    Frameworks prescribe the names `Meta`, `Config` and `Command`.
    """
    seen: set[str] = set()
    repeated: set[str] = set()
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.ClassDef) or node.name in PRESCRIBED_NAMES:
                continue
            if node.name in seen:
                repeated.add(node.name)
            seen.add(node.name)
    return repeated


def main(words: list[str]) -> None:
    roots = [Path(word) for word in words] or [ROOT / floor for floor in FLOORS]
    parts = []
    for path in source_files(*roots):
        figures = figures_of(path.read_text())
        parts.append(figures)
        if figures.tokens_a_line > MOST_TOKENS_A_LINE:
            print(f"{path}: {figures.tokens_a_line:.1f} tokens a line")
        for line, name, branches in figures.complex_functions:
            print(f"{path}:{line}: {name} has a complexity of {branches}")
        for line in figures.tuple_assignments:
            print(f"{path}:{line}: several assignments in one line")
        for line, name in figures.vague_names:
            print(f"{path}:{line}: the name {name} says nothing")
    whole = total(parts)
    print(
        f"{whole.code_lines} lines of code, {whole.tokens} tokens,"
        f" {whole.tokens_a_line:.2f} a line; per 1,000 lines"
        f" {whole.per_thousand_lines(whole.comprehensions):.0f} comprehensions (at most 21) and"
        f" {whole.per_thousand_lines(whole.conditional_expressions):.0f} conditional"
        " expressions (at most 10);"
        f" {whole.comment_lines} comments; {len(whole.complex_functions)} functions too complex,"
        f" {len(whole.vague_names)} vague names, {len(whole.tuple_assignments)} packed assignments"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
