"""Random queries, answered by Dovetail and by SaxonC-HE: `python -m tests.xquery.conformance.random_queries N [SEED]`.

Answers must be equal; where one raises an error the other must, too, but the codes are not compared: a query with two
mistakes may show either of them. A division by zero that one of them never comes to is no difference either: the
standard lets a processor leave out what the answer does not need. Queries that Saxon itself fails on are passed over.
"""

from __future__ import annotations

import sys
from random import Random

from tests.xquery.conformance.suite import Answer, Saxon, ours

_NAMES = ("a", "b", "c", "d", "*", "node()", "text()")
_AXES = (
    "child", "child", "descendant", "descendant-or-self", "parent", "ancestor", "ancestor-or-self", "self",
    "following-sibling", "preceding-sibling", "following", "preceding",
)  # fmt: skip
_NUMBERS = ("0", "1", "2", "3", "-1", "7", "0.5", "2.50", "1e0", "2.5e0", "1e7", "-0.25")
_STRINGS = ('""', '"a"', '"abc"', '"b c"', '"2"', '"10"')


class Queries:
    """A source of random expressions; what a method is called says what its expressions give."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.variables: list[str] = []

    def query(self) -> str:
        return self.random.choice((self.items, self.items, self.flwor, self.nodes, self.element))(4)

    def items(self, depth: int) -> str:
        makers = (self.number, self.text, self.truth, self.nodes, self.sequence, self.flwor, self.values)
        return self.random.choice(makers)(depth)

    def sequence(self, depth: int) -> str:
        parts = [self.number(depth - 1) for _ in range(self.random.randint(0, 3))]
        return self.random.choice(("({})", "reverse(({}))", "distinct-values(({}))", "tail(({}))")).format(
            ", ".join(parts)
        )

    def values(self, depth: int) -> str:
        form = self.random.choice(("{0}/@n/string()", "{0}/name()", "{0} ! count(*)", "data({0}/@n)", "{0}/string()"))
        return form.format(f"({self.nodes(depth - 1)})")

    def number(self, depth: int) -> str:
        pick = self.random.random()
        if depth <= 0 or pick < 0.25:
            return self.random.choice(_NUMBERS)
        if pick < 0.6:
            op = self.random.choice(("+", "-", "*", "div", "idiv", "mod"))
            return f"({self.number(depth - 1)} {op} {self.number(depth - 1)})"
        if pick < 0.75:
            return f"{self.random.choice(('count', 'sum', 'max', 'min', 'avg'))}({self.atoms(depth - 1)})"
        if pick < 0.85:
            return f"{self.random.choice(('round', 'floor', 'ceiling', 'abs'))}({self.number(depth - 1)})"
        return f"string-length({self.text(depth - 1)})"

    def atoms(self, depth: int) -> str:
        return self.random.choice((self.sequence, lambda deep: f"({self.nodes(deep)})/@n"))(depth)

    def text(self, depth: int) -> str:
        pick = self.random.random()
        if depth <= 0 or pick < 0.3:
            return self.random.choice(_STRINGS)
        if pick < 0.5:
            return f"concat({self.text(depth - 1)}, {self.number(depth - 1)})"
        if pick < 0.7:
            return f"substring({self.text(depth - 1)}, {self.number(depth - 1)}, {self.number(depth - 1)})"
        if pick < 0.85:
            return f'string-join(({self.nodes(depth - 1)}) ! string(), "-")'
        return f"{self.random.choice(('upper-case', 'normalize-space', 'string'))}({self.text(depth - 1)})"

    def truth(self, depth: int) -> str:
        pick = self.random.random()
        if pick < 0.3:
            op = self.random.choice(("=", "!=", "<", ">=", "eq", "lt", "gt"))
            return f"{self.number(depth - 1)} {op} {self.number(depth - 1)}"
        if pick < 0.5:
            return f"({self.nodes(depth - 1)})/@n {self.random.choice(('=', '<', '!='))} {self.number(depth - 1)}"
        if pick < 0.65 and depth > 0:
            op = self.random.choice(("and", "or"))
            return f"({self.truth(depth - 1)}) {op} ({self.truth(depth - 1)})"
        if pick < 0.8 and depth > 0:
            kind = self.random.choice(("some", "every"))
            return f"{kind} $q in ({self.nodes(depth - 1)}) satisfies $q/@n > {self.random.randint(1, 8)}"
        return f"{self.random.choice(('exists', 'empty', 'not'))}({self.nodes(depth - 1)})"

    def nodes(self, depth: int) -> str:
        pick = self.random.random()
        if depth > 0 and pick < 0.15:
            op = self.random.choice(("union", "|", "intersect", "except"))
            return f"({self.nodes(depth - 1)} {op} {self.nodes(depth - 1)})"
        if depth > 0 and pick < 0.25:
            return f"({self.nodes(depth - 1)})[{self.predicate(depth - 1)}]"
        steps = "".join(self.step(depth) for _ in range(self.random.randint(1, 3)))
        variable = self.random.choice(self.variables) if self.variables and pick > 0.6 else 'doc("tree.xml")'
        return variable + steps

    def step(self, depth: int) -> str:
        slash = self.random.choice(("/", "/", "//"))
        axis = "" if self.random.random() < 0.5 else f"{self.random.choice(_AXES)}::"
        predicate = f"[{self.predicate(depth - 2)}]" if self.random.random() < 0.3 else ""
        return f"{slash}{axis}{self.random.choice(_NAMES)}{predicate}"

    def predicate(self, depth: int) -> str:
        simple = (
            "1",
            "2",
            "last()",
            "position() > 1",
            "@n > 3",
            "c",
            "not(*)",
            ". = 'x'",
            "position() mod 2 = 1",
            "@n",
        )
        return self.random.choice(simple) if depth <= 0 or self.random.random() < 0.7 else self.truth(depth - 1)

    def flwor(self, depth: int) -> str:
        if depth <= 0:
            return self.number(0)
        name = f"$v{len(self.variables)}"
        source = self.nodes(depth - 1)
        self.variables.append(name)
        where = f" where {self.truth(depth - 2)}" if self.random.random() < 0.4 else ""
        order = ""
        if self.random.random() < 0.4:
            direction = self.random.choice(("", " descending"))
            order = f" order by number({name}/@n){direction}, string({name})"
        result = self.random.choice((self.items, self.element, lambda _: f"{name}/@n/string()"))(depth - 2)
        self.variables.pop()
        return f"(for {name} in {source}{where}{order} return {result})"

    def element(self, depth: int) -> str:
        return f'<e k="{{{self.number(depth - 2)}}}">{{{self.items(depth - 1)}}}</e>'


def agree(saxon: Answer, found: Answer) -> bool:
    """Whether two answers are the same, or both errors."""
    if saxon.error and found.error:
        return True
    if saxon.error or found.error:
        return (saxon.error or found.error) == "FOAR0001" or not saxon.has_code
    return saxon == found


def disagreements(count: int, seed: int) -> list[str]:
    """Queries that the two answer differently."""
    saxon, random, wrong = Saxon(), Random(seed), []  # noqa: S311  (test data, no secret)
    for _ in range(count):
        query = Queries(random).query()
        reference, found = saxon.answer(query), ours(query)
        if not agree(reference, found):
            wrong.append(f"{query}\n  Saxon {reference}\n  ours  {found}")
    return wrong


if __name__ == "__main__":
    found = disagreements(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    print("\n\n".join(found[:25]))
    print(f"{len(found)} of {sys.argv[1]} differ")
    sys.exit(bool(found))
