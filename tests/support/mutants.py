"""Mutation testing of the core: how many small faults do the tests find that cover it?

``make mutation`` draws a sample of the mutants that cosmic-ray's operators make of the files below,
runs the tests that cover each file against each of its mutants, in a copy of the checkout, and
prints the share that was found, and the survivors as differences. In a mutant one operator, number,
condition, decorator, or exception is another one. Those that differ in annotations only are left out, as
nobody could tell them. The same seed draws the same sample of the same files.

    python -m tests.support.mutants --sample 100 --seed 1 --only memory
"""

from __future__ import annotations

import argparse
import ast
import difflib
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from tests.support.mutations import PACKAGE, ROOT, Server, copy_checkout

#: the files that are looked at, and the tests that cover each
COVERED: dict[str, tuple[str, ...]] = {
    "simulation/conditions.py": ("tests/simulation/test_conditions.py", "tests/simulation/test_timelines.py"),
    "agent/memory.py": ("tests/agent/test_memory_rows.py", "tests/agent/test_memory.py", "tests/agent/test_batch_learning.py"),
    "arsenai/design/methods/anova.py": ("tests/arsenai/analysis/test_executed_runs.py", "tests/arsenai/analysis/test_sensitivity_methods.py"),
    "simulation/body.py": ("tests/simulation/test_stories.py", "tests/simulation/test_bodies.py", "tests/runner/test_body_records.py"),
    "simulation/coordinator.py": ("tests/simulation/test_stories.py", "tests/simulation/test_timelines.py"),
    "store/query/many_runs.py": ("tests/store/test_across.py",),
    "store/query/runs.py": ("tests/store/test_store_query.py", "tests/store/test_store_bodies.py"),
} | {
    f"environment/replay/{name}.py": (
        "tests/environment/test_replay_pool.py",
        "tests/environment/test_replay_environments.py",
        "tests/environment/test_replay_checks.py",
        "tests/environment/test_replay_sources.py",
    )
    for name in ("environments", "pool", "sessions", "sources")
} | {
    f"arsenai/analysis/comparison/{name}.py": (
        "tests/arsenai/analysis/test_comparison.py",
        "tests/arsenai/analysis/test_comparison_statistics.py",
    )
    for name in ("aggregates", "compare", "pairs", "studentized")
}  # fmt: skip


class _Bare(ast.NodeTransformer):
    """Takes annotations away, which nobody evaluates here."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Name("Any")
        return self.generic_visit(node)


def _bare(text: str) -> str:
    return ast.dump(_Bare().visit(ast.parse(text)))


def flat_indices(file: str) -> list[tuple[str, int]]:
    """Return operators, and the numbers of the places in a file of the package where each can be applied."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    nodes = list(ast_nodes(get_ast((ROOT / PACKAGE / file).read_text(encoding="utf-8"))))
    found = []
    for name in sorted(operator_names()):
        kind = get_operator(name)
        if not kind.arguments():
            count = sum(1 for node in nodes for _ in kind().mutation_positions(node))
            found += [(name, place) for place in range(count)]
    return found


def mutant(file: str, operator: str, place: int) -> str | None:
    """Return the text of a mutant; ``None`` where it is no program, or differs in annotations only."""
    from cosmic_ray.mutating import MutationVisitor
    from cosmic_ray.plugins import get_operator

    text = (ROOT / PACKAGE / file).read_text(encoding="utf-8")
    mutated: str | None = MutationVisitor.mutate_code(text, get_operator(operator)(), place)
    try:
        return None if mutated is None or _bare(mutated) == _bare(text) else mutated
    except SyntaxError:
        # a star that is no operator
        return None


def sample(files: Sequence[str], count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield the files and texts of ``count`` mutants, fewer if there are not so many."""
    places = [(file, *place) for file in files for place in flat_indices(file)]
    random.Random(seed).shuffle(places)
    made = ((file, mutant(file, operator, place)) for file, operator, place in places)
    yield from islice(((file, text) for file, text in made if text is not None), count)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, default=150, help="how many mutants of all files (150)")
    parser.add_argument("--seed", type=int, default=1, help="what the sample is drawn with (1)")
    parser.add_argument("--only", default="", help="only files in whose name this occurs")
    parser.add_argument("--least", type=float, default=0.85, help="the share that must be found (0.85)")
    options = parser.parse_args(arguments)
    files = [file for file in COVERED if options.only in file]
    drawn = list(sample(files, options.sample, options.seed))
    found = {file: [0, 0] for file in files}
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_checkout(Path(folder))
        with Server(tree) as server:
            for file in files:
                sound = server.run(COVERED[file])
                if sound.outcome != "passed":
                    print(f"{file}: its tests are {sound.outcome}: {sound.why}")
                    return 2
            for file, text in sorted(drawn, key=lambda one: files.index(one[0])):
                outcome = server.run_with(file, text, COVERED[file]).outcome
                found[file][1] += 1
                if outcome != "passed":
                    found[file][0] += 1
                    continue
                before = (ROOT / PACKAGE / file).read_text(encoding="utf-8").splitlines()
                lines = list(difflib.unified_diff(before, text.splitlines(), file, file, lineterm="", n=0))
                print("\n".join(["survived:", *lines[2:]]), flush=True)
    for file, (killed, tried) in found.items():
        if tried:
            print(f"{file}: {killed} of {tried} found")
    killed, tried = (sum(numbers) for numbers in zip(*found.values(), strict=True))
    share = killed / tried if tried else 1.0
    print(f"{killed} of {tried} mutants were found ({share:.0%}); seed {options.seed}")
    return int(share < options.least)


if __name__ == "__main__":
    sys.exit(main())
