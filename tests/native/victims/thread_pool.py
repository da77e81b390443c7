"""A pool of threads: some idle, some at work, a queue between them, a timer and locks."""

import queue
import threading
from concurrent.futures import ThreadPoolExecutor

from victim import expect, go, ok, ready

pool = ThreadPoolExecutor(6)
jobs: "queue.Queue[int]" = queue.Queue()
gate = threading.Event()
barrier = threading.Barrier(4)


def job(n: int) -> int:
    gate.wait()
    barrier.wait()
    return n * n + jobs.get()


for future in [pool.submit(pow, n, 2) for n in range(50)]:
    future.result()
futures = [pool.submit(job, n) for n in range(4)]
late = threading.Timer(600, lambda: None)
late.daemon = True
late.start()
lock = threading.RLock()
lock.acquire()
lock.acquire()
ready()
go()
expect(threading.active_count() >= 6, f"{threading.active_count()} threads")
gate.set()
for _ in range(4):
    jobs.put(100)
expect(sorted(future.result(20) for future in futures) == [100, 101, 104, 109], "results")
expect(pool.submit(sum, [1, 2, 3]).result(20) == 6, "another job")
lock.release()
lock.release()
expect(not lock._is_owned(), "the lock")
late.cancel()
pool.shutdown()
ok()
