"""What each key may take: answers at a time, requests and tokens in a minute."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from gateway.http.errors import RetryError
from gateway.limits import Limits

SECONDS = 60.0


class Bucket:
    """Fills with `per_minute` in a minute, up to that. What is taken may leave it in debt: the next
    one waits until it is paid."""

    def __init__(self, per_minute: int, now: float) -> None:
        self._most = float(per_minute)
        self._level = self._most
        self._filled = now

    def wait(self, now: float) -> float:
        """Seconds until something is in it."""
        self._fill(now)
        return max(0.0, (1.0 - self._level) * SECONDS / self._most)

    def take(self, count: int, now: float) -> None:
        self._fill(now)
        self._level -= count

    def resized(self, per_minute: int, now: float) -> Bucket:
        """With another size: a debt stays one, and what is in it as far as it fits."""
        self._fill(now)
        other = Bucket(per_minute, now)
        other._level = min(self._level, other._most)
        return other

    def _fill(self, now: float) -> None:
        added = (now - self._filled) * self._most / SECONDS
        self._level = min(self._most, self._level + added)
        self._filled = now


class Account:
    """What one key has taken."""

    def __init__(self, limits: Limits, now: float) -> None:
        self.running = 0
        self.requests = _bucket(limits.requests_per_minute, now)
        self.tokens = _bucket(limits.tokens_per_minute, now)


class Rates:
    """The accounts of all keys; requests without a key share one. `now` is in seconds."""

    def __init__(self, limits: Limits, now: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._now = now
        self._accounts: dict[str | None, Account] = {}

    def begin(self, owner: str | None, answers: int) -> None:
        """Count a request for so many answers.

        Raises `RetryError` (`rate_limit_exceeded`) where it must wait; it is not counted then.
        """
        account, now = self._account(owner), self._now()
        most = self._limits.requests
        if most is not None and account.running + answers > most:
            raise _refused(f"{account.running} of at most {most} answers at a time are running", 1)
        if account.requests is not None and (wait := account.requests.wait(now)):
            most = self._limits.requests_per_minute
            raise _refused(f"at most {most} requests a minute are taken", wait)
        if account.tokens is not None and (wait := account.tokens.wait(now)):
            most = self._limits.tokens_per_minute
            raise _refused(f"at most {most} tokens a minute are read and said", wait)
        if account.requests is not None:
            account.requests.take(1, now)

    def running(self, owner: str | None, change: int) -> None:
        """So many more answers run."""
        self._account(owner).running += change

    def charge(self, owner: str | None, tokens: int) -> None:
        """They are read or were said."""
        bucket = self._account(owner).tokens
        if bucket is not None:
            bucket.take(tokens, self._now())

    def use(self, limits: Limits) -> None:
        """Have these hold from now on; what was taken so far counts."""
        now = self._now()
        for account in self._accounts.values():
            account.requests = _changed(account.requests, limits.requests_per_minute, now)
            account.tokens = _changed(account.tokens, limits.tokens_per_minute, now)
        self._limits = limits

    def _account(self, owner: str | None) -> Account:
        account = self._accounts.get(owner)
        if account is None:
            account = self._accounts[owner] = Account(self._limits, self._now())
        return account


def _bucket(per_minute: int | None, now: float) -> Bucket | None:
    return None if per_minute is None else Bucket(per_minute, now)


def _changed(bucket: Bucket | None, per_minute: int | None, now: float) -> Bucket | None:
    if bucket is None or per_minute is None:
        return _bucket(per_minute, now)
    return bucket.resized(per_minute, now)


def _refused(problem: str, wait: float) -> RetryError:
    return RetryError(
        f"This key's limit is reached: {problem}. Try again in {max(1, math.ceil(wait))} s.",
        code="rate_limit_exceeded",
        retry_after=wait,
    )
