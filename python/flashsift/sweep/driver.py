"""Runs the tasks of a sweep on Dask, and survives the loss of workers and of the scheduler."""

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import dask
import distributed
from distributed import Client, LocalCluster
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker

from .plan import Batch

# Errors that the loss of a scheduler shows as.
LOST = (CommClosedError, OSError, asyncio.TimeoutError, TimeoutError, CancelledError)
POLL_S = 0.5
# A task that lost its worker this often runs alone, and after as many more is given up.
TRIES = 3
LONGER = 4
NEARLY_FULL = 0.8


class Workers:
    """A connection to a cluster, or a cluster of this machine's cores."""

    def __init__(
        self, scheduler: str | None, workers: int | None, memory: str, reconnect_s: float,
        note: Callable[..., None],
    ) -> None:
        self.scheduler = scheduler
        self.reconnect_s = reconnect_s
        self.note = note
        self.seen: dict[str, tuple[int, int]] = {}
        # Names of the present scheduler, and of the one before.
        self.identity = self.known = ""
        dask.config.set({"distributed.scheduler.worker-saturation": 1.0})
        self.cluster: LocalCluster | None = None
        if scheduler is None:
            quiet = logging.getLogger("distributed")
            quiet.setLevel(logging.CRITICAL)
            self.cluster = LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, memory_limit=memory,
                dashboard_address=":0", silence_logs=logging.CRITICAL,
            )
        self.client = self.connect()

    def connect(self) -> Client:
        """Connects, and waits for a scheduler that is being restarted."""
        end = time.monotonic() + self.reconnect_s
        while True:
            try:
                client = Client(self.cluster or self.scheduler, timeout=5, set_as_default=True)
                client.wait_for_workers(1, timeout=max(5, end - time.monotonic()))
                return client
            except LOST as error:
                if time.monotonic() > end:
                    raise ConnectionError(
                        f"no scheduler with a worker at {self.scheduler}: {error}"
                    ) from error
                time.sleep(POLL_S)

    def reconnect(self) -> None:
        self.note("scheduler lost", scheduler=self.scheduler)
        print("flashsift: warning: the scheduler is lost; waiting for it", file=sys.stderr)
        with contextlib.suppress(*LOST):
            self.client.close(timeout=2)
        self.seen = {}
        self.client = self.connect()
        self.identity = self.known = ""
        self.note("scheduler found", scheduler=self.scheduler)

    def info(self) -> dict[str, Any]:
        """Returns the workers, by address."""
        # Without limit: newer versions show five workers by default.
        try:
            info = self.client.scheduler_info(n_workers=-1)
        except TypeError:
            info = self.client.scheduler_info()
        workers: dict[str, Any] = info["workers"]
        self.identity = str(info.get("id", ""))
        self.known = self.known or self.identity
        return workers

    def watch(self, running: dict[str, Batch]) -> None:
        """Names workers that are gone since the last look, with what they probably ran."""
        now = {}
        workers = self.info()
        if self.identity not in ("", self.known):
            # The client has connected to it again by itself.
            self.note("scheduler restarted", scheduler=self.scheduler)
            print("flashsift: warning: the scheduler has been restarted", file=sys.stderr)
            self.seen = {}
        self.known = self.identity
        for address, worker in workers.items():
            memory = worker.get("metrics", {}).get("memory", 0)
            now[address] = (memory, worker.get("memory_limit") or 0)
        for address, (memory, limit) in self.seen.items():
            if address not in now:
                full = bool(limit) and memory > NEARLY_FULL * limit
                why = "out of memory" if full else "ended or unreachable"
                names = sorted(batch.names for batch in running.values())
                self.note("worker lost", worker=address, why=why, running=names)
                print(f"flashsift: warning: worker {address} is lost: {why}", file=sys.stderr)
        self.seen = now

    def memory_bytes(self) -> int:
        """Returns the memory limit of the smallest worker; 0 without limits."""
        limits = [worker.get("memory_limit") or 0 for worker in self.info().values()]
        return min((int(limit) for limit in limits if limit), default=0)

    def threads(self) -> int:
        return max(1, sum(int(worker.get("nthreads", 1)) for worker in self.info().values()))

    def restart(self, key: str, batch: Batch) -> None:
        """Restarts the worker that hangs in a task."""
        processing = self.client.processing()
        for address, keys in processing.items():
            if key in [str(one) for one in keys]:
                self.note("worker hangs", worker=address, running=[batch.names])
                print(
                    f"flashsift: warning: worker {address} hangs in {batch.names}: it is restarted",
                    file=sys.stderr,
                )
                # A worker that does not answer is killed by its nanny.
                with contextlib.suppress(Exception):
                    self.client.restart_workers([address], timeout=5, raise_for_error=False)

    def close(self) -> None:
        with contextlib.suppress(*LOST):
            self.client.close(timeout=2)
        if self.cluster is not None:
            # A nanny alone gives its worker 9 s.
            with contextlib.suppress(*LOST):
                self.cluster.close(timeout=60)


def run(
    workers: Workers, batches: list[Batch], function: Callable[..., Any],
    arguments: Callable[[Batch], tuple[Any, ...]], limit_s: Callable[[Batch], float],
) -> Iterator[tuple[Batch, Any]]:
    """Runs each batch, and yields its result. A batch that fails for good yields an exception.

    As many tasks are in flight as there are threads, so a task that is in flight is running.
    """
    waiting = sorted(batches, key=lambda batch: batch.seconds)
    running: dict[Any, tuple[Batch, float]] = {}
    attempt = 0
    while waiting or running:
        try:
            while waiting and len(running) < workers.threads():
                batch = waiting.pop()
                attempt += 1
                # A key of its own for each attempt: an old result is never taken for a new one.
                future = workers.client.submit(
                    function, *arguments(batch), pure=False, key=f"flashsift-{id(batch)}-{attempt}",
                )
                running[future] = (batch, time.monotonic())
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError, CancelledError):
                distributed.wait(list(running), timeout=POLL_S, return_when="FIRST_COMPLETED")
            if workers.client.status != "running":
                raise CommClosedError(f"the client is {workers.client.status}")
            for future in [future for future in running if future.status != "pending"]:
                batch, _ = running.pop(future)
                if future.status == "finished":
                    yield batch, future.result()
                elif future.status == "error":
                    error = future.exception()
                    if isinstance(error, KilledWorker):
                        yield from again(workers, batch, waiting, error)
                    else:
                        yield batch, error
                else:
                    waiting.append(batch)
            now = time.monotonic()
            for future, (batch, began) in list(running.items()):
                # A machine that is slow for a while has more time at each try.
                if now - began > limit_s(batch) * LONGER**batch.tries:
                    workers.restart(future.key, batch)
                    del running[future]
                    future.cancel(force=True)
                    yield from again(workers, batch, waiting, TimeoutError("it hangs"))
            workers.watch({str(future.key): batch for future, (batch, _) in running.items()})
        except LOST:
            waiting += [batch for batch, _ in running.values()]
            running = {}
            workers.reconnect()


def again(
    workers: Workers, batch: Batch, waiting: list[Batch], error: Exception
) -> Iterator[tuple[Batch, Any]]:
    """Tries a batch again: each comparison alone, so that one that kills workers is found."""
    batch.tries += 1
    if len(batch.items) > 1:
        waiting += [Batch([item], batch.number, batch.tries) for item in batch.items]
    elif batch.tries < TRIES:
        waiting.append(batch)
    else:
        workers.note("given up", running=[batch.names], why=str(error))
        yield batch, error
