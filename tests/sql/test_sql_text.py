"""Reading a query without Spark: conjunctions, blocks, FROM trees, names, replacements."""

from __future__ import annotations

import pytest

from dovetail.rewrite.blocks import (
    Block,
    Join,
    Node,
    Relation,
    alias_and_qualifiers,
    find_blocks,
    relation_tree,
    relations_of,
)
from dovetail.rewrite.names import Input, Names, Scope
from dovetail.rewrite.text import Patches, Source, conjuncts


def parts(text: str) -> list[str]:
    return [piece.text for piece in conjuncts(Source(text).whole())]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a < b", ["a < b"]),
        ("a < b and c > d AND e", ["a < b", "c > d", "e"]),
        ("(a < b and (c > d))", ["a < b", "c > d"]),
        ("a between 1 and 2 and b", ["a between 1 and 2", "b"]),
        ("x or y and z", ["x or y and z"]),
        ("(x or y) and z", ["x or y", "z"]),
        ("case when a and b then c end and d", ["case when a and b then c end", "d"]),
        ("s.end > r.start and r.end > s.start", ["s.end > r.start", "r.end > s.start"]),
        ("exists (select 1 from t where a and b) and c", ["exists (select 1 from t where a and b)", "c"]),
        ("(select max(x) and true from t)", ["(select max(x) and true from t)"]),
        ("(a, b) = (c, d) and 'x and y' = e", ["(a, b) = (c, d)", "'x and y' = e"]),
    ],
)
def test_conjuncts(text: str, expected: list[str]) -> None:
    assert parts(text) == expected


def block_texts(query: str) -> list[tuple[str | None, str | None]]:
    return [
        (block.relations.text if block.relations else None, block.where.text if block.where else None)
        for block in find_blocks(Source(query))
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select 1", [(None, None)]),
        ("select a from r join s on x where y group by z", [("r join s on x", "y")]),
        ("select extract(day from d), a is distinct from b from r", [("r", None)]),
        ("select a from r lateral view explode(x) e as w where y", [("r", "y")]),
        ("select * except (a) from r minus select * from s", [("r", None), ("s", None)]),
        (
            "select a from (select b from t where c) x where d in (select e from u) order by f",
            [("t", "c"), ("u", None), ("(select b from t where c) x", "d in (select e from u)")],
        ),
        (
            "with c as (select 1 from p), d (k) as (select 2 from q) select 3 from c, d limit 1",
            [("p", None), ("q", None), ("c, d", None)],
        ),
    ],
)
def test_blocks(query: str, expected: list[tuple[str | None, str | None]]) -> None:
    assert block_texts(query) == expected


def seen(block: Block) -> list[list[str]]:
    return [[piece.text.split()[0] for piece in visible.definitions] for visible in block.withs]


def test_what_a_block_sees_by_with() -> None:
    query = (
        "with a as (select 1 from t), b as (select 2 from a) "
        "select * from (with c as (select 3 from b) select 4 from c) x where y in (select 5 from b)"
    )
    inner_a, inner_b, inner_c, inner_4, inner_5, outer = find_blocks(Source(query))
    assert (seen(inner_a), seen(inner_b), seen(inner_c)) == ([], [["a"]], [["a", "b"]])
    assert (seen(inner_4), seen(inner_5), seen(outer)) == ([["a", "b"], ["c"]], [["a", "b"]], [["a", "b"]])


def test_blocks_inside_a_recursive_with_are_marked() -> None:
    query = "with recursive n as (select 1 as i union all select i + 1 from n) select * from n"
    assert [block.recursive for block in find_blocks(Source(query))] == [True, True, False]


def test_stars_of_a_block() -> None:
    query = "select *, count(*), struct(*), r.*, a * b, * except (c) from r where x in (select * from s)"
    inner, outer = find_blocks(Source(query))
    spans = [star.piece.span[0] for star in outer.stars()]
    assert spans == [query.index("*,"), query.index("*)", 25), query.index("* except")]
    assert [star.names is not None for star in outer.stars()] == [False, False, True]
    assert len(inner.stars()) == 1
    assert outer.shows_all()
    assert not find_blocks(Source("select count(*), 2 * a from r"))[0].shows_all()
    assert find_blocks(Source("select a from r natural join s"))[0].shows_all()


def shape(node: Node | None) -> object:
    if isinstance(node, Join):
        return shape(node.left), node.how, shape(node.right)
    return node.piece.text if isinstance(node, Relation) else None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("r", "r"),
        ("r, s", ("r", "inner", "s")),
        ("a, b join c on x", ("a", "inner", ("b", "inner", "c"))),
        ("a left outer join b on x full join c on y", (("a", "left", "b"), "full", "c")),
        ("a left semi join b on x", ("a", "left_semi", "b")),
        ("a anti join b on x", ("a", "left_anti", "b")),
        ("a right join (b cross join c) on x", ("a", "right", ("b", "inner", "c"))),
        (
            "(select 1 from p join q on z) t join db.u as v on left(v.n, 1) = 'x'",
            ("(select 1 from p join q on z) t", "inner", "db.u as v"),
        ),
        (
            "values (1), (2) as x(a), values (3), (4) y(b), t",
            (("values (1), (2) as x(a)", "inner", "values (3), (4) y(b)"), "inner", "t"),
        ),
        ("r join values 1, 2 as t(a) on x", ("r", "inner", "values 1, 2 as t(a)")),
        ("r pivot (sum(a) for b in (1, 2))", None),
    ],
)
def test_relation_tree(text: str, expected: object) -> None:
    assert shape(relation_tree(Source(text).whole())) == expected


@pytest.mark.parametrize(
    ("text", "alias", "longest"),
    [
        ("r", "r", ("r",)),
        ("r as x", "x", ("x",)),
        ("`a b`.`c.d`", "c.d", ("a b", "c.d")),
        ("cat.db.t", "t", ("cat", "db", "t")),
        ("(select 1 as a) y", "y", ("y",)),
        ("values (1, 2) as v(a, b)", "v", ("v",)),
        ("range(10) g", "g", ("g",)),
    ],
)
def test_alias_and_qualifiers(text: str, alias: str, longest: tuple[str, ...]) -> None:
    found, qualifiers = alias_and_qualifiers(relations_of(Relation(Source(text).whole(), False))[0])
    assert (found, qualifiers[-1]) == (alias, longest)


def test_a_relation_without_a_name() -> None:
    assert alias_and_qualifiers(Relation(Source("(select 1)").whole(), False)) == (None, ())


R = Input(0, "r", (("r",),), ("s", "start", "iv"), ("r__s", "r__start", "r__iv"))
S = Input(1, "s", (("s",), ("db", "s")), ("start", "x", "only"), ("s__start", "s__x", "s__only"))
SCOPE = Scope((R, S), str.lower)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("r.start", "`r__start`"),
        ("R.`START` + 1", "`r__start` + 1"),
        ("only", "`s__only`"),
        ("s.x", "`s__x`"),  # the input s comes before the column s of r with a field x
        ("r.s.x", "`r__s`.x"),
        ("db.s.start", "`s__start`"),
        ("iv.lo", "`r__iv`.lo"),
        ("exists(iv, only -> only > s.x)", "exists(`r__iv`, only -> only > `s__x`)"),
        ("r.start + interval 1 day", "`r__start` + interval 1 day"),
        ("cast(r.start as date) /* r.start */", "cast(`r__start` as date) /* r.start */"),
    ],
)
def test_names_are_resolved_as_spark_does(text: str, expected: str) -> None:
    term = SCOPE.term(text)
    assert term is not None
    assert term.sql == expected


@pytest.mark.parametrize("text", ["start", "t.start", "(select 1)", "count(*) over ()", "exists(iv, only -> ONLY > 1)"])
def test_what_cannot_be_moved(text: str) -> None:
    assert SCOPE.term(text) is None


def test_an_opaque_input_keeps_its_names() -> None:
    hidden = Input(2, "x", (("x",),), (), (), opaque=True)
    assert Scope((R, S, hidden), str.lower).term("x.y") is None
    assert Scope((R, S), str).term("R.start") is None  # case-sensitive session


def test_fresh_names() -> None:
    names = Names(["r__A"])
    assert [names.fresh("r__a"), names.fresh("r__a"), names.fresh("__dt_x"), names.fresh("__")] == [
        "r__a_2",
        "r__a_3",
        "dt_x",
        "q",
    ]


def test_patches_inside_a_patch_are_gone_and_braces_stay() -> None:
    patches = Patches("select '{a}' from (inner) where {b}")
    at = patches.text.index("inner")
    patches.add((at, at + 5), "{v}")
    assert patches.render((at - 1, at + 6)) == "({v})"
    assert patches.render().format(v="view") == "select '{a}' from (view) where {b}"
    patches.add((at - 1, at + 6), "other")
    assert patches.render().format() == "select '{a}' from other where {b}"
