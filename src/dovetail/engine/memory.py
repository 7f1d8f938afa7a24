"""Counts memory: budgets in bytes, shared by named components that reserve before they allocate."""

from __future__ import annotations

import re
import threading
from decimal import Decimal

from dovetail.errors import BudgetExceeded, PlanError

_POWERS = {None: 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgtp])i?)?b?\s*", re.IGNORECASE)
_LARGEST = 2**63 - 1


def parse_bytes(value: int | str, argument: str = "memory") -> int:
    """Bytes meant by an int or by text such as "64MB", "64m", "64 MiB" or "1.5 GiB".

    Units are powers of 1024, as in Spark. Anything that is not a size, and any size below one byte, is a `PlanError`.

    >>> parse_bytes("1.5 KiB")
    1536
    """
    size = _bytes_in_text(value) if isinstance(value, str) else _bytes_in_number(value)
    if size is None:
        raise PlanError(
            f'{argument}={value!r} is not a size; write bytes as an int, or text such as "64MB" or "1.5 GiB".',
            argument=argument,
        )
    if not 1 <= size <= _LARGEST:
        raise PlanError(
            f"{argument}={str(value)[:40]} is out of range; it must be from 1 byte to 2^63-1 bytes.", argument=argument
        )
    return size


def _bytes_in_text(text: str) -> int | None:
    match = _SIZE.fullmatch(text)
    return None if match is None else int(Decimal(match[1]) * 1024 ** _POWERS[match[2] and match[2].lower()])


def _bytes_in_number(value: object) -> int | None:
    return None if isinstance(value, bool) or not hasattr(value, "__index__") else int(value.__index__())


def format_bytes(n: int) -> str:
    """A size for people: the largest unit that keeps it at or above one, with at most one decimal.

    >>> format_bytes(1536), format_bytes(64 * 2**20)
    ('1.5 KiB', '64 MiB')
    """
    size, unit = float(n), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(size) < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f}".removesuffix(".0") + f" {unit}"


class _Account:
    """Bytes held now and at most, of one component name."""

    __slots__ = ("current", "peak")

    def __init__(self) -> None:
        self.current = self.peak = 0

    def move(self, n: int) -> None:
        self.current += n
        self.peak = max(self.peak, self.current)


class MemoryBudget:
    """A limit in bytes that named components share; a request beyond it fails and changes nothing.

    `peak` is the largest total ever held, so that `peak <= limit` always. Children draw on their parents: a child's
    bytes count in every budget above it, and a child may have a smaller limit of its own. Safe from several threads.

    >>> budget = MemoryBudget("1 KiB")
    >>> table = budget.reserve("hash table")
    >>> table.grow(1000); budget.available
    24
    """

    def __init__(self, limit: int | str, name: str = "budget") -> None:
        self.name = name
        self.limit = parse_bytes(limit)
        self._own = _Account()
        self._accounts: dict[str, _Account] = {}
        self._at_peak: dict[str, int] | None = {}  # None: the peak is now
        self._prefix = ""
        self._parent: MemoryBudget | None = None
        self._lock = threading.RLock()

    @property
    def used(self) -> int:
        """Bytes reserved now, those of children included."""
        return self._own.current

    @property
    def peak(self) -> int:
        """The largest number of bytes that was ever reserved at once."""
        return self._own.peak

    @property
    def available(self) -> int:
        """Bytes that could be reserved now, here and in every budget above."""
        here = self.limit - self._own.current
        return here if self._parent is None else min(here, self._parent.available)

    @property
    def root(self) -> MemoryBudget:
        """The outermost budget, which the user gave."""
        return self if self._parent is None else self._parent.root

    def child(self, name: str, limit: int | str | None = None) -> MemoryBudget:
        """A budget inside this one, limited to `limit` (default: to all of this one) and to what this one has left."""
        child = MemoryBudget(self.limit if limit is None else limit, name)
        if child.limit > self.limit:
            raise PlanError(
                f"memory for {name!r} is {format_bytes(child.limit)}, more than the {format_bytes(self.limit)} of "
                f"{self.name!r} that contains it; give {name!r} at most that."
            )
        child._parent, child._lock = self, self._lock
        child._accounts, child._prefix = self._accounts, f"{self._prefix}{name}/"
        return child

    def raise_limit(self, limit: int) -> None:
        """Allow as many bytes as this, if that is more; budgets above keep their limits."""
        with self._lock:
            self.limit = max(self.limit, limit)

    def reserve(self, name: str) -> Reservation:
        """An empty reservation for the component `name`; reservations of one name are reported together."""
        with self._lock:
            return Reservation(self, name, self._accounts.setdefault(self._prefix + name, _Account()))

    def components(self) -> dict[str, tuple[int, int]]:
        """Current and peak bytes by component, closed ones included; those of a child budget as "child/component"."""
        with self._lock:
            inside = {name: a for name, a in self._accounts.items() if name.startswith(self._prefix)}
            return {name.removeprefix(self._prefix): (a.current, a.peak) for name, a in inside.items()}

    def at_peak(self) -> dict[str, int]:
        """Bytes by component when the most were held at once: they add up to `peak`."""
        with self._lock:
            return self._held() if self._at_peak is None else dict(self._at_peak)

    def _held(self) -> dict[str, int]:
        return {name: current for name, (current, _) in self.components().items() if current}

    def _take(self, n: int, account: _Account) -> bool:
        with self._lock:
            if n > self.available:
                return False
            self._move(n)
            account.move(n)
            return True

    def _give(self, n: int, account: _Account) -> None:
        with self._lock:
            self._move(-n)
            account.move(-n)

    def _move(self, n: int) -> None:
        """Count `n` bytes here and above; called before the component's account changes, to keep the peak."""
        if n < 0 and self._at_peak is None:
            self._at_peak = self._held()
        elif self._own.current + n > self._own.peak:
            self._at_peak = None
        self._own.move(n)
        if self._parent is not None:
            self._parent._move(n)

    def __repr__(self) -> str:
        return f"MemoryBudget({self.name}: {self.used} of {self.limit} bytes, peak {self.peak})"


class Reservation:
    """The bytes that one component holds of a budget. Closing gives them all back; closing twice is harmless."""

    def __init__(self, budget: MemoryBudget, name: str, account: _Account) -> None:
        self.budget, self.name = budget, name
        self._account, self._own = account, _Account()

    @property
    def used(self) -> int:
        """Bytes held now."""
        return self._own.current

    @property
    def peak(self) -> int:
        """The most bytes this reservation ever held."""
        return self._own.peak

    def try_grow(self, n: int) -> bool:
        """Whether `n` more bytes were reserved; when not, nothing changed and the component should spill."""
        _check_amount(n)
        with self.budget._lock:
            taken = self.budget._take(n, self._account)
            if taken:
                self._own.move(n)
            return taken

    def grow(self, n: int) -> None:
        """Reserve `n` more bytes or raise `BudgetExceeded`, leaving everything as it was."""
        if not self.try_grow(n):
            raise BudgetExceeded(self._refusal(n))

    def shrink(self, n: int) -> None:
        """Release `n` of the held bytes."""
        _check_amount(n)
        with self.budget._lock:
            if n > self.used:
                raise ValueError(f"component {self.name!r} gives back {n} bytes but holds only {self.used}.")
            self.budget._give(n, self._account)
            self._own.move(-n)

    def resize(self, n: int) -> None:
        """Hold exactly `n` bytes; raises `BudgetExceeded` when growing that far is impossible."""
        _check_amount(n)
        with self.budget._lock:
            if n >= self.used:
                self.grow(n - self.used)
            else:
                self.shrink(self.used - n)

    def close(self) -> None:
        """Release all bytes."""
        self.resize(0)

    def _refusal(self, n: int) -> str:
        budget = self.budget
        whole = budget.root
        more = max(1.0, (budget.limit - budget.available + n) / budget.limit)  # all shares grow with the whole
        return (
            f"component {self.name!r} asked for {format_bytes(n)} ({n} bytes) more, but {budget.name!r} has "
            f"{format_bytes(budget.available)} ({budget.available} bytes) available of its limit of "
            f"{format_bytes(budget.limit)}, and this component cannot spill; give the join more memory "
            f'(for example memory="{suggestion(int(whole.limit * max(2.0, more)))}"), or smaller batches.'
        )

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Reservation({self.name}: {self.used} bytes, peak {self.peak})"


def _check_amount(n: int) -> None:
    if n < 0:
        raise ValueError(f"an amount of memory must be 0 bytes or more, not {n}.")


def suggestion(wanted: int) -> str:
    """A power of two of at least `wanted` bytes, as users write it.

    >>> suggestion(3 << 20)
    '4MB'
    """
    power = 1 << max(wanted - 1, 1).bit_length()
    for shift, unit in ((30, "GB"), (20, "MB"), (10, "KB")):
        if power >= 1 << shift:
            return f"{power >> shift}{unit}"
    return f"{power}B"
