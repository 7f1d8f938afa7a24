"""Parts of an expression that read data and are needed in any case, taken out of it.

`<r>{ for $x in collection(...) ... }</r>` has no form in the algebra, the FLWOR expression inside has: it becomes a
variable of the constructor, so that the plan, not the evaluator, reads the collection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dovetail.xml.algebra.tree_facts import free_variables
from dovetail.xml.syntax import tree
from dovetail.xml.syntax.names import QName

Reads = Callable[[tree.Expr], bool]


def pulled(node: tree.Expr, reads: Reads) -> tuple[tree.Expr, dict[QName, tree.Expr]]:
    """The expression with variables in place of such parts, and the parts by variable."""
    taken = _Taken(node, reads)
    return taken.without(node), taken.parts


class _Taken:
    def __init__(self, node: tree.Expr, reads: Reads) -> None:
        self.reads, self.parts = reads, dict[QName, tree.Expr]()
        self.used = {name.local for name in free_variables(node)}

    def part(self, node: tree.Expr) -> tree.Expr:
        """A variable for the part if it reads data, else the part itself."""
        if not self.reads(node):
            return node
        if isinstance(node, _AROUND):
            return self.without(node)
        number = len(self.parts) + 1
        while f"part{number}" in self.used:
            number += 1
        name = QName("", f"part{number}")
        self.used.add(name.local)
        self.parts[name] = node
        return tree.VariableRef(name)

    def mixed(self, items: tuple[str | tree.Expr, ...]) -> tuple[str | tree.Expr, ...]:
        return tuple(item if isinstance(item, str) else self.part(item) for item in items)

    def without(self, node: tree.Expr) -> tree.Expr:
        match node:
            case tree.DirectElement():
                attributes = tuple(replace(one, parts=self.mixed(one.parts)) for one in node.attributes)
                return replace(node, attributes=attributes, content=self.mixed(node.content))
            case tree.ComputedElement(content=tree.Expr() as content):
                return replace(node, content=self.part(content))
            case tree.ComputedDocument(content=tree.Expr() as content):
                return replace(node, content=self.part(content))
            case tree.ComputedAttribute(content=tree.Expr() as content):
                return replace(node, content=self.part(content))
            case tree.ComputedText(content=tree.Expr() as content):
                return replace(node, content=self.part(content))
            case tree.Filter(base):
                return replace(node, base=self.part(base))
            case tree.SimpleMap(left):
                return replace(node, left=self.part(left))
            case (
                tree.CastAs()
                | tree.CastableAs()
                | tree.InstanceOf()
                | tree.TreatAs()
                | tree.Typeswitch()
                | tree.Switch()
            ):
                return replace(node, operand=self.part(node.operand))
            case tree.If(condition):
                return replace(node, condition=self.part(condition))
            case tree.FunctionCall(_, arguments):
                return replace(node, arguments=tuple(self.part(one) for one in arguments))
            case tree.Sequence(items):
                return replace(node, items=tuple(self.part(one) for one in items))
        return node


_AROUND = (tree.DirectElement, tree.ComputedElement, tree.ComputedDocument, tree.ComputedAttribute, tree.ComputedText)
