"""Random queries over the sample world: clauses, paths, predicates, joins and aggregates put together by chance.

`python -m tests.xquery.rules.random_queries N [SEED]` checks N queries and says which rules fired how often.
"""

from __future__ import annotations

import sys
from collections import Counter
from random import Random

from tests.xquery.rules.equivalence import check

SOURCES = ('collection("/ann")', 'collection("/joe")', 'doc("ann.xml")', 'doc("joe.xml")', "collection()")
FIELDS = ("title", "author", "year", "price", "@id", "@category", "title/@lang", "*", "node()", "nothing")
CONDITIONS = (
    "{b}/price", "{b}/year = 2005", '{b}/title eq "Harry Potter"', "{b}/price > 10", "not({b}/author)",
    'some $z in {b}/author satisfies $z eq "A"', "count({b}/author) gt 1", 'contains({b}/title[1], "r")',
    "{b}/@id = (1, 2, 9)", "exists({b}/title/@lang)", "{b}[year = 2005]/price", "string-length({b}/title) gt 5",
)  # fmt: skip
JOINS = (
    "{a}/title eq {b}/title", "{a}/title = {b}/title", "{a}/year = {b}/year", "{a}/year eq {b}/year",
    "{a}/@id = {b}/@id", "{a}/price < {b}/price", "{a}/author = {b}/author", "count({a}/author) = count({b}/author)",
)  # fmt: skip
VALUES = (
    "{b}/title", "{b}/@id", "({b}/title, {b}/year)", "count({b}/author)", "<b>{{{b}/title/text()}}</b>",
    "{b}/author/text()", "if ({b}/price) then {b}/price else 0", "{b}/year * 2", "string({b}/@category)",
    "({b}/author)[1]", "{b}",
    "{b}/number(price)", "for $q in {b}/author return concat($q, '!')", "{b}/author[2]", "{b}//text()",
    "{b}/author ! string(.)",
)  # fmt: skip
UPWARD = ("{b}/..", "{b}/../@open", "root({b})/*/name", "{b}/preceding-sibling::book/@id")
AGGREGATES = ("count", "sum", "avg", "max", "min")


class Maker:
    """Makes queries from one source of chance."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311  (queries, not secrets)
        self.names = 0
        self.shared = ""

    def one(self, choices: tuple[str, ...]) -> str:
        return self.random.choice(choices)

    def chance(self, of_ten: int) -> bool:
        return self.random.randrange(10) < of_ten

    def fresh(self) -> str:
        self.names += 1
        return f"$v{self.names}"

    def books(self) -> str:
        steps = self.one(("/bookstore/book", "/bookstore/book", "//book", "/bookstore/*", "/bookstore[@open]/book"))
        for _ in range(self.random.choice((0, 0, 0, 1, 2))):
            steps += (
                "[" + self.condition(".") + "]"
                if self.chance(7)
                else self.one(("[1]", "[last()]", "[position() gt 1]"))
            )
        return self.one(SOURCES) + steps

    def condition(self, node: str) -> str:
        return self.one(CONDITIONS).format(b=node)

    def value(self, node: str) -> str:
        if self.shared and self.chance(3):
            return self.one(("count({g})", "{g}/title", "{g}[1]/@id", "{g}")).format(g=self.shared)
        return self.one(UPWARD if self.chance(1) else VALUES).format(b=node)

    def query(self) -> str:
        """One query; some share a value between all their parts, declared before them or bound around them."""
        if not self.chance(3):
            return self.plain()
        self.shared = "$g"
        value = self.one(("doc('ann.xml')/bookstore/name", "collection('/joe')/bookstore/book", self.books(), "(1, 2)"))
        if self.chance(5):
            return f"declare variable $g := {value}; {self.plain()}"
        return f"let $g := {value} return {self.plain()}"

    def plain(self) -> str:
        kind = self.random.randrange(11)
        if kind == 10:
            return self.sections()
        if kind == 0:
            return f"{self.books()}/{self.one(FIELDS)}"
        if kind == 1:
            return f"{self.one(AGGREGATES)}({self.books()}/{self.one(('year', 'price', 'xs:integer(year)'))})"
        if kind == 2:
            return f"{self.one(AGGREGATES)}({self.numbers()}) {self.one(('', 'div 10', '+ 1'))}"
        if kind == 3:
            return f"<r>{{ {self.flwor()} }}</r>"
        if kind == 4:
            return f"({self.flwor()}){self.one(('[1]', '[2]', '[position() gt 1]', '/title', '/..'))}"
        return self.flwor()

    def sections(self) -> str:
        """Paths over sections that lie inside sections."""
        text = self.one(('collection("/nested")', 'doc("nested.xml")'))
        axes = (
            "/s",
            "//s",
            "/s",
            "/*",
            "//*",
            "/t",
            "//t",
            "/p/..",
            "/descendant-or-self::s",
            "/s/(t | p)",
            "/ancestor::s",
        )
        for _ in range(self.random.choice((1, 2, 2, 3, 3))):
            text += self.one(axes)
            text += self.one(("", "", "", "[t]", "[p = 'x']", "[1]", "[last()]", "[@n > 1]", "[position() lt 3][t]"))
        ending = self.one(("", "", "/@n", "/text()", "/string(.)", "/count(*)", " ! name()"))
        return self.one(
            ("{}", "{}", "count({})", "for $s in {} return ($s/@n, $s/t)", "let $s := {} return ($s/t, $s/..)")
        ).format(text + ending)

    def numbers(self) -> str:
        name = self.fresh()
        where = f"where {self.condition(name)} " if self.chance(5) else ""
        number = self.one(("{b}/year", "{b}/price * 2", "count({b}/author)")).format(b=name)
        return f"for {name} in {self.books()} {where}return {number}"

    def flwor(self) -> str:
        nodes, text = list[str](), ""
        for _ in range(self.random.choice((1, 1, 1, 2, 2, 3))):
            text += self.binding(nodes)
        conditions = [self.condition(self.random.choice(nodes)) for _ in range(self.random.choice((0, 1, 1, 2)))]
        if len(nodes) > 1:
            a, b = self.random.sample(nodes, 2)
            conditions += [self.one(JOINS).format(a=a, b=b) for _ in range(self.random.choice((0, 1, 1, 2)))]
        self.random.shuffle(conditions)
        if conditions:
            text += f"where {self.one((' and ', ' and ', ' or ')).join(f'({one})' for one in conditions)} "
        return text + self.ending(nodes)

    def binding(self, nodes: list[str]) -> str:
        name = self.fresh()
        if nodes and self.chance(2):
            other = self.random.choice(nodes)
            return f"let $l{name[2:]} := {other}/author for {name} in {other}/{self.one(('author', 'title', '*'))} "
        at = f" at $p{name[2:]}" if self.chance(1) else ""
        nodes.append(name)
        return f"for {name}{at} in {self.books()} "

    def ending(self, nodes: list[str]) -> str:
        node = self.random.choice(nodes)
        if self.chance(2):
            key = self.fresh()
            by = self.one(("{b}/year[1]", "count({b}/author)", "{b}/title[1]/@lang", "exists({b}/price)"))
            return f"group by {key} := {by.format(b=node)} order by string({key}) return ({key}, {self.grouped(node)})"
        order = (
            f"order by {self.one(('{b}/year[1]', 'string({b}/@id)', 'number({b}/price[1])')).format(b=node)} "
            if self.chance(3)
            else ""
        )
        if self.chance(1):
            return f"{order}return {Maker(self.random.randrange(10**9)).flwor()}"
        values = ", ".join(self.value(self.random.choice(nodes)) for _ in range(self.random.choice((1, 1, 2))))
        return f"{order}return ({values})"

    def grouped(self, node: str) -> str:
        if self.shared and self.chance(4):
            return self.value(node)
        return self.one(
            ("count({b})", "sum({b}/year)", "{b}/@id", "max({b}/price)", "{b}", "avg({b}/price)", "{b}[1]/title")
        ).format(b=node)


def main(count: int, seed: int) -> None:
    """Checks queries and prints how often each rule fired."""
    fired: Counter[str] = Counter()
    for number in range(seed, seed + count):
        fired.update(check(Maker(number).query()))
    print(f"{count} queries from seed {seed}: {dict(sorted(fired.items()))}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
